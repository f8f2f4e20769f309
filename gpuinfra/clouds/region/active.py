"""The record of the active region of a stack: one object in the second region that all operators and the Pulumi program read.

The record names the region in which the stack runs, and contains the journals of a failover and a failback in progress, so that a different machine
can continue or undo them. It is written with a condition on the version that was read, so of two operators who write at the same time, one fails. It is in the
second region, because it must be readable and writable while the first region does not respond. The `record` module of each cloud sends the requests.

A stack without a record runs in its first region: the first failover writes the record.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import bounded, parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.region.failover import Unreachable

SCHEMA = "gpuinfra.active-region/1"
KEY = "gpuinfra/active-region.json"
"""Name of the object in the replica of the evidence bucket. A failback does not copy it to the first region."""
REPORT_KEY = "gpuinfra/readiness.json"
"""Name of the object beside the record with the last results of `gpuinfra ready --record` and of the drill. Each write replaces it."""
OWN_KEYS = (KEY, REPORT_KEY)
"""Objects that gpuinfra itself writes to the replica of the evidence bucket."""
FRESH = timedelta(days=2)
"""Age of the last result above which it counts as missing: a daily job may fail once."""
CONFIRM_VARIABLE = "GPUINFRA_CONFIRM_ACTIVE"
"""Environment variable with the region that the operator confirms to be active, for a Pulumi program that cannot read the record."""
CLUSTER = "gpuinfra:index:GpuCluster"
LONGEST = 256 * 1024
"""Maximum length of the record, in bytes. The journals of a failover with ten stacks have about 20 KiB."""

Body = Mapping[str, Any]


class RecordChanged(Exception):
    """The record was written after it was read."""


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """The content of the object, and the version to which a write is bound."""

    text: bytes
    tag: str
    """ETag or generation."""


class RecordStore(Protocol):
    """Requests to one cloud. They raise `Unreachable` and `DeploymentError`."""

    def read(self) -> StoredRecord | None:
        """Return the object, or None if it does not exist."""
        ...

    def write(self, text: bytes, tag: str | None) -> str:
        """Write the object, and return its new tag. Raises `RecordChanged` if the object no longer has `tag`, or, for None, if it exists."""
        ...


@dataclass(frozen=True, kw_only=True)
class ActiveRegion:
    """The content of the record."""

    stack: str
    region: str
    """The region in which the stack runs: nodes and replication may be started only there."""
    epoch: int
    """Number of changes of the region."""
    changed_by: str
    """User and machine that changed the region."""
    changed_at: str
    """Time in UTC, in ISO 8601."""
    moves: Mapping[str, Body]
    """Journals of the moves that are not retired, keyed by `failover` and `failback`."""

    def document(self) -> bytes:
        """Return the content of the object."""
        fields = {"schema": SCHEMA, **vars(self), "moves": dict(self.moves)}
        return (json.dumps(fields, indent=1, ensure_ascii=True) + "\n").encode()

    def __str__(self) -> str:
        return f"{self.region} is active since {self.changed_at} (changed by {self.changed_by}, epoch {self.epoch})"


def parsed_record(text: bytes, stack: str) -> ActiveRegion:
    """Return the content of the object. Raises `DeploymentError` if it is not the record of this stack."""
    try:
        document: Any = bounded(text, LONGEST)
        moves = {str(name): dict(body) for name, body in document["moves"].items()}
        record = ActiveRegion(
            stack=str(document["stack"]),
            region=str(document["region"]),
            epoch=int(document["epoch"]),
            changed_by=one_line(document["changed_by"]),
            changed_at=one_line(document["changed_at"]),
            moves=moves,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        document, record = None, None
    if record is None or document.get("schema") != SCHEMA or record.stack != stack:
        raise DeploymentError(
            f"the object {KEY} in the second region is not a record of {stack} in the format {SCHEMA}; "
            "restore an earlier version of the object"
        )
    return record


class SharedRecord:
    """The record of one stack, as this run last read or wrote it."""

    def __init__(self, store: RecordStore, stack: str, first: str) -> None:
        """Read the record. Raises `Unreachable` and `DeploymentError`."""
        self._store, self._stack, self._first = store, stack, first
        held = store.read()
        self._tag = held.tag if held else None
        self.active = parsed_record(held.text, stack) if held else None
        """The record, or None if no failover of the stack has been started."""

    @property
    def region(self) -> str:
        """The active region."""
        return self.active.region if self.active else self._first

    @property
    def returns(self) -> bool:
        """Whether a failback, or the undoing of a failover, is not finished."""
        moves = self.active.moves if self.active else {}
        failback, failover = moves.get("failback"), moves.get("failover")
        return (failback is not None and not failback.get("ended")) or bool(failover and failover.get("aborting"))

    def move(self, name: str) -> Body | None:
        """Return a copy of the journal of a move, or None if it was not started or is retired.

        A journal changes its body in place. Without the copy, `update` would compare the changed body with itself, and write nothing.
        """
        return deepcopy(self.active.moves.get(name)) if self.active else None

    def update(self, name: str, body: Body | None, region: str | None = None) -> None:
        """Write the journal of a move, or remove it if `body` is None. With `region`, this region is the active one from now on."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = self.active or ActiveRegion(
            stack=self._stack, region=self._first, epoch=0, changed_by=operator(), changed_at=now, moves={}
        )
        others = {key: value for key, value in before.moves.items() if key != name}
        after = replace(before, moves={**others, **({name: deepcopy(body)} if body is not None else {})})
        if region is not None and region != before.region:
            after = replace(after, region=region, epoch=before.epoch + 1, changed_by=operator(), changed_at=now)
        if after != self.active:
            self._tag = self._write(after)
            self.active = after

    def _write(self, record: ActiveRegion) -> str:
        text = record.document()
        if len(text) > LONGEST:
            raise DeploymentError(f"the record of the active region has {len(text)} bytes; allowed: at most {LONGEST}")
        try:
            return self._store.write(text, self._tag)
        except Unreachable as problem:
            raise DeploymentError(
                f"the record of the active region cannot be written: {problem}; run the command again with --resume when the second region responds"
            ) from None
        except RecordChanged:
            held = self._store.read()
        # A repeated request is refused if the response to the first one was lost.
        if held is not None and parsed(held.text) == parsed(text):
            return held.tag
        raise DeploymentError(
            f"the record of the active region of {self._stack} was changed by a different run while this run was in progress, so this run stops; "
            "make sure that only one operator continues, and run the command again with --resume"
        )


