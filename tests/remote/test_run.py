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
    """Run the command to its end."""
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
    """Three hosts with trusted keys, and one without."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    known = {"address": "127.0.0.1", "port": port, "host_key": lab.public(key)}
    return {"a": known, "b": known, "c": known, "stranger": {"address": "127.0.0.1", "port": port}}


def test_identical_output_is_grouped(lab: Lab, fleet: dict[str, Any]) -> None:
    """Hosts with identical output form one group; a host that fails is listed with its reason and sets the exit code to 1."""
    file = hosts_file(lab, fleet)
    done = gpuinfra("run", "--hosts", file, "--", "echo same; printf '\\033[2J'")
    assert done.returncode == 1
    assert "a, b, c:\n  same\n  ?[2J" in done.stdout
    assert "unknown" not in done.stdout
    assert "which is not in" in done.stderr
    assert "3 of 4 hosts succeeded" in done.stderr
    only = {name: fleet[name] for name in ("a", "b")}
    good = gpuinfra("run", "--hosts", hosts_file(lab, only), "--json", "--", "sh", "-c", "echo $0 two words", "x y")
    assert good.returncode == 0, good.stderr
    assert [entry["output"] for entry in json.loads(good.stdout)["hosts"]] == ["x y two words\n"] * 2
    bad = gpuinfra("run", "--hosts", hosts_file(lab, only), "exit 3")
    assert bad.returncode == 1
    assert "a, b (exit code 3):" in bad.stdout


def test_interrupted_command_is_not_repeated(lab: Lab, fleet: dict[str, Any]) -> None:
    """A command whose connection broke may have had effects and is not retried."""
    tally = lab.folder / "tally"
    file = hosts_file(lab, {"a": fleet["a"]})
    done = gpuinfra("run", "--hosts", file, f"echo x >>{tally}; kill -9 $PPID; sleep 1")
    assert done.returncode == 1
    assert "was lost" in done.stderr
    assert tally.read_text() == "x\n"


def test_ssh_verifies_the_host_key_and_returns_the_exit_code(lab: Lab, fleet: dict[str, Any]) -> None:
    """The OpenSSH client trusts only the key that the hosts file sets for this host."""
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


def test_ssh_uses_jump_hosts_and_proxy_commands(lab: Lab, tmp_path: Path) -> None:
    """`gpuinfra ssh` uses the same route to a node as `gpuinfra run`."""
    keys = [lab.keygen("bastion"), lab.keygen("node")]
    ports = [lab.serve(key=key) for key in keys]
    relay = tmp_path / "re lay.py"
    relay.write_text(
        "import os,socket,sys,threading\ns=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n  while d:=os.read(0,65536): s.sendall(d)\n  s.shutdown(1)\n"
        "threading.Thread(target=up,daemon=True).start()\nwhile d:=s.recv(65536): os.write(1,d)\n"
    )
    node = {"address": "127.0.0.1", "port": ports[1], "host_key": lab.public(keys[1])}
    hosts = {
        "behind": {**node, "jump": "bastion"},
        "tunnel": {**node, "proxy_command": [sys.executable, str(relay), "%h", "%p", "100%%"]},
    }
    bastion = {"address": "127.0.0.1", "port": ports[0], "host_key": lab.public(keys[0])}
    file = hosts_file(lab, hosts, jumps={"bastion": bastion})
    for name in hosts:
        done = gpuinfra("ssh", name, "--hosts", file, "echo $SSH_CONNECTION")
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[3] == str(ports[1])


def test_files_are_copied_in_both_directions(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """`cp` sends files and folders to a host and fetches them, and fails if a file does not exist."""
    file = hosts_file(lab, fleet)
    source, there, back = tmp_path / "data", tmp_path / "there", tmp_path / "back"
    for folder in (source, there, back):
        folder.mkdir()
    (source / "a file: 1").write_text("content")
    assert gpuinfra("cp", "-r", "--hosts", file, str(source), f"a:{there}").returncode == 0
    assert (there / "data" / "a file: 1").read_text() == "content"
    done = gpuinfra("cp", "--hosts", file, f"b:{there}/data/a file: 1", str(back))
    assert done.returncode == 0, done.stderr
    assert (back / "a file: 1").read_text() == "content"
    absent = gpuinfra("cp", "--hosts", file, f"a:{there}/absent", str(back))
    assert absent.returncode == 1
    assert "No such file" in absent.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a:x"], "a source and a destination are required"),
        (["x", "y"], "either all sources or the destination must be on a node"),
        (["a:x", "b:y"], "either all sources or the destination must be on a node"),
        (["a:x", "y", "z"], "either all sources or the destination must be on a node"),
        (["x", "d:y"], "node 'd' does not exist"),
    ],
)
def test_invalid_copies_are_refused(lab: Lab, fleet: dict[str, Any], words: list[str], problem: str) -> None:
    """A copy that is not between this machine and a known node ends with one message."""
    done = gpuinfra("cp", "--hosts", hosts_file(lab, fleet), *words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_openssh_programs_use_the_written_configuration(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """`ssh --config` writes a configuration with which ssh and scp verify and reach every host, without gpuinfra."""
    folder = tmp_path / "ssh config"
    done = gpuinfra("ssh", "--config", "--hosts", hosts_file(lab, fleet), "--output", str(folder))
    assert done.returncode == 0, done.stderr
    assert "with 4 hosts" in done.stdout
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "config")] == [0o700, 0o600]
    config = str(folder / "config")
    said = subprocess.run(["ssh", "-F", config, "b", "echo here"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "here\n"), said.stderr
    (tmp_path / "one").write_text("1")
    words = ["scp", "-q", "-F", config, str(tmp_path / "one"), f"c:{tmp_path}/two"]
    assert subprocess.run(words, check=False).returncode == 0
    assert (tmp_path / "two").read_text() == "1"
    said = subprocess.run(["ssh", "-F", config, "stranger", "true"], capture_output=True, text=True, check=False)
    assert said.returncode == 255
    assert "Host key verification failed" in said.stderr


def test_a_failed_configuration_keeps_the_earlier_one(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> None:
    """A failure leaves the files of the earlier run, and a folder with other files is not touched."""
    folder = tmp_path / "config"
    options = ("ssh", "--config", "--output", str(folder), "--hosts")
    assert gpuinfra(*options, hosts_file(lab, fleet)).returncode == 0
    before = {file.name: file.read_text() for file in folder.iterdir()}
    assert gpuinfra(*options, str(tmp_path / "absent.yaml")).returncode == 2
    assert {file.name: file.read_text() for file in folder.iterdir()} == before
    (folder / "mine").write_text("x")
    refused = gpuinfra(*options, hosts_file(lab, fleet))
    assert refused.returncode == 2
    assert "contains mine, which gpuinfra did not write" in refused.stderr
    assert [*tmp_path.glob(".gpuinfra-*")] == []


def test_options_after_the_node_belong_to_the_command(lab: Lab, fleet: dict[str, Any]) -> None:
    """Words after the first word of a command are not options of gpuinfra, with or without `--`."""
    file = hosts_file(lab, {"a": fleet["a"]})
    words = ["echo", "--config", "x", "--direct", "--json", "-h"]
    for start in (["ssh", "--hosts", file, "a"], ["ssh", f"--hosts={file}", "a", "--"]):
        done = gpuinfra(*start, *words)
        assert (done.returncode, done.stdout) == (0, "--config x --direct --json -h\n"), done.stderr
    for end in (words, ["--", *words]):
        done = gpuinfra("run", "--hosts", file, *end)
        assert done.returncode == 0, done.stderr
        assert "  --config x --direct --json -h\n" in done.stdout
