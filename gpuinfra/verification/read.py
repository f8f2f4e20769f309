"""Reads evidence: parses one document, or reads a folder with the same layout as the bucket."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.safe_text import one_line
from gpuinfra.handover.evidence import SCHEMA, NotEvidence, OtherFormat, evidence_of
from gpuinfra.handover.ports import EVIDENCE_LIMIT as MAX_BYTES

FROM_A_FOLDER = "Evaluated only from the evidence. Only the handover verifies who signed it."


@dataclass(frozen=True, kw_only=True)
class EvidenceDocument:
    """One evidence document. Its texts are safe to show."""

    where: str
    """Path, key or host from which the document was read."""
    sha256: str
    document: Mapping[str, Any]
    name: str = ""
    """Label of the node in a stack, or its name in a hosts file. If empty, the instance ID is used."""

    @property
    def instance_id(self) -> str:
        """Instance ID of the node."""
        return str(self.document["instance_id"])

    @property
    def label(self) -> str:
        """Name of the node in tables."""
        return self.name or self.instance_id

    @property
    def seq(self) -> int:
        """Sequence number. The newest document of a node has the highest number."""
        return int(self.document["seq"])


NO_EVIDENCE, NOT_LAUNCHED = "no evidence", "not launched"


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A node without usable evidence."""

    name: str
    outcome: str
    """`NO_EVIDENCE`, `NOT_LAUNCHED`, the outcome of a verdict, or the kind of a problem with a host."""
    reason: str
    hint: str
    instance_id: str = ""
    pool: str = ""
    machine: str = ""
    gpus: int = 0
    """Expected number of GPUs."""


@dataclass(frozen=True, kw_only=True)
class FoundEvidence:
    """The evidence for a set of nodes."""

    newest: tuple[EvidenceDocument, ...]
    """The newest document of each node."""
    about: str
    """One sentence that describes the source of the evidence and what it proves."""
    problems: tuple[str, ...] = ()
    """Unusable files, and breaks in the hash chain of a node's documents."""
    absent: tuple[Absent, ...] = ()


def read_folder(folder: Path) -> FoundEvidence:
    """Read all evidence in a folder and its subfolders, or in one file."""
    paths = sorted(folder.rglob("*.json")) if folder.is_dir() else [folder] if folder.exists() else []
    if not paths:
        raise UsageError(f"{folder} contains no evidence; specify a folder with files in the format {SCHEMA}")
    read: list[EvidenceDocument] = []
    problems: list[str] = []
    for path in paths:
        if path.name.endswith(".proof.json"):
            continue
        document = _read(path)
        if isinstance(document, EvidenceDocument):
            read.append(document)
        elif document:
            problems.append(document)
    if not read:
        reason = f" ({problems[0]})" if problems else ""
        raise UsageError(f"{folder} contains no evidence{reason}; specify a folder with files in the format {SCHEMA}")
    by_node: dict[str, list[EvidenceDocument]] = {}
    for document in read:
        by_node.setdefault(document.instance_id, []).append(document)
    newest = []
    for node in sorted(by_node):
        documents = sorted(by_node[node], key=lambda one: one.seq)
        problems += _chain(documents)
        newest.append(documents[-1])
    return FoundEvidence(newest=tuple(newest), problems=tuple(problems), about=FROM_A_FOLDER)


def _read(path: Path) -> EvidenceDocument | str:
    name = one_line(path.name, 80)
    try:
        # Without O_NONBLOCK, the kernel waits until a program writes to a named pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return f"{name} is not a regular file"
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    if len(data) > MAX_BYTES:
        return f"{name} is larger than {MAX_BYTES} bytes"
    return parse(data, str(path))


def parse(data: bytes, where: str, name: str = "") -> EvidenceDocument | str:
    """Parse an evidence document. Returns an error message on failure, or an empty string if the document has a different schema."""
    short = one_line(where.rpartition("/")[2], 80)
    try:
        evidence = evidence_of(data)
    except OtherFormat:
        return ""
    except NotEvidence as error:
        return f"{short} cannot be read: {error}"
    if not evidence.instance_id or evidence.seq is None:
        return f"{short} has no instance ID or sequence number"
    return EvidenceDocument(where=where, sha256=hashlib.sha256(data).hexdigest(), document=evidence.document, name=name)


def _chain(documents: list[EvidenceDocument]) -> list[str]:
    """Return the breaks in the hash chain of a node's documents. A break means that a document was changed, lost or forged."""
    problems = []
    for before, after in pairwise(documents):
        if before.seq == after.seq:
            problems.append(f"{after.instance_id} has two documents with sequence number {after.seq}")
        elif after.seq == before.seq + 1 and after.document.get("previous") != before.sha256:
            problems.append(
                f"{after.instance_id}: document {after.seq} does not contain the hash of document {before.seq}"
            )
    return problems
