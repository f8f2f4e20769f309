"""`gpuinfra run -N --container` against real OpenSSH, with a stand-in docker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.job import container_of
from gpuinfra.plan.make import build_plan
from gpuinfra.remote import container, job, supervisor
from gpuinfra.remote.container import JobContainer
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, declaration, lustre

from . import stand_in_docker
from .servers import Lab, needed
from .test_job import gone, until

Runs = Callable[..., tuple[job.JobResult, list[bytes]]]


@pytest.fixture
def runs(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Run a command in a container on two nodes, with a profile of the fabric and one of two devices."""
    bin = tmp_path / "bin"
    bin.mkdir()
    at = stand_in_docker.install(bin)
    profile = tmp_path / "profile.sh"
    profile.write_text("export NCCL_NET=fabric\n")
    variables = tmp_path / "variables.sh"
    variables.write_text("export HF_HOME='/scratch/hugging face'\n")
    monkeypatch.setattr(container, "PROFILE", str(profile))
    monkeypatch.setattr(container, "VARIABLES", str(variables))
    monkeypatch.setattr(container, "PATHS", (str(profile), str(variables), "/missing"))
    monkeypatch.setattr(container, "DEVICES", ("/dev/null", "/dev/missing"))
    key = lab.keygen("host")
    port = lab.serve(key=key, more=f'ForceCommand PATH={bin}:$PATH exec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    nodes = [lab.host(port, name) for name in ("a", "b")]

    def run(command: str, on_output: Callable[[int, bytes], None] | None = None) -> tuple[job.JobResult, list[bytes]]:
        output = [b"", b""]

        def add(rank: int, chunk: bytes) -> None:
            output[rank] += chunk
            if on_output:
                on_output(rank, chunk)

        ordered = job.Job(command=command, gpus=8, container=JobContainer(image="registry/image:1", mounts=("/",)))
        return job.run(
            lab.connector(*nodes, known=f"[127.0.0.1]:{port} {lab.public(key)}\n"), nodes, ordered, add
        ), output

    daemon = subprocess.Popen([sys.executable, stand_in_docker.__file__, str(at)])
    try:
        until(at.exists)
        yield run
    finally:
        daemon.terminate()
        daemon.wait()


@needed()
def test_the_container_has_the_place_the_user_and_the_fabric(runs: Runs) -> None:
    """Each node runs the command in a container with the environment of the job, the profile of the fabric and the declared variables; its exit code counts."""
    result, output = runs("echo $NODE_RANK/$NNODES $GPUS_PER_NODE $NCCL_NET $HF_HOME $USER $HOME $PWD; exit 3")
    home = str(Path.home())
    user = subprocess.check_output(["id", "-un"], text=True).strip()
    assert result.exit == 3
    assert result.first
    rank = result.nodes.index(result.first)
    assert output[rank].decode() == f"{rank}/2 8 fabric /scratch/hugging face {user} {home} {home}\n"


@needed()
@pytest.mark.parametrize(
    ("trap", "code"), [("trap 'echo ended; exit 0' TERM", 0), ("trap '' TERM", None)], ids=["ends", "ignores"]
)
def test_an_interrupt_ends_the_containers(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str, code: int | None
) -> None:
    """After Ctrl-C, each container receives SIGTERM; a container that ignores it is removed."""
    monkeypatch.setattr(job, "GRACE_S", 0.5 if code is None else 60.0)
    pids, ready = tmp_path / "pids", []

    def interrupt(rank: int, chunk: bytes) -> None:
        if b"ready" in chunk:
            ready.append(rank)
            if len(ready) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        line = f"{trap}; echo $$ >>{pids}; echo ready; while :; do sleep 0.1; done"
        result, output = runs(line, interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted
    assert [b"ended" in one for one in output] == [code == 0] * 2
    found = pids.read_text().split()
    assert len(found) == 2
    until(lambda: all(gone(int(pid)) for pid in found))


def test_the_options_of_the_container() -> None:
    """The container shares the network, the memory and the existing devices with the node, and locks memory without a limit."""
    order = {
        **JobContainer(image="registry/image:1", mounts=("/shared",), token="1234").order(1, 8),
        "devices": ["/dev/null", "/dev/missing"],
        "paths": ["/etc/passwd", "/missing"],
    }
    words = supervisor._docker(order, {"NODE_RANK": "1"}, "train")
    assert words[:5] == ["sudo", "-n", "--", "docker", "run"]
    options, (image, *rest) = stand_in_docker.parse(words[5:])
    assert (image, options["--entrypoint"], rest[0]) == ("registry/image:1", ["bash"], "-c")
    assert rest[1].endswith("\ntrain")
    assert (options["--network"], options["--ipc"], options["--gpus"]) == (["host"], ["host"], ["all"])
    assert options["--ulimit"] == ["memlock=-1", "stack=67108864"]
    assert options["--device"] == ["/dev/null"]
    assert options["--name"] == ["gpuinfra-1234-1"]
    assert options["--user"] == [f"{os.getuid()}:{os.getgid()}"]
    assert options["--mount"][1:] == [
        "type=bind,source=/shared,target=/shared",
        "type=bind,source=/etc/passwd,target=/etc/passwd,readonly",
    ]
    assert "NODE_RANK=1" in options["--env"]
    assert "--gpus" not in supervisor._docker({**order, "gpus": 0}, {}, "train")


def test_processes_of_root_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the login user cannot signal, such as sudo, is signaled by root."""
    process = subprocess.Popen(["sleep", "1000"])
    calls: list[list[str]] = []
    kill = os.kill

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    def quietly(words: list[str]) -> None:
        calls.append(words)
        kill(process.pid, signal.SIGKILL)
        process.wait()

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(supervisor, "_descendants", lambda: [] if process.returncode else [process.pid])
    monkeypatch.setattr(supervisor, "_quietly", quietly)
    supervisor._end(60)
    assert calls == [["kill", "-15", str(process.pid)]]


DOCKER = {"software.containers": ["docker"]}


@pytest.mark.parametrize(
    ("cloud", "changes", "image", "per_gpu", "problem"),
    [
        ("aws", {}, "image", False, "--container requires Docker, but software.containers is []; add docker"),
        (
            "aws",
            {"software.containers": ["enroot"]},
            "image",
            False,
            "but software.containers is [enroot]; add docker to software.containers, and deploy the stack, or omit --container and start enroot in COMMAND",
        ),
        ("aws", DOCKER, "image", True, "--container cannot be combined with --per-gpu; omit --per-gpu"),
        ("aws", DOCKER, "-v", False, "--container is '-v', which is not the name of an image"),
        (
            "gcp",
            {**DOCKER, "pools.0.machine": "a3-megagpu-8g"},
            "image",
            False,
            (
                "--container does not support tcpxo, the fabric of a3-megagpu-8g, because the container needs the libraries, "
                "sockets and devices of the node's receive manager, and gpuinfra has no tested list of them; omit --container"
            ),
        ),
    ],
)
def test_jobs_that_cannot_run_in_a_container_are_refused(
    cloud: str, changes: dict[str, Any], image: str, per_gpu: bool, problem: str
) -> None:
    """A stack without Docker, an option that has no effect, a wrong name and an unsupported fabric end with one message."""
    plan = build_plan(parse_spec(declaration((cloud, changes))), TODAY)
    with pytest.raises(UsageError, match=re.escape(problem)):
        container_of(image, plan.pools[0], per_gpu=per_gpu)


def test_the_container_gets_the_mounts_of_the_pool() -> None:
    """The file systems of the declaration are mounted in the container."""
    plan = build_plan(parse_spec(declaration(("aws", {**DOCKER, "storage": lustre()}))), TODAY)
    assert container_of("image", plan.pools[0], per_gpu=False).mounts == ("/scratch",)
