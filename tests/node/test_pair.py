from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import nccl, pair
from gpuinfra.node.console import MissingPrerequisite
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import CheckResult
from tests.node.healthy import GOOGLE, record
from tests.node.test_nccl import libraries
from tests.typed import present

__all__ = ["libraries"]

FLOORS = [{"check": "B3", "at_least": 0.000001}]


def assignment(folder: Path, place: int) -> dict[str, Any]:
    """The assignment of one of two nodes."""
    names = ("vm-0", "vm-1")
    return {
        "schema": "gpuinfra.pair-assignment/1", "run": "r1", "self": names[place], "partner": names[1 - place], "place": place,
        "store": str(folder / "shared"),
    }  # fmt: skip


def start(libraries: Path, folder: Path, place: int, **environ: str) -> subprocess.Popen[str]:
    """One node of the pair as a separate process."""
    file = folder / f"assignment-{place}.json"
    file.write_text(json.dumps(assignment(folder, place)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "FAKE_PAIR": str(folder), **environ}
    words = [
        sys.executable,
        str(libraries / "node.pyz"),
        "pair",
        "--assignment",
        str(file),
        "--gib",
        "0.001",
        "--rounds",
        "2",
    ]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def both(libraries: Path, folder: Path, **environ: str) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of both nodes."""
    nodes = [start(libraries, folder, place, **environ) for place in (1, 0)][::-1]
    found = [node.communicate(timeout=300) for node in nodes]
    return [(node.returncode, *output) for node, output in zip(nodes, found, strict=True)]


def judged(stdout: str, **changes: Any) -> CheckResult:
    """The outcome of B3 for one node's output."""
    machine = {**GOOGLE, "fabric_provider": "efa", "required": ["B3"], "skips": {}, "floors": FLOORS, **changes}
    return judge({"pair": record(["python3", "pair"], stdout)}, machine)[0]


def test_two_nodes_meet_and_sum_over_all_gpus(libraries: Path, tmp_path: Path) -> None:
    """Two processes meet in a folder, sum over sixteen ranks, and report partner, bandwidth and correctness."""
    results = both(libraries, tmp_path)
    assert [(code, error) for code, _, error in results] == [(0, ""), (0, "")]
    for (_, stdout, _), partner in zip(results, ("vm-1", "vm-0"), strict=True):
        output = json.loads(stdout)
        assert (output["schema"], output["run"], output["partner"]) == ("gpuinfra.pair/1", "r1", partner)
        assert (output["ranks"], output["gpus"], output["wrong"], output["network"]) == (16, 8, 0, ["AWS Libfabric"])
        assert output["busbw_gb_s"] == pytest.approx(output["algbw_gb_s"] * 2 * 15 / 16)
        assert judged(stdout)["outcome"] == "pass"


def test_problems_between_two_nodes_fail_the_check(libraries: Path, tmp_path: Path) -> None:
    """A wrong sum, sockets, a slow path and missing GPUs each fail the check."""
    stdout = both(libraries, tmp_path, FAKE_WRONG="1")[0][1]
    assert "computes wrong results" in judged(stdout)["hint"]
    healthy = json.loads(stdout) | {"wrong": 0}
    assert judged(json.dumps(healthy))["outcome"] == "pass"
    assert "Socket" in present(judged(json.dumps(healthy | {"network": ["Socket"]}))["reason"])
    assert "of 16 GPUs" in present(judged(json.dumps(healthy | {"ranks": 8}))["reason"])
    slow = judged(stdout.replace('"wrong": 1', '"wrong": 0'), floors=[{"check": "B3", "at_least": 150}])
    assert "a healthy machine reaches 150 GB/s" in present(slow["reason"])


def test_missing_partner_is_reported(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first node waits and then names the partner; it has not joined NCCL, so nothing hangs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    shared = pair.RendezvousFolder(tmp_path)
    fake = nccl.Libraries(str(libraries / "libnccl.so.2"), str(libraries / "libcudart.so.13"))
    waited: list[float] = []
    with pytest.raises(pair.NoPartner, match="vm-1 did not arrive within 30 s"):
        pair.meet(
            assignment(tmp_path, 0), shared, fake, wait_s=30, wait=waited.append, clock=lambda: float(len(waited))
        )
    assert len(waited) == 30


def test_id_is_transferred_completely(libraries: Path, tmp_path: Path) -> None:
    """All 128 bytes of NCCL's id are transferred, including zeros, and the ranks are consecutive."""
    fake = nccl.Libraries(str(libraries / "libnccl.so.2"), str(libraries / "libcudart.so.13"))
    shared, found = pair.RendezvousFolder(tmp_path), {}

    def go(place: int) -> None:
        found[place] = pair.meet(assignment(tmp_path, place), shared, fake, wait=lambda s: threading.Event().wait(0.01))

    other = threading.Thread(target=go, args=(1,))
    other.start()
    go(0)
    other.join(300)
    assert found[0][0].tobytes() == found[1][0].tobytes()
    assert len(set(found[0][0].tobytes())) > 100
    assert (found[0][1:], found[1][1:]) == ((0, 16), (8, 16))


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (b"\xff", "no valid rendezvous for this run"),
        (b"[]", "no valid rendezvous for this run"),
        (b'{"schema": "gpuinfra.rendezvous/1", "run": "other", "gpus": 8}', "no valid rendezvous for this run"),
        (b'{"schema": "gpuinfra.rendezvous/1", "run": "r1", "gpus": true}', "no valid number of GPUs"),
        (b'{"schema": "gpuinfra.rendezvous/1", "run": "r1", "gpus": 8, "unique_id": "abc"}', "no complete NCCL ID"),
        (b'{"schema": "gpuinfra.rendezvous/1", "run": "r1", "gpus": 8}', "no complete NCCL ID"),
    ],
)
def test_invalid_rendezvous_is_refused(libraries: Path, tmp_path: Path, left: bytes, reason: str) -> None:
    """The store's content comes from another machine and is validated."""
    fake = nccl.Libraries(str(libraries / "libnccl.so.2"), str(libraries / "libcudart.so.13"))
    pair.RendezvousFolder(tmp_path).put("vm-0", "r1-0.json", left)
    with pytest.raises(MissingPrerequisite, match=reason):
        pair.meet(assignment(tmp_path, 1), pair.RendezvousFolder(tmp_path), fake, wait=lambda s: None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": "x"}, "schema"),
        ({"run": "../../etc"}, "run"),
        ({"partner": "a/b"}, "partner"),
        ({"partner": "vm-0"}, "with itself"),
        ({"place": 2}, "place"),
        ({"place": True}, "place"),
        ({"store": "relative"}, "store"),
    ],
)
def test_invalid_assignment_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    """The message names the invalid field, before anything is written or loaded."""
    with pytest.raises(MissingPrerequisite, match=reason):
        pair.checked(assignment(tmp_path, 0) | changes)


def test_missing_assignment_is_reported(libraries: Path, tmp_path: Path) -> None:
    """Exit code 3 and one line without a traceback."""
    words = [sys.executable, str(libraries / "node.pyz"), "pair", "--assignment", str(tmp_path / "none.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert done.stderr == f"gpuinfra: no partner is assigned: {tmp_path}/none.json does not exist\n"


def test_bucket_restricts_each_node_to_its_own_folder() -> None:
    """A node writes under its own name and reads under its partner's name, in the folder that the cloud's policy allows."""

    class Cloud:
        def __init__(self) -> None:
            self.kept: dict[tuple[str, str], bytes] = {}

        def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
            assert not once
            self.kept[bucket, key] = body

        def get(self, bucket: str, key: str) -> bytes | None:
            return self.kept.get((bucket, key))

    node = {"evidence": {"bucket": "b", "prefix": "evidence/train/", "owner": "AROA"}}
    store = pair.RendezvousBucket(node, Cloud())
    assert store.get("i-2", "r1-1.json") is None
    store.put("i-1", "r1-0.json", b"{}")
    assert store.get("i-1", "r1-0.json") == b"{}"
    assert list(store._cloud.kept) == [("b", "evidence/train/AROA:i-1/rendezvous/r1-0.json")]
