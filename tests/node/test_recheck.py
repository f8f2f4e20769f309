"""The repeated checks of a node that is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import __main__ as program
from gpuinfra.node import evidence, probe, verify
from gpuinfra.node.probes import PROBES
from tests.node.healthy import JOURNAL, P4D, fabric_result, healthy, record
from tests.node.test_energy import readings
from tests.node.test_evidence import BOOT, NODE, made


class Machine:
    """One node with evidence of its boot: its files, what its probes print, and what it uploaded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = evidence.EvidenceFolder(folder / "evidence")
        self.probes: dict[str, Any] = healthy()
        self.ran: list[str] = []
        self.uploaded: list[dict[str, Any]] = []
        self.expectation = folder / "expectation.json"
        self.now = "2026-11-21T10:00:05Z"
        files = {"node.json": NODE, "state.json": JOURNAL, "expectation.json": P4D}
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
        monkeypatch.setattr(verify, "NODE", folder / "node.json")
        monkeypatch.setattr(verify, "STATE", folder / "state.json")
        monkeypatch.setattr(verify, "instance_id", lambda _: "i-1")
        monkeypatch.setattr(verify, "_upload", self._upload)
        monkeypatch.setattr(evidence, "EvidenceFolder", lambda: self.folder)
        monkeypatch.setattr(evidence, "boot_id", lambda: BOOT)
        monkeypatch.setattr(evidence, "ssh_host_keys", lambda: ["ssh-ed25519 AAAA"])
        monkeypatch.setattr(probe, "probe_all", self._probe)
        monkeypatch.setattr("gpuinfra.node.log.utc_now", lambda: self.now)

    def _probe(self, names: list[str], **_: object) -> dict[str, Any]:
        self.ran = list(names)
        return {name: self.probes[name] for name in names}

    def _upload(self, document: dict[str, Any]) -> None:
        self.uploaded.append(document)
        self.folder.write(document["seq"], evidence.dumped(document))

    def again(self, *more: str) -> int:
        """Run what the timer runs."""
        return program.main(["verify", "--again", "--upload", "--expectation", str(self.expectation), *more])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A node that is verified since an hour."""
    one = Machine(tmp_path, monkeypatch)
    one.folder.write(1, evidence.dumped(made()))
    return one


def test_a_gpu_that_disappears_is_uploaded(machine: Machine) -> None:
    """A GPU that is lost after the handover is in the next evidence, which does not verify the node."""
    listed = machine.probes["nvidia-smi-list"]
    lines = listed["stdout"].splitlines(keepends=True)
    machine.probes["nvidia-smi-list"] = {**listed, "stdout": "".join(lines[:-1])}
    assert machine.again() == 1
    assert [one["seq"] for one in machine.uploaded] == [2]
    outcomes = {check["id"]: check["outcome"] for check in machine.uploaded[0]["checks"]}
    assert outcomes["G1"] in ("fail", "error")
    assert machine.again() == 1
    assert len(machine.uploaded) == 1, "unchanged outcomes are not uploaded every hour"


def test_a_job_is_not_disturbed(machine: Machine) -> None:
    """Probes that load the GPUs or the fabric do not run again; their output and its number are those of this boot."""
    measured = {**P4D, "required": [*P4D["required"], "B1"]}
    machine.expectation.write_text(json.dumps(measured))
    boot = {**made(dcgm=record("{}")), "measured_in": 1}
    machine.folder.write(1, evidence.dumped(boot))
    machine.again()
    loading = {name for name, one in PROBES.items() if one.loads}
    assert loading >= {"dcgm", "nccl", "pair", "links", "heat", "nvbandwidth"}
    assert machine.ran
    assert not loading & set(machine.ran)
    document = machine.uploaded[0]
    assert document["probes"]["dcgm"] == boot["probes"]["dcgm"]
    assert (document["seq"], document["measured_in"]) == (2, 1)
    assert {check["id"] for check in document["checks"]} >= set(measured["required"])


@pytest.mark.parametrize(
    ("now", "uploads"),
    [("2026-11-21T15:00:04Z", 0), ("2026-11-21T15:00:05Z", 1), ("2026-11-21T08:00:00Z", 1), ("broken", 1)],
)
def test_unchanged_evidence_is_renewed_before_it_is_too_old(machine: Machine, now: str, uploads: int) -> None:
    """Unchanged evidence is uploaded again after six hours, and if the clock went back."""
    machine.now = now
    assert machine.again() == 0
    assert len(machine.uploaded) == uploads


def test_another_result_of_the_fabric_test_is_uploaded(machine: Machine) -> None:
    """The handover judges the result itself, so a new result is uploaded also if the outcome of check B8 does not change."""
    machine.expectation.write_text(json.dumps({**P4D, "required": [*P4D["required"], "B8"]}))
    for uploads, test in ((1, 1), (2, 2), (2, 2)):
        machine.probes["fabric-result"] = record(["cat"], json.dumps(fabric_result(test=test)))
        machine.again()
        assert len(machine.uploaded) == uploads


def test_energy_readings_are_part_of_the_evidence_only_on_request(machine: Machine) -> None:
    """The counters are read if the expectation requests it, and not by a command that runs only some checks."""
    energy = {**P4D, "energy": True}
    assert "energy" not in evidence.needed_probes(P4D)
    assert "energy" in evidence.needed_probes(energy)
    assert "energy" not in evidence.needed_probes(energy, ["presence"])


def test_work_on_idle_gpus_is_uploaded_within_an_hour(machine: Machine) -> None:
    """New readings alone are not uploaded. The first reading after the GPUs are used again is uploaded, and later ones are not."""
    machine.expectation.write_text(json.dumps({**P4D, "energy": True}))
    machine.folder.write(1, evidence.dumped(made(energy=record(["energy"], json.dumps(readings((70,), (70,)))))))
    periods: list[tuple[float, ...]] = [(70,), (70,)]
    for watts, uploads in ((70, 0), (632, 1), (70, 1), (632, 1)):
        periods.append((watts,))
        machine.probes["energy"] = record(["energy"], json.dumps(readings(*periods)))
        machine.again()
        assert len(machine.uploaded) == uploads
    assert "energy" in machine.uploaded[0]["probes"]


def test_another_boot_is_not_repeated(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without evidence of this boot nothing is repeated, because its measurements are missing."""
    monkeypatch.setattr(evidence, "boot_id", lambda: "another")
    assert machine.again() == 3
    assert not machine.uploaded


def test_again_repeats_all_checks(machine: Machine) -> None:
    """A limit to some checks is refused, because the evidence must hold all of them."""
    assert machine.again("--phase", "presence") == 2
    assert not machine.uploaded
