"""`gpuinfra check --hosts` against real OpenSSH: this machine is the node."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem
from gpuinfra.remote.verify import MAX_EVIDENCE_BYTES, _unpacked
from tests.remote.conftest import lab  # noqa: F401
from tests.remote.servers import Lab, needed

HOST = Host(name="gpu-1", address="127.0.0.1")


def check(lab: Lab, hosts: dict[str, Any], *options: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    """Run the command with a hosts file of this lab."""
    file = lab.folder / "hosts.json"
    content = {
        "stack": "aws-p4d",
        "pool": "gpu",
        "defaults": {"user": lab.user, "sudo": False, "identity": str(lab.key)},
    }
    (lab.folder / "known").write_text("")
    file.write_text(json.dumps({**content, "known_hosts": "known", "hosts": hosts}))
    words = [sys.executable, "-m", "gpuinfra", "check", "--hosts", str(file), "--phase", "presence", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(lab.folder / "state")}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)


@needed()
def test_hosts_are_checked_over_ssh_and_unreachable_ones_are_listed(lab: Lab) -> None:  # noqa: F811
    """A reachable host is judged from its raw output; an unreachable one is a node without evidence. Neither is verified."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    hosts = {
        "here": {"address": "127.0.0.1", "port": port, "host_key": lab.public(key)},
        "strange": {"address": "127.0.0.1", "port": port},
    }
    junit, page, kept = lab.folder / "v.xml", lab.folder / "v.html", lab.folder / "kept"
    done = check(lab, hosts, "--json", "--junit", str(junit), "--html", str(page), "--save", str(kept))
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    here, strange = document["nodes"]
    assert (here["label"], here["outcome"]) == ("here", "failed")
    checks = {check["id"]: check["outcome"] for check in here["checks"]}
    assert checks["P1"] in ("fail", "error")
    assert "B1" not in checks
    assert (strange["label"], strange["outcome"]) == ("strange", "unknown host key")
    assert "gpuinfra never adds keys" in strange["what_to_do"]
    assert document["totals"] == {"nodes": 2, "nodes_verified": 0, "gpus": 16, "gpus_verified": 0}
    suites = ElementTree.parse(junit).getroot()
    assert [suite.get("errors") for suite in suites if suite.get("name") == "strange"] == ["1"]
    assert "unknown host key" in page.read_text()
    assert [path.name for path in kept.iterdir()] == ["here.json"]
    text = check(lab, hosts, "--baseline", str(kept)).stdout
    assert "strange: unknown host key: " in text
    assert "0 of 2 nodes verified: 1 to replace, 1 without evidence. Checked over SSH" in text


@needed()
def test_a_check_leaves_nothing_on_the_host(lab: Lab) -> None:  # noqa: F811
    """The node program runs in a temporary folder, which is removed afterwards."""
    key = lab.keygen("host")
    temporary = lab.folder / "tmp"
    temporary.mkdir()
    port = lab.serve(key=key, more=f"Match User *\nSetEnv TMPDIR={temporary} SHLVL=5\n")
    host = {"address": "127.0.0.1", "port": port, "host_key": lab.public(key)}
    with lab.connector().connect(lab.host(port, host_keys=(lab.public(key),))) as connection:
        assert connection.run("printenv TMPDIR").output.decode().strip() == str(temporary)
    assert check(lab, {"here": host}, "--json").returncode == 1
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        base64.b64encode(b"not packed").decode(),
        base64.b64encode(zlib.compress(b"x" * 100)[:-3]).decode(),
    ],
)
def test_an_invalid_answer_is_refused(text: str) -> None:
    """An answer that is no evidence is one message without a traceback."""
    with pytest.raises(HostProblem, match="not evidence"):
        _unpacked(HOST, text)


def test_a_decompression_bomb_is_refused() -> None:
    """Compressed data is refused once it exceeds the size limit of evidence."""
    bomb = base64.b64encode(zlib.compress(b"\0" * (MAX_EVIDENCE_BYTES * 4))).decode()
    with pytest.raises(HostProblem, match="not evidence"):
        _unpacked(HOST, bomb)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["check", "aws-p4d", "--rehearsal", "--hosts", "h"], 2, "omit --hosts"),
        (["check", "aws-p4d", "--also", "B2", "--also", "ZZ"], 2, "--also is 'ZZ'; allowed: "),
        (["check", "--hosts", "no-such-file", "--also", "b2"], 2, "--also is 'b2'; allowed: "),
        (["check"], 2, "specify STACK or --hosts FILE"),
        (["check", "--hosts", "no-such-file"], 2, "cannot be read"),
        (["verify", "aws-p4d", "--rehearsal", "--evidence", "e"], 2, "omit --evidence"),
        (["verify", "aws-p4d", "--rehearsal", "--folder", "nowhere"], 3, "gpuinfra rehearse up aws-p4d"),
    ],
)
def test_a_usage_error_is_one_message(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    """Options that conflict have exit code 2 and a stack without nodes exit code 3, with what to change."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuinfra", *words],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
