"""Settings of all tests. The date is fixed, because specs contain capacity windows that end and prices that expire."""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

from gpuinfra.base.day import VARIABLE
from tests.distribution import pytest_xdist_make_scheduler  # noqa: F401 - a hook
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport, pytest_terminal_summary  # noqa: F401 - hooks

DAY = "2026-11-21"
LONGEST_ID = 120
"""Maximum length of the part of a test's ID that its parameters make."""

# The speed of the machine is not under test.
settings.register_profile("any-pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-pace")

# A shell without job control starts background commands with SIGINT ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _the_day() -> object:
    """Set the date in the environment, which programs and commands that a test starts inherit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, DAY)
        yield


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return the start of a long text. Other values have the IDs of pytest."""
    text = val.decode("latin-1") if isinstance(val, bytes) else val
    if not isinstance(text, str) or len(text) <= 40:
        return None
    return f"{text[:36]}...".encode("unicode_escape").decode("ascii")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject parameter IDs that are longer than `LONGEST_ID`."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and len(item.callspec.id) > LONGEST_ID:
            raise pytest.UsageError(
                f"the ID of {item.nodeid[:200]} has {len(item.callspec.id)} characters after the name of the test; "
                f"pass `ids` to parametrize that are shorter than {LONGEST_ID} characters"
            )


def pytest_collection_finish() -> None:
    """Keep the collected tests out of the garbage collections, which otherwise take a fifth of the CPU time of tests that register resources."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
