"""Proves that a failover moved nothing twice and replaced no newer data, also if it was killed.

The second region writes to the replicas as soon as it is deployed, and the first region writes to its buckets after the failover. The objects
of the second region must stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpuinfra.clouds.region.failover import Failover
from gpuinfra_rehearsal.cloud.azure import stores
from tests.region.clone.deployed import Deployed

SHARED, OWN, LATE = "checkpoint-1", "second-region/checkpoint-2", "checkpoint-3"
"""An object that both regions write, one that only the second region writes, and one that the first region writes after the failover."""


@dataclass
class Data:
    """The buckets of a stack and their replicas, as the store of the stand-in names them."""

    deployed: Deployed
    pairs: tuple[tuple[str, str], ...]
    written: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Replica and key -> content that the second region wrote."""

    @classmethod
    def of(cls, deployed: Deployed, cloud: Failover) -> Data:
        """Write the object that both regions write to each bucket, and replicate it."""
        pairs = tuple((_held(pair.source), _held(pair.replica)) for pair in cloud.pairs(deployed.resources))
        for source, _ in pairs:
            deployed.cloud.store.put_object(source, SHARED, b"first region")
        return cls(deployed, pairs)

    def write(self, *, shared: bool) -> None:
        """Write to the replicas as the second region does. With `shared`, also replace the object of the first region."""
        for _, replica in self.pairs:
            for key in (OWN, SHARED) if shared else (OWN,):
                self.written[replica, key] = b"second region"
                self.deployed.cloud.store.put_object(replica, key, b"second region")

    def write_late(self) -> None:
        """Write to the buckets of the first region after the failover, as nodes that were not fenced do."""
        for source, _ in self.pairs:
            for key in (SHARED, LATE):
                self.deployed.cloud.store.put_object(source, key, b"first region, too late")

    def prove(self) -> None:
        """The replicas have the objects of the second region, and nothing that the first region wrote too late."""
        store = self.deployed.cloud.store
        assert self.written
        for (replica, key), content in self.written.items():
            found = store.object(replica, key)
            assert found is not None, key
            assert found.body == content, key
        for _, replica in self.pairs:
            assert store.object(replica, LATE) is None
            found = store.object(replica, SHARED)
            assert found is not None
            assert found.body != b"first region, too late"


def _held(name: str) -> str:
    """The name of a bucket in the store. Azure's buckets are containers of accounts."""
    if "/storageAccounts/" not in name:
        return name
    account, _, container = name.partition("/blobServices/")
    return stores.bucket(account.rpartition("/")[2], container.rpartition("/")[2])


def moved_once(changed: Sequence[str], uninterrupted: Counter[str], interrupted: Iterable[str]) -> None:
    """Each step changed something as often as in a failover without kills, and at most once more for each kill in that step."""
    counts, again = Counter(changed), Counter(interrupted)
    assert set(counts) == set(uninterrupted), (counts, uninterrupted)
    for step, least in uninterrupted.items():
        assert least <= counts[step] <= least * (1 + again[step]), (step, counts, uninterrupted, again)
