"""Outputs of real machines, and what each check must find in them.

`tests/recordings/outputs/` has one output per file. Its header names the machine, the source, the licence, and whether the text is an
excerpt or written anew in the same shape, because its source has no licence.
`tests/recordings/nvidia-smi/*.xml` are whole documents, and `tests/recordings/evidence/*.json`
are evidence that the node program recorded on a real machine.
Run this file as a program to print the outcomes of all cases.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from gpuinfra.node import mounts, nvsmi, ports
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import CheckResult
from gpuinfra.node.probes import GPU_FIELDS, PROBES
from tests.node.healthy import AZURE, H100, JOURNAL, P4D, RECORDINGS, healthy, machine, record

OUTPUTS = RECORDINGS.parent / "outputs"
EVIDENCE = RECORDINGS.parent / "evidence"
LINUX = "2026-11-21T09:00:00+0000 gpu-1 kernel: Linux version 6.8.0-1040-aws (buildd@lcy02-amd64-000)\n"
"""The start of a kernel log, which the excerpts do not have."""


@dataclass(frozen=True)
class Output:
    """One output of a real machine."""

    name: str
    probe: str
    text: str
    state: str
    """`healthy`, `faulty`, or `unknown`."""
    verbatim: bool


@dataclass(frozen=True)
class Case:
    """What the checks find in one output. The other commands of the machine print what a healthy stand-in prints."""

    verdicts: Mapping[str, str]
    """Check -> outcome. `read`: the check reads the output and the others together, so only an error is wrong."""
    base: dict[str, Any] = field(default_factory=lambda: H100)
    expected: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the expectation that differ from those of the base."""
    code: int = 0
    kernel: str | None = None
    """The running kernel and the one that the bootstrap locked, if they differ from those of the stand-in."""
    stderr: bool = False
    """The text is the command's standard error."""


@cache
def output(path: Path) -> Output:
    """Read one file of `tests/recordings/outputs/`."""
    head, _, text = path.read_text(encoding="utf-8").partition("#---\n")
    meta = dict(re.findall(r"^# (\w+): (.*)$", head, re.MULTILINE))
    assert set(meta) == {"probe", "machine", "tool", "version", "source", "licence", "form", "state"}, path
    assert meta["form"] in ("excerpt", "written anew in the same shape"), path
    verbatim = meta["form"] == "excerpt"
    assert not verbatim or re.match(r"Apache-2\.0|MIT|MIT-0|BSD", meta["licence"]), path
    return Output(path.stem, meta["probe"], text, meta["state"], verbatim)


def outputs() -> tuple[Output, ...]:
    """All outputs, by name."""
    return tuple(output(path) for path in sorted(OUTPUTS.glob("*.txt")))


