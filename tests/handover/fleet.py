"""An in-memory fleet behind the four ports, with evidence. Only the cloud and the clock are replaced."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    Identity,
    IdentityRefused,
    IdentityUndecided,
    Member,
    PoolExpected,
    Ports,
    PortUnavailable,
    StoredProof,
    folder_of,
)
from gpuinfra.handover.workers import NotEvaluated
from gpuinfra.node.cause import Cause
from gpuinfra.node.outcome import CheckResult

LAUNCHED = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
"""Some hours ago, because evidence has a maximum age."""
BUNDLE = "b" * 64
ROLE, OWNER = "train-node", "AROA00000000000000001"

T = TypeVar("T")


class Inside:
    """Calls functions in this process instead of a process with a deadline, which the tests of `workers` cover."""

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function."""
        try:
            return function(*arguments)
        except ValueError as error:
            raise NotEvaluated(str(error)) from None


INSIDE = Inside()


def instance(number: int) -> str:
    """A well-formed synthetic instance id."""
    return f"i-{number:017x}"


def gpu_uuid(number: int, index: int) -> str:
    """The UUID of a GPU of a node, in the form of the driver."""
    return f"GPU-{number:08x}-0000-0000-0000-{index:012x}"


def pool(count: int = 2, **more: Any) -> PoolExpected:
    """One pool with one group; its machine requires one check."""
    group = GroupExpected(name="gpu-reserved-0", group="asg-1", count=count, template_version="3")
    given: dict[str, Any] = {
        "cloud": "aws",
        "name": "gpu",
        "machine": "p4d.24xlarge",
        "groups": (group,),
        "expectation": {"gpus": 8, "required": ["G1"], "skips": {}},
        "bundle_sha256": BUNDLE,
        "node_role": ROLE,
        "evidence_owner": OWNER,
    }
    return PoolExpected(**{**given, **more})


