"""Evidence, and what there is of it: in a folder as the bucket lays it out, or as others hand it in.

`store.py` and `over_ssh.py` hand in what they were given by a bucket and by hosts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuinfra.errors import UsageError

SCHEMA = "gpuinfra.evidence/1"
MOST_BYTES = 8 * 1024 * 1024
"""Twice what a node may write; a larger file is no evidence."""


OF_A_FOLDER = (
    "Judged from the evidence alone: identity proofs are not part of this, the handover verified them in time."
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One document and where it was found."""

    where: str
    sha256: str
    document: Mapping[str, Any]
    name: str = ""
    """What people call the machine: its label in a stack, its name in a hosts file. Left out: its instance id."""

    @property
    def instance_id(self) -> str:
        """Which machine it is about."""
        return str(self.document["instance_id"])

    @property
    def label(self) -> str:
        """What the machine is called in a table."""
        return self.name or self.instance_id

    @property
    def seq(self) -> int:
        """Its number in the life of that machine."""
        return int(self.document["seq"])


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A machine that should have said something, and of which nothing counts."""

    name: str
    outcome: str
    """One or two words: `no evidence`, `refused`, `not reached`."""
    reason: str
    hint: str
    instance_id: str = ""
    pool: str = ""
    machine: str = ""
    gpus: int = 0
    """GPUs that it should have."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What there is."""

    newest: tuple[Evidence, ...]
    """The newest evidence of each machine."""
    about: str
    """Where it comes from and what that proves, as one sentence for people."""
    older: int = 0
    problems: tuple[str, ...] = ()
    """Files that are no evidence, and breaks in a machine's chain."""
    absent: tuple[Absent, ...] = ()


def read_folder(folder: Path) -> Found:
    """All evidence below a folder, or one file of it."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.json")) if folder.is_dir() else []
    if not paths:
        raise UsageError(f"there is no evidence at {folder}; give a folder with files of format {SCHEMA}")
    found: list[Evidence] = []
    problems: list[str] = []
    for path in paths:
        if path.name.endswith(".proof.json"):
            continue
        one = _read(path)
        if isinstance(one, Evidence):
            found.append(one)
        elif one:
            problems.append(one)
    if not found:
        raise UsageError(
            f"there is no evidence of format {SCHEMA} at {folder}" + (f": {problems[0]}" if problems else "")
        )
    by_machine: dict[str, list[Evidence]] = {}
    for one in found:
        by_machine.setdefault(one.instance_id, []).append(one)
    newest = []
    for machine in sorted(by_machine):
        line = sorted(by_machine[machine], key=lambda one: one.seq)
        problems += _chain(line)
        newest.append(line[-1])
    return Found(newest=tuple(newest), older=len(found) - len(newest), problems=tuple(problems), about=OF_A_FOLDER)


def _read(path: Path) -> Evidence | str:
    if path.stat().st_size > MOST_BYTES:
        return f"{path.name} is larger than any evidence"
    return parse(path.read_bytes(), str(path))


def parse(data: bytes, where: str, name: str = "") -> Evidence | str:
    """Bytes as evidence, or what is wrong with them; empty for a document of another kind."""
    short = where.rpartition("/")[2]
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return f"{short} is not JSON"
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return ""
    seq = document.get("seq")
    if not isinstance(document.get("instance_id"), str) or isinstance(seq, bool) or not isinstance(seq, int):
        return f"{short} names no machine or number"
    return Evidence(where=where, sha256=hashlib.sha256(data).hexdigest(), document=document, name=name)


def _chain(line: list[Evidence]) -> list[str]:
    """Each document names the hash of the one before; a break means that one was changed, lost or invented."""
    problems = []
    for before, after in pairwise(line):
        if before.seq == after.seq:
            problems.append(f"{after.instance_id} has two documents with number {after.seq}")
        elif after.seq == before.seq + 1 and after.document.get("previous") != before.sha256:
            problems.append(
                f"{after.instance_id}: number {after.seq} does not follow from number {before.seq} as found here"
            )
    return problems
