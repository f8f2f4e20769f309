"""`gpuinfra run` and `gpuinfra ssh` against real OpenSSH."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .servers import Lab, needed

pytestmark = needed()


def gpuinfra(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gpuinfra", *words], capture_output=True, text=True, check=False, timeout=120
    )


def hosts_file(lab: Lab, hosts: dict[str, Any], **more: Any) -> str:
    """A hosts file of this lab."""
    file = lab.folder / "hosts.json"
    (lab.folder / "known").write_text("")
    defaults = {"user": lab.user, "sudo": False, "identity": str(lab.key)}
    file.write_text(json.dumps({"known_hosts": "known", "defaults": defaults, "hosts": hosts, **more}))
    return str(file)


@pytest.fixture
def fleet(lab: Lab) -> dict[str, Any]:
    """Three hosts that are known, and one that is not."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    known = {"address": "127.0.0.1", "port": port, "host_key": lab.public(key)}
    return {"a": known, "b": known, "c": known, "stranger": {"address": "127.0.0.1", "port": port}}


def test_what_is_alike_is_told_once_and_what_is_not_stands_out(lab: Lab, fleet: dict[str, Any]) -> None:
    """Output is grouped by what was said, a host that cannot be used is named with its reason, and the exit code says so."""
    file = hosts_file(lab, fleet)
    done = gpuinfra("run", "--hosts", file, "--", "echo same; printf '\\033[2J'")
    assert done.returncode == 1
    assert "a, b, c:\n  same\n  ?[2J" in done.stdout
    assert "unknown" not in done.stdout
    assert "nothing vouches for it" in done.stderr
    assert "3 of 4 hosts ended with 0" in done.stderr
    only = {name: fleet[name] for name in ("a", "b")}
    good = gpuinfra("run", "--hosts", hosts_file(lab, only), "--json", "--", "sh", "-c", "echo $0 two words", "x y")
    assert good.returncode == 0, good.stderr
    assert [entry["output"] for entry in json.loads(good.stdout)["hosts"]] == ["x y two words\n"] * 2
    bad = gpuinfra("run", "--hosts", hosts_file(lab, only), "exit 3")
    assert bad.returncode == 1
    assert "a, b ended with 3:" in bad.stdout


def test_a_command_that_was_cut_off_is_not_run_again(lab: Lab, fleet: dict[str, Any]) -> None:
    """Nobody knows what a command did before its connection broke, so it is not tried again."""
    tally = lab.folder / "tally"
    file = hosts_file(lab, {"a": fleet["a"]})
    done = gpuinfra("run", "--hosts", file, f"echo x >>{tally}; kill -9 $PPID; sleep 1")
    assert done.returncode == 1
    assert "was lost" in done.stderr
    assert tally.read_text() == "x\n"


def test_a_login_verifies_the_host_key_and_gives_the_commands_exit_code(lab: Lab, fleet: dict[str, Any]) -> None:
    """OpenSSH's own client believes the key that the file names for this host, and no other."""
    other = lab.keygen("other")
    hosts = {**fleet, "changed": {**fleet["a"], "host_key": lab.public(other)}}
    file = hosts_file(lab, hosts)
    done = gpuinfra("ssh", "a", "--hosts", file, "echo in; exit 9")
    assert (done.returncode, done.stdout) == (9, "in\n"), done.stderr
    refused = gpuinfra("ssh", "changed", "--hosts", file, "echo in")
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    stranger = gpuinfra("ssh", "stranger", "--hosts", file, "echo in")
    assert (stranger.returncode, stranger.stdout) == (255, "")
    wrong = gpuinfra("ssh", "strager", "--hosts", file)
    assert wrong.returncode == 2
    assert "did you mean stranger?" in wrong.stderr


def test_a_login_goes_through_jump_hosts_and_proxy_commands(lab: Lab, tmp_path: Path) -> None:
    """The way to a node is the same for a person's login as for a fleet."""
    keys = [lab.keygen("door"), lab.keygen("node")]
    ports = [lab.serve(key=key) for key in keys]
    relay = tmp_path / "re lay.py"
    relay.write_text(
        "import os,socket,sys,threading\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n  while d:=os.read(0,65536): s.sendall(d)\n  s.shutdown(1)\n"
        "threading.Thread(target=up,daemon=True).start()\nwhile d:=s.recv(65536): os.write(1,d)\n"
    )
    node = {"address": "127.0.0.1", "port": ports[1], "host_key": lab.public(keys[1])}
    hosts = {
        "far": {**node, "jump": "door"},
        "tunnel": {**node, "proxy_command": [sys.executable, str(relay), "%h", "%p", "100%%"]},
    }
    door = {"address": "127.0.0.1", "port": ports[0], "host_key": lab.public(keys[0])}
    file = hosts_file(lab, hosts, jumps={"door": door})
    for name in hosts:
        done = gpuinfra("ssh", name, "--hosts", file, "echo $SSH_CONNECTION")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[3] == str(ports[1])
