"""The four ports: all that the handover asks of a cloud, and no more.

Membership (who should be there), evidence store (who reported), identity (is the reporter who it says), console log
(what the silent ones last said). A new cloud implements these four Protocols; the judge never learns which cloud it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class GroupExpected:
    """One autoscaling group, scale set or managed instance group, as the program declared it."""

    name: str
    """The plan's name, `gpu-reserved-0`."""
    group: str
    """The cloud's name of the group."""
    count: int
    template_id: str = ""
    template_version: str = ""


@dataclass(frozen=True, kw_only=True)
class PoolExpected:
    """Nodes of one kind, and what a healthy one shows."""

    name: str
    machine: str
    groups: tuple[GroupExpected, ...]
    expectation: dict[str, object]
    bundle_sha256: str
    node_role: str = ""
    """Name of the role that its nodes run under; empty means any role of the account, which is weaker."""
    evidence_owner: str = ""
    """Unique id of that role: nodes may write below `<prefix>/<owner>:<instance id>/` only. Empty where a cloud has none."""

    @property
    def count(self) -> int:
        """Nodes that the groups should hold."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Member:
    """One instance that a group says it has."""

    instance_id: str
    group: str
    """The cloud's name of its group."""
    template_id: str = ""
    template_version: str = ""
    launched: datetime | None = None
    zone: str = ""
    private_ip: str = ""
    resource: str = ""
    """Path by which the cloud's own tools name it, where that is not the instance id: `/subscriptions/...`, `projects/P/zones/Z/instances/N`."""
    leaving: bool = False
    """True once the group has begun to end it: its evidence does not count any more."""
    renewed: bool = False
    """True where its group brings a newer bundle to it while it lives: older evidence then is not the last word."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A group could not do what it was asked; `message` is the cloud's own text."""

    group: str
    kind: str
    """`capacity`, `quota`, `permission`, `image`, `other`."""
    message: str
    at: datetime | None = None
    name: str = ""
    """The plan's name of the group; who asked knows it."""


@dataclass(frozen=True, kw_only=True)
class EvidenceRef:
    """One piece of evidence in the store, not read yet."""

    instance_id: str
    boot_id: str
    seq: int
    key: str
    etag: str
    modified: datetime
    owner: str = ""
    """Whose folder it lies in, as the store's own access rules name the writer."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What the cloud itself says about who signed, and over which evidence."""

    account: str
    role: str
    instance_id: str
    evidence_sha256: str


class IdentityRefused(Exception):
    """The proof does not hold, and waiting will not change that; the text says why."""


class IdentityExpired(Exception):
    """The proof is too old to be checked; the node signs a new one every ten minutes."""


class PortUnavailable(Exception):
    """The cloud could not be asked just now; the same question may be asked again."""


class Membership(Protocol):
    """Who should be there."""

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Every instance that the groups hold now."""
        ...

    def troubles(self, groups: Sequence[GroupExpected]) -> list[Trouble]:
        """What kept the groups from holding more, newest first."""
        ...


class EvidenceStore(Protocol):
    """Who reported."""

    def list(self) -> Iterable[EvidenceRef]:
        """All evidence under the cluster's prefix."""
        ...

    def read(self, ref: EvidenceRef) -> bytes:
        """The bytes of one piece of evidence."""
        ...

    def proof(self, ref: EvidenceRef) -> bytes | None:
        """The identity proof beside it, as it is now."""
        ...


class IdentityService(Protocol):
    """Whether the reporter is who it says."""

    def verify(self, proof: dict[str, object]) -> Identity:
        """Ask the cloud's own endpoint; raises `IdentityRefused`, `IdentityExpired` or `PortUnavailable`."""
        ...


class ConsoleLog(Protocol):
    """What a silent node last said."""

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """The end of its console log; empty when there is none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The four ports of one cloud."""

    membership: Membership
    store: EvidenceStore
    identity: IdentityService
    console: ConsoleLog
