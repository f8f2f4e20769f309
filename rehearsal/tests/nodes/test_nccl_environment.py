"""The environment in which NCCL uses the fabric: set at login, and in the checks that run NCCL."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.node.console import MissingPrerequisite
from gpuinfra.node.measure import WITH_PROFILE, in_fabric_environment
from gpuinfra.node.probe import PROBE_LIMIT_S, run
from gpuinfra.node.probes import PROBES
from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.machines import LONG, Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

A3_MEGA = "enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0"
"""The names that Google's own scripts for this machine pass to FasTrak (GoogleCloudPlatform/cluster-toolkit, retrieved 2026-11-21)."""


@pytest.mark.parametrize(
    ("cloud", "machine", "step", "expected"),
    [
        pytest.param("aws", "p5.48xlarge", "50-efa", {"FI_EFA_USE_HUGE_PAGE": "0"}, marks=LONG),
        pytest.param(
            "azure",
            "Standard_ND96isr_H200_v5",
            "50-infiniband",
            {"UCX_NET_DEVICES": ",".join(f"mlx5_ib{at}:1" for at in range(8)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            marks=LONG,
        ),
        ("gcp", "a3-ultragpu-8g", "50-gib", {"NCCL_NET": "gIB", "LD_LIBRARY_PATH": "/usr/local/gib/lib64"}),
        (
            "gcp",
            "a3-megagpu-8g",
            "50-tcpxo",
            {
                "NCCL_FASTRAK_IFNAME": A3_MEGA,
                "LD_LIBRARY_PATH": "/var/lib/tcpxo/lib64",
                "NCCL_TUNER_CONFIG_PATH": "/var/lib/tcpxo/lib64/a3plus_tuner_config.textproto",
            },
        ),
    ],
)
def test_a_login_has_the_environment_of_the_fabric(
    host: NodeHost, cloud: str, machine: str, step: str, expected: dict[str, str]
) -> None:
    """After the step of the fabric, a login shell has the variables that NCCL, libfabric or UCX need on this machine."""
    node = Machine(host, pool_of(cloud, machine, "ubuntu-24.04", "default"))
    wanted = ("20-kernel", "30-driver", step)
    node.pool = with_steps(node.pool, *wanted)
    node.launch(cloud)
    code, said, _ = node.through()
    assert code == 0, said
    if step == "50-tcpxo":  # without the receive manager, NCCL must not look for FasTrak
        assert "NCCL_" not in node.run("bash", "-lc", "env")[1]
        assert node.run("/usr/local/sbin/gpuinfra-tcpxo", "start")[0] == 0
    lines = node.run("bash", "-lc", "env")[1].splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    for name, value in expected.items():
        assert found.get(name, "").startswith(value), (name, found.get(name))
    if step == "50-tcpxo":
        assert node.run("/usr/local/sbin/gpuinfra-tcpxo", "stop")[0] == 0
        assert "NCCL_" not in node.run("bash", "-lc", "env")[1]


def test_measurements_run_with_the_environment_of_the_fabric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command runs again in a shell that has read the profile, between start and stop of the receive manager."""
    monkeypatch.delenv(WITH_PROFILE, raising=False)
    profile, calls, manager = tmp_path / "profile.sh", tmp_path / "calls", tmp_path / "manager"
    profile.write_text("echo a profile can print; export NCCL_NET=gIB\n", encoding="utf-8")
    manager.write_text(f'#!/bin/sh\necho "manager $1" >>{calls}\n', encoding="utf-8")
    manager.chmod(0o755)
    again = ["sh", "-c", f'echo "$NCCL_NET $0 $1" >>{calls}; exit 7', "a b", "pair"]
    assert in_fabric_environment(again, managers=[str(tmp_path / "absent"), str(manager)], profile=str(profile)) == 7
    assert calls.read_text(encoding="utf-8").splitlines() == ["manager start", "gIB a b pair", "manager stop"]
    assert capfd.readouterr().out == ""
    manager.write_text("#!/bin/sh\necho no such container >&2\nexit 1\n", encoding="utf-8")
    with pytest.raises(MissingPrerequisite, match="no such container"):
        in_fabric_environment(again, managers=[str(manager)], profile=str(profile))
    assert in_fabric_environment(again, profile=str(tmp_path / "absent")) is None
    monkeypatch.setenv(WITH_PROFILE, "1")
    assert in_fabric_environment(again, profile=str(profile)) is None


def test_a_measurement_that_hangs_stops_the_receive_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement ends before the time limit of its probe, which would also end the command that stops the manager."""
    profile, calls, manager = tmp_path / "profile.sh", tmp_path / "calls", tmp_path / "manager"
    profile.write_text("export NCCL_NET=gIB\n", encoding="utf-8")
    manager.write_text(f'#!/bin/sh\necho "manager $1" >>{calls}\n', encoding="utf-8")
    manager.chmod(0o755)
    monkeypatch.delenv(WITH_PROFILE, raising=False)
    found = run(("sh", "-c", f"echo ${PROBE_LIMIT_S}"), PROBES["nccl-network"])
    assert found["stdout"] == f"{PROBES['nccl-network'].timeout_s}\n"
    monkeypatch.setenv(PROBE_LIMIT_S, "2")
    with pytest.raises(MissingPrerequisite, match=r"the measurement exceeded its time limit of 1\.6 s"):
        in_fabric_environment(["sleep", "300"], managers=[str(manager)], profile=str(profile))
    assert calls.read_text(encoding="utf-8").splitlines() == ["manager start", "manager stop"]


@pytest.mark.parametrize(
    ("logs", "code", "reason"),
    [
        ("echo starting; echo Buffer manager initialization completed.", 0, ""),
        ("echo starting; echo cuInit failed", 1, " s: cuInit failed\n"),
        ("echo No such container >&2; exit 1", 1, "the receive manager is not ready after "),
    ],
)
def test_start_waits_for_the_receive_manager(tmp_path: Path, logs: str, code: int, reason: str) -> None:
    """`start` returns once the manager accepts NCCL's plugin, and fails with the manager's last line if it ends or takes too long."""
    step = (Path(__file__).parents[3] / "bootstrap" / "50-tcpxo.sh").read_text(encoding="utf-8")
    writer = step[step.index("write_start_script() {") : step.index('main "$@"')]
    runs, docker = tmp_path / "run" / "receive-manager", tmp_path / "docker"
    docker.write_text(
        f'#!/bin/bash\necho "$1" >>{tmp_path}/calls\n[[ $1 != logs ]] || {{ {logs}; }}\n', encoding="utf-8"
    )
    docker.chmod(0o755)
    script = (
        f"START={tmp_path}/start RECEIVE_MANAGER_RUNS={runs} READY_S=2 TCPXO_MANAGER=image TCPXO_ARGUMENTS=--num_hops=2\n"
        f'put_file() {{ printf "%s\\n" "$2" >"$1"; }}\ndry_run() {{ false; }}\n{writer}\nwrite_start_script'
    )
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, timeout=300)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        [str(tmp_path / "start"), "start"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    assert reason in done.stderr
    assert runs.exists() == (code == 0)
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[-1] == ("stop" if code else "logs")
