"""The four ports: the interface between the handover and a cloud.

The ports are membership (which instances are in the groups), evidence store (which evidence was uploaded), identity service (which
instance signed it) and console log (the last output of a node that never reported). To add a cloud, implement these four
Protocols. The judge is the same on every cloud.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from gpuinfra.base.safe_text import printable
from gpuinfra.handover.causes import CapacityCause

EVIDENCE_LIMIT, PROOF_LIMIT, REPORT_LIMIT = 8 * 1024 * 1024, 64 * 1024, 16 * 1024
"""Maximum number of bytes of one piece of evidence, of one proof, and of one report to the fabric test."""
MAX_REASON = 4000
"""Maximum length of the message of an error."""


@dataclass(frozen=True, kw_only=True)
class GroupExpected:
    """One Auto Scaling group, scale set or managed instance group, as the program declares it."""

    name: str
    """Name of the group in the plan, such as `gpu-reserved-0`."""
    group: str
    """The cloud's name of the group."""
    count: int
    template_version: str = ""
    kind: str = ""
    """Kind of capacity: `on_demand`, `spot`, `reserved`, `block`, `flex`. Empty if the program does not declare it."""
    zone: str = ""
    """The cloud's name of the zone. Empty if the program does not declare it, or if the cloud chooses."""


@dataclass(frozen=True, kw_only=True)
class PoolExpected:
    """A pool of identical nodes, and the expectation against which the results of their checks are judged."""

    cloud: str
    name: str
    machine: str
    groups: tuple[GroupExpected, ...]
    expectation: dict[str, object]
    bundle_sha256: str
    node_role: str = ""
    """Name of the nodes' role. An empty string accepts any role in the account, which is less strict."""
    evidence_owner: str = ""
    """Unique ID of the nodes' role: nodes can write only below `<prefix>/<owner>:<instance ID>/`. Empty on clouds without such IDs."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One instance of a group, as the group reports it."""

    instance_id: str
    group: str
    """Name of the instance's group in the cloud."""
    template_version: str = ""
    launched: datetime | None = None
    zone: str = ""
    private_ip: str = ""
    resource: str = ""
    """Path of the instance in the cloud's tools if it differs from the instance ID, such as `/subscriptions/...` or `projects/P/zones/Z/instances/N`."""
    leaving: bool = False
    """True after the group starts to terminate the instance. The evidence of the instance is then ignored."""
    renewed: bool = False
    """True if the group applies new bundles to running nodes, so that evidence from an older bundle is not final."""


@dataclass(frozen=True, kw_only=True)
class GroupProblem:
    """The reason why a group cannot launch or replace nodes. `message` is the unmodified text from the cloud."""

    group: str
    cause: CapacityCause
    message: str
    hint: str = ""
    """What to do."""
    at: datetime | None = None
    name: str = ""
    """Name of the group in the plan, set by the caller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredProof:
    """One stored identity proof that has not been read yet."""

    key: str
    etag: str
    modified: datetime

    @property
    def place(self) -> tuple[str, str]:
        """Identifies the content: key and version."""
        return self.key, self.etag


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceRef:
    """One piece of stored evidence that has not been read yet."""

    instance_id: str
    boot_id: str
    seq: int
    key: str
    etag: str
    modified: datetime
    owner: str = ""
    """The writer that owns the folder of the evidence, as identified in the store's access rules."""
    proofs: tuple[StoredProof, ...] = ()
    """The identity proofs that are stored for the evidence, newest first. Empty if the evidence has no signature."""
    is_report: bool = False
    """True for a report to the fabric test (`gpuinfra.node.fabric_relay`), which is stored and signed like evidence."""

    @property
    def place(self) -> tuple[str, str]:
        """Identifies the content: key and version."""
        return self.key, self.etag

    @property
    def limit(self) -> int:
        """Maximum number of bytes that are read. A larger object is not valid evidence."""
        return REPORT_LIMIT if self.is_report else EVIDENCE_LIMIT


def folder_of(owner: str, instance_id: str) -> str:
    """Return the name of the folder that contains the evidence of an instance."""
    return f"{owner}:{instance_id}" if owner else instance_id


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedObject:
    """One object in a list of the store."""

    key: str
    etag: str
    modified: datetime


