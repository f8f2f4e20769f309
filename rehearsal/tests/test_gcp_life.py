"""`gpuinfra rehearse life` on the stacks of Google Cloud, with two nodes each."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, assert_lived, fewer_nodes

STACKS = ("gcp-a3mega", "gcp-a3high", "gcp-a3ultra", "gcp-existing-network", "gcp-monitoring")


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", STACKS)
def test_life_of_clusters_on_google_cloud(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The same steps with managed instance groups and Google's identity tokens."""
    assert_lived(rehearse("life", fewer_nodes(stack, tmp_path), "--under-least-permissions"))
