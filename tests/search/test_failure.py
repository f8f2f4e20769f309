"""The price after a failed deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.search.failure import KEEP, Failed
from gpuinfra.search.placements import counts
from gpuinfra.spec.load import LoadedStack, read_stack

from .world import TEXT


def nodes(stack: LoadedStack) -> str:
    """The number of nodes, in place of a price."""
    return str(sum(entry.count or 0 for pool in stack.spec.pools for entry in pool.capacity))


def stack_with(path: Path, choice: str) -> LoadedStack:
    """Declare `handover.on_failure` in a stack file."""
    path.write_text(path.read_text().replace("    pools:", f"    handover: {{on_failure: {choice}}}\n    pools:"))
    return read_stack(path)


@pytest.mark.parametrize(("empty", "kept"), [((), "3"), (("gpu",), "1"), (("gpu", "small"), "0")])
def test_pools_without_groups_cost_nothing(tmp_path: Path, empty: tuple[str, ...], kept: str) -> None:
    """The price of `keep` does not contain the nodes of pools for which no placement has capacity, and the stack file does not change."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    failed = Failed(
        declared=read_stack(path), had_nodes=False, empty=empty, price=nodes, check_last=lambda: None,
        deploy=lambda: None, destroy=lambda: None, say=print
    )  # fmt: skip
    assert failed.prices()[KEEP] == kept
    assert path.read_text() == TEXT


def test_counts_are_printed_before_they_are_replaced(tmp_path: Path) -> None:
    """`scale_to_zero` prints the count of each capacity entry, so that you can restore it. A pool whose counts are 0 already has no line."""
    path, lines = tmp_path / "Pulumi.find.yaml", list[str]()
    mixed = "[{kind: reserved, id: cr-0123456789abcdef0, count: 4}, {kind: spot, count: 2}]"
    path.write_text(TEXT.replace("{kind: on_demand, count: 1}", mixed))
    failed = Failed(
        declared=stack_with(path, "scale_to_zero"), had_nodes=False, price=nodes, check_last=lambda: None,
        deploy=lambda: None, destroy=lambda: None, say=lines.append
    )  # fmt: skip
    failed.act()
    assert lines[1:] == ["pool gpu: count was 2 (spot)", "pool small: count was 4 (reserved) and 2 (spot)"]
    assert nodes(read_stack(path)) == "0"
    failed.act()
    assert len(lines) == 4


def test_counts_are_those_of_the_selected_pools(tmp_path: Path) -> None:
    """Other pools, whose counts stay in the file, are not listed."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    assert counts(read_stack(path), {"small"}) == {"small": "1 (on-demand)"}
