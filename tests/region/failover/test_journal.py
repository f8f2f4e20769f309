"""The journal of a failover: locks, other stacks and declarations, and a kill at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinfra.base.errors import GpuinfraError, UsageError
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import up
from gpuinfra.region.failover.journal import DONE, STARTED, FailoverJournal
from gpuinfra.region.failover.run import run_steps
from gpuinfra.region.failover.steps import FailoverStep

HANG_S = 300.0
FILES = {"aws-recovery": "1", "aws-recovery-us-west-2": "2"}


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """The path of a stack file."""
    return tmp_path / "Pulumi.aws-recovery.yaml"


def opened(stack: Path) -> FailoverJournal:
    """The journal of the stack, in the folder of the test."""
    return FailoverJournal(stack, stack.parent)


def begun(stack: Path) -> Path:
    """Begin a journal and return its path."""
    journal = opened(stack)
    journal.begin("aws-recovery", "us-west-2", FILES)
    journal.close()
    return journal.path


def test_minutes_are_those_of_the_finished_steps(stack: Path) -> None:
    """Steps of the same name or beginning count together, from start to end. A step that failed or was not started has no duration."""
    path = begun(stack)
    body = json.loads(path.read_text())
    times = {"started": "2026-11-28T09:00:00+00:00", "ended": "2026-11-28T09:30:00+00:00"}
    body["steps"] = {
        "fence": {"state": DONE, **times}, "copy a": {"state": DONE, **times}, "copy b": {"state": DONE, **times},
        "drain": {"state": "failed", **times}, "verify": {"state": DONE, "started": None, "ended": times["ended"]},
    }  # fmt: skip
    path.write_text(json.dumps(body))
    journal = opened(stack)
    found = [
        journal.minutes(*names)
        for names in (("fence",), ("copy ",), ("fence", "copy "), ("drain",), ("verify",), ("up",))
    ]
    journal.close()
    assert found == [30.0, 60.0, 90.0, None, None, None]


def test_a_step_that_runs_again_has_no_end(stack: Path) -> None:
    """A step that is done and runs again has not ended, as after an interruption."""
    begun(stack)
    journal = opened(stack)
    journal.start("up west")
    journal.finish("up west", DONE, "2 of 2 nodes")
    journal.repeat("up west")
    assert (journal.state("up west"), journal.entry("up west")["ended"]) == (STARTED, None)
    journal.close()


@pytest.mark.parametrize(
    ("region", "files", "text"),
    [
        ("us-east-2", FILES, "the failover in progress moves the stack to us-west-2"),
        ("us-west-2", {**FILES, "aws-recovery": "3"}, "the declaration of aws-recovery changed"),
        ("us-west-2", {"aws-recovery": "1"}, "the declaration of aws-recovery-us-west-2 changed"),
    ],
)
def test_other_region_or_declaration_is_refused(stack: Path, region: str, files: dict[str, str], text: str) -> None:
    """A failover continues only to the same region and with the same declarations; the message names the way back."""
    begun(stack)
    journal = opened(stack)
    journal.check("us-west-2", FILES)
    with pytest.raises(UsageError, match=text) as found:
        journal.check(region, files)
    journal.close()
    assert "undo the failover with --abort" in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "other/1", "steps": {}}',
        '{"schema": "gpuinfra.failover-journal/1", "steps": {}, "file": "/other"}',
    ],
)
def test_file_that_is_no_journal_of_the_stack_is_refused(stack: Path, text: str) -> None:
    """A truncated file, another format and the journal of another stack are one error with the path."""
    begun(stack).write_text(text)
    with pytest.raises(GpuinfraError, match="is not a journal of") as found:
        opened(stack)
    assert "remove the file" in str(found.value)
    with pytest.raises(GpuinfraError, match="is not a journal of"):
        opened(stack)  # The lock was released.


def test_two_runs_exclude_each_other(stack: Path) -> None:
    """A second run is refused until the first one closes its journal."""
    journal = opened(stack)
    with pytest.raises(GpuinfraError, match="is running"):
        opened(stack)
    journal.close()
    opened(stack).close()


def test_kill_at_random_moments_resumes(stack: Path) -> None:
    """Steps run in order, a step that is done never runs again, and the journal is readable after each of at least ten kills."""
    path = begun(stack)
    log, chance = stack.with_name("log"), random.Random(15)

    def step(name: str) -> FailoverStep:
        def work(again: bool) -> str:
            with log.open("a") as file:
                file.write(f"{name} {again}\n")
            time.sleep(0.02)
            return name

        return FailoverStep(name=name, what=name, run=work)

    steps = [step(f"s{number}") for number in range(8)]

    def child() -> None:
        journal = opened(stack)
        run_steps(journal, steps, lambda line: None)

    kills, done = 0, list[str]()
    while kills < 10 or len(done) < len(steps):
        if kills >= 10:
            _wait(_fork(child))
        else:
            pid = _fork(child)
            time.sleep(chance.uniform(0.0, 0.04))
            os.kill(pid, signal.SIGKILL)
            _wait(pid)
            kills += 1
        journal = opened(stack)
        now = [one.name for one in steps if journal.state(one.name) == DONE]
        assert now == [one.name for one in steps][: len(now)]
        assert now[: len(done)] == done
        done = now
        journal.close()
    ran = [line.split()[0] for line in log.read_text().splitlines()]
    assert ran == sorted(ran)
    assert set(ran) == {one.name for one in steps}
    assert len(ran) <= len(steps) + kills
    assert json.loads(path.read_text())["ended"]


def test_engine_of_a_killed_run_excludes_the_next_one(stack: Path, tmp_path: Path) -> None:
    """The engine inherits the lock: after a kill, the failover continues when the engine has ended."""
    begun(stack)
    started, stop = tmp_path / "started", tmp_path / "stop"
    program = tmp_path / "pulumi"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = up ] || exit 0\ntouch {started}\nwhile ! [ -e {stop} ]; do sleep 0.02; done\n'
    )
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=tmp_path, source="path")

    def child() -> None:
        journal = opened(stack)
        with (tmp_path / "output").open("w") as output:
            up(engine, "one", tmp_path, output=output, keep=[journal.lock])

    pid = _fork(child)
    _until(started.exists)
    os.kill(pid, signal.SIGKILL)
    _wait(pid)
    with pytest.raises(GpuinfraError, match="the engine of an interrupted run is still running"):
        opened(stack)
    stop.touch()

    def free() -> bool:
        try:
            opened(stack).close()
        except GpuinfraError:
            return False
        return True

    _until(free)


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _wait(pid: int) -> None:
    os.waitpid(pid, 0)


def _until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + HANG_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)
