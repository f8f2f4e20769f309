"""A notice about a node reaches the processes of a job as a signal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuinfra.node.journal import write_whole
from gpuinfra.node.notices import Notice, NoticeKind, NoticeStage, dumped
from gpuinfra.remote import supervisor
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.job import Job, NoticeSignal

PATIENCE_S = 300
"""Stops a test that hangs."""
HANDLES = "trap 'echo saved' USR1; touch {ready}; until [ -e {end} ]; do sleep 0.05; done"
"""A job that handles the signal, and ends when a test creates a file."""
IGNORES = "touch {ready}; until [ -e {end} ]; do sleep 0.05; done"


class RunningJob:
    """A job on one node with a file of notices."""

    def __init__(self, folder: Path, command: str, number: NoticeSignal, container: dict[str, str] | None) -> None:
        self.notices, self.ready, self.end = folder / "notices.json", folder / "ready", folder / "end"
        self.command = command.format(ready=self.ready, end=self.end)
        order = Job(command=self.command, gpus=0, notice_signal=number).order([Host(name="a", address="127.0.0.1")], 0)
        assert order["notices"] == {"path": "/run/gpuinfra/notices.json", "signal": number.number}
        self.order = {**order, "managers": [], "notices": {"path": str(self.notices), "signal": number.number}}
        if container:
            self.order["container"] = container
        self.output = folder / "output"

    def write(self, *notices: Notice) -> None:
        """Write notices as the service of the node does."""
        write_whole(self.notices, dumped(notices))

    def await_text(self, text: str) -> str:
        """Wait until the output contains a text, and return the output."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if text in self.output.read_text():
                return self.output.read_text()
            time.sleep(0.02)
        raise AssertionError(self.output.read_text())

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job until it ends."""
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, supervisor.__file__], stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        with process:
            assert process.stdin
            process.stdin.write(json.dumps(self.order).encode() + b"\n")
            process.stdin.flush()
            until = time.monotonic() + PATIENCE_S
            while not self.ready.exists() and time.monotonic() < until:
                time.sleep(0.02)
            yield process
            self.end.touch()
            assert process.wait(PATIENCE_S) == 0


def job(
    folder: Path,
    command: str = HANDLES,
    number: NoticeSignal = NoticeSignal.USR1,
    container: dict[str, str] | None = None,
) -> RunningJob:
    """A job that is not started."""
    return RunningJob(folder, command, number, container)


def imminent(name: str = "spot 1", stage: NoticeStage = NoticeStage.IMMINENT) -> Notice:
    """A notice with a deadline."""
    return Notice(name, NoticeKind.RECLAIM, "spot interruption: terminate", 1795860000.0, stage=stage)


def test_an_imminent_notice_signals_the_job_once(tmp_path: Path) -> None:
    """A process that handles the signal receives it, and the output contains the notice and its deadline."""
    one = job(tmp_path)
    with one.running():
        one.write(imminent())
        text = one.await_text("saved")
        assert "gpuinfra: notice: spot interruption: terminate, not before 2026-11-28T10:00:00Z; sent SIGUSR1 to 1 processes" in text  # fmt: skip
        one.write(imminent(), imminent("next", NoticeStage.ANNOUNCED))
        time.sleep(3 * supervisor.NOTICES_S)
    assert one.output.read_text().count("saved") == 1


def test_a_process_without_a_handler_is_not_ended(tmp_path: Path) -> None:
    """The default action of the signal would end the process, so it does not receive the signal."""
    one = job(tmp_path, IGNORES)
    with one.running() as process:
        one.write(imminent())
        one.await_text("sent SIGUSR1 to 0 processes")
        assert process.poll() is None


@pytest.mark.parametrize(
    ("number", "notice"), [(NoticeSignal.NONE, imminent()), (NoticeSignal.USR2, imminent())], ids=["none", "usr2"]
)
def test_only_the_chosen_signal_is_sent(tmp_path: Path, number: NoticeSignal, notice: Notice) -> None:
    """With `none`, the job only prints the notice. With another signal, a handler of USR1 does not run."""
    one = job(tmp_path, number=number)
    with one.running():
        one.write(notice)
        one.await_text("gpuinfra: notice")
        time.sleep(0.2)
    assert "saved" not in one.output.read_text()
    assert ("; sent" in one.output.read_text()) is (number is not NoticeSignal.NONE)


def test_an_announced_notice_does_not_signal(tmp_path: Path) -> None:
    """Maintenance that is days ahead, and a recommendation, do not disturb the job."""
    one = job(tmp_path)
    with one.running():
        one.write(imminent(stage=NoticeStage.ANNOUNCED))
        time.sleep(3 * supervisor.NOTICES_S)
    assert one.output.read_text() == ""


def test_a_job_that_starts_after_the_notice_prints_it(tmp_path: Path) -> None:
    """The job starts with a warning, and gets no signal, because its processes do not handle signals yet."""
    one = job(tmp_path)
    one.write(imminent())
    with one.running():
        time.sleep(3 * supervisor.NOTICES_S)
    assert one.output.read_text().startswith("gpuinfra: notice: spot interruption")
    assert "sent" not in one.output.read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"notices": 3}'])
def test_a_damaged_file_does_not_disturb_the_job(tmp_path: Path, text: str) -> None:
    """A job continues without notices if the file has another form."""
    one = job(tmp_path)
    with one.running() as process:
        one.notices.write_text(text)
        time.sleep(3 * supervisor.NOTICES_S)
        assert process.poll() is None


def test_processes_in_a_container_are_signaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a container are not descendants of the supervisor, so Docker lists them."""
    ready, end, out = tmp_path / "inside", tmp_path / "end-inside", tmp_path / "out"
    inside = f"trap 'echo saved >{out}' USR1; touch {ready}; until [ -e {end} ]; do sleep 0.05; done"
    container = subprocess.Popen(["bash", "-c", inside])
    sudo = tmp_path / "sudo"
    sudo.write_text(
        f'#!/bin/sh\ncase "$*" in *"docker top gpuinfra-job"*) printf "PID\\n{container.pid}\\n" ;; *"docker run"*) touch {tmp_path}/ready; '
        f"until [ -e {tmp_path}/end ]; do sleep 0.05; done ;; esac\n"
    )
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings = {
        "name": "gpuinfra-job",
        "gpus": 0,
        "devices": [],
        "mounts": [],
        "paths": [],
        "profiles": [],
        "image": "i",
    }
    one = job(tmp_path, container=settings)  # type: ignore[arg-type]
    with container:
        while not ready.exists():
            time.sleep(0.02)
        with one.running():
            one.write(imminent())
            one.await_text("sent SIGUSR1 to 1 processes")
        end.touch()
        container.wait(PATIENCE_S)
    assert out.read_text() == "saved\n"


def test_a_drained_node_accepts_no_job(tmp_path: Path) -> None:
    """A job on a node that the control node took out of use does not start, and says why. A job that already runs is signaled and goes on."""
    drain = Notice(
        "repair i-1", NoticeKind.DRAIN, "the control node holds this node: G10", None, stage=NoticeStage.IMMINENT
    )
    started = job(tmp_path)
    with started.running():
        started.write(drain)
        started.await_text("saved")
    started.end.unlink()
    started.ready.unlink()
    given = json.dumps(started.order).encode() + b"\n"
    ended = subprocess.run(
        [sys.executable, supervisor.__file__], input=given, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == supervisor.DRAINED
    assert b"accepts no jobs: the control node holds this node: G10" in ended.stderr
    assert not started.ready.exists()
