"""The state in which `destroy` deletes every resource."""

from __future__ import annotations

from gpuinfra.engine.disposable import disposable


def test_nothing_is_retained_and_buckets_are_emptied() -> None:
    """No resource is retained, only buckets are deleted with their objects, and a second edit changes nothing."""
    key = {"urn": "k", "type": "key", "retainOnDelete": True, "inputs": {"a": 1}}
    bucket = {"urn": "b", "type": "bucket", "retainOnDelete": True, "inputs": {}, "outputs": {"id": "x"}}
    state = {"manifest": {}, "resources": [key, bucket]}
    after = disposable(state, {"bucket"})
    assert after["resources"] == [
        {"urn": "k", "type": "key", "inputs": {"a": 1}},
        {"urn": "b", "type": "bucket", "inputs": {"forceDestroy": True}, "outputs": {"id": "x", "forceDestroy": True}},
    ]
    assert disposable(after, {"bucket"}) == after