LINKS_80 = {"gpus": 1, "nvlinks_per_gpu": 12, "nvlink_gb_s": 25.0}
B200 = machine("aws", "p6-b200.48xlarge")
B300 = machine("aws", "p6-b300.48xlarge")
A3_ULTRA = machine("gcp", "a3-ultragpu-8g")
GUARDED = {"metadata_guarded": ["169.254.169.254", "fd20:ce::254"]}
QUIET = {"X1": "pass", "X2": "pass", "X3": "pass", "N6": "pass"}
CASES: dict[str, Case] = {
    "a100-nvlink-s-1": Case({"F3": "pass"}, expected=LINKS_80),
    "a100-nvlink-s-2": Case({"F3": "fail"}, expected=LINKS_80),
    "a100-nvlink-s-4": Case({"F3": "pass"}, expected=LINKS_80),
    "b200-nvlink-s-1": Case({"F3": "pass"}, B200),
    "b300-nvlink-s-1": Case({"F3": "pass"}, B300, {"gpus": 2}),
    "hgx-topo-fault-1": Case({"F3": "fail"}),
    "h100-nvlink-e-1": Case({"F4": "pass"}),
    "b300-nvlink-e-1": Case({"F4": "pass"}, B300, {"gpus": 2}),
    "gb200-nvlink-e-1": Case({"F4": "pass"}, B300, {"gpus": 4}),
    "gb200-nvlink-e-2": Case({"F4": "fail"}, B300, {"gpus": 4}),
    "gb200-nvlink-e-3": Case({"F4": "fail"}, B300, {"gpus": 1}),
    "a100-topo-1": Case({"F5": "pass"}, P4D),
    "a3ultra-topo-1": Case({"F5": "pass"}, A3_ULTRA),
    "b200-topo-1": Case({"F5": "fail"}, B200),
    "b200-topo-2": Case({"F5": "pass"}, B200),
    "b300-topo-2": Case({"F5": "pass"}, B300),
    "l40-dmesg-off-bus-1": Case({**QUIET, "X3": "fail"}, AZURE),
    "gb200-dmesg-xid-1": Case({**QUIET, "X1": "fail"}, AZURE),
    "gb200-dmesg-xid-2": Case({**QUIET, "X1": "fail"}, AZURE),
    "hgx-dmesg-sxid-1": Case({**QUIET, "X1": "fail", "X2": "fail", "X3": "fail"}, AZURE),
    "h100-dmesg-sxid-3": Case(QUIET, AZURE),
    "h200-dmesg-sxid-1": Case(QUIET, AZURE),
    "hgx-dmesg-xid-1": Case({**QUIET, "X1": "warn"}, AZURE),
    "hgx-dmesg-xid-2": Case({**QUIET, "X1": "fail"}, AZURE),
    "rtx-dmesg-xid-154-1": Case({**QUIET, "X1": "fail"}, AZURE),
    "rtx-dmesg-xid-154-2": Case({**QUIET, "X1": "fail"}, AZURE),
    "rtx-dmesg-xid-154-3": Case({**QUIET, "X1": "fail"}, AZURE),
    "a100-lspci-1": Case({"P1": "pass", "G1": "read"}, machine("azure", "Standard_ND96amsr_A100_v4")),
    "h200-lspci-1": Case({"P1": "pass", "G1": "read"}, machine("aws", "p5en.48xlarge")),
    "efa-fi-info-1": Case({"N1": "pass"}, expected={"fabric_devices": 1}),
    "h100-fi-info-1": Case({"N1": "pass"}, expected={"fabric_devices": 2}),
    "h100-sys-class-infiniband-1": Case(
        {"N6": "fail", "N9": "read", "N7": "skip", "N2": "pass", "N10": "pass", "N11": "skip", "N12": "pass"},
        AZURE,
        {"fabric_devices": 3},
    ),
    "gb10-dcgm-json-1": Case({"B1": "warn"}, expected={"gpus": 1}, code=226),
    "gb10-dcgm-json-2": Case({"B6": "fail"}, expected={"gpus": 1, "burn_in": 2}, code=226),
    "dcgm-memory-alloc-1": Case({"B6": "fail"}, expected={"gpus": 2, "burn_in": 2}),
    "dcgm-json-1": Case({"B6": "error"}, expected={"gpus": 1, "burn_in": 3}),
    "h100-nvbandwidth-1": Case({"B5": "pass"}),
    "h100-nvbandwidth-2": Case({"B5": "pass"}, machine("aws", "p5.4xlarge")),
    "h100-gpu-copies-1": Case({"B9": "pass"}, machine("azure", "Standard_ND96isr_H100_v5")),
    "h100-gpu-copies-2": Case({"B9": "fail"}, machine("azure", "Standard_ND96isr_H100_v5")),
    "h100-gpu-copies-3": Case({"B9": "pass"}, machine("azure", "Standard_ND96isr_H100_v5")),
    "b300-gpu-copies-1": Case({"B9": "pass"}, B300, {"gpus": 7}),
    "h100-gpu-memory-1": Case({"B10": "pass"}, machine("aws", "p5.48xlarge")),
    "h100-pair-1": Case({"B3": "fail"}, machine("aws", "p5.48xlarge")),
    "a100-nvbandwidth-1": Case({"B5": "error"}, code=1),
    "vm-showhold-1": Case({"D4": "pass"}),
    "vm-cloud-init-1": Case({"S1": "fail"}, code=2),
    "vm-cloud-init-2": Case({"S1": "pass"}, code=2),
    "h100-dcgm-exporter-1": Case({"M1": "pass"}),
    "a800-dcgm-exporter-1": Case({"M1": "pass"}),
    "vm-dkms-1": Case({"D3": "pass"}),
    "rtx-proc-driver-1": Case({"D1": "pass", "D3": "pass", "D7": "pass", "F1": "pass"}),
    "b300-fabricmanager-1": Case({"F6": "pass"}, B200),
    "efa-lnet-1": Case({"L3": "pass"}, expected={"lnet_efa": 1}),
    "gb300-imex-1": Case({"D5": "pass"}, expected={"gpus": 4}),
    "gb200-fabric-2": Case({"F2": "fail"}, expected={"gpus": 4}),
    # Both compare the list with the document of another machine here; a test below reads the list alone.
    "h200-mig-list-1": Case({"G1": "error", "G15": "error"}),
    "azure-journal-2": Case({"N6": "pass"}, AZURE),
    "hgx-lsmod-1": Case({"P5": "pass", "D6": "pass", "F6": "read"}),
    "vm-memlock-1": Case({"N4": "pass"}),
    "vm-docker-info-1": Case({"C1": "pass", "C3": "pass"}),
    "vm-cdi-1": Case({"C2": "pass"}, expected={"gpus": 4}),
    "vm-cdi-2": Case({"C2": "pass"}, expected={"gpus": 4}),
    "vm-mokutil-1": Case({"P4": "pass"}),
    "h100-gvnic-1": Case({"N8": "pass"}, machine("gcp", "a3-highgpu-8g"), {"gvnics": 1}),
    "vm-disk-1": Case({"P3": "pass"}),
    "vm-kernel-headers-1": Case({"P2": "pass"}, kernel="6.1.0-56-cloud-amd64"),
    "vm-uname-1": Case({"P2": "fail", "L1": "fail", "D3": "read", "D4": "read"}),
    "vm-nft-1": Case({"C4": "pass"}, expected=GUARDED),
    "vm-libcuda-1": Case({"D8": "pass"}),
    "fsx-lustre-module-1": Case({"L1": "pass"}, kernel="6.1.91-99.172.amzn2023.x86_64"),
    "fsx-mounts-1": Case(
        {"L1": "pass", "L2": "skip", "L4": "skip"},
        expected={"file_systems": ["/fsx", "/var/lib/data", "/mnt/cloud"], "homes": [], "buckets": []},
    ),
    "efs-mounts-1": Case(
        {"L1": "skip", "L2": "pass", "L4": "skip"},
        expected={"file_systems": [], "homes": ["/mnt/efs", "/home"], "buckets": []},
    ),
    "bucket-mounts-1": Case(
        {"L1": "skip", "L2": "skip", "L4": "pass"},
        expected={
            "file_systems": [],
            "homes": [],
            "buckets": [
                {"mount": "/s3", "read_only": True},
                {"mount": "/mnt/blob", "read_only": False},
                {"mount": "/home/jupyter/corpus", "read_only": False},
            ],
        },
    ),
    "gce-ports-1": Case(
        {"N2": "skip", "N6": "pass", "N7": "pass", "N9": "skip", "N10": "pass", "N11": "skip", "N12": "pass"}, A3_ULTRA
    ),
    "gce-ports-2": Case(
        {"N2": "skip", "N6": "pass", "N7": "fail", "N9": "skip", "N10": "pass", "N11": "skip", "N12": "pass"}, A3_ULTRA
    ),
    "dgx-enroot-1": Case({"C5": "fail"}, code=1, stderr=True),
}
"""Output -> what each check that reads this command finds."""


