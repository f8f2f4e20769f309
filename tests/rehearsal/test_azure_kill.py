"""`kill -9` in the middle of an `up` on Azure, then the same command again: complete, nothing twice, nobody left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_kill import assert_whole, kill_in_the_middle

STACK = "azure-ndv4"


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize(("who", "seed"), [("leader", 40), ("group", 41), ("group", 42), ("leader", 43)])
def test_a_cluster_on_azure_is_killed(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """Azure's ids are paths of names, deleted vaults keep theirs, and a set may have machines before its creation is over: the next run has all of it once."""
    kill_in_the_middle(tmp_path / "r" / STACK, who, seed, STACK)
    assert_whole(rehearse("up", STACK))
