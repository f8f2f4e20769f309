"""The minimum permissions to deploy a stack, as policies or roles for its cloud. Pure.

Each cloud's `permissions` module returns the documents. This module contains the shared code.
`gpuinfra rehearse --under-least-permissions` rehearses a stack under these documents: the stand-in cloud denies all other requests.
Permissions to read and write the Pulumi state are not included, because a stack does not define its backend.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import Actions, PlannedResource

SCHEMA = "gpuinfra.permissions/1"


@dataclass(frozen=True, kw_only=True)
class Need:
    """An action and its uses."""

    action: str
    """`ec2:CreateVpc`, `Microsoft.Network/virtualNetworks/write`, `compute.networks.create`."""
    uses: tuple[tuple[str, str], ...]
    """(resource type, operation); (resource type, "update of INPUT") if only a change to that input requires the action; or (request of the program, "")."""


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """The permissions to deploy a stack."""

    cloud: str
    needs: tuple[Need, ...]
    documents: tuple[Mapping[str, Any], ...]
    """Documents in the format of the cloud, such as IAM policies or a role definition."""
    notes: tuple[str, ...]
    """Instructions for using the documents, and the limitations of the documents."""
    source: str
    """Sources of the actions."""

    def as_dict(self, stack: str) -> dict[str, Any]:
        """Return the content for `--json`."""
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
    """Return the uses of each action: resource types in the plan, and requests that the program itself makes.

    Permissions to delete retained resources are not required. Inputs in `unset` are not set in this plan.
    Raises `KeyError` if a resource type has no row, because the list would otherwise be incomplete.
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
                    # If the rehearsal does not change this input, it must not report the action as unused.
                    of = f" of {given.removeprefix('-')}" if given and operation == "update" else ""
                    uses[action].append((type_, operation + of))
    for purpose, requested in requests.items():
        for action in requested:
            uses[action].append((purpose, ""))
    return dict(uses)


CHECKED_OF_NODES = frozenset({"machine", "reservation", "image"})
"""Topics of a preflight about the nodes of a plan."""


def preflight_purpose(topic: str) -> str:
    """Return the purpose of the requests of a topic."""
    return f"doctor and up: check the topic {topic}"


def preflight_requests(plan: Plan, reads: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the requests of the preflight of `gpuinfra up` and of `gpuinfra doctor`. `reads` contains the permissions of each topic."""
    reserved = any(group.reservation_id or group.reservation_group_arn for pool in plan.pools for group in pool.groups)
    left_out = frozenset() if plan.pools else CHECKED_OF_NODES
    left_out |= frozenset() if reserved else {"reservation"}
    return {preflight_purpose(topic): reads[topic] for topic in reads if topic not in left_out}


def reads_of(uses: Mapping[str, list[tuple[str, str]]], changes: frozenset[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the read-only uses: reads of resources, and requests of the program that are not in `changes`."""
    needed_by = {
        action: [
            (of, operation) for of, operation in needed if operation == "read" or (not operation and of not in changes)
        ]
        for action, needed in uses.items()
    }
    return {action: needed for action, needed in needed_by.items() if needed}


def collect(uses: Mapping[str, list[tuple[str, str]]]) -> tuple[Need, ...]:
    """Return the required actions in sorted order, without duplicate uses."""
    return tuple(Need(action=action, uses=tuple(dict.fromkeys(uses[action]))) for action in sorted(uses))
