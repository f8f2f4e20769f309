from __future__ import annotations

from typing import Any

from gpuinfra.handover.uniform import firmware_notes


def checks(found: Any, outcome: str = "pass", id: str = "G17") -> list[Any]:
    """The results of a node with these versions."""
    return [{"id": id, "found": found, "outcome": outcome}, {"id": "G1", "found": 8, "outcome": "pass"}]


OLD, NEW = (
    ["vbios_version 96.00.61", "gsp_firmware_version 580"],
    ["vbios_version 96.00.74", "gsp_firmware_version 580"],
)


def test_equal_nodes_have_no_note() -> None:
    """Nodes with the same firmware, pools with different firmware, and nodes without a result give no note."""
    nodes = [("gpu-1", "gpu", checks(OLD)), ("gpu-2", "gpu", checks(OLD)), ("big-1", "big", checks(NEW))]
    assert firmware_notes([*nodes, ("gpu-3", "gpu", checks(None, "error"))]) == []


def test_the_node_that_differs_is_named() -> None:
    """The note names the pool, the usual versions, and each node with others."""
    nodes = [("gpu-1", "gpu", checks(OLD)), ("gpu-2", "gpu", checks(NEW)), ("gpu-3", "gpu", checks(OLD))]
    (note,) = firmware_notes(nodes)
    assert note.startswith("gpu: gpu_firmware: 2 nodes with vbios_version 96.00.61")
    assert "but gpu-2 (vbios_version 96.00.74" in note


def test_many_nodes_are_counted() -> None:
    """At most eight nodes are named."""
    nodes = [(f"a-{n}", "gpu", checks(OLD)) for n in range(20)] + [(f"b-{n}", "gpu", checks(NEW)) for n in range(10)]
    (note,) = firmware_notes(nodes)
    assert "b-7 (" in note
    assert "b-8" not in note
    assert " and 2 more" in note