def judge(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[CheckResult]:
    """One check: the number of GPUs in the raw output."""
    found = probes.get("gpus")
    good = found == expectation["gpus"]
    return [
        {
            "id": "G1", "name": "gpu_count", "phase": "presence", "severity": "block", "outcome": "pass" if good else "fail",
            "found": found, "expected": expectation["gpus"], "unit": "GPUs", "hint": "replace the node",
            "reason": None if good else "the driver lists fewer GPUs", "cause": None if good else Cause.DIFFERS,
        }
    ]  # fmt: skip


@dataclass
class Fleet:
    """The answers of the cloud; tests change them between two polls."""

    members_: list[Member] = field(default_factory=list)
    refs: list[EvidenceRef] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    proofs: dict[str, bytes] = field(default_factory=dict)
    problems_: list[GroupProblem] = field(default_factory=list)
    proceeded: list[list[str]] = field(default_factory=list)
    """Groups that the handover asked to continue, per call."""
    on_proceed: Callable[[Any], list[str]] | None = None
    replaced: list[tuple[str, str]] = field(default_factory=list)
    """Group and instance of each requested replacement."""
    on_replace: Callable[[str], None] | None = None
    consoles: dict[str, list[str]] = field(default_factory=dict)
    unavailable: int = 0
    sheets: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    """Objects that the handover wrote."""
    requests: Counter[str] = field(default_factory=Counter)
    """Number of requests to the evidence store, by kind."""
    verified: list[str] = field(default_factory=list)
    """Evidence hashes whose identity was requested, in order."""

    def launch(self, number: int, **more: Any) -> str:
        """Add an instance to the group."""
        given: dict[str, Any] = {
            "instance_id": instance(number),
            "group": "asg-1",
            "template_version": "3",
            "launched": LAUNCHED + timedelta(seconds=number),
        }
        self.members_.append(Member(**{**given, **more}))
        return instance(number)

    def report(self, number: int, *, gpus: int = 8, boot: str = "boot-0001", seq: int = 1, **more: Any) -> EvidenceRef:
        """Evidence of an instance, with a valid proof."""
        document = {
            "schema": "gpuinfra.evidence/1",
            "instance_id": instance(number),
            "boot_id": boot,
            "seq": seq,
            "bundle_sha256": BUNDLE,
            "probes": {"gpus": gpus},
            "gpus": [{"index": i, "uuid": gpu_uuid(number, i)} for i in range(gpus)],
            "state": {"steps": [{"id": "10-prepare", "status": "done"}]},
            **more.pop("document", {}),
        }
        data = more.pop("data", None) or json.dumps(document).encode()
        owner = more.pop("owner", OWNER)
        key = f"evidence/train/{folder_of(owner, instance(number))}/{boot}/{seq:06d}.json"
        given: dict[str, Any] = {
            "instance_id": instance(number), "boot_id": boot, "seq": seq, "key": key, "owner": owner,
            "etag": hashlib.sha256(data).hexdigest(), "modified": LAUNCHED + timedelta(minutes=5, seconds=seq),
        }  # fmt: skip
        signer = more.pop("signer", instance(number))
        ref = EvidenceRef(**{**given, **more})
        self.refs.append(ref)
        self.bodies[ref.key] = data
        self.proofs[ref.key] = json.dumps({"signer": signer, "sha256": hashlib.sha256(data).hexdigest()}).encode()
        return ref

    @property
    def ports(self) -> Ports:
        """The four ports of this fleet."""
        return Ports(membership=self, store=self, identity=self, console=self)

    def members(self, groups: Any) -> list[Member]:
        if self.unavailable:
            self.unavailable -= 1
            raise PortUnavailable("Throttling: Rate exceeded")
        return list(self.members_)

    def proceed(self, groups: Any) -> list[str]:
        self.proceeded.append([group.name for group in groups])
        return self.on_proceed(groups) if self.on_proceed else []

    def replace(self, group: Any, instance_id: str) -> None:
        self.replaced.append((group.group, instance_id))
        if self.on_replace:
            self.on_replace(instance_id)

    def problems(self, groups: Any) -> list[GroupProblem]:
        return list(self.problems_)

    def folders(self) -> set[str]:
        self.requests["folders"] += 1
        return {ref.key.split("/")[2] for ref in self.refs}

    def list(self, folder: str) -> list[EvidenceRef]:
        self.requests["list"] += 1
        return [self._proven(ref) for ref in self.refs if ref.key.split("/")[2] == folder]

    def _proven(self, ref: EvidenceRef) -> EvidenceRef:
        """Evidence with the proof that is stored for it."""
        if ref.key not in self.proofs:
            return ref
        etag = hashlib.sha256(self.proofs[ref.key]).hexdigest()
        return replace(ref, proofs=(StoredProof(key=f"{ref.key}.proof", etag=etag, modified=ref.modified),))

    def read(self, ref: EvidenceRef) -> bytes:
        self.requests["read"] += 1
        return self.bodies[ref.key]

    def publish(self, key: str, document: Mapping[str, object]) -> None:
        self.sheets.append((key, document))

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        data = self.published(key)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def update(self, key: str, document: Mapping[str, object], tag: str | None) -> bool:
        found = self.tagged(key)
        if (found[1] if found else None) != tag:
            return False
        self.publish(key, document)
        return True

    def published(self, key: str, limit: int = 1 << 20) -> bytes | None:
        written = dict(self.sheets).get(key)
        return None if written is None else json.dumps(written).encode()[:limit]

    def proof(self, proof: StoredProof) -> bytes | None:
        self.requests["proof"] += 1
        return self.proofs.get(proof.key.removesuffix(".proof"))

    def verify(self, proof: dict[str, object]) -> Identity:
        self.verified.append(str(proof["sha256"]))
        if proof["signer"] == "nobody":
            raise IdentityRefused("the identity service refused its proof: SignatureDoesNotMatch")
        if proof["signer"] == "unreadable":
            raise IdentityUndecided("the certificate cannot be read: HTTP Error 404")
        return Identity(
            account="000000000000", role=ROLE, instance_id=str(proof["signer"]), evidence_sha256=str(proof["sha256"])
        )

    def tail(self, instance_id: str, lines: int) -> list[str]:
        return self.consoles.get(instance_id, [])[-lines:]