def evidence_in(node: str, prefix: str, objects: Iterable[ListedObject]) -> Iterator[EvidenceRef]:
    """Yield the evidence and the reports in a list with their proofs. Other names are skipped.

    A proof is `<seq>.proof.json` or, where nodes cannot replace objects, `<seq>.<8 digits>.proof.json`. The three clouds list objects in the order of
    their names, so a document and its proofs are next to each other, and memory does not grow with the list.
    `node` is a pattern that contains the group `instance`, and the group `owner` if each writer owns a folder.
    """
    form = re.compile(
        node
        + r"/(?P<boot>[0-9a-f-]{8,64})/(?P<report>fabric/)?(?P<seq>\d{6})(?:(?P<proof>(?:\.[0-9a-f]{8})?\.proof))?\.json"
    )
    document: EvidenceRef | None = None
    proofs: list[StoredProof] = []
    last = ""
    for listed in objects:
        match = form.fullmatch(listed.key, len(prefix)) if listed.key.startswith(prefix) else None
        if match is None:
            continue
        place = listed.key[: match.end("seq")]
        if place != last:
            if document is not None:
                yield _with_proofs(document, proofs)
            document, proofs, last = None, [], place
        if match["proof"]:
            proofs.append(StoredProof(key=listed.key, etag=listed.etag, modified=listed.modified))
            continue
        document = EvidenceRef(
            instance_id=match["instance"],
            boot_id=match["boot"],
            seq=int(match["seq"]),
            key=listed.key,
            etag=listed.etag,
            modified=listed.modified,
            owner=match.groupdict().get("owner") or "",
            is_report=bool(match["report"]),
        )
    if document is not None:
        yield _with_proofs(document, proofs)


def _with_proofs(document: EvidenceRef, proofs: list[StoredProof]) -> EvidenceRef:
    return replace(document, proofs=tuple(sorted(proofs, key=lambda one: one.modified, reverse=True)))


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The signer and the signed evidence, as confirmed by the cloud."""

    account: str
    role: str
    instance_id: str
    evidence_sha256: str


class _Reason(Exception):
    """An error whose message can quote a cloud or a node. Each text becomes safe to show here."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message, MAX_REASON))


class IdentityRefused(_Reason):
    """The proof is permanently invalid. The message gives the reason."""


class IdentityExpired(_Reason):
    """The proof is too old to verify. The node signs a new proof every ten minutes."""


class IdentityUndecided(_Reason):
    """The proof from one node cannot be verified now. The message gives the reason. The next attempt can succeed."""


class PortUnavailable(_Reason):
    """The cloud cannot be reached or did not respond. The request can succeed later."""


class Membership(Protocol):
    """Group membership: the instances in each group."""

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Return all instances that are currently in the groups."""
        ...

    def problems(self, groups: Sequence[GroupExpected]) -> list[GroupProblem]:
        """Return the problems that prevent the groups from launching more instances, newest first."""
        ...

    def proceed(self, groups: Sequence[GroupExpected]) -> list[str]:
        """Replace the remaining outdated nodes in groups whose replacement stopped after its canary. Return the names of these groups.

        Does nothing on clouds whose groups verify a canary themselves.
        """
        ...

    def replace(self, group: GroupExpected, instance_id: str) -> None:
        """Request that a group moves a node to a different host. The capacity of the group does not change.

        Returns before the replacement exists. On AWS and Google Cloud, the replacement has a different instance ID. On Azure, the node
        keeps its ID and gets a new boot ID. The instance must be in the last result of `members`.
        """
        ...


class EvidenceStore(Protocol):
    """Evidence store: the evidence that nodes uploaded. Each node has one folder directly under the cluster's prefix."""

    def folders(self) -> Iterable[str]:
        """Return the names of all folders under the cluster's prefix. The number of requests does not depend on the number of documents in a folder."""
        ...

    def list(self, folder: str) -> Iterable[EvidenceRef]:
        """List all evidence in one folder with its proofs. The result is lazy: a caller can stop, and continue later."""
        ...

    def read(self, ref: EvidenceRef) -> bytes:
        """Return the content of one piece of evidence."""
        ...

    def proof(self, proof: StoredProof) -> bytes | None:
        """Return the content of an identity proof, or None if it does not exist anymore."""
        ...

    def publish(self, key: str, document: Mapping[str, object]) -> None:
        """Write or replace an object in the same bucket, at a place where nodes can read and not write."""
        ...

    def published(self, key: str, limit: int = 1 << 20) -> bytes | None:
        """Return the first bytes of an object in the same bucket, or None if it does not exist."""
        ...

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """Return an object that several operators write, and the tag of its version, or None if it does not exist."""
        ...

    def update(self, key: str, document: Mapping[str, object], tag: str | None) -> bool:
        """Write such an object if it still has this version, or does not exist if the tag is None. Returns False if another operator changed it."""
        ...


class IdentityService(Protocol):
    """Identity service: the instance that signed a piece of evidence."""

    def verify(self, proof: dict[str, object]) -> Identity:
        """Verify a proof with the cloud. Raises `IdentityRefused`, `IdentityExpired`, `IdentityUndecided` or `PortUnavailable`."""
        ...


class ConsoleLog(Protocol):
    """The console output of instances."""

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """Return the last lines of an instance's console log, or an empty string."""
        ...


@dataclass(frozen=True, kw_only=True)
class CloudTerms:
    """What advice calls the things of one cloud. The actions are imperative clauses without a period."""

    group: str
    """`Auto Scaling group`."""
    template: str
    """What nodes are created from, followed by its version."""
    update: str
    """How to replace or upgrade the outdated nodes of a group."""
    replace: str
    """How to replace one node."""
    activities: str
    """Where the cloud reports why a group does not launch nodes."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The four ports for one cloud."""

    membership: Membership
    store: EvidenceStore
    identity: IdentityService
    console: ConsoleLog
