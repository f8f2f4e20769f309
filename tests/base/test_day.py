"""The evaluation date, and a shipped example after its capacity window."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest

from gpuinfra.base.day import VARIABLE, read_day, today
from gpuinfra.base.errors import UsageError
from gpuinfra.cli.stack_context import plan_of
from gpuinfra_rehearsal.cloud.aws import schedules

AFTER = date(2028, 1, 1)
BEFORE = date(2026, 11, 21)


def test_variable_sets_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUINFRA_TODAY sets the date, the local date is the default, and an invalid value is refused with an example."""
    monkeypatch.setenv(VARIABLE, "2031-02-03")
    assert today() == date(2031, 2, 3)
    monkeypatch.delenv(VARIABLE)
    assert today() == date.today()
    with pytest.raises(UsageError, match=r"--on is 'tomorrow'; allowed: a date such as 2026-12-01"):
        read_day("tomorrow", "--on")


def _plan(day: date) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "gpuinfra", "plan", "aws-p5-block", "--on", str(day)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def test_example_after_its_window_is_planned_without_nodes() -> None:
    """`gpuinfra plan --on` sets the date of the rules. A Capacity Block that has ended is a warning, and its group has no nodes."""
    done = _plan(AFTER)
    assert done.returncode == 0, done.stderr
    assert (
        "warn: pools[0].capacity[0].ends_at is 2027-05-17T11:30:00Z, which has passed, so the group has no nodes"
        in done.stderr
    )
    assert "--on" in done.stderr
    assert "which has passed" not in _plan(BEFORE).stderr


def test_evidence_of_an_ended_block_can_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that operate on nodes have a plan for the stack after the end of its Capacity Block, with the expectation of each pool."""
    monkeypatch.setenv(VARIABLE, str(AFTER))
    (pool,) = plan_of("aws-p5-block").pools
    assert (pool.count, pool.expectation["gpus"]) == (0, 8)


def test_schedules_use_the_date_of_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in cloud evaluates scheduled actions on the rehearsed date."""
    monkeypatch.setenv(VARIABLE, "2020-05-05")
    assert schedules._moment("2020-05-04T00:00:00Z") < schedules._now() < schedules._moment("2020-05-07T00:00:00Z")
