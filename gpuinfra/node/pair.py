"""An all-reduce between this node and one other, straight on libnccl: `node.pyz pair`.

Two nodes find each other through a store, without SSH, MPI or a framework: the first one makes NCCL's id and leaves it there, the
second one answers, and both join. A store is the evidence bucket (each node writes below its own name and reads its partner's
rendezvous) or a folder that both have mounted. Who meets whom is decided elsewhere (`gpuinfra.verification.pairs`): an assignment
names run, partner and place. The collective itself is `nccl.py`'s, and a collective that hangs is ended with its process.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol

from . import nccl
from .cloud import CloudError, field
from .evidence import now
from .words import shortened

ASSIGNMENT = Path("/var/lib/gpuinfra/pair.json")
WAIT_S, LIMIT_S = 300.0, 600.0
"""Longest wait for the partner, and longest whole run, in seconds."""
_PAUSE_S = 1.0
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")


class PairError(Exception):
    """The two nodes did not meet; the message says at which point."""


class Store(Protocol):
    """Where two nodes leave each other a few hundred bytes."""

    def put(self, owner: str, name: str, data: bytes) -> None:
        """Write below this node's own name."""
        ...

    def get(self, owner: str, name: str) -> bytes | None:
        """What the owner left under this name, None while there is nothing."""
        ...


class Folder:
    """A folder that both nodes have mounted, such as one on Lustre."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, owner: str, name: str, data: bytes) -> None:
        target = self.path / owner / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = target.with_suffix(".part")
        part.write_bytes(data)
        os.replace(part, target)

    def get(self, owner: str, name: str) -> bytes | None:
        try:
            with open(self.path / owner / name, "rb") as file:
                return file.read(65536)
        except FileNotFoundError:
            return None


class Bucket:
    """The evidence bucket: `<prefix>/<folder of the owner>/rendezvous/<name>`, written and read under the node's own identity."""

    def __init__(self, node: Mapping[str, Any], cloud: Any) -> None:
        place = node.get("evidence")
        if not isinstance(place, Mapping):
            raise CloudError("node.json does not say where evidence goes")
        self._bucket, self._prefix = field(place, "bucket"), field(place, "prefix").rstrip("/")
        self._owner, self._cloud = place.get("owner"), cloud
        if not hasattr(cloud, "get"):
            raise CloudError(
                "nodes of this cloud cannot read the bucket; give --store with a folder that both have mounted"
            )

    def put(self, owner: str, name: str, data: bytes) -> None:
        self._cloud.put(self._bucket, self._key(owner, name), data, once=False)

    def get(self, owner: str, name: str) -> bytes | None:
        return self._cloud.get(self._bucket, self._key(owner, name))

    def _key(self, owner: str, name: str) -> str:
        folder = "%s:%s" % (self._owner, owner) if self._owner else owner
        return "%s/%s/rendezvous/%s" % (self._prefix, folder, name)