def operator() -> str:
    """Return the user and the machine, for the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # A container can run with a user ID without a name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def place_of(resources: Iterable[Mapping[str, Any]], name: str | None = None) -> str | None:
    """Return the replica of the evidence bucket in a stack's state, or None if no second region is deployed.

    `name` is the logical name of the `GpuCluster`, if the state can contain several.
    """
    for resource in resources:
        outputs = (resource.get("outputs") or {}) if resource.get("type") == CLUSTER else {}
        named = name is None or str(resource.get("urn")).endswith(f"::{name}")
        place = ((outputs.get("recovery") or {}).get("buckets") or {}).get("evidence")
        if named and place:
            return str(place)
    return None


def elsewhere(stack: str, record: ActiveRegion, region: str, *, failback: str, abort: str) -> str:
    """Return the message about a deployment in a region that is not active. `failback` and `abort` are the commands that return to it."""
    moving = record.moves.get("failover", {})
    back = abort if moving and not moving.get("ended") else failback
    return (
        f"{stack} does not run in {region}: {record}; nothing was changed, because nodes and replication in {region} "
        f"would overwrite newer data; to return to {region}, run: {back}"
    )


def unreadable(stack: str, problem: object) -> str:
    """Return the message about a record that cannot be read."""
    return f"the record of the active region of {stack} cannot be read, so it is unknown whether the stack failed over: {one_line(problem)}"
