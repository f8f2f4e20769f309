"""`node.pyz pair`: runs an all-reduce between this node and a partner node directly with libnccl.

Two nodes find each other through a store, without SSH, MPI or a framework: the first one creates NCCL's ID and stores
it, the second node responds, and both join. A store is the evidence bucket (each node writes under its own name and
reads its partner's rendezvous) or a folder that both nodes mount. `gpuinfra.node.pairs` decides which nodes are paired; an assignment names
the run, the partner and the place. `nccl.py` runs the collective; if a collective hangs, its process is terminated.
"""

from __future__ import annotations

import contextlib
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
from .console import NO_PARTNER, MissingPrerequisite
from .log import utc_now
from .outcome import shortened

ASSIGNMENT = Path("/var/lib/gpuinfra/pair.json")
WAIT_S, LIMIT_S = 300.0, 600.0
"""Maximum wait for the partner, and maximum duration of a run, in seconds."""
_PAUSE_S, _LAST_PAUSE_S = 0.25, 15.0
"""First and longest wait between two reads. Both nodes of a pair usually arrive within a second."""
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")
_SESSION = re.compile(r"^[0-9a-f]{16}$")


class NoPartner(MissingPrerequisite):
    """The partner did not arrive in time."""

    code = NO_PARTNER


class Rendezvous(Protocol):
    """A store through which two nodes exchange a few hundred bytes."""

    def put(self, owner: str, name: str, data: bytes) -> None:
        """Write a file under this node's own name."""
        ...

    def get(self, owner: str, name: str) -> bytes | None:
        """Return the content that the owner wrote under this name, or None."""
        ...


class RendezvousFolder:
    """A folder that both nodes mount, for example on Lustre. Users can write in it, so no link in it is followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, owner: str, name: str, data: bytes) -> None:
        folder = self._folder(owner, create=True)
        part = ".%s.%s" % (name, os.urandom(16).hex())
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(part, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def get(self, owner: str, name: str) -> bytes | None:
        try:
            folder = self._folder(owner, create=False)
        except FileNotFoundError:
            return None
        try:
            # Opening a pipe does not wait for its writer.
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
                return file.read(65536)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)

    def _folder(self, owner: str, *, create: bool) -> int:
        """Open the folder of a node. Each folder below the shared one is opened in the one above it, without following links."""
        handle = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        for part in (self.path.name, owner):
            above = handle
            try:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=above)
                handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            except (NotADirectoryError, PermissionError):
                raise MissingPrerequisite(
                    "%s in %s is not a folder of this program; remove it" % (part, self.path.parent)
                ) from None
            finally:
                os.close(above)
        return handle


class RendezvousBucket:
    """The evidence bucket: `<prefix>/<folder of the owner>/rendezvous/<name>`, accessed with the node's own identity."""

    def __init__(self, node: Mapping[str, Any], cloud: Any) -> None:
        place = node.get("evidence")
        if not isinstance(place, Mapping):
            raise CloudError("node.json has no evidence location")
        self._bucket, self._prefix = field(place, "bucket"), field(place, "prefix").rstrip("/")
        self._owner, self._cloud = place.get("owner"), cloud
        if not hasattr(cloud, "get"):
            raise CloudError(
                "nodes of this cloud cannot read the evidence bucket; use --store with a folder that both nodes mount"
            )

    def put(self, owner: str, name: str, data: bytes) -> None:
        self._cloud.put(self._bucket, self._key(owner, name), data, once=False)

    def get(self, owner: str, name: str) -> bytes | None:
        return self._cloud.get(self._bucket, self._key(owner, name))

    def _key(self, owner: str, name: str) -> str:
        folder = "%s:%s" % (self._owner, owner) if self._owner else owner
        return "%s/%s/rendezvous/%s" % (self._prefix, folder, name)


def read(path: Path = ASSIGNMENT) -> dict[str, Any]:
    """Return the assignment: `{"schema": "gpuinfra.pair-assignment/1", "run", "self", "partner", "place": 0 or 1, "store": folder or null}`."""
    try:
        assignment = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingPrerequisite("no partner is assigned: %s does not exist" % path) from None
    except (OSError, ValueError) as error:
        raise MissingPrerequisite("cannot read %s: %s" % (path, error)) from None
    return checked(assignment)


