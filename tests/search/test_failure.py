"""The price after a failed deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.search.failure import KEEP, Failed
from gpuinfra.spec.load import LoadedStack, read_stack

from .world import TEXT


def nodes(stack: LoadedStack) -> str:
    """The number of nodes, in place of a price."""
    return str(sum(entry.count or 0 for pool in stack.spec.pools for entry in pool.capacity))


@pytest.mark.parametrize(("empty", "kept"), [((), "3"), (("gpu",), "1"), (("gpu", "small"), "0")])
def test_pools_without_groups_cost_nothing(tmp_path: Path, empty: tuple[str, ...], kept: str) -> None:
    """The price of `keep` does not contain the nodes of pools for which no placement has capacity, and the stack file does not change."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    failed = Failed(
        declared=read_stack(path), had_nodes=False, empty=empty, price=nodes, deploy=lambda: None, destroy=lambda: None, say=print
    )  # fmt: skip
    assert failed.prices()[KEEP] == kept
    assert path.read_text() == TEXT