NCCL_LOGS = {
    "gib": "a3ultra-vm-0:606:642 [6] NCCL INFO NET/gIB : Initializing gIB v1.0.2\na3ultra-vm-0:606:642 [6] NCCL INFO Using network gIB\n",
    "efa": (
        "ip-10-0-0-1:90:120 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)\nip-10-0-0-1:90:120 "
        "[0] NCCL INFO RMA/Plugin: Assigned plugin Libfabric to comm\nip-10-0-0-1:90:120 [0] NCCL INFO Using network Libfabric\n"
    ),
    "infiniband": "node-1:77:99 [3] NCCL INFO Using network IBext_v11\n",
}
"""Fabric -> lines that NCCL prints, written anew in the shape of public logs (gIB 1.0.2; NCCL 2.32.3 on p5en; NCCL 2.29 with plugin v11)."""


IDLE = {
    **dict.fromkeys(["P3", "P4", "D1", "D2", "D5", "D8", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "X1"], "pass"),
    "P2": "fail", "N4": "fail",  # the machine has no kernel headers and no limits for locked memory
    "D4": "warn",  # CUDA is held, the driver and the kernel are not
    "B4": "fail",  # the machine has no fabric, so NCCL uses sockets
}  # fmt: skip
BUSY = {name: word for name, word in IDLE.items() if name[0] in "GX"} | {"D4": "warn", "N4": "fail", "G14": "warn"}
MEASURED: dict[str, dict[str, str]] = {
    "h100-idle": IDLE,
    "h100-busy": BUSY,
    "h100-heat": {"B7": "pass"},
    "h200-idle": IDLE,
}
"""Evidence of a real machine -> the outcome of each check whose tools the machine has. `h100-busy` and `h100-heat` were recorded during matrix products."""


