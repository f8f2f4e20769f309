"""What the evidence store of each cloud guarantees about an object that several operators write."""

from __future__ import annotations

from gpuinfra.handover.ports import EvidenceStore

KEY = "bootstrap/train/monitoring/maintenance.json"


def only_the_first_writes(store: EvidenceStore) -> None:
    """A write with the tag of an earlier version changes nothing, and neither does the creation of an object that exists."""
    assert store.tagged(KEY) is None
    assert not store.update(KEY, {"number": 0}, "0123456789")
    assert store.update(KEY, {"number": 1}, None)
    assert not store.update(KEY, {"number": 2}, None)
    found = store.tagged(KEY)
    assert found is not None
    assert store.update(KEY, {"number": 3}, found[1])
    assert not store.update(KEY, {"number": 4}, found[1])
    assert store.published(KEY) == b'{"number":3}' or store.published(KEY) == b'{"number": 3}'
