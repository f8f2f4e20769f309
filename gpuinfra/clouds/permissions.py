"""The minimum permissions to deploy one stack, as policies or roles of its cloud. Pure.

The module `permissions` of each cloud returns the documents; this module holds the shared part.
A rehearsal can run under the same documents (`gpuinfra rehearse --under-least-permissions`): the stand-in cloud denies all other requests.
Permissions to read and write the Pulumi state are not included, because a stack does not define its backend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.clouds.planned import Actions, PlannedResource
from gpuinfra.errors import UsageError
from gpuinfra.plan.model import Plan
from gpuinfra.registry import has_module, module_of

SCHEMA = "gpuinfra.permissions/1"


@dataclass(frozen=True, kw_only=True)
class Need:
    """One action, and its uses."""

    action: str
    """`ec2:CreateVpc`, `Microsoft.Network/virtualNetworks/write`, `compute.networks.create`."""
    uses: tuple[tuple[str, str], ...]
    """(resource type, operation), (resource type, "update of INPUT") if only a change of that input needs the action, or (request of the program, "")."""


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """The permissions to deploy a stack."""

    cloud: str
    needs: tuple[Need, ...]
    documents: tuple[Mapping[str, Any], ...]
    """Documents in the format of the cloud: IAM policies, a role definition."""
    notes: tuple[str, ...]
    """How to use the documents, and their limits."""
    source: str
    """Sources of the actions."""

    def as_dict(self, stack: str) -> dict[str, Any]:
        """The output of `--json`."""
        return {
            "schema": SCHEMA,
            "stack": stack,
            "cloud": self.cloud,
            "documents": [dict(one) for one in self.documents],
            "actions": [
                {"action": need.action, "for": [" ".join(filter(None, use)) for use in need.uses]}
                for need in self.needs
            ],
            "notes": list(self.notes),
            "source": self.source,
        }


OPERATIONS = ("create", "read", "update", "delete")


def uses_of(
    resources: Iterable[PlannedResource[Any]],
    actions: Mapping[str, Actions],
    requests: Mapping[str, tuple[str, ...]],
    unset: frozenset[str] = frozenset(),
) -> dict[str, list[tuple[str, str]]]:
    """Action -> its uses: the resources of a plan by type, and the requests of the program itself.

    A retained resource is not deleted. Inputs in `unset` are not set in this plan.
    Raises KeyError for a type of the cloud without a row: an incomplete list would not be sufficient.
    """
    uses: dict[str, list[tuple[str, str]]] = defaultdict(list)
    planned = list(resources)
    deleted = {one.type for one in planned if not one.retained}
    for type_ in dict.fromkeys(one.type for one in planned):
        if type_ not in actions and type_.startswith("gpuinfra:"):
            continue
        for operation in OPERATIONS:
            for action, _, given in (word.partition("?") for word in actions[type_].of(operation)):
                if given not in unset and (operation != "delete" or type_ in deleted):
                    # The rehearsal must not report an action as unused if it never changes that input.
                    of = f" of {given.removeprefix('-')}" if given and operation == "update" else ""
                    uses[action].append((type_, operation + of))
    for purpose, requested in requests.items():
        for action in requested:
            uses[action].append((purpose, ""))
    return dict(uses)


def permissions_of(plan: Plan) -> Permissions:
    """The minimum permissions for a plan. Raises `UsageError` for a cloud without a module `permissions`."""
    if not has_module(plan.cloud, "permissions"):
        raise UsageError(f"where.cloud is {plan.cloud}, for which gpuinfra has no list of permissions")
    found = module_of(plan.cloud, "permissions").permissions(plan)
    assert isinstance(found, Permissions)
    return found


def collect(uses: Mapping[str, list[tuple[str, str]]]) -> tuple[Need, ...]:
    """The needs, sorted by action, each use once."""
    return tuple(Need(action=action, uses=tuple(dict.fromkeys(uses[action]))) for action in sorted(uses))
