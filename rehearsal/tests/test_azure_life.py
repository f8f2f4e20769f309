"""`gpuinfra rehearse life` on the stacks of Azure, with two nodes each."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, assert_lived, fewer_nodes

STACKS = ("azure-ndv4", "azure-ndv5", "azure-existing-network", "azure-monitoring", "azure-recovery")


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_life_of_clusters_on_azure(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The same steps with scale sets and attested documents."""
    assert_lived(rehearse("life", fewer_nodes(stack, tmp_path), "--under-least-permissions"))
