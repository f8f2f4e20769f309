"""`node.pyz metrics`: the facts of a node, as the real node exporter and Prometheus' rules read them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import evidence, metrics
from gpuinfra.node.metrics import NodeFacts
from gpuinfra.node.notices import Notice, NoticeKind, NoticeStage, dumped
from tests.node.healthy import JOURNAL, P4D, healthy

NODE = {"cloud": "aws", "bundle": {"sha256": "b" * 64}}
DF = """UUID                   1K-blocks        Used   Available Use% Mounted on
scratch-MDT0000_UUID     8471496       68736     7651240   1% /scratch[MDT:0]
scratch-OST0000_UUID  1000000000   900000000   100000000  90% /scratch[OST:0]
OST0001             : inactive device
scratch-OST0002_UUID  1000000000   100000000   900000000  10% /scratch[OST:2]

filesystem_summary:   2000000000  1000000000  1000000000  50% /scratch
"""


class World:
    """The files of one node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expect(P4D)
        self.put("node.json", json.dumps(NODE))
        self.facts = NodeFacts(
            node=folder / "node.json", bundle=folder, folder=folder / "evidence", first=folder / "first", notices=folder / "notices.json",
            readings=folder / "energy.json", infiniband=folder / "infiniband", lfs=str(folder / "lfs"),
        )  # fmt: skip

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def expect(self, expectation: Any) -> None:
        self.put("expectation.json", json.dumps(expectation))

    def verified(self, seq: int, boot: str | None = None, **probes: Any) -> None:
        """Write evidence of this boot."""
        document = evidence.make(
            node=NODE, expectation=P4D, journal=JOURNAL, probes={**healthy(), **probes}, instance_id="i", boot_id=boot or evidence.boot_id(),
            seq=seq, previous=None, started="", finished="", host_keys=[],
        )  # fmt: skip
        evidence.EvidenceFolder(self.folder / "evidence").write(seq, evidence.dumped(document))

    def lines(self) -> dict[str, float]:
        """Each series with its value."""
        lines = (line for line in self.facts.text().splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}

    def until(self, name: str) -> dict[str, float]:
        """The series as soon as one of them begins with a name: file systems answer later."""
        for _ in range(100):
            found = self.lines()
            if any(series.startswith(name) for series in found):
                return found
            time.sleep(0.05)
        pytest.fail(f"{name} does not appear")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without evidence."""
    return World(tmp_path)


LOST = {"nvidia-smi-xml": {**healthy()["nvidia-smi-xml"], "stdout": "No devices were found", "exit": 6}}


def test_a_node_without_evidence_of_this_boot_is_neither_verified_nor_not(world: World) -> None:
    """Before the first checks of a boot, there is no series, so no alert claims that the node failed."""
    assert world.lines() == {}
    world.verified(1, boot="another boot")
    assert world.lines() == {}


def test_a_verified_node_that_fails_a_check_later(world: World) -> None:
    """A node that fails before it was ever verified has no time of its verification. This time is kept when a check fails later, which has its cause."""
    world.verified(1, **LOST)
    found = world.lines()
    assert found["gpuinfra_node_verified"] == 0
    assert "gpuinfra_node_first_verified_timestamp_seconds" not in found
    world.verified(2)
    since = world.lines()
    assert since["gpuinfra_node_verified"] == 1
    assert not any(series.startswith("gpuinfra_check_failed") for series in since)
    world.verified(3, **LOST)
    found = world.lines()
    assert found["gpuinfra_node_verified"] == 0
    assert (
        found["gpuinfra_node_first_verified_timestamp_seconds"]
        == since["gpuinfra_node_first_verified_timestamp_seconds"]
    )
    failed = [series for series in found if series.startswith("gpuinfra_check_failed")]
    assert any('check="G1"' in one and 'outcome="fail"' in one and 'blocks="true"' in one for one in failed), failed


def test_damaged_evidence_is_not_verified(world: World) -> None:
    """Evidence with an unusable list of checks does not stop the service."""
    world.verified(1)
    path = next((world.folder / "evidence").glob("*.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "checks": ["?"]}))
    found = world.lines()
    assert [series for series in found if not series.startswith("gpuinfra_node_info{")] == ["gpuinfra_node_verified"]
    assert found["gpuinfra_node_verified"] == 0


def test_notices_have_the_earliest_deadline_of_their_kind(world: World) -> None:
    """A notice without a deadline is counted. Two deadlines of one kind have one series."""
    now = 1_800_000_000.0
    deadlines = ((now + 900, NoticeKind.RECLAIM), (now + 60, NoticeKind.RECLAIM), (None, NoticeKind.REBALANCE))
    world.put("notices.json", dumped(Notice(id=str(at), kind=kind, what="x", deadline=at, stage=NoticeStage.ANNOUNCED) for at, kind in deadlines))  # fmt: skip
    assert world.lines() == {
        'gpuinfra_notices{kind="reclaim",stage="announced"}': 2,
        'gpuinfra_notices{kind="rebalance",stage="announced"}': 1,
        'gpuinfra_notice_deadline_timestamp_seconds{kind="reclaim"}': now + 60,
    }
    world.put("notices.json", "{}")
    assert world.lines() == {}


def test_idle_gpus_have_the_time_since_when(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time follows from the newest reading. GPUs in use, old readings and readings of another boot have no series."""
    uptime = 10_000.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: uptime)
    document = {
        "schema": "gpuinfra.energy/1", "boot_id": evidence.boot_id(), "uptime_s": uptime - 60, "gpus": [{"uuid": "GPU-0", "limit_w": 400}],
        "readings": [{"uptime_s": uptime - 3660, "millijoules": [1]}, {"uptime_s": uptime - 60, "millijoules": [3600 * 50 * 1000]}],
    }  # fmt: skip
    name = "gpuinfra_gpus_idle_since_timestamp_seconds"
    world.put("energy.json", json.dumps(document))
    assert world.lines()[name] == pytest.approx(time.time() - 3660, abs=5)
    for changed in (
        {"boot_id": "another"},
        {"readings": [document["readings"][0], {"uptime_s": uptime - 60, "millijoules": [3600 * 300 * 1000]}]},
    ):
        world.put("energy.json", json.dumps({**document, **changed}))
        assert world.lines() == {}