def measured(name: str) -> dict[str, CheckResult]:
    """The outcomes of the checks in recorded evidence."""
    probes = json.loads((EVIDENCE / f"{name}.json").read_text(encoding="utf-8"))["probes"]
    wanted = {**machine("aws", "p5.4xlarge"), "required": sorted(MEASURED[name]), "skips": {}, "root_free_gib": 20}
    if name.startswith("h200"):
        wanted |= {field: machine("aws", "p5en.48xlarge")[field] for field in ("gpu_name", "gpu_memory_mib")}
    kernel = probes["uname"]["stdout"].strip()
    wanted["software"] = {**wanted["software"], "driver": {"pin": "580.159.04"}}
    journal = {**JOURNAL, "recorded": {**JOURNAL["recorded"], "kernel": kernel, "driver": "580.159.04"}}
    return {check["id"]: check for check in judge(probes, wanted, journal=journal)}


def checks_of(probe: str) -> set[str]:
    """The checks that read a probe."""
    return {check.id for check in ALL.values() if probe in check.probes}


def reading(one: Output) -> set[str]:
    """The checks that read this output. A table can lack the columns of some checks."""
    if one.probe != "nvidia-smi-csv":
        return checks_of(one.probe)
    return {"gb300-imex-1": {"D5"}, "gb200-fabric-2": {"F2"}}[one.name]


def outcomes(one: Output, case: Case) -> dict[str, CheckResult]:
    """The outcomes of the checks that read this output."""
    text = one.text
    if one.probe == "kernel-log":
        text = LINUX + text
    elif one.probe == "ports":
        text = json.dumps(_ports(text)) + "\n"
    elif one.probe == "mounts":
        text = json.dumps(_mounts(text)) + "\n"
    wanted = {**case.base, **case.expected, "required": sorted(reading(one)), "skips": {}}
    probes, journal = healthy(case.base), JOURNAL
    if case.kernel is not None:
        probes["uname"] = record(PROBES["uname"].argv, case.kernel + "\n")
        journal = {**JOURNAL, "recorded": {**JOURNAL["recorded"], "kernel": case.kernel}}
    printed = {"stderr": text} if case.stderr else {"stdout": text}
    probes[one.probe] = record(PROBES[one.probe].argv, code=case.code, **printed)
    return {check["id"]: check for check in judge(probes, wanted, journal=journal)}


