"""The evaluation date, and a shipped example after its capacity window."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.day import VARIABLE, read_day, today
from gpuinfra.errors import UsageError
from gpuinfra.rehearsal.cloud.aws import schedules
from gpuinfra.rehearsal.session import Options, read_options

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


def test_example_after_its_window_is_refused_with_a_hint() -> None:
    """A capacity block that has ended is refused before anything starts; the hint names --on."""
    with pytest.raises(Exception, match=r"capacity\[0\]\.ends_at is 2027-05-17\S+, which has passed; .* --on"):
        read_options(Options(stack="aws-p5-block", on=AFTER))
    _, _, loaded = read_options(Options(stack="aws-p5-block", on=BEFORE))
    assert loaded is not None


def test_on_option_sets_the_date(tmp_path: Path) -> None:
    """`gpuinfra rehearse --on` sets the date of the rules: a later date is refused with one message."""
    words = [sys.executable, "-m", "gpuinfra", "rehearse", "preview", "aws-p5-block", "--on", str(AFTER)]
    done = subprocess.run([*words, "--folder", str(tmp_path)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "which has passed" in done.stderr
    assert "Traceback" not in done.stderr


def test_schedules_use_the_date_of_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in cloud evaluates scheduled actions on the rehearsed date."""
    monkeypatch.setenv(VARIABLE, "2020-05-05")
    assert schedules._moment("2020-05-04T00:00:00Z") < schedules._now() < schedules._moment("2020-05-07T00:00:00Z")
