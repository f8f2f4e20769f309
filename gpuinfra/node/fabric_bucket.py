"""The evidence bucket as the store of the fabric test (`fabric.FabricStore`), accessed with the node's own identity.

    <prefix>/fabric/rendezvous/<pool>-<bundle>/<number>/<kind>/<round>/<writer>/<rest>

The nodes of a pool with the same bundle share a folder, because NCCL connects only nodes with the same version. Each test has a number, and the newest
test is the one with the highest number. A test with a verdict is closed. On AWS, the name of a writer starts with the ID of the nodes' role, and the
policies let a node write only below its own name. On Azure and Google Cloud, a node can write under any name in this folder, so the test does not
protect against a node that lies about other nodes. A node passes only with its own measurement, which is in its signed evidence.

Tests are numbered without gaps, so a folder with any other number is not a test. A verdict counts from the second round on, and if its writer joined the
test. A node ignores a writer that ended several tests without it (`Sessions.ignored`).
"""

from __future__ import annotations

from typing import Any, Collection, Mapping

from . import fabric, pair
from .cloud import CloudError, Exists, NodeCloud, field
from .console import MissingPrerequisite

MAX_NUMBER = 99_999_999
MOST_ATTEMPTS = 100
"""Number of times that a node joins one test without a partner. Its next attempt is a new test, because each list request returns all earlier attempts."""


class Sessions:
    """The fabric tests of this node's pool."""

    def __init__(self, node: Mapping[str, Any], cloud: NodeCloud) -> None:
        place = node.get("evidence")
        if not isinstance(place, Mapping):
            raise CloudError("node.json has no evidence location")
        if not hasattr(cloud, "list"):
            raise CloudError("nodes of this cloud cannot list the evidence bucket; set handover.fabric_test to off")
        bundle = node.get("bundle")
        sha256 = bundle.get("sha256") if isinstance(bundle, Mapping) else None
        self.name = "%s-%s" % (node.get("pool") or "nodes", str(sha256 or "none")[:12])
        self._bucket, self._cloud = field(place, "bucket"), cloud
        self._owner = str(place.get("owner") or "")
        self._folder = "%s/%s/%s/" % (field(place, "prefix").rstrip("/"), pair.FOLDER_OF_TESTS, self.name)
        self.ignored: set[str] = set()
        """Writers whose objects this node ignores."""

    def newest(self) -> int:
        """Return the number of the newest test, or 0 if there is none. Nodes number tests without gaps; a folder after a gap was not made by them."""
        names = set(self._cloud.list(self._bucket, self._folder, folders=True))
        return next(number for number in range(len(names) + 1) if "%04d" % (number + 1) not in names)

    def store(self, number: int) -> "FabricBucket":
        """Return the objects of one test. Raises `MissingPrerequisite` if there is no number left."""
        if number > MAX_NUMBER:
            raise MissingPrerequisite(
                "the fabric test of the pool %s has no number left; delete the folder %s in the evidence bucket"
                % (self.name, self._folder)
            )
        return FabricBucket(self._cloud, self._bucket, "%s%04d/" % (self._folder, number), self._owner, self.ignored)

    def session(self, number: int) -> str:
        """Return the name of a test in an assignment for `node.pyz pair`."""
        return "%s/%04d" % (self.name, number)


class FabricBucket:
    """The objects of one test."""

    def __init__(self, cloud: NodeCloud, bucket: str, folder: str, owner: str, ignored: Collection[str]) -> None:
        self._cloud, self._bucket, self._folder, self._owner, self._ignored = cloud, bucket, folder, owner, ignored

    def put(self, key: str, data: bytes) -> bool:
        """Write an object once."""
        kind, number, writer, rest = key.split("/", 3)
        try:
            self._cloud.put(
                self._bucket, self._folder + "/".join((kind, number, self._written(writer), rest)), data, once=True
            )
        except Exists:
            return False
        return True

    def get(self, key: str) -> bytes | None:
        """Return an object, up to the size limit, or None."""
        kind, number, writer, rest = key.split("/", 3)
        return self._cloud.get(
            self._bucket, self._folder + "/".join((kind, number, self._written(writer), rest)), fabric.MAX_BYTES
        )

    def list(self, prefix: str) -> list[str]:
        """Return all keys of the protocol. Objects of other writers than the nodes of this cluster are skipped."""
        names = []
        for key in self._cloud.list(self._bucket, self._folder + prefix):
            parts = key[len(self._folder) :].split("/", 3)
            if len(parts) == 4 and parts[2].startswith(self._mark()):
                parts[2] = parts[2][len(self._mark()) :]
                if parts[2] not in self._ignored:
                    names.append("/".join(parts))
        return names

    def _mark(self) -> str:
        return self._owner + ":" if self._owner else ""

    def _written(self, writer: str) -> str:
        return self._mark() + writer


def is_closed(store: fabric.FabricStore) -> bool:
    """Return True if a node that joined a test has published its verdict."""
    entries = (fabric.entry_of(key) for key in store.list("plan/"))
    leaders = {entry[1] for entry in entries if entry is not None and fabric.ends_test(entry)}
    return bool(leaders and leaders & fabric.incarnations(store).keys())


def has_no_attempt_left(store: fabric.FabricStore, name: str) -> bool:
    """Return True if a node has joined a test `MOST_ATTEMPTS` times and no first round has started."""
    entries = (fabric.entry_of(key) for key in store.list("member/00/"))
    attempts = [one for one in entries if one is not None and one[1] == name and not one[2].endswith(fabric.LEFT)]
    return len(attempts) >= MOST_ATTEMPTS and not store.list("plan/")


def members(store: fabric.FabricStore, now: float) -> dict[str, str]:
    """Return the processes that take part in a test, or wait for its first round. A process that joined too long ago can have died."""
    joined = fabric.present(fabric.incarnations(store))
    return {name: one for name, one in joined.items() if now - fabric.joined_at(one) <= fabric.STALE_S}
