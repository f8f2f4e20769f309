"""A cluster that the first version made is taken over by the present program without replacing anything."""

from __future__ import annotations

import json

from tests.clouds.aws.upgrade import STATE, old_state, upgrade

WANTED: dict[str, str] = {
    "train-gpu-bundle": "a bundle is named by its checksum: a new one is put beside the old, and templates name it",
}
"""Logical name -> why it is replaced on purpose; each stands in the changelog."""
CHANGED: dict[str, str] = {
    "train-node-own": "nodes of a cluster may read where they meet for a test of pairs, and nothing else of each other",
}
"""Logical name -> why it changes where it is, besides the templates that every version changes; each stands in the changelog."""
CREATED: dict[str, str] = {}
"""Parent's type, type and name -> what it is new for."""


def test_nothing_is_replaced_without_a_reason() -> None:
    """No resource of the first version is made anew, deleted, or joined by another, but those that are named here with why."""
    told = upgrade()
    assert {name: paths for name, paths in told.replaced.items() if name not in WANTED} == {}
    assert told.removed == set()
    assert told.created - set(CREATED) == set()


def test_what_changes_in_place_are_the_nodes_and_what_is_named() -> None:
    """An upgrade of the library rolls nodes by their template, and touches no network, no key, no bucket and no file system."""
    told = upgrade()
    assert {name for name in told.updated if not name.endswith("-template")} == set(CHANGED)


def test_the_comparison_sees_a_replacement() -> None:
    """A network with another range, or a bucket with another name, would be seen."""
    told = upgrade(
        {"train-network-vpc": {"cidrBlock": "10.99.0.0/16"}, "train-network-internet": {"tags": {"Name": "x"}}}
    )
    assert told.replaced["train-network-vpc"] == ["cidrBlock"]
    assert "train-network-internet" in told.updated


def test_the_export_is_whole_and_tells_nothing_of_its_machine() -> None:
    """Every kind of resource is in it with its id, and no path of the machine that made it."""
    state = old_state()
    custom = [one for one in state if one.get("custom")]
    assert len(custom) > 90
    assert all(one["id"] for one in custom)
    text = STATE.read_text(encoding="utf-8")
    assert "sourcePosition" not in text
    assert all(word not in text for word in ("/home/", "/root/", "/tmp/", "/work"))
    assert json.loads(text)
