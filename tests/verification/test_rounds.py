"""`gpuinfra pairs`: rounds of measurements find the slow node, over real OpenSSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.cli import main
from gpuinfra.cli.pairs import measure_pairs
from gpuinfra.node.pairs import PairResult, verdict
from gpuinfra.remote.hosts import Hosts
from gpuinfra.report import pairs_text
from gpuinfra.verification import rounds
from gpuinfra.verification.rounds import NodeResult
from tests.node.healthy import GOOGLE
from tests.node.test_nccl import libraries
from tests.remote.conftest import lab
from tests.remote.servers import Lab, needed

__all__ = ["lab", "libraries"]

SHOWS = {**GOOGLE, "fabric_provider": "efa", "floors": [{"check": "B3", "at_least": 0.000001}]}
GOOD = {
    "schema": "gpuinfra.pair/1", "ranks": 16, "gpus": 8, "wrong": 0, "network": ["AWS Libfabric"], "busbw_gb_s": 90.04,
}  # fmt: skip


def result(**changes: Any) -> NodeResult:
    """What a node program prints."""
    return NodeResult(result=json.dumps({**GOOD, **changes}), exit=0)


@pytest.mark.parametrize(
    ("by_node", "words"),
    [
        ({"a": result(), "b": result()}, ""),
        ({"a": result(), "b": result(wrong=3)}, "3 bytes of the result are wrong"),
        ({"a": result(network=["Socket"]), "b": result(network=["Socket"])}, "NCCL uses Socket"),
        ({"a": result(ranks=8), "b": result()}, "of 16 GPUs"),
        ({"a": result(), "b": NodeResult(problem="b: a did not arrive within 300 s")}, "did not arrive"),
        ({"a": result(), "b": NodeResult(result="[1, 2", exit=0)}, "not JSON"),
        ({"a": result()}, "returned no result"),
    ],
)
def test_a_pair_is_good_when_both_nodes_pass(by_node: dict[str, NodeResult], words: str) -> None:
    """A node that does not pass B3 makes the pair slow, and each reason appears once."""
    found = rounds.pair_result(("a", "b"), by_node, {"a": SHOWS, "b": SHOWS})
    assert found.good == (not words)
    assert words in found.reason


@pytest.mark.parametrize("slow", [0, 3, 6])
def test_rounds_continue_until_the_slow_node_is_known(slow: int) -> None:
    """Of seven nodes one is slow with every partner: it alone is named, after two partners."""
    nodes = [f"gpu-{number}" for number in range(7)]
    measured: list[list[tuple[str, str]]] = []

    def measure(pairs: list[tuple[str, str]]) -> list[PairResult]:
        measured.append(pairs)
        return [PairResult(first=a, second=b, good=nodes[slow] not in (a, b), reason="slow") for a, b in pairs]

    results = rounds.run_rounds(nodes, measure)
    document = rounds.document(verdict(nodes, results), results, {}, {}, {"gpu-0": "a"})
    assert document["labels"] == {"gpu-0": "a"}
    assert list(document["slow"]) == [nodes[slow]]
    assert len(document["good"]) == 6
    assert not document["verified"]
    assert all(len({name for pair in pairs for name in pair}) == 2 * len(pairs) for pairs in measured)
    text = "\n".join(pairs_text.text(document, {name: f"{name} (i-{name[-1]})" for name in nodes}))
    assert f"{nodes[slow]} (i-{slow}) is slow with every partner" in text
    assert "6 of 7 nodes" in text


def serve(lab: Lab, libraries: Path, scratch: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """One server of real OpenSSH whose commands find the stand-in of NCCL."""
    key = lab.keygen("host")
    more = f"Match User *\nSetEnv LD_LIBRARY_PATH={libraries} FAKE_PAIR={scratch} SHLVL=5\n"
    port = lab.serve(key=key, more=more)
    return {"port": port, "host_keys": (lab.public(key),)}, {"port": port, "host_key": lab.public(key)}


@needed()
def test_pairs_are_measured_over_ssh(
    lab: Lab,
    libraries: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both nodes of a pair start at once, the third host is paired with a good one, and the shared folder is left empty."""
    reached, _ = serve(lab, libraries, tmp_path)
    hosts = tuple(lab.host(name=name, **reached) for name in ("gpu-1", "gpu-2", "gpu-3"))
    small = ("--gib", "0.001", "--rounds", "2")
    store = str(tmp_path / ".gpuinfra-pairs")
    expected = {host.name: SHOWS for host in hosts}
    code = measure_pairs(Hosts(hosts=hosts), expected, store=store, parallel=8, as_json=True, options=small)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert code == 0, err
    assert (document["good"], document["slow"], document["verified"]) == (["gpu-1", "gpu-2", "gpu-3"], {}, True)
    assert [one["nodes"] for one in document["pairs"]] == [["gpu-1", "gpu-2"], ["gpu-3", "gpu-1"]]
    assert all(one["gb_s"] is not None for one in document["pairs"])
    assert "gpu-1 with gpu-2: " in err
    assert not (tmp_path / ".gpuinfra-pairs").exists()


@needed()
def test_pairs_without_nccl_name_the_reason(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of a node program that failed is the reason of the pair, and no node is called slow."""
    key = lab.keygen("host")
    hosts = tuple(lab.host(lab.serve(key=key), name, host_keys=(lab.public(key),)) for name in ("gpu-1", "gpu-2"))
    expected = {host.name: SHOWS for host in hosts}
    assert measure_pairs(Hosts(hosts=hosts), expected, store=str(tmp_path / ".gpuinfra-pairs"), parallel=4) == 1
    out, err = capsys.readouterr()
    assert "gpu-1: NCCL is not installed" in err
    assert "paired only with unverified nodes: gpu-1, gpu-2" in out


@needed()
def test_hosts_that_cannot_be_measured_are_listed_with_the_reason(lab: Lab, libraries: Path, tmp_path: Path) -> None:
    """A missing shared folder is reported by each host, a host without a trusted key is left out, and no node is called slow."""
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
    words = [sys.executable, "-m", "gpuinfra", "pairs", "--hosts", str(file), "--shared-folder", f"{tmp_path}/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=dict(os.environ))
    assert done.returncode == 1, done.stderr
    assert "nowhere is not a folder on this machine; specify a folder that all nodes mount" in done.stderr
    assert "paired only with unverified nodes: gpu-1, gpu-2" in done.stdout
    assert "gpu-3 was not measured: " in done.stdout
    assert "0 of 3 nodes" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shared-folder", "scratch"], "an absolute path"),
        (["--shared-folder", "/scratch", "--parallel", "1"], "2 or more"),
        ([], "--shared-folder"),
    ],
)
def test_usage_errors_come_before_any_connection(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative folder, a single connection and a missing folder are refused with what is allowed."""
    assert main(["pairs", "aws-p4d", *words]) == 2
    assert message in capsys.readouterr().err
