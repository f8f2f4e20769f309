"""What all tests share: the day, because declarations hold windows that end and prices that grow old."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from gpuinfra.day import VARIABLE

DAY = "2026-11-21"

# How fast a machine is on that day says nothing about what is tested.
settings.register_profile("any-pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-pace")


@pytest.fixture(autouse=True, scope="session")
def _the_day() -> object:
    """Programs and commands that a test starts take this day too: they inherit the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, DAY)
        yield
