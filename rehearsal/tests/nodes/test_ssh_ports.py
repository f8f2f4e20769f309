"""SSH to stand-in nodes with OpenSSH's client and server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.remote.servers import needed

from .conftest import Nodes, wait_for

pytestmark = needed()
ONE = "i-00000000000000001"


def key_of(nodes: Nodes) -> Path:
    """The operator's key, which the cloud of these nodes accepts for the user `ubuntu`."""
    key = nodes.host.folder / "operator"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    nodes.host.ssh_ports.logins = lambda _: {"ubuntu": [key.with_suffix(".pub").read_text().strip()]}
    return key


def ssh(
    nodes: Nodes,
    command: str,
    name: str = ONE,
    known: str | None = None,
    identity: Path | None = None,
    user: str = "ubuntu",
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
        str(identity or key_of(nodes)),
        "-p",
        str(port),
    ]
    return subprocess.run(["ssh", *options, f"{user}@127.0.0.1", command], capture_output=True, text=True, timeout=300, check=False)  # fmt: skip


def test_a_node_answers_ssh_with_its_own_keys_and_runs_the_command_inside(shared: Nodes) -> None:
    """The user of the image logs in, with the node's host name, files, units and exit code. sudo works without a password."""
    done = ssh(
        shared,
        "sudo -n -- sh -c 'id -u; test $USER = root'; uname -n; cat /etc/os-release | head -1; ls /run/standin; systemctl is-active multi-user.target; exit 7",
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


def test_only_a_user_and_a_key_of_the_cloud_are_accepted(shared: Nodes, tmp_path: Path) -> None:
    """Another key of the same user is rejected, and so is the same key for another user."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "own")], check=True)
    done = ssh(shared, "true", identity=tmp_path / "own")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr
    for user in ("root", "gpuinfra", "nobody"):
        assert "Permission denied" in ssh(shared, "true", user=user).stderr


def test_sudo_needs_the_rule_of_the_user(shared: Nodes) -> None:
    """Without its rule in /etc/sudoers.d, a user is refused by sudo."""
    done = ssh(shared, "LOGNAME=other sudo -n -- true")
    assert done.returncode == 1
    assert "a password is required" in done.stderr


def test_an_interactive_login_has_a_terminal(shared: Nodes) -> None:
    """`ssh -t` gets a pseudo-terminal in the node."""
    port, key = shared.host.ssh_ports.numbers()[ONE], key_of(shared)
    words = ["ssh", "-F", "none", "-tt", "-i", str(key), "-p", str(port), "-o", "StrictHostKeyChecking=no"]
    words += ["-o", "UserKnownHostsFile=/dev/null", "ubuntu@127.0.0.1", "test -t 0 && stty size && echo on a terminal"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert "on a terminal" in done.stdout, done.stderr


def test_the_profile_of_the_host_user_is_not_read(
    shared: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HOME and variables of the host user are not visible in the node."""
    said = ssh(shared, 'echo "$HOME"; env').stdout
    assert said.splitlines()[0] == "/home/ubuntu"
    assert str(Path.home()) not in said
    assert "AWS_ENDPOINT_URL" in said  # as a login there finds it in /etc/environment


def test_a_rebooted_machine_answers_on_the_same_port(nodes: Nodes) -> None:
    """A reboot closes the connection; afterwards the same port and key answer from the new boot."""
    name = nodes.launch(prebuilt=False)
    port, boot = nodes.host.ssh_ports.numbers()[name], ssh(nodes, "cat /proc/sys/kernel/random/boot_id").stdout
    done = ssh(nodes, "sudo -n systemctl reboot; sleep 30")
    assert done.returncode == 255
    wait_for(lambda: nodes.host._nodes[name].boots == 2, "it boots again")
    nodes.settle(name)
    assert nodes.host.ssh_ports.numbers()[name] == port
    assert ssh(nodes, "cat /proc/sys/kernel/random/boot_id").stdout not in ("", boot)
    nodes.host.suspend_all()
    assert ssh(nodes, "true").returncode == 255
    nodes.host.terminate(name)
    assert nodes.host.ssh_ports.numbers() == {}