def read(path: Path = ASSIGNMENT) -> dict[str, Any]:
    """The assignment: `{"schema": "gpuinfra.pair-assignment/1", "run", "self", "partner", "place": 0 or 1, "store": folder or null}`."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PairError("no partner is assigned: %s is not there" % path) from None
    except (OSError, ValueError) as error:
        raise PairError("%s cannot be read: %s" % (path, error)) from None
    return checked(said)


def checked(said: object) -> dict[str, Any]:
    """An assignment whose every field is what it must be; `PairError` names the first that is not."""
    if not isinstance(said, dict) or said.get("schema") != "gpuinfra.pair-assignment/1":
        raise PairError("the assignment is not of schema gpuinfra.pair-assignment/1")
    for name in ("run", "self", "partner"):
        if not isinstance(said.get(name), str) or not _NAME.match(said[name]):
            raise PairError(
                "the assignment's %s is %s; letters, digits, dots and dashes are allowed"
                % (name, shortened(repr(said.get(name)), 60))
            )
    if said["self"] == said["partner"]:
        raise PairError("the assignment pairs %s with itself" % said["self"])
    if said.get("place") not in (0, 1) or isinstance(said["place"], bool):
        raise PairError(
            "the assignment's place is %s; one node is 0, the other 1" % shortened(repr(said.get("place")), 20)
        )
    if not (said.get("store") is None or (isinstance(said["store"], str) and said["store"].startswith("/"))):
        raise PairError("the assignment's store is no folder; give an absolute path or null")
    return said


def meet(
    assignment: Mapping[str, Any],
    store: Store,
    libraries: nccl.Libraries,
    *,
    wait_s: float = WAIT_S,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[nccl.UniqueId, int, int]:
    """Find the partner: NCCL's id, this node's first rank and all ranks of both. Raises `PairError` when it does not come."""
    here, place = libraries.devices(), assignment["place"]
    if not here:
        raise PairError("the CUDA runtime sees no GPU")
    mine: dict[str, Any] = {"schema": "gpuinfra.rendezvous/1", "run": assignment["run"], "gpus": here, "time": now()}
    if place == 0:
        one_id = libraries.unique_id()
        mine["unique_id"] = one_id.tobytes().hex()
        store.put(assignment["self"], _name(assignment, 0), json.dumps(mine).encode("ascii"))
        # Joining before the partner is there would hang in NCCL, where nothing can be told.
        theirs = _await(assignment, store, 1, wait_s, wait, clock)
        return one_id, 0, here + theirs["gpus"]
    theirs = _await(assignment, store, 0, wait_s, wait, clock)
    one_id = nccl.UniqueId()
    text = theirs.get("unique_id")
    if not isinstance(text, str) or not re.match(r"^[0-9a-f]{256}$", text):
        raise PairError("%s left no whole id of NCCL" % assignment["partner"])
    # Byte by byte: the id holds zeros, and assigning text would end at the first one.
    for at, byte in enumerate(bytes.fromhex(text)):
        bytearray_of(one_id)[at] = byte
    store.put(assignment["self"], _name(assignment, 1), json.dumps(mine).encode("ascii"))
    return one_id, theirs["gpus"], theirs["gpus"] + here


def bytearray_of(one_id: nccl.UniqueId) -> memoryview:
    """The id's 128 bytes, to be written."""
    return memoryview(one_id).cast("B")


def _name(assignment: Mapping[str, Any], place: int) -> str:
    return "%s-%d.json" % (assignment["run"], place)


def _await(
    assignment: Mapping[str, Any],
    store: Store,
    place: int,
    wait_s: float,
    wait: Callable[[float], None],
    clock: Callable[[], float],
) -> dict[str, Any]:
    started = clock()
    while True:
        data = store.get(assignment["partner"], _name(assignment, place))
        if data is not None:
            try:
                said = json.loads(data)
            except ValueError:
                said = None
            if (
                not isinstance(said, dict)
                or said.get("schema") != "gpuinfra.rendezvous/1"
                or said.get("run") != assignment["run"]
            ):
                raise PairError("%s left something that is no rendezvous of this run" % assignment["partner"])
            if (
                isinstance(said.get("gpus"), bool)
                or not isinstance(said.get("gpus"), int)
                or not 0 < said["gpus"] <= 64
            ):
                raise PairError("%s does not say how many GPUs it brings" % assignment["partner"])
            return said
        if clock() - started >= wait_s:
            raise PairError("%s did not come within %d s" % (assignment["partner"], wait_s))
        wait(_PAUSE_S)


def run(
    assignment: Mapping[str, Any], store: Store, *, size: int, rounds: int, log: str, limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """Meet, sum over both nodes, and say how fast and how right it was: schema `gpuinfra.pair/1`."""
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=log)
    libraries = nccl.Libraries()
    one_id, first, ranks = meet(assignment, store, libraries)
    end = threading.Timer(limit_s, _hangs, (assignment["partner"], limit_s))
    end.daemon = True
    end.start()
    try:
        result = nccl.all_reduce(libraries, size=size, rounds=rounds, unique_id=one_id, first_rank=first, ranks=ranks)
    finally:
        end.cancel()
    result.update(
        schema="gpuinfra.pair/1", run=assignment["run"], partner=assignment["partner"], network=nccl.network_in(log)
    )
    return result


def _hangs(partner: str, limit_s: float) -> None:
    """A collective that hangs sits in a library; only the process can be ended."""
    sys.stderr.write("gpuinfra: the all-reduce with %s did not end within %d s\n" % (partner, limit_s))
    sys.stderr.flush()
    os._exit(3)
