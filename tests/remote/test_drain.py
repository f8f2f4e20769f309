"""Stopping the jobs on a node, with real processes in a process namespace of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.node.notices import NoticeKind, notices_in
from gpuinfra.remote.drain import SCRIPT, JobStop, PlannedStop, drain_all, not_stopped, stopped
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
JOB = 'name={name}; sh -c "sleep 1000; : $name-supervisor" & {id}=$!; '
"""The command line of the shell that starts the job does not contain the name of the job."""


def alone(command: str) -> str:
    """Run a command in a process namespace, so that it sees only its own processes. Return its output."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow namespaces: process")
    done = subprocess.run([*ALONE, command], input=SCRIPT, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout


def test_job_is_stopped_and_other_processes_keep_running() -> None:
    """The supervisor of `gpuinfra run` ends on SIGTERM; a process that uses no GPU keeps running."""
    jobs = JOB.format(name="another", id="other") + JOB.format(name="gpuinfra", id="job")
    output = alone(f"{jobs} sh -s; kill -0 $other && echo other runs; wait $job; echo ended $?")
    assert output.splitlines() == ["stopped=1 left=0", "other runs", "ended 143"]


def test_idle_node_has_nothing_to_stop() -> None:
    """Without jobs, the script ends at once."""
    assert stopped(0, alone("sh -s")) == 0


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (0, "stopped=3 left=1\n", "1 of 3 processes did not end"),
        (1, "sudo: a password is required\n", "sudo: a password is required"),
        (0, "", "no output"),
    ],
)
def test_failure_has_its_reason(code: int, output: str, reason: str) -> None:
    """Processes that are left, and a script that did not run, are errors."""
    with pytest.raises(DeploymentError, match=re.escape(reason)):
        stopped(code, output)


class Nodes:
    """A connector to nodes, each of which has one job. A node answers when all nodes are connected."""

    def __init__(self, count: int) -> None:
        self.all = threading.Barrier(count, timeout=60)

    @contextmanager
    def connect(self, host: Host) -> Iterator[Any]:
        """Connect to a node. The node `unreachable` fails."""
        self.all.wait()
        if host.name == "unreachable":
            raise HostProblem(ProblemKind.UNREACHABLE, "no route to host", "check the network")
        yield SimpleNamespace(run=lambda *_, **__: SimpleNamespace(exit=0, output=b"stopped=1 left=0\n"))


def test_jobs_stop_on_all_nodes_at_the_same_time() -> None:
    """64 nodes are connected in parallel, and a node that fails or is unknown does not affect the others."""
    names = [*(f"i-{number}" for number in range(63)), "unreachable"]
    connector: Any = Nodes(len(names))
    found = drain_all(connector, [Host(name=name, address=name) for name in names], [*names, "i-unknown"])
    assert list(found) == [*names, "i-unknown"]
    assert {found[name] for name in names[:-1]} == {JobStop(done=True, text="1 process stopped")}
    assert found["unreachable"].text.startswith("jobs not stopped: ")
    assert "no route to host" in found["unreachable"].text
    assert found["i-unknown"] == not_stopped("the node is not in the state of the stack")
    assert drain_all(connector, [], []) == {}


def stop_with_notice(command: str, grace_s: int) -> str:
    """Stop the jobs of a command with a notice, in a process namespace. Return the output."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow namespaces: process")
    script = PlannedStop(what="it's a move", grace_s=grace_s).script(0.0)
    done = subprocess.run([*ALONE, command], input=script, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout


def planned_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the file of planned notices into a folder."""
    path = folder / "run/planned.json"
    monkeypatch.setattr("gpuinfra.remote.drain.PLANNED", str(path))
    return path


def test_a_job_that_ends_on_its_notice_is_not_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has the notice with its deadline while the job saves. The job ends by itself, and the notice is removed."""
    path = planned_in(tmp_path, monkeypatch)
    job = f'name=gpuinfra; sh -c "until [ -e {path} ]; do sleep 0.1; done; cp {path} {tmp_path}/seen; : $name-supervisor" & job=$!;'
    output = stop_with_notice(f"{job} sh -s; wait $job; echo ended $?", 60)
    assert output.splitlines() == ["stopped=1 left=0", "ended 0"]
    (notice,) = notices_in((tmp_path / "seen").read_text())
    assert (notice.kind, notice.what, notice.deadline) == (NoticeKind.STOP, "it's a move", 60.0)
    assert not path.exists()


def test_a_job_that_ignores_its_notice_ends_after_the_grace_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM follows after the grace time, and not before."""
    path = planned_in(tmp_path, monkeypatch)
    begin = time.monotonic()
    output = stop_with_notice(f"{JOB.format(name='gpuinfra', id='job')} sh -s; wait $job; echo ended $?", 2)
    assert output.splitlines() == ["stopped=1 left=0", "ended 143"]
    assert time.monotonic() - begin >= 2
    assert not path.exists()


@pytest.mark.parametrize("grace_s", [0, 60])
def test_without_jobs_nothing_is_announced(grace_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle node, and a stop without a grace time, have no notice."""
    path = planned_in(tmp_path, monkeypatch)
    job = JOB.format(name="gpuinfra", id="job") if grace_s == 0 else ""
    assert stopped(0, stop_with_notice(f"{job} sh -s", grace_s)) == (grace_s == 0)
    assert not path.parent.exists()