def checked(assignment: object) -> dict[str, Any]:
    """Return the assignment if all fields are valid. Raises `MissingPrerequisite` with the first invalid field."""
    if not isinstance(assignment, dict) or assignment.get("schema") != "gpuinfra.pair-assignment/1":
        raise MissingPrerequisite("the assignment does not have the schema gpuinfra.pair-assignment/1")
    for name in ("run", "self", "partner"):
        if not isinstance(assignment.get(name), str) or not _NAME.match(assignment[name]):
            raise MissingPrerequisite(
                "the assignment's %s is %s; use only letters, digits, dots and dashes"
                % (name, shortened(repr(assignment.get(name)), 60))
            )
    if assignment["self"] == assignment["partner"]:
        raise MissingPrerequisite("the assignment pairs %s with itself" % assignment["self"])
    if assignment.get("place") not in (0, 1) or isinstance(assignment["place"], bool):
        raise MissingPrerequisite(
            "the assignment's place is %s; use 0 for one node and 1 for the other"
            % shortened(repr(assignment.get("place")), 20)
        )
    store = assignment.get("store")
    if not (store is None or (isinstance(store, str) and store.startswith("/"))):
        raise MissingPrerequisite("the assignment's store is not a folder; specify an absolute path or null")
    session = assignment.get("session")
    if not (session is None or (isinstance(session, str) and _SESSION.match(session))):
        raise MissingPrerequisite("the assignment's session is not the name of a fabric test, such as 0123456789abcdef")
    return assignment


def meet(
    assignment: Mapping[str, Any],
    store: Rendezvous,
    libraries: nccl.Libraries,
    *,
    wait_s: float = WAIT_S,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[nccl.UniqueId, int, int]:
    """Find the partner. Returns NCCL's ID, this node's first rank and the total number of ranks. Raises `MissingPrerequisite` on timeout."""
    here, place = libraries.devices(), assignment["place"]
    if not here:
        raise MissingPrerequisite("the CUDA runtime finds no GPU")
    mine: dict[str, Any] = {
        "schema": "gpuinfra.rendezvous/1",
        "run": assignment["run"],
        "gpus": here,
        "time": utc_now(),
    }
    if place == 0:
        one_id = libraries.unique_id()
        mine["unique_id"] = one_id.tobytes().hex()
        store.put(assignment["self"], _name(assignment, 0), json.dumps(mine).encode("ascii"))
        # Joining before the partner arrives would hang inside NCCL without a message.
        theirs = _await(assignment, store, 1, wait_s, wait, clock)
        return one_id, 0, here + theirs["gpus"]
    # The first node waits for this file, so it is stored before the ID is there.
    store.put(assignment["self"], _name(assignment, 1), json.dumps(mine).encode("ascii"))
    theirs = _await(assignment, store, 0, wait_s, wait, clock)
    text = theirs.get("unique_id")
    if not isinstance(text, str) or not re.match(r"^[0-9a-f]{256}$", text):
        raise MissingPrerequisite("%s stored no complete NCCL ID" % assignment["partner"])
    one_id = nccl.UniqueId.from_buffer_copy(bytes.fromhex(text))
    return one_id, theirs["gpus"], theirs["gpus"] + here


def _name(assignment: Mapping[str, Any], place: int) -> str:
    return "%s-%d.json" % (assignment["run"], place)


def _await(
    assignment: Mapping[str, Any],
    store: Rendezvous,
    place: int,
    wait_s: float,
    wait: Callable[[float], None],
    clock: Callable[[], float],
) -> dict[str, Any]:
    started, pause = clock(), _PAUSE_S
    while True:
        data = store.get(assignment["partner"], _name(assignment, place))
        if data is not None:
            try:
                answer = json.loads(data)
            except ValueError:
                answer = None
            if (
                not isinstance(answer, dict)
                or answer.get("schema") != "gpuinfra.rendezvous/1"
                or answer.get("run") != assignment["run"]
            ):
                raise MissingPrerequisite("%s stored no valid rendezvous for this run" % assignment["partner"])
            gpus = answer.get("gpus")
            if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= 64:
                raise MissingPrerequisite("the rendezvous of %s has no valid number of GPUs" % assignment["partner"])
            return answer
        if clock() - started >= wait_s:
            raise NoPartner("%s did not arrive within %d s" % (assignment["partner"], wait_s))
        wait(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_S)


def run(
    assignment: Mapping[str, Any],
    store: Rendezvous,
    *,
    size: int,
    rounds: int,
    log: str,
    collective: str = nccl.ALL_REDUCE,
    limit_s: float = LIMIT_S,
) -> dict[str, Any]:
    """Meet the partner, run the collective over both nodes, and return bandwidth and correctness: schema `gpuinfra.pair/1`."""
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET,ENV", NCCL_DEBUG_FILE=log)
    libraries = nccl.Libraries()
    one_id, first, ranks = meet(assignment, store, libraries)
    end = threading.Timer(limit_s, _end_process, (assignment["partner"], limit_s))
    end.daemon = True
    end.start()
    try:
        result = nccl.all_reduce(
            libraries, size=size, rounds=rounds, collective=collective, unique_id=one_id, first_rank=first, ranks=ranks
        )
    finally:
        end.cancel()
    network = nccl.network_of(nccl.read_log(log))
    result.update(schema="gpuinfra.pair/1", run=assignment["run"], partner=assignment["partner"], network=network)
    return result


def _end_process(partner: str, limit_s: float) -> None:
    """Terminate the process, because a collective that hangs inside the library cannot be interrupted."""
    sys.stderr.write("gpuinfra: the all-reduce with %s timed out after %d s\n" % (partner, limit_s))
    sys.stderr.flush()
    os._exit(3)
