"""The day that windows and prices are judged by, and what becomes of a shipped example after its window."""

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


def test_the_day_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable names the day; without it the day is this machine's; a word that is no day is refused with an example."""
    monkeypatch.setenv(VARIABLE, "2031-02-03")
    assert today() == date(2031, 2, 3)
    monkeypatch.delenv(VARIABLE)
    assert today() == date.today()
    with pytest.raises(UsageError, match=r"--on is 'tomorrow'; allowed is a day such as 2026-12-01"):
        read_day("tomorrow", "--on")


def test_an_example_whose_window_has_passed_says_what_to_do() -> None:
    """A block that has ended is refused before anything starts, with the field, the end and the way to rehearse it all the same."""
    with pytest.raises(Exception, match=r"capacity\[0\]\.ends_at is 2027-05-17\S+, which has passed; .* --on "):
        read_options(Options(stack="aws-p5-block", on=AFTER))
    _, _, loaded = read_options(Options(stack="aws-p5-block", on=BEFORE))
    assert loaded is not None


def test_the_command_takes_the_day(tmp_path: Path) -> None:
    """`gpuinfra rehearse --on` reaches the rules: the same stack is refused as of a later day, in one message without a traceback."""
    words = [sys.executable, "-m", "gpuinfra", "rehearse", "preview", "aws-p5-block", "--on", str(AFTER)]
    done = subprocess.run([*words, "--folder", str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "which has passed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_schedule_goes_by_the_day_of_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's clock stands on the day that is rehearsed, so that a group is not emptied by an end that is yet to come."""
    monkeypatch.setenv(VARIABLE, "2020-05-05")
    assert schedules._moment("2020-05-04T00:00:00Z") < schedules._now() < schedules._moment("2020-05-07T00:00:00Z")
