"""Lists the permissions that Google requires for an operation, from the table of the generated roles and from the
provider's recorded requests (`calls.py`). A role applies to the whole project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.permissions import ACTIONS, FUNCTIONS
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from gpuinfra_rehearsal.cloud.core.operator import actions_of, listed
from gpuinfra_rehearsal.cloud.gcp import calls, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

OPERATOR = f"serviceAccount:{tokens.OPERATOR}"

_COMPUTE = {
    ("instanceGroupManagers", ""): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listManagedInstances"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listErrors"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "resizeRequests"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "resize"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "resizeRequests/cancel"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "resizeRequests/-"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "recreateInstances"): "compute.instanceGroupManagers.update",
    ("instances", "serialPort"): "compute.instances.getSerialPortOutput",
}
"""Maps the collection and method of a Compute Engine request to its permission. Source: each method's reference page, retrieved 2026-11-21."""


def required(
    store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[AccessRequest]:
    """Return the permissions of an operation."""
    before = old.plain if old else {}
    resource = old.id if old else f"projects/{inputs.get('project') or PROJECT}"
    listed_ = actions_of(ACTIONS, token, operation, before, inputs)
    recorded = calls.permissions(token, operation, before if operation == "delete" else inputs)
    for action in dict.fromkeys((*listed_, *recorded)):
        yield AccessRequest(OPERATOR, action, resource)


def required_by_function(token: str, args: Mapping[str, Any], region: str) -> Iterator[AccessRequest]:
    """Return the permission of an SDK function. Reading the caller's identity requires no permission."""
    if token in FUNCTIONS:
        yield AccessRequest(OPERATOR, FUNCTIONS[token], f"projects/{args.get('project') or PROJECT}")
    elif "getClient" not in token:
        yield AccessRequest(OPERATOR, f"{token} is not in any table", f"projects/{PROJECT}")


def compute(collection: str, name: str | None, method: str, place: str) -> list[AccessRequest]:
    """Check a request that gpuinfra itself makes to Compute Engine."""
    permission = _COMPUTE.get((collection, method)) or f"compute.{collection}.{'get' if name else 'list'}"
    return [AccessRequest(OPERATOR, permission, place)]


def storage(permission: str, place: str) -> list[AccessRequest]:
    """Check a request that gpuinfra itself makes to Cloud Storage."""
    return [AccessRequest(OPERATOR, permission, place)]


def allows(documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
    """Return whether a role includes the permission."""
    return any(request.action in listed(one, "includedPermissions") for one in documents), ""


def denial(request: AccessRequest, reason: str) -> ApiRejected:
    """Return the denial in Google's wording."""
    return GoogleError("forbidden", f"Required '{request.action}' permission for '{request.resource}'", status=403)
