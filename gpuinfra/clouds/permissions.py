"""The least that an operator's credentials must be allowed for one stack, in its cloud's own words.

Each cloud's folder answers in a module `permissions` of its own (pure: a plan goes in, documents come out); this is what their answers share.
A rehearsal can run under the same documents (`gpuinfra rehearse --under-least-permissions`), where the stand-in cloud refuses what they do not allow.
Left out on purpose: what reads and writes Pulumi's own state, which is a bucket or a service that no stack knows of.
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
    """One action, and everything that it is needed for."""

    action: str
    """`ec2:CreateVpc`, `Microsoft.Network/virtualNetworks/write`, `compute.networks.create`."""
    uses: tuple[tuple[str, str], ...]
    """(resource type, operation), (resource type, "update of an input") where only that input's change asks for it, or (what the program does, "")."""


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """What a stack's operator needs."""

    cloud: str
    needs: tuple[Need, ...]
    documents: tuple[Mapping[str, Any], ...]
    """What the cloud takes as it is: IAM policies, a role definition."""
    notes: tuple[str, ...]
    """What a person has to know to use them."""
    source: str
    """Where the actions were read."""

    def as_dict(self, stack: str) -> dict[str, Any]:
        """For programs."""
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
    """Action -> what needs it: the resources of a plan by type, and the requests of the program itself.

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
                    # An action for one input's update is not superfluous in a rehearsal that never changes that input.
                    of = f" of {given.removeprefix('-')}" if given and operation == "update" else ""
                    uses[action].append((type_, operation + of))
    for purpose, requested in requests.items():
        for action in requested:
            uses[action].append((purpose, ""))
    return dict(uses)


def permissions_of(plan: Plan) -> Permissions:
    """The least permissions for a plan; raises UsageError where its cloud has no table."""
    if not has_module(plan.cloud, "permissions"):
        raise UsageError(f"where.cloud is {plan.cloud}, whose permissions gpuinfra does not know")
    found = module_of(plan.cloud, "permissions").permissions(plan)
    assert isinstance(found, Permissions)
    return found


def collect(uses: Mapping[str, list[tuple[str, str]]]) -> tuple[Need, ...]:
    """Needs in order of their actions, each use once."""
    return tuple(Need(action=action, uses=tuple(dict.fromkeys(uses[action]))) for action in sorted(uses))
