"""The configuration for the OpenSSH programs, as `ssh` reads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuinfra.remote.hosts import Host, Hosts
from gpuinfra.remote.openssh import write_config

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's ssh is not installed")
CARELESS = """\
Host *
  StrictHostKeyChecking no
  UpdateHostKeys yes
  GlobalKnownHostsFile /evil/global
  UserKnownHostsFile /evil/user
  HostKeyAlias evil
  IdentitiesOnly no
  IdentityFile /evil/key
  ProxyJump evil
  Port 666
  User evil
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"


def effective(folder: Path, *hosts: Host, known_hosts: tuple[Path, ...] = (), name: str = "node") -> dict[str, str]:
    """The options of `ssh` for a host, if the user includes the configuration before careless options for all hosts."""
    jumps = {host.name: host for host in hosts[1:]}
    config = write_config(Hosts(hosts=(hosts[0],), jumps=jumps, known_hosts=known_hosts), hosts[:1], folder)
    (folder / "user").write_text(f"Include {config}\n{CARELESS}", encoding="utf-8")
    done = subprocess.run(["ssh", "-G", "-F", folder / "user", name], capture_output=True, text=True, check=True)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        option, _, value = line.partition(" ")
        found.setdefault(option, value)
    return found


def test_host_keys_of_the_handover_are_the_only_trusted_ones(tmp_path: Path) -> None:
    """Options of the user neither disable the verification, nor add keys, nor look up another name or another file."""
    options = effective(tmp_path, Host(name="node", address="10.0.0.1", host_keys=(KEY,)))
    assert options["stricthostkeychecking"] in ("true", "yes")
    assert options["updatehostkeys"] in ("false", "no")
    assert options["globalknownhostsfile"] == "none"
    assert options["userknownhostsfile"] == str(tmp_path / "known_hosts")
    assert options["hostkeyalias"] == "node"
    assert (tmp_path / "known_hosts").read_text(encoding="utf-8") == f"node {KEY}\n"


def test_a_host_without_keys_uses_the_known_hosts_of_its_hosts_file(tmp_path: Path) -> None:
    """The files of `known_hosts` are the only ones that are read, and nothing is added to them."""
    files = (tmp_path / "one", tmp_path / "two words")
    options = effective(tmp_path, Host(name="node", address="10.0.0.1"), known_hosts=files)
    assert options["userknownhostsfile"] == f"{files[0]} {files[1]}"
    assert (options["stricthostkeychecking"], options["updatehostkeys"], options["globalknownhostsfile"]) == ("true", "false", "none")  # fmt: skip


def test_only_the_declared_identity_is_offered(tmp_path: Path) -> None:
    """With an identity, neither keys of the agent nor other keys of the user precede it; without one, the user's own keys are offered."""
    host = Host(name="node", address="10.0.0.1", port=2222, user="ubuntu", identity=(tmp_path / "key",), jump="door")
    options = effective(tmp_path, host, Host(name="door", address="10.0.0.2"))
    assert (options["identitiesonly"], options["identityfile"]) == ("yes", str(tmp_path / "key"))
    assert (options["user"], options["port"], options["hostname"], options["proxyjump"]) == ("ubuntu", "2222", "10.0.0.1", "door")  # fmt: skip
    assert effective(tmp_path, Host(name="node", address="10.0.0.1"))["identitiesonly"] == "no"
