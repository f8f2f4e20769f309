"""Stopping the jobs on a node, with real processes in a process namespace of their own."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gpuinfra.errors import DeploymentError
from gpuinfra.remote.drain import SCRIPT, stopped

ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
JOB = 'name={name}; sh -c "sleep 1000; : $name-supervisor" & {id}=$!; '
"""The command line of the shell that starts the job does not contain the name of the job."""


def alone(command: str) -> str:
    """Run a command in a process namespace, so that it sees only its own processes. Return its output."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow process namespaces")
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
