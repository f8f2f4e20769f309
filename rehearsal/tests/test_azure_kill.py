"""`kill -9` during an `up` on Azure, then the same command again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, fewer_nodes
from .test_kill import assert_complete, kill_in_the_middle

STACK = "azure-ndv4"


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize(("who", "seed"), [("leader", 40), ("group", 41)])
def test_killed_on_azure(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """Azure's ids are paths of names, deleted vaults keep their names, and a set can have machines before its create ends."""
    stack = fewer_nodes(STACK, tmp_path)
    kill_in_the_middle(tmp_path / "r", who, seed, stack)
    assert_complete(rehearse("up", stack))
