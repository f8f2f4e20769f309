"""SSH to stand-in nodes with OpenSSH's client and server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.rehearsal.nodes.ssh_ports import login_name
from tests.remote.servers import needed

from .conftest import Nodes, wait_for

pytestmark = needed()
ONE = "i-00000000000000001"


def ssh(
    nodes: Nodes, command: str, name: str = ONE, known: str | None = None, identity: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A command over SSH with the node's host keys as the only known hosts."""
    folder, port = nodes.host.folder, nodes.host.ssh_ports.numbers()[name]
    if known is None:
        keys = nodes.host._nodes[name].root.glob("etc/ssh/ssh_host_*_key.pub")
        known = "".join(f"[127.0.0.1]:{port} {' '.join(key.read_text().split()[:2])}\n" for key in keys)
    (folder / "known").write_text(known)
    options = ["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"]
    options += [
        "-o",
        f"UserKnownHostsFile={folder / 'known'}",
        "-i",
        str(identity or nodes.host.ssh_ports.key),
        "-p",
        str(port),
    ]
    return subprocess.run(["ssh", *options, f"{login_name()}@127.0.0.1", command], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def test_a_node_answers_ssh_with_its_own_keys_and_runs_the_command_inside(shared: Nodes) -> None:
    """The rehearsal's key logs in as the node's root, with its host name, files, units and exit code."""
    done = ssh(
        shared,
        "id -u; uname -n; cat /etc/os-release | head -1; ls /run/standin; systemctl is-active multi-user.target; exit 7",
    )
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "0"
    assert lines[1] == "cluster-gpu-1" or lines[1].endswith("gpu-1")
    assert "Ubuntu" in lines[2]
    assert "init.sock" in lines
    assert lines[-1] == "active"
    assert "gpu-2" in ssh(shared, "uname -n", "i-00000000000000002").stdout


def test_the_client_rejects_another_host_key(shared: Nodes) -> None:
    """Known hosts of another node do not match."""
    other = shared.host._nodes["i-00000000000000002"].root / "etc/ssh/ssh_host_ed25519_key.pub"
    port = shared.host.ssh_ports.numbers()[ONE]
    known = f"[127.0.0.1]:{port} {' '.join(other.read_text().split()[:2])}\n"
    assert ssh(shared, "true", known=known).returncode == 255


def test_only_the_key_of_the_rehearsal_is_accepted(shared: Nodes, tmp_path: Path) -> None:
    """Another key of the same user is rejected."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "own")], check=True)
    done = ssh(shared, "true", identity=tmp_path / "own")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_the_profile_of_the_host_user_is_not_read(
    shared: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HOME and variables of the host user are not visible in the node."""
    said = ssh(shared, 'echo "$HOME"; env').stdout
    assert said.splitlines()[0] == "/root"
    assert str(Path.home()) not in said.replace("/root", "") or str(Path.home()) == "/root"
    assert "AWS_ENDPOINT_URL" in said  # as a login there finds it in /etc/environment


def test_a_rebooted_machine_answers_on_the_same_port(nodes: Nodes) -> None:
    """A reboot closes the connection; afterwards the same port and key answer from the new boot."""
    name = nodes.launch(prebuilt=False)
    port, boot = nodes.host.ssh_ports.numbers()[name], ssh(nodes, "cat /proc/sys/kernel/random/boot_id").stdout
    done = ssh(nodes, "systemctl reboot; sleep 30")
    assert done.returncode == 255
    wait_for(lambda: nodes.host._nodes[name].boots == 2, "it boots again")
    nodes.settle(name)
    assert nodes.host.ssh_ports.numbers()[name] == port
    assert ssh(nodes, "cat /proc/sys/kernel/random/boot_id").stdout not in ("", boot)
    nodes.host.suspend_all()
    assert ssh(nodes, "true").returncode == 255
    nodes.host.terminate(name)
    assert nodes.host.ssh_ports.numbers() == {}
