"""Which of its rights a node used, and what it was refused: a right that no node of a rehearsal ever needs is a finding.

A right on AWS is an action of a statement in a role's own policies. Azure and Google Cloud give roles of theirs, which cannot be taken apart,
so there it is a grant of a role. Rights of what is not played here (AWS's own policies, which people's sessions use) are not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.core import wire

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud

_USED, _REFUSED = "right-used", "right-refused"
_AZURE_GRANT = "azure-native:authorization:RoleAssignment"
_AZURE_IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
_GOOGLE_GRANTS = ("gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:projects/iAMMember:IAMMember")
_LATER = ("MeetOtherNodes", "-meeting", "-proof")
"""Ends of rights that a short rehearsal does not come to: a test of pairs, where a node reads what its partner put down, and on Google Cloud
a proof that is written over when it is renewed, ten minutes after the first."""


class Rights:
    """What nodes were allowed and refused so far; it outlives the process, because a second `up` asks for less."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._known: set[tuple[str, str]] = set()

    def used(self, right: str) -> None:
        """A node used a right."""
        self._note(_USED, right)

    def refused(self, who: str, action: str, resource: str) -> None:
        """A node was refused something."""
        self._note(_REFUSED, f"{who}: {action} on {resource}")

    def _note(self, kind: str, what: str) -> None:
        if (kind, what) not in self._known:
            self._known.add((kind, what))
            self._cloud.store.put(kind, what, True)

    def seen(self) -> dict[str, Any]:
        """Every right of every identity that a node has."""
        known = self._cloud.store.all(_USED)
        given = sorted(set(self._given()))
        idle = [one for one in given if one not in known]
        waiting = [one for one in idle if not known or _comes_later(one)]  # before a node did anything, nothing is idle
        return {
            "used": [one for one in given if one in known],
            "unused": [one for one in idle if one not in waiting],
            "not_exercised": waiting,
            "refused": sorted(self._cloud.store.all(_REFUSED)),
        }

    def _given(self) -> Iterator[str]:
        nodes = [one for one in self._cloud.fleet.instances().values() if one["state"] != "terminated"]
        yield from self._on_aws(nodes)
        identities = {str(id).lower() for one in nodes for id in one.get("identities") or ()}
        principals = {str(one.outputs.get("principalId")).lower() for one in self._cloud.store.list(_AZURE_IDENTITY) if one.id.lower() in identities}  # fmt: skip
        for one in self._cloud.store.list(_AZURE_GRANT):
            if str(wire.plain(one.inputs).get("principalId")).lower() in principals:
                yield grant(one.urn)
        members = {f"serviceAccount:{one['account']}" for one in nodes if one.get("account")}
        for kind in _GOOGLE_GRANTS:
            for one in self._cloud.store.list(kind):
                if wire.plain(one.inputs).get("member") in members:
                    yield grant(one.urn)

    def _on_aws(self, nodes: list[dict[str, Any]]) -> Iterator[str]:
        from gpuinfra.rehearsal.cloud.aws import access, credentials

        roles = {role.id for one in nodes if one.get("cloud", "aws") == "aws" and (role := credentials.role_of(self._cloud, one))}  # fmt: skip
        for role in roles:
            for document in access.role_policies(self._cloud, role):
                statements = json.loads(document)["Statement"]
                for statement in statements if isinstance(statements, list) else [statements]:
                    actions = statement["Action"]
                    for action in actions if isinstance(actions, list) else [actions]:
                        yield statement_right(role, str(statement.get("Sid") or "without a Sid"), action)


def statement_right(role: str, sid: str, action: str) -> str:
    """How a right of an IAM policy is called."""
    return f"{role}: {sid}: {action}"


def grant(urn: str) -> str:
    """How a granted role is called: by its logical name."""
    return urn.rpartition("::")[2]


def _comes_later(right: str) -> bool:
    return any(part.strip().endswith(_LATER) for part in right.split(":"))
