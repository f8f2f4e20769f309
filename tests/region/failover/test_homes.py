"""The home directories in a failover: their replicas are opened after the first region has stopped, also if it does not respond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.region.failover import HomePair
from gpuinfra.region.failover import steps
from gpuinfra.region.failover.journal import DONE, UNREACHABLE
from tests.region.failover.test_steps import run, states
from tests.region.failover.world import World

HOME = HomePair(source="home-first", replica="home-second")


@dataclass
class Homes(World):
    """A world with home directories. It implements `gpuinfra.clouds.region.failover.ReplicatedHomes`."""

    rounds: int = 2
    """Questions until the replication has ended."""

    def homes(self, resources: Iterable[Any]) -> tuple[HomePair, ...]:
        return (HOME,)

    def home_synced(self, pair: HomePair, since: datetime) -> bool:
        self._ask("first", f"sync {pair.source}")
        return True

    def home_opened(self, pair: HomePair, *, alone: bool) -> bool:
        self._ask("second", f"open {pair.replica}{' alone' if alone else ''}")
        self.rounds -= 1
        return not self.rounds

    def home_returned(self, pair: HomePair) -> bool:
        return True

    def home_accepts(self, pair: HomePair) -> bool:
        return True


def test_replicas_of_home_directories_open_after_the_newest_files_arrived(tmp_path: Path) -> None:
    """The nodes of the first region have ended before the last files are awaited, and the replication ends before jobs can start in the second region."""
    world = Homes()
    result = run(world, tmp_path)
    assert result.ok
    assert world.calls[-5:] == ["detach scratch-second", "sync home-first", "open home-second", "open home-second", "import fs-1"]  # fmt: skip


@pytest.mark.parametrize("wait", [900.0, 0.0])
def test_replicas_of_home_directories_open_without_the_first_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """The missing files are recorded, and after a time the replication ends without the first region."""
    monkeypatch.setattr(steps, "ALONE_AFTER_S", wait)
    world = Homes(down={"first", "groups", "objects"})
    result = run(world, tmp_path, unreachable=True, stop_first=True)
    assert states(result)["sync"] == UNREACHABLE
    assert states(result)["homes"] == DONE
    assert f"open home-second{'' if wait else ' alone'}" in world.calls
