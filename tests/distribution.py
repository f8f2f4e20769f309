"""How pytest-xdist distributes tests: by file, because the tests of a file share its fixtures, except files whose tests take long and share less."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

SHARED: dict[str, Callable[[str], str]] = {
    # Each test shares nothing with the others.
    "tests/mutation/test_mutation.py": lambda test: test,
    "rehearsal/tests/test_killed_requests.py": lambda test: test,
    "rehearsal/tests/test_life.py": lambda test: test,
    "rehearsal/tests/test_control_node.py": lambda test: test,
    # The scenarios of a cloud share its account. Their IDs start with the cloud.
    "rehearsal/tests/test_scenarios.py": lambda test: test.partition(":")[0],
    "rehearsal/tests/test_failover_scenarios.py": lambda test: test.partition(":")[0],
}
"""File -> from the name of a test with its parameters to what the tests have in common that one process runs in a row."""


def scope(nodeid: str) -> str:
    """Return what the tests that one process runs in a row have in common."""
    file, _, test = nodeid.partition("::")
    return f"{file}::{SHARED[file](test)}" if file in SHARED else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return the scheduler for `--dist loadfile`. Other distributions are those of pytest-xdist."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
