"""`gpuinfra verify --pairs`: who is weak is found from meetings, and meetings run over real OpenSSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.cli.pairs import pairs
from gpuinfra.errors import UsageError
from gpuinfra.remote.hosts import Hosts
from gpuinfra.verification import meetings
from gpuinfra.verification.meetings import Half
from gpuinfra.verification.pairs import Meeting, verdict
from tests.node.healthy import GOOGLE
from tests.node.test_nccl import libraries
from tests.remote.conftest import lab
from tests.remote.servers import Lab, needed

__all__ = ["lab", "libraries"]

SHOWS = {**GOOGLE, "fabric_provider": "efa", "floors": [{"check": "B3", "at_least": 0.000001}]}
GOOD = {
    "schema": "gpuinfra.pair/1", "ranks": 16, "gpus": 8, "wrong": 0, "network": ["AWS Libfabric"], "busbw_gb_s": 90.04,
}  # fmt: skip


def half(**changes: Any) -> Half:
    """What a node part prints."""
    return Half(result=json.dumps({**GOOD, **changes}), exit=0)


@pytest.mark.parametrize(
    ("halves", "words"),
    [
        ({"a": half(), "b": half()}, ""),
        ({"a": half(), "b": half(wrong=3)}, "3 bytes of the sum are wrong"),
        ({"a": half(network=["Socket"]), "b": half(network=["Socket"])}, "NCCL uses Socket"),
        ({"a": half(ranks=8), "b": half()}, "of 16 GPUs"),
        ({"a": half(), "b": Half(problem="b: a did not come within 300 s")}, "did not come"),
        ({"a": half(), "b": Half(result="[1, 2", exit=0)}, "no JSON"),
        ({"a": half()}, "said nothing"),
    ],
)
def test_a_meeting_is_good_where_both_halves_pass(halves: dict[str, Half], words: str) -> None:
    """Whatever one half says that is not a pass makes the meeting weak, with its words once."""
    found = meetings.meeting_of(("a", "b"), halves, {"a": SHOWS, "b": SHOWS})
    assert found.good == (not words)
    assert words in found.why


@pytest.mark.parametrize("weak", [0, 3, 6])
def test_rounds_go_on_until_the_weak_node_is_known(weak: int) -> None:
    """Of seven nodes one is slow with everybody: it is named after two partners, and nobody else is."""
    nodes = [f"gpu-{number}" for number in range(7)]
    rounds: list[list[tuple[str, str]]] = []

    def meet(round_: list[tuple[str, str]]) -> list[Meeting]:
        rounds.append(round_)
        return [Meeting(first=a, second=b, good=nodes[weak] not in (a, b), why="slow") for a, b in round_]

    held = meetings.hold(nodes, meet)
    said = meetings.document(verdict(nodes, held), held, {}, {})
    assert list(said["weak"]) == [nodes[weak]]
    assert len(said["good"]) == 6
    assert not said["verified"]
    assert all(len({name for pair in round_ for name in pair}) == 2 * len(round_) for round_ in rounds)
    text = "\n".join(meetings.text(said))
    assert f"{nodes[weak]}: weak with every partner" in text
    assert "6 of 7 nodes" in text


def serve(lab: Lab, libraries: Path, scratch: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """One server of real OpenSSH whose commands find the stand-in of NCCL."""
    key = lab.keygen("host")
    more = f"Match User *\nSetEnv LD_LIBRARY_PATH={libraries} FAKE_PAIR={scratch} SHLVL=5\n"
    port = lab.serve(key=key, more=more)
    return {"port": port, "host_keys": (lab.public(key),)}, {"port": port, "host_key": lab.public(key)}


@needed()
def test_two_hosts_meet_over_ssh(
    lab: Lab,
    libraries: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both halves start at once, sixteen ranks sum, the third host meets one that is good, and nothing stays in the folder."""
    reached, _ = serve(lab, libraries, tmp_path)
    hosts = tuple(lab.host(name=name, **reached) for name in ("gpu-1", "gpu-2", "gpu-3"))
    ssh = {"pairs": str(tmp_path), "pool": None, "known_hosts": (), "parallel": 8}
    small = ("--gib", "0.001", "--rounds", "2")
    code = pairs(Hosts(hosts=hosts), lambda host, _: ("gpu", SHOWS), ssh, as_json=True, options=small)
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert code == 0, err
    assert (said["good"], said["weak"], said["verified"]) == (["gpu-1", "gpu-2", "gpu-3"], {}, True)
    assert [one["nodes"] for one in said["meetings"]] == [["gpu-1", "gpu-2"], ["gpu-3", "gpu-1"]]
    assert all(one["gb_s"] is not None for one in said["meetings"])
    assert "gpu-1 with gpu-2: " in err
    assert not (tmp_path / ".gpuinfra-pairs").exists()


@needed()
def test_what_keeps_hosts_from_meeting_is_told(lab: Lab, libraries: Path, tmp_path: Path) -> None:
    """A folder that is not there is refused by each host, an unknown host is left out, and no node is accused."""
    _, reached = serve(lab, libraries, tmp_path)
    file = lab.folder / "hosts.json"
    defaults = {"user": lab.user, "sudo": False, "identity": str(lab.key)}
    strange = {"address": "127.0.0.1", "port": reached["port"]}
    hosts = {
        "gpu-1": {"address": "127.0.0.1", **reached},
        "gpu-2": {"address": "127.0.0.1", **reached},
        "gpu-3": strange,
    }
    (lab.folder / "known").write_text("")
    file.write_text(json.dumps({"stack": "aws-p4d", "defaults": defaults, "known_hosts": "known", "hosts": hosts}))
    words = [sys.executable, "-m", "gpuinfra", "verify", "--hosts", str(file), "--pairs", f"{tmp_path}/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=dict(os.environ))
    assert done.returncode == 1, done.stderr
    assert "nowhere is no folder there; name one that all nodes have mounted" in done.stderr
    assert "nobody good was met by gpu-1, gpu-2" in done.stdout
    assert "gpu-3: " in done.stdout
    assert "0 of 3 nodes" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("ssh", "words"),
    [
        ({"pairs": "scratch", "parallel": 8}, "no absolute path"),
        ({"pairs": "/scratch", "parallel": 1}, "give 2 or more"),
    ],
)
def test_wrong_use_is_one_sentence(ssh: dict[str, Any], words: str) -> None:
    """What cannot work is refused before anybody is asked."""
    with pytest.raises(UsageError, match=words):
        pairs(Hosts(hosts=()), lambda host, _: ("gpu", SHOWS), ssh, as_json=False)


def test_pairs_go_with_no_other_check() -> None:
    """`--pairs` beside `--phase` or without hosts says what to change."""
    for more, words in ((["--phase", "speed", "--ssh"], "leave --phase out"), ([], "STACK --ssh")):
        done = subprocess.run(
            [sys.executable, "-m", "gpuinfra", "verify", "aws-p4d", "--pairs", "/scratch", *more],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert words in done.stderr
