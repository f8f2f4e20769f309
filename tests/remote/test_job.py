"""`gpuinfra run -N` against real OpenSSH: one job on several hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.remote import supervisor
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.job import Job
from tests.servers import free_port

from .servers import Lab, needed
from .test_run import fleet, gpuinfra, hosts_file

__all__ = ["fleet"]
pytestmark = needed()
PATIENCE_S = 300


def gone(pid: int) -> bool:
    """Whether a process ended; a zombie ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def until(condition: Any) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_each_node_knows_its_place(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """The nodes get the same master and different ranks, output has the name of its node, and each node has a log."""
    logs = tmp_path / "logs"
    line = "echo $NODE_RANK of $NNODES, $MASTER_ADDR:$MASTER_PORT, $GPUINFRA_NODES"
    done = gpuinfra(
        "run", "-N", "2", "--port", "29611", "--logs", str(logs), "--hosts", hosts_file(lab, fleet), "--", line
    )
    assert done.returncode == 0, done.stderr
    rest = "of 2, 127.0.0.1:29611, 127.0.0.1,127.0.0.1"
    assert sorted(done.stdout.splitlines()) == [f"a | 0 {rest}", f"b | 1 {rest}"]
    assert (logs / "b.log").read_text() == f"1 {rest}\n"
    assert f"logs: {logs}" in done.stderr


def test_the_nodes_run_at_the_same_time(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """Both nodes take part in one all-reduce over a socket of node 0, each with its own value."""
    program = tmp_path / "reduce.py"
    program.write_text(
        "import os, socket, time\n"
        "rank, at = int(os.environ['NODE_RANK']), (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if rank == 0:\n"
        "    peer, _ = socket.create_server(at).accept()\n"
        "else:\n"
        "    while True:\n"
        "        try: peer = socket.create_connection(at); break\n"
        "        except OSError: time.sleep(0.05)\n"
        "peer.sendall(b'%d\\n' % (rank + 1))\n"
        "print('sum', rank + 1 + int(peer.makefile().readline()))\n"
    )
    port = free_port()
    words = ("run", "-N", "2", "--port", str(port), "--logs", str(tmp_path), "--hosts", hosts_file(lab, fleet))
    done = gpuinfra(*words, "--", sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["a | sum 3", "b | sum 3"]


def test_a_failure_on_one_node_ends_the_job(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """The exit code is the one of the first failure. Processes in other sessions of the other node end too."""
    pids = tmp_path / "pids"
    line = (
        f"if [ $NODE_RANK = 1 ]; then until [ $(cat {pids} 2>/dev/null | wc -l) = 2 ]; do sleep 0.1; done; exit 7; fi; "
        f"setsid sh -c 'echo $$ >>{pids}; exec sleep 1000' & trap '' TERM; echo $$ >>{pids}; sleep 1000 & wait; wait"
    )
    done = gpuinfra("run", "-N", "2", "--json", "--logs", str(tmp_path), "--hosts", hosts_file(lab, fleet), "--", line)
    assert done.returncode == 7, done.stderr
    assert "b failed first, with exit code 7; the other nodes were stopped" in done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["exit"]) == ("gpuinfra.job/1", 7)
    assert [(one["label"] or one["name"], one["rank"], one["exit"]) for one in found["nodes"]] == [
        ("a", 0, 143),
        ("b", 1, 7),
    ]
    assert all(gone(int(pid)) for pid in pids.read_text().split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_job_ends_with_the_command(lab: Lab, fleet: dict[str, Any], tmp_path: Path, number: int) -> None:
    """After Ctrl-C, and also after gpuinfra itself is killed, no process of the job is left on the nodes."""
    pids = tmp_path / "pids"
    line = f"echo $$ >>{pids}; exec sleep 1000"
    words = ["run", "-N", "2", "--logs", str(tmp_path), "--hosts", hosts_file(lab, fleet), "--", line]
    # A shell in the background starts processes that ignore SIGINT.
    process = subprocess.Popen(
        [sys.executable, "-c", (
            "import signal,os,sys;signal.signal(signal.SIGINT,signal.default_int_handler);"
            "os.execv(sys.executable,[sys.executable,'-m','gpuinfra',*sys.argv[1:]])"
        ), *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if number == signal.SIGINT else -9), said
    until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))


def test_nothing_starts_if_a_node_cannot_be_reached(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """If the connection to one node fails, the command runs on no node."""
    mark = tmp_path / "started"
    words = ("run", "-N", "4", "--logs", str(tmp_path / "logs"), "--hosts", hosts_file(lab, fleet))
    done = gpuinfra(*words, "--", f"touch {mark}")
    assert done.returncode == 255
    assert "which is not in" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-N", "5"), "-N is 5, but only these hosts are available: a, b, c, stranger; specify at most 4"),
        (("-N", "2", "--per-gpu"), "--per-gpu requires a stack"),
        (("-N", "2", "--timeout", "5"), "--timeout has no effect with -N"),
        (("-N", "2", "--parallel", "5"), "--parallel has no effect with -N"),
        (("--per-gpu",), "--per-gpu has no effect without -N"),
        (("-N", "2", "--container", "image"), "--container requires a stack"),
        (("--container", "image"), "--container has no effect without -N"),
        (("--logs", "x"), "--logs has no effect without -N"),
    ],
)
def test_options_without_effect_are_refused(
    lab: Lab, fleet: dict[str, Any], words: tuple[str, ...], problem: str
) -> None:
    """A wrong number of nodes, and an option that has no effect, end with one message."""
    done = gpuinfra("run", *words, "--hosts", hosts_file(lab, fleet), "--", "true")
    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_output_that_cannot_be_written_ends_the_job(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """If the reader of the output ends, the job ends too, and no connection is reported as lost."""
    pids = tmp_path / "pids"
    words = ["run", "-N", "2", "--logs", str(tmp_path / "logs"), "--hosts", hosts_file(lab, fleet), "--"]
    line = f"echo $$ >>{pids}; while echo out; do sleep 0.1; done"
    started = [sys.executable, "-m", "gpuinfra", *words, line]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        process.stdout.close()
        assert "lost" not in process.stderr.read()
    until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()))


def test_logs_are_private_and_new(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """The folder has the name of the hosts file and a mode of 0700; a log is never overwritten."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, "-m", "gpuinfra", "run", "-N", "1", "--hosts", hosts_file(lab, fleet)]
    line = "echo " + "a/b.c " * 60
    done = subprocess.run([*words, "--", line], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "state/gpuinfra/runs").iterdir()
    assert folder.name.startswith("hosts-20")
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder / "a.log")] == [0o700, 0o700, 0o600]
    again = subprocess.run([*words, "--logs", str(folder), "true"], capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "a.log already exists" in again.stderr
    assert (folder / "a.log").read_text().startswith("a/b.c")


@pytest.mark.parametrize(("start", "code", "calls"), [(0, 3, "start run stop"), (1, 125, "start")])
def test_the_receive_manager_runs_during_the_job(tmp_path: Path, start: int, code: int, calls: str) -> None:
    """The manager starts before the command and stops after it. If it does not start, the command does not run."""
    log, manager, sudo = tmp_path / "log", tmp_path / "manager", tmp_path / "sudo"
    manager.write_text(f"#!/bin/sh\necho $1 >>{log}\n[ $1 = stop ] || exit {start}\n")
    sudo.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    for file in (manager, sudo):
        file.chmod(0o755)
    host = Host(name="a", address="127.0.0.1")
    order = {**Job(command=f"echo run >>{log}; exit 3", gpus=0).order([host], 0), "managers": [str(manager)]}
    process = subprocess.Popen(
        [sys.executable, supervisor.__file__],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    with process:
        assert process.stdin
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == code
    assert log.read_text().split() == calls.split()
