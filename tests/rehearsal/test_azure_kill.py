"""`kill -9` during an `up` on Azure, then the same command again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_kill import assert_complete, kill_in_the_middle

STACK = "azure-ndv4"


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize(("who", "seed"), [("leader", 40), ("group", 41), ("group", 42), ("leader", 43)])
def test_killed_on_azure(rehearse: Rehearse, tmp_path: Path, who: str, seed: int) -> None:
    """Azure's ids are paths of names, deleted vaults keep their names, and a set can have machines before its create ends."""
    kill_in_the_middle(tmp_path / "r" / STACK, who, seed, STACK)
    assert_complete(rehearse("up", STACK))
