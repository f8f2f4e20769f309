"""The actions that Azure asks for an operation, by the same table as the role definition that is printed; it holds for the whole subscription."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.azure.permissions import ACTIONS, FUNCTIONS
from gpuinfra.rehearsal.cloud.aws.policy import Ask
from gpuinfra.rehearsal.cloud.azure import identity
from gpuinfra.rehearsal.cloud.core import ids, wire
from gpuinfra.rehearsal.cloud.core.errors import AzureError, CloudError
from gpuinfra.rehearsal.cloud.core.operations import asked, named

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

OPERATOR = identity.OPERATOR

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_ARM: tuple[tuple[str, str], ...] = (
    (r".*/artifacttypes/vmimage/offers/[^/]+/skus/[^/]+/versions", "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read"),
    (r".*/Microsoft\.Insights/eventtypes/management/values", "Microsoft.Insights/eventtypes/values/read"),
    (r".*/virtualMachineScaleSets/[^/]+", f"{_SETS}/read"),
    (r".*/virtualMachineScaleSets/[^/]+/instanceView", f"{_SETS}/instanceView/read"),
    (r".*/virtualMachineScaleSets/[^/]+/virtualMachines", f"{_SETS}/virtualMachines/read"),
    (r".*/virtualMachineScaleSets/[^/]+/networkInterfaces", f"{_SETS}/networkInterfaces/read"),
    (r".*/virtualMachines/[^/]+/retrieveBootDiagnosticsData", f"{_SETS}/virtualMachines/retrieveBootDiagnosticsData/action"),
    (r".*/virtualMachines/[^/]+/simulateEviction", f"{_SETS}/virtualMachines/simulateEviction/action"),
)  # fmt: skip
"""Path of a request to Azure Resource Manager -> its action. Resource provider operations, read 2026-11-21."""


def asks(
    cloud: Cloud, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[Ask]:
    """The actions of an operation."""
    before = wire.plain(old.inputs) if old else {}
    group = f"/subscriptions/{ids.SUBSCRIPTION}/resourceGroups/{inputs.get('resourceGroupName', '')}"
    scope = old.id if old else group.removesuffix("/resourceGroups/")
    if token not in ACTIONS:
        yield Ask(OPERATOR, f"{token} is in no table", scope)
        return
    for action in asked(ACTIONS[token], operation, before, inputs):
        yield Ask(OPERATOR, action, scope)


def invoked(cloud: Cloud, token: str, args: Mapping[str, Any], region: str) -> Iterator[Ask]:
    """The action of a function of the SDK; who one is needs none."""
    if token in FUNCTIONS:
        yield Ask(OPERATOR, FUNCTIONS[token], f"/subscriptions/{ids.SUBSCRIPTION}")
    elif "getClient" not in token:
        yield Ask(OPERATOR, f"{token} is in no table", f"/subscriptions/{ids.SUBSCRIPTION}")


def http(place: str) -> list[Ask]:
    """A request to Azure Resource Manager that the program itself makes."""
    return [Ask(OPERATOR, action, place) for path, action in _ARM if re.fullmatch(path, place, re.IGNORECASE)]


def allows(documents: tuple[str, ...], ask: Ask) -> tuple[bool, str]:
    """Whether some role definition names it. Azure does not look at upper and lower case."""
    wanted = ask.action.lower()
    return any(wanted in {one.lower() for one in named(text, "Actions", "DataActions")} for text in documents), ""


def refusal(ask: Ask, why: str) -> CloudError:
    """As Azure says it."""
    text = (
        f"The client 'standin-operator@example.com' with object id '{ask.principal_arn}' does not have authorization to perform action '{ask.action}' "
        f"over scope '{ask.resource}' or the scope is invalid. If access was recently granted, please refresh your credentials."
    )
    return AzureError("AuthorizationFailed", text, status=403)