def _mounts(text: str) -> dict[str, Any]:
    """What the node program reads through the real `findmnt` from this /proc/mounts, if each mount responds."""
    with tempfile.TemporaryDirectory() as folder:
        table, tool = Path(folder, "mounts"), Path(folder, "findmnt")
        table.write_text(text, encoding="ascii")
        tool.write_text(f'#!/bin/sh\nexec "{shutil.which("findmnt")}" --tab-file "{table}" "$@"\n', encoding="ascii")
        tool.chmod(0o755)
        with (
            mock.patch.dict("os.environ", {"PATH": folder}),
            mock.patch.object(mounts, "_problems", lambda tests: dict.fromkeys(tests)),
        ):
            return mounts.mounts()


def _ports(text: str) -> dict[str, Any]:
    """What the node program reads from these files of /sys/class/infiniband."""
    with tempfile.TemporaryDirectory() as folder:
        for line in text.splitlines():
            name, _, content = line.partition(": ")
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content + "\n", encoding="ascii")
        return ports.ports(Path(folder))


COLUMNS = {
    "name": "product_name", "serial": "serial", "pci.bus_id": "pci/pci_bus_id",
    "persistence_mode": "persistence_mode", "mig.mode.current": "mig_mode/current_mig", "mig.mode.pending": "mig_mode/pending_mig",
    "ecc.mode.current": "ecc_mode/current_ecc", "ecc.mode.pending": "ecc_mode/pending_ecc",
    "gpu_recovery_action": "gpu_recovery_action", "pcie.link.gen.current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width", "memory.total": "fb_memory_usage/total",
    "memory.used": "fb_memory_usage/used", "temperature.gpu": "temperature/gpu_temp",
    "temperature.gpu.tlimit": "temperature/gpu_temp_tlimit", "temperature.memory": "temperature/memory_temp",
    "power.limit": "gpu_power_readings/current_power_limit", "power.default_limit": "gpu_power_readings/default_power_limit",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/dram_uncorrectable",
    "ecc.errors.uncorrected.aggregate.sram": "ecc_errors/aggregate/sram_uncorrectable_secded",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending", "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "fabric.state": "fabric/state", "fabric.status": "fabric/status", "fabric.health.summary": "fabric/health/summary",
}  # fmt: skip
"""Column of the table -> path in the document with the same value."""
REASONS = {
    "gpu_idle": 0x1,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
DOCUMENTS: dict[str, Case] = {
    "b200-8": Case({"D5": "warn"}, B200),
    "gb200-4": Case({}, machine("aws", "p6e-gb200.36xlarge")),
    "gb300-4": Case({}, machine("azure", "Standard_ND128isr_GB300_v6")),
    "h100-8": Case({}, machine("aws", "p5.48xlarge")),
    "a100-sxm4-40gb-1": Case({}, P4D, {"gpus": 1}),
    "l40s-1": Case({}, machine("aws", "g6e.2xlarge")),
}
"""Document of a whole machine -> the outcomes that are not `pass`."""
OF_CAPTURE = ("G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "F2", "F3")
"""Checks that read the captured table and links of an H100 (`test_recordings.py`)."""
OF_DOCUMENTS = ("nvidia-smi-xml", "nvidia-smi-csv", "nvidia-smi-list", "lspci")


def document(name: str) -> dict[str, dict[str, Any]]:
    """What the four commands print about the GPUs of a document, with its values."""
    text = (RECORDINGS / f"{name}.xml").read_text(encoding="utf-8")
    log = nvsmi.parse(text)
    rows, listed, bus = [", ".join(GPU_FIELDS)], "", ""
    for gpu in log.gpus:
        active = sum(
            bit
            for name, bit in REASONS.items()
            if gpu.find(f"clocks_event_reasons/clocks_event_reason_{name}") == "Active"
        )
        cells = {
            **{column: gpu.find(path) for column, path in COLUMNS.items()},
            "index": str(gpu.index), "driver_version": log.driver_version, "clocks_event_reasons.active": f"0x{active:016x}",
            "inforom.checksum_validation": "valid",  # the document does not show it
        }  # fmt: skip
        cells["ecc.errors.uncorrected.volatile.total"] = gpu.find("ecc_errors/volatile/dram_uncorrectable")
        rows.append(", ".join(cells[column] for column in GPU_FIELDS))
        listed += f"GPU {gpu.index}: {gpu.get('product_name')} (UUID: {gpu.get('uuid')})\n"
        device = gpu.get("pci/pci_device_id")
        bus += f"{gpu.get('pci/pci_bus_id')[4:].lower()} 3D controller [0302]: NVIDIA Corporation Device [10de:{device[:4].lower()}] (rev a1)\n"
    printed = (text, "\n".join(rows) + "\n", listed, bus)
    return {probe: record(PROBES[probe].argv, shown) for probe, shown in zip(OF_DOCUMENTS, printed, strict=True)}


def document_outcomes(name: str) -> dict[str, CheckResult]:
    """The outcomes of the checks that read the commands of a document and no others."""
    case, probes = DOCUMENTS[name], document(name)
    log = nvsmi.parse(probes["nvidia-smi-xml"]["stdout"])
    apps = "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
    beside = {"nvidia-smi-apps": record(PROBES["nvidia-smi-apps"].argv, apps)}
    reading = {
        check.id
        for check in ALL.values()
        if set(OF_DOCUMENTS) & set(check.probes) and set(check.probes) <= {*probes, *beside}
    }
    wanted = {**case.base, **case.expected, "software": {"driver": {"pin": log.driver_version}}}
    # The document does not show whether the infoROM is valid, so G11 is not tried on it.
    required = [name for name in reading if name in case.base["required"] and name != "G11"]
    journal = {**JOURNAL, "recorded": {**JOURNAL["recorded"], "driver": log.driver_version}}
    found = judge({**probes, **beside}, {**wanted, "required": required, "skips": {}}, journal=journal)
    return {check["id"]: check for check in found}


def tried() -> dict[str, tuple[int, int]]:
    """Check -> how many real outputs it was tried on: verbatim ones, and ones written in the shape of a real one."""
    verbatim: Counter[str] = Counter()
    shaped: Counter[str] = Counter()
    for one in outputs():
        judged = [check for check in reading(one) if CASES[one.name].verdicts[check] != "skip"]
        (verbatim if one.verbatim else shaped).update(judged)
    for _ in NCCL_LOGS:
        shaped.update(("B3", "B4"))
    verbatim.update(OF_CAPTURE)
    for name in DOCUMENTS:
        verbatim.update(list(document_outcomes(name)))
    for name in MEASURED:
        verbatim.update(list(MEASURED[name]))
    return {check: (verbatim[check], shaped[check]) for check in ALL}


if __name__ == "__main__":
    for one in outputs():
        if one.name in CASES:
            print(
                one.name,
                one.state,
                {name: (c["outcome"], c["reason"]) for name, c in outcomes(one, CASES[one.name]).items()},
            )
        else:
            print(one.name, "HAS NO CASE")
    for name in DOCUMENTS:
        print(
            name,
            {key: (c["outcome"], c["reason"]) for key, c in document_outcomes(name).items() if c["outcome"] != "pass"},
        )
    print(tried())
