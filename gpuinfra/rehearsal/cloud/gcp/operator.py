"""The permissions that Google asks for an operation, by the same table as the roles that are printed; a role holds for the whole project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.permissions import ACTIONS, FUNCTIONS
from gpuinfra.rehearsal.cloud.aws.policy import Ask
from gpuinfra.rehearsal.cloud.core import ids, wire
from gpuinfra.rehearsal.cloud.core.errors import CloudError, GoogleError
from gpuinfra.rehearsal.cloud.core.operations import asked, named
from gpuinfra.rehearsal.cloud.gcp import tokens

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

OPERATOR = f"serviceAccount:{tokens.OPERATOR}"

_COMPUTE = {
    ("instanceGroupManagers", ""): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listManagedInstances"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listErrors"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "resizeRequests"): "compute.instanceGroupManagers.get",
    ("instances", "serialPort"): "compute.instances.getSerialPortOutput",
}
"""Collection and method of a request to Compute Engine -> its permission. The methods' own pages, read 2026-11-21."""


def asks(
    cloud: Cloud, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[Ask]:
    """The permissions of an operation."""
    before = wire.plain(old.inputs) if old else {}
    resource = old.id if old else f"projects/{inputs.get('project') or ids.PROJECT}"
    if token not in ACTIONS:
        yield Ask(OPERATOR, f"{token} is in no table", resource)
        return
    for action in asked(ACTIONS[token], operation, before, inputs):
        yield Ask(OPERATOR, action, resource)


def invoked(cloud: Cloud, token: str, args: Mapping[str, Any], region: str) -> Iterator[Ask]:
    """The permission of a function of the SDK; who one is needs none."""
    if token in FUNCTIONS:
        yield Ask(OPERATOR, FUNCTIONS[token], f"projects/{args.get('project') or ids.PROJECT}")
    elif "getClient" not in token:
        yield Ask(OPERATOR, f"{token} is in no table", f"projects/{ids.PROJECT}")


def compute(collection: str, name: str | None, method: str, place: str) -> list[Ask]:
    """A request to Compute Engine that the program itself makes."""
    permission = _COMPUTE.get((collection, method)) or f"compute.{collection}.{'get' if name else 'list'}"
    return [Ask(OPERATOR, permission, place)]


def storage(permission: str, place: str) -> list[Ask]:
    """A request to Cloud Storage that the program itself makes."""
    return [Ask(OPERATOR, permission, place)]


def allows(documents: tuple[str, ...], ask: Ask) -> tuple[bool, str]:
    """Whether some role includes it."""
    return any(ask.action in named(one, "includedPermissions") for one in documents), ""


def refusal(ask: Ask, why: str) -> CloudError:
    """As Google says it."""
    return GoogleError("forbidden", f"Required '{ask.action}' permission for '{ask.resource}'", status=403)