def test_counters_that_node_exporter_does_not_read(world: World) -> None:
    """The listed hw_counters of each port are read. A counter without a number, and one that is not listed, have no series."""
    for name, text in {"rx_drops": "7\n", "tx_bytes": "N/A\n", "alloc_pd_err": "1\n"}.items():
        world.put(f"infiniband/rdmap79s0/ports/1/hw_counters/{name}", text)
    assert world.lines() == {'gpuinfra_rdma_hw_counter_total{device="rdmap79s0",port="1",counter="rx_drops"}': 7}


def test_each_ost_of_a_lustre_file_system(world: World) -> None:
    """`lfs df` shows one full OST although half of the file system is free. An inactive OST has no series."""
    world.expect({**P4D, "file_systems": ["/scratch"]})
    world.put("df.txt", DF)
    world.put("lfs", f'#!/bin/sh\n[ "$*" = "df /scratch" ] && cat {world.folder}/df.txt\n', 0o755)
    found = world.until("gpuinfra_lustre")
    assert found == {
        'gpuinfra_lustre_ost_used_ratio{mount="/scratch",ost="scratch-OST0000"}': 0.9,
        'gpuinfra_lustre_ost_used_ratio{mount="/scratch",ost="scratch-OST0002"}': 0.1,
    }


def test_a_file_system_that_hangs_has_one_process_and_no_series(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While `lfs df` does not return, no second one starts, and the other facts are written."""
    world.expect({**P4D, "file_systems": ["/scratch"]})
    world.put("lfs", f"#!/bin/sh\necho run >>{world.folder}/runs\nexec sleep 60\n", 0o755)
    world.put("notices.json", dumped([Notice(id="a", kind=NoticeKind.STOP, what="x", deadline=None)]))
    monkeypatch.setattr(metrics, "SLOW_S", 0.0)
    for _ in range(5):
        assert list(world.lines()) == ['gpuinfra_notices{kind="stop",stage="announced"}']
        time.sleep(0.1)
    assert (world.folder / "runs").read_text() == "run\n"
    (slow,) = world.facts._slow.values()
    end(slow)


def test_an_answer_ends_with_its_file_system(tmp_path: Path) -> None:
    """The last answer is kept until the next command hangs for longer than two minutes, or fails."""
    clock = [0.0]
    (tmp_path / "text").write_text("old")
    command = f"cat {tmp_path}/text && [ ! -e {tmp_path}/hang ] || exec sleep 60"
    answer = metrics._SlowAnswer(["sh", "-c", command], clock=lambda: clock[0])
    assert answer.text() == ""
    assert answer._process
    assert answer._process.wait() == 0
    assert answer.text() == "old"
    (tmp_path / "hang").touch()
    clock[0] = 400
    assert answer.text() == "old"
    clock[0] = 521
    assert answer.text() == ""
    end(answer)


def end(slow: metrics._SlowAnswer) -> None:
    """End the command of a test."""
    assert slow._process
    assert slow._output
    slow._process.kill()
    slow._process.wait()
    slow._output.close()


def test_the_newest_checkpoint(world: World) -> None:
    """The time is that of the newest file that matches the declared pattern. Without a match, there is no series."""
    mount = world.folder / "scratch"
    world.expect({**P4D, "file_systems": [str(mount)], "checkpoints": "runs/*/step-*/COMPLETE"})
    for step, at in (("step-1", 1_700_000_000), ("step-2", 1_700_000_900)):
        world.put(f"scratch/runs/a/{step}/COMPLETE", "")
        os.utime(mount / f"runs/a/{step}/COMPLETE", (at, at))
    world.put("scratch/runs/a/step-3/part-0", "")
    found = world.until("gpuinfra_checkpoint")
    assert found == {f'gpuinfra_checkpoint_timestamp_seconds{{mount="{mount}"}}': 1_700_000_900}


def test_the_file_is_replaced_whole_and_each_user_can_read_it(tmp_path: Path) -> None:
    """No reader sees half a file, and the draft does not end with .prom, which node exporter would read."""
    file = tmp_path / "folder" / "gpuinfra.prom"
    metrics.write("a 1\n", file)
    before = file.stat().st_ino
    metrics.write("a 2\n", file)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a 2\n", 0o644)
    assert file.stat().st_ino != before
    assert [path.name for path in file.parent.iterdir()] == ["gpuinfra.prom"]


def test_labels_are_escaped_and_families_are_joined() -> None:
    """A quotation mark, a backslash and a line break do not end a label, and a name has one group of lines."""
    text = metrics.rendered(
        [("a_total", "A.", [({"x": 'q"\\\n'}, 1.0)]), ("b", "B.", []), ("a_total", "A.", [({}, 2.0)])]
    )
    assert text == '# HELP a_total A.\n# TYPE a_total counter\na_total{x="q\\"\\\\\\n"} 1.0\na_total 2.0\n'


def test_the_real_node_exporter_serves_the_facts(world: World, tmp_path: Path) -> None:
    """node exporter reads the file without an error, with the collectors and exclusions of the step."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        pytest.skip("node exporter is not installed")
    world.verified(1)
    world.put("infiniband/rdmap79s0/ports/1/hw_counters/rx_drops", "7\n")
    metrics.write(world.facts.text(), tmp_path / "served" / "gpuinfra.prom")
    address = f"127.86.{os.getpid() >> 8 & 255}.{os.getpid() & 255}:9100"
    process, served = subprocess.Popen([program, *flags(address, tmp_path / "served")], stderr=subprocess.DEVNULL), ""
    try:
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
                    served = reply.read().decode()
                break
            except OSError:
                time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()
    assert "gpuinfra_node_verified 1\n" in served
    assert 'gpuinfra_rdma_hw_counter_total{counter="rx_drops",device="rdmap79s0",port="1"} 7\n' in served
    assert "node_textfile_scrape_error 0\n" in served
    assert 'node_filesystem_avail_bytes{device="proc"' not in served
    assert 'fstype="tmpfs"' not in served
    assert "node_memory_MemAvailable_bytes" in served


def flags(address: str, folder: Path) -> list[str]:
    """The arguments that the step writes for node exporter, with another address and folder."""
    from gpuinfra.base.shipped import shipped

    step = (shipped("bootstrap") / "78-node-exporter.sh").read_text()
    names = [line for line in step.splitlines() if line.startswith("readonly ")]
    line = next(line for line in step.splitlines() if line.startswith("ExecStart=/"))
    script = "\n".join([*names, "collectors=$(printf ' --collector.%s' \"${COLLECTORS[@]}\")", f'echo "{line}"'])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "address": "A"})  # fmt: skip
    words = done.stdout.split()[1:]
    return [word.replace("A:9100", address).replace("/var/lib/gpuinfra-metrics", str(folder)) for word in words]
