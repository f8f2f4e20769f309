"""Edits of a stack file whose pools had no nodes for a while."""

from __future__ import annotations

from pathlib import Path

from gpuinfra.base.people_files import existing
from gpuinfra.search.placements import text_without_nodes, with_nodes_again
from gpuinfra.spec.load import read_stack

from .world import TEXT


def test_pools_get_their_declared_counts_back(tmp_path: Path) -> None:
    """Counts that are still 0 become those of the declaration, and counts and comments that a person edited stay."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    declared = read_stack(path)
    idle = text_without_nodes(declared, TEXT, {"gpu", "small"})
    assert idle.count("count: 0") == 2
    path.write_text(
        idle.replace("kind: on_demand, count: 0", "kind: on_demand, count: 5").replace(
            "# The training", "# My training"
        )
    )
    restored = with_nodes_again(existing(path), declared, {"gpu", "small"})
    path.write_text(restored)
    assert [one.capacity[0].count for one in read_stack(path).spec.pools] == [2, 5]
    assert restored.startswith("# My training cluster.")
