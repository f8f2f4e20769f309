from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from gpuinfra.handover.judge import describe
from gpuinfra.node.cause import Cause
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge, not_checked, verdict
from gpuinfra.node.outcome import CheckResult, Severity
from tests.node.healthy import (
    AZURE,
    AZURE_A100,
    BOOT,
    DRIVER,
    EARLIER_BOOT,
    GOOGLE,
    GOOGLE_B200,
    GOOGLE_RDMA,
    H100,
    JOURNAL,
    KERNEL,
    MIG,
    P4D,
    healthy,
    record,
)
from tests.typed import present

MACHINES = (P4D, H100, AZURE, AZURE_A100, GOOGLE, GOOGLE_RDMA, GOOGLE_B200, MIG)
ASKED = (H100, *MACHINES, {**H100, "burn_in": 2}, {**H100, "burn_in": 4})
"""Together they require every probe; each burn-in level has its own probe."""
Node = dict[str, Any]
"""probes, journal, expectation of one node."""


def node(expectation: dict[str, Any] = P4D) -> Node:
    """A healthy node, to be mutated."""
    return {
        "probes": healthy(expectation),
        "journal": copy.deepcopy(JOURNAL),
        "expectation": copy.deepcopy(expectation),
    }


def judged(one: Node) -> dict[str, CheckResult]:
    """Outcomes by check id."""
    return {check["id"]: check for check in judge(one["probes"], one["expectation"], journal=one["journal"])}


def says(probe: str, text: str, code: int = 0) -> Callable[[Node], None]:
    """The probe prints this text instead."""

    def mutate(one: Node) -> None:
        one["probes"][probe] = record(one["probes"][probe]["argv"], text, code)

    return mutate


def swaps(probe: str, pattern: str, replacement: str, count: int = 1) -> Callable[[Node], None]:
    """A part of the probe's output is replaced; the part must exist."""

    def mutate(one: Node) -> None:
        text, done = re.subn(pattern, replacement, one["probes"][probe]["stdout"], count=count, flags=re.MULTILINE)
        assert done, f"{pattern} is not in {probe}"
        one["probes"][probe]["stdout"] = text

    return mutate


def cell(column: str, value: str, row: int = 3) -> Callable[[Node], None]:
    """One cell of the GPU table is replaced."""

    def mutate(one: Node) -> None:
        lines = one["probes"]["nvidia-smi-csv"]["stdout"].splitlines()
        names = [re.sub(r" \[.*", "", name) for name in lines[0].split(", ")]
        cells = lines[row + 1].split(", ")
        cells[names.index(column)] = value
        lines[row + 1] = ", ".join(cells)
        one["probes"]["nvidia-smi-csv"]["stdout"] = "\n".join(lines) + "\n"

    return mutate


def journal(change: Callable[[dict[str, Any]], Any]) -> Callable[[Node], None]:
    """The bootstrap journal is changed."""

    def mutate(one: Node) -> None:
        change(one["journal"])

    return mutate


def kernel_line(text: str) -> Callable[[Node], None]:
    """The kernel log has one more line."""

    def mutate(one: Node) -> None:
        one["probes"]["kernel-log"]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 kernel: {text}\n"

    return mutate


def prebuilt_module(
    one: Node, kernel: str = KERNEL, driver: str = DRIVER, folder: str = f"/lib/modules/{KERNEL}"
) -> None:
    """The distribution ships the module prebuilt, without DKMS."""
    one["probes"]["dkms"] = record(["dkms", "status"], "", 127, problem="not found")
    text = f"filename:       {folder}/kernel/nvidia-580srv-open/nvidia.ko\nversion:        {driver}\nvermagic:       {kernel} SMP\n"
    one["probes"]["module"] = record(["modinfo", "nvidia"], text)


MUTATIONS: dict[str, list[Callable[[Node], object]]] = {
    "P1": [swaps("lspci", r"^0000:20:1d.*\n", ""), swaps("lspci", "10de:20b0", "10de:20b2"), says("lspci", "")],
    "P2": [
        says("uname", "6.8.0-1041-aws\n"),
        says("kernel-headers", "/lib/modules/6.5.0/build\n"),
        journal(lambda j: j["recorded"].pop("kernel")),
    ],
    "P3": [says("disk", "     Avail\n1073741824\n")],
    "P4": [lambda one: (says("secure-boot", "SecureBoot enabled\n")(one), says("module-signer", "\n")(one))],
    "P5": [swaps("modules", r"\A(.*\n)", r"\1nouveau 100 0\n")],
    "D1": [
        swaps("driver-version", r"580\.173\.02", "580.95.05"),
        swaps("driver-version", "Open Kernel Module for x86_64", "x86_64 Kernel Module"),
        lambda one: one["probes"].update(
            {"driver-version": record(["cat", "/x"], "", 1, stderr="cat: /x: No such file or directory")}
        ),
        journal(lambda j: j["recorded"].update(driver="575.57.08")),
        journal(lambda j: j["recorded"].pop("driver")),
    ],
    "D2": [
        cell("driver_version", "580.95.05"),
        says("nvidia-smi-csv", "Failed to initialize NVML: Driver/library version mismatch\n", 18),
        says("nvidia-smi-csv", "No devices were found\n"),
        swaps("nvidia-smi-csv", r"^3, .*\n", ""),
        swaps("nvidia-smi-xml", "<driver_version>580", "<driver_version>570"),
    ],
    "D3": [
        swaps("dkms", "installed", "built"),
        swaps("dkms", KERNEL, "6.5.0-1000-aws"),
        says("dkms", ""),
        says("dkms", "nvidia/580.173.02: added\n"),
        says("dkms", "nvidia is somewhere\n"),
        swaps("module", r"version: .*", "version:        580.95.05"),
        lambda one: prebuilt_module(one, kernel="6.5.0-1000-aws"),
        lambda one: prebuilt_module(one, driver="580.95.05"),
        lambda one: prebuilt_module(one, folder="/root"),
        lambda one: one["probes"].update(module=record(["modinfo", "nvidia"], "", 1, stderr="modinfo: ERROR: x")),
    ],
    "D8": [
        swaps("libcuda", "/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/local/cuda-13.0/compat/libcuda.so.1"),
        swaps("libcuda", r"libcuda\.so\.1 ", "libcuda.so.9 "),
        swaps("libcuda", r"libcuda\.so\.1 \(libc6,x86-64\)", "libcuda.so.1 (libc6)"),
        swaps("libcuda", " => ", " -> "),
    ],
    "D7": [
        journal(lambda j: j["recorded"].update(driver_boot=BOOT)),
        journal(lambda j: j["steps"][1].pop("boot_id")),
        journal(lambda j: j["steps"].pop(1)),
        journal(lambda j: j["recorded"].update(driver="580.95.05")),
        says("boot-id", "yesterday\n"),
        lambda one: one["probes"].update(
            {"driver-version": record(["cat", "/x"], "", 1, stderr="cat: /x: No such file or directory")}
        ),
    ],
    "C1": [
        swaps("docker", '"nvidia": {[^}]*}, (.*)"CDISpecDirs": .*]', r'\1"CDISpecDirs": null'),
        swaps("docker", '"ServerVersion": "28.2.2"', '"ServerErrors": ["Cannot connect to the Docker daemon"]'),
        says("containerd", "version = 2\n[plugins]\n"),
        says("containerd", "containerd is what this is\n"),
        swaps("docker", '"nvidia": {[^}]*}, ', ""),
        lambda one: one["probes"].update(docker=record(["docker"], "", 127, problem="not found")),
    ],
    "C5": [
        says("enroot", "3.5.0\n"),
        says("enroot", "latest\n"),
        lambda one: one["probes"].update(enroot=record(["enroot"], "", 127, problem="not found")),
        says("enroot-namespaces", "true\n"),
        *(
            lambda one, text=text: one["probes"].update({"enroot-namespaces": record(["runuser"], "", 1, stderr=text)})
            for text in ("enroot-nsenter: failed to create user namespace: Permission denied\n", "")
        ),
    ],
    "C3": [
        swaps("docker", '"CDISpecDirs": .*]', '"CDISpecDirs": []'),
        swaps("docker", '"CgroupDriver": "systemd"', '"CgroupDriver": null'),
        says("docker", "Cannot connect to the Docker daemon\n", 1),
    ],
    "C4": [
        *(
            lambda one, output=output: one["probes"].update({"metadata-guard": record(["nft"], "", **output)})
            for output in (
                {"code": 1, "stderr": "Error: No such file or directory\nlist table inet gpuinfra_metadata\n"},
                {"code": 1, "stderr": "Operation not permitted (you must be root)\n"},
                {"code": 127, "problem": "not found"},
            )
        ),
        swaps("metadata-guard", r"^.*daddr 169\.254\.169\.254 .*\n", ""),
        swaps("metadata-guard", "hook forward", "hook output"),
        swaps("metadata-guard", "policy accept;\n", "policy accept;\n\t\tmeta mark 0x00000001 accept\n"),
        swaps("metadata-guard", "tcp dport != 53", "tcp dport 8080"),
        swaps("metadata-guard", "180 drop", "180 accept"),
        lambda one: one["expectation"].update(metadata_guarded=[]),
        lambda one: one["expectation"].pop("metadata_guarded"),
    ],
    "D4": [
        says("holds", "nvidia-open\n"),
        says("holds", ""),
        *(
            swaps("holds", rf"^{name}\n", f"{other}\n")
            for name, other in (
                (f"linux-image-{KERNEL}", "linux-image-6.8.0-1039-aws"),
                (f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}"),
                ("nvidia-fabricmanager", "nvidia-fabricmanager-doc"),
                ("nvidia-open", "nvidia-kernel-common-580"),
                ("libnccl2", "libnccl-dev"),
            )
        ),
    ],
    "D5": [cell("persistence_mode", "Disabled"), cell("persistence_mode", "[N/A]")],
    "D6": [swaps("modules", r"^nvidia_uvm.*\n", "")],
    "G1": [
        swaps("nvidia-smi-list", r"^GPU 3.*\n", ""),
        swaps("nvidia-smi-xml", "<attached_gpus>8", "<attached_gpus>7"),
        lambda one: says("nvidia-smi-list", "No devices were found\n", 6)(one),
        says("nvidia-smi-list", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9),
    ],
    "G2": [cell("name", "NVIDIA A100-SXM4-80GB"), cell("memory.total", "36864 MiB"), cell("memory.total", "[N/A]")],
    "G3": [
        cell("pcie.link.width.current", "8"),
        cell("pcie.link.gen.max", "3"),
        cell("pcie.link.width.max", "8"),
        lambda one: (
            cell("pcie.link.gen.current", "1")(one),
            cell("clocks_event_reasons.active", "0x0000000000000000")(one),
        ),
    ],
    "G4": [
        cell("ecc.mode.current", "Disabled"),
        cell("ecc.mode.pending", "Disabled"),
        cell("ecc.mode.current", "[N/A]"),
    ],
    "G5": [
        cell("ecc.errors.uncorrected.volatile.total", "1"),
        cell("ecc.errors.uncorrected.aggregate.sram", "1"),
        cell("ecc.errors.uncorrected.volatile.total", "[N/A]"),
    ],
    "G6": [
        cell("remapped_rows.pending", "Yes"),
        cell("remapped_rows.failure", "Yes"),
        cell("remapped_rows.pending", "[N/A]"),
    ],
    "G7": [
        cell("clocks_event_reasons.active", "0x0000000000000008"),
        cell("clocks_event_reasons.active", "0x0000000000000080"),
        cell("clocks_event_reasons.active", "0x0000000000000020"),
        cell("clocks_event_reasons.active", "[N/A]"),
    ],
    "G8": [cell("temperature.gpu", "90"), cell("temperature.gpu.tlimit", "3"), cell("temperature.memory", "99")],
    "G9": [cell("power.limit", "300.00 W")],
    "G10": [
        cell("gpu_recovery_action", "Reset"),
        cell("gpu_recovery_action", "[N/A]"),
        cell("gpu_recovery_action", "Dance"),
    ],
    "G11": [cell("inforom.checksum_validation", "invalid"), cell("inforom.checksum_validation", "[N/A]")],
    "G12": [cell("mig.mode.current", "Enabled"), cell("mig.mode.pending", "Enabled")],
    "G15": [
        swaps("nvidia-smi-list", r"MIG 2g.20gb ", "MIG 1g.20gb "),
        swaps("nvidia-smi-list", r"^  MIG 2g.20gb.*\n", ""),
        swaps("nvidia-smi-list", r"(MIG-00000000-0000-4000-8001)[^)]*", "MIG-00000000-0000-4000-8000-000000000001", 2),
        swaps("nvidia-smi-xml", r"\t\t\t<mig_device>(.|\n)*?</mig_device>\n", ""),
        lambda one: one["expectation"].update(mig_profiles=[]),
        lambda one: one["expectation"].pop("mig_profiles"),
    ],
    "G13": [
        cell("power.limit", "[Unknown Error]"),
        cell("serial", "[GPU is lost]"),
        cell("memory.used", "[GPU requires reset]"),
        swaps("nvidia-smi-xml", r"<compute_mode>Default", "<compute_mode>Unknown Error"),
    ],
    "G14": [
        swaps(
            "nvidia-smi-apps", r"\Z", "GPU-00000000-0000-4000-8003-000000000001, 4321, 1024 MiB, python3 train.py, a\n"
        ),
        cell("memory.used", "71680 MiB"),
        cell("memory.used", "[N/A]"),
    ],
    "F1": [
        says("fabric-manager", "inactive\n", 3),
        says("fabric-manager-version", "Fabric Manager version is : 580.95.05\n"),
        says("fabric-manager-version", ""),
    ],
    "F2": [
        cell("fabric.health.summary", "Unhealthy"),
        cell("fabric.health.summary", "Limited Capacity"),
        cell("fabric.state", "In Progress"),
        cell("fabric.status", "Not Started"),
        cell("fabric.state", "[N/A]"),
    ],
    "F3": [
        swaps("nvlink-status", r"Link 4: 2.*$", "Link 4: <inactive>"),
        swaps("nvlink-status", r"Link 4: 2.*$", "Link 4: 12.5 GB/s"),
        swaps("nvlink-status", r"\t Link 4: .*\n", ""),
    ],
    "F4": [
        swaps("nvlink-errors", "Replay Errors: 0", "Replay Errors: 3"),
        swaps("nvlink-errors", "Replay Errors: 0", "Link recovery successful events: 505"),
        swaps("nvlink-errors", "Replay Errors: 0", "Replay Errors: none"),
        swaps("nvlink-errors", "Replay Errors: 0", "Bent Pin Errors: 0"),
        swaps("nvlink-errors", "Link 0: Replay Errors: 0", "GPU 9 has no heart"),
        swaps("nvlink-errors", r"^GPU 3.*\n(\s+Link.*\n)*", ""),
    ],
    "F5": [
        swaps("topology", "NV1[28]", "SYS"),
        swaps("topology", "NV1[28]", "NV4"),
        swaps("topology", r"^GPU7.*\n", ""),
    ],
    "F6": [
        says("nvlsm", "", 1),
        says("nvlsm", "", 2),
        says("nvlsm", "active\n"),
        swaps("modules", r"^ib_umad.*\n", ""),
        cell("fabric.state", "In Progress"),
    ],
    "X1": [
        kernel_line("NVRM: Xid (PCI:0000:20:1d): 79, pid=1, name=x, GPU has fallen off the bus."),
        kernel_line("NVRM: Xid (PCI:0000:20:1d): 999, something new"),
        kernel_line("NVRM: Xid is what this line says, in no known form"),
        kernel_line(
            "NVRM: Xid (PCI:0000:20:1d): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        ),
        kernel_line("NVRM: Xid (PCI:0000:20:1d): 145, RLW_SRC_TRACK Fatal XC0 i0 Link 04"),
        kernel_line("NVRM: Xid (PCI:0000:20:1d): 92, High single-bit ECC error rate"),
        says("kernel-log", ""),
        says("kernel-log", "-- No entries --\n"),
    ],
    "X2": [
        kernel_line("nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 20034, Fatal, Link 12 LTSSM FaultyPart Up"),
        kernel_line("nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 20034, Weird, Link 12"),
        kernel_line(
            "nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00"
        ),
        kernel_line("nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 20034, Data {0x10000000, 0x10000000}"),
        kernel_line("nvidia-nvswitch0: SXid (PCI:0000:c0:18.0): 11012, Non-fatal, Link 12"),
    ],
    "X3": [
        kernel_line("NVRM: fallen off the bus and is not responding to commands."),
        kernel_line("NVRM: The NVIDIA probe routine failed for 1 device(s)."),
        kernel_line("{1}[Hardware Error]: event severity: fatal"),
        kernel_line("mce: [Hardware Error]: Machine check events logged"),
        kernel_line("pcieport 0000:10:00.0: AER: Uncorrected (Fatal) error received: 0000:10:1c.0"),
        kernel_line("Out of memory: Killed process 4711 (python3) total-vm:1kB"),
        kernel_line(
            "\n".join(["2026-11-21T10:00:00+0000 n kernel: pcieport 0000:10:00.0: AER: Corrected error received"] * 100)
        ),
        says("kernel-log", ""),
    ],
    "G16": [
        swaps("nvidia-smi-xml", "<channel_repair_pending>No<", "<channel_repair_pending>Yes<"),
        swaps("nvidia-smi-xml", "<tpc_repair_pending>No<", "<tpc_repair_pending>Yes<"),
    ],
    "G17": [
        swaps("nvidia-smi-xml", "<vbios_version>[^<]*<", "<vbios_version>92.00.00.00.01<"),
        swaps("nvidia-smi-xml", "<gsp_firmware_version>[^<]*<", "<gsp_firmware_version>570.1<"),
    ],
    "N10": [
        swaps("ports", '"errors": {}', '"errors": {"retrans_timeout_events": "1011"}'),
        swaps("ports", '"errors": {}', '"errors": {"symbol_error": "1"}'),
        swaps("ports", '"errors": {}', '"errors": {"symbol_error": "many"}'),
        swaps("ports", '"errors": {}', '"errors": null'),
    ],
    "N1": [
        says("efa", "fi_getinfo: -61 (No data available)\n", 61),
        swaps("efa", r"rdmap16s27", "rdmap32s27", 2),
        swaps("efa", "provider: efa", "provider: tcp"),
    ],
    "N4": [
        says("memlock", "* soft memlock 65536\n* hard memlock 65536\n"),
        says("memlock", "* soft memlock unlimited\n"),
        says("memlock", "", 1),
        says("memlock", "root - memlock unlimited\n"),
    ],
    "C2": [swaps("cdi", r"^nvidia.com/gpu=all\n", ""), swaps("cdi", r"^nvidia.com/gpu=3\n", "")],
    "L1": [
        swaps("mounts", "/scratch", "/data"),
        swaps("mounts", "lustre", "nfs4"),
        swaps("mounts", "null", '"does not respond"'),
        swaps("mounts", "null", "3"),
        swaps("mounts", "mounts/1", "mounts/9"),
        swaps("lustre-module", KERNEL, "6.8.0-1039-aws"),
    ],
    "L3": [
        swaps("lnet", r"(@efa\n +status:) up", r"\1 down"),
        swaps("lnet", r"(?s)    - net type: efa.*", ""),
        swaps("lnet", "recv_count: 4096", "recv_count: 0", 8),
        swaps("lnet", "recv_count: 4096", "recv_count: many"),
        swaps("lnet", "net type: efa", "net type: o2ib"),
        swaps("lnet", r"10\.0\.7\.10@efa", "10.0.6.10@efa"),
        says("lnet", "lnetctl: /dev/lnet: No such device\n", 1),
        says("lnet", "net:\n{{{\n"),
    ],
    "L2": [
        swaps("mounts", '"/home"', '"/home2"'),
        swaps("mounts", "nfs4", "ext4"),
        swaps("mounts", "nfs4(.*?)null", r'nfs4\1"Stale file handle"'),
        says("mounts", '{"schema": "gpuinfra.mounts/1", "mounts": [{"mount": "/home"}]}\n'),
    ],
    "L4": [
        swaps("mounts", '"/data"', '"/data2"'),
        swaps("mounts", "fuse.gcsfuse", "ext4"),
        swaps("mounts", "fuse.gcsfuse(.*?)null", r'fuse.gcsfuse\1"Permission denied"'),
        swaps("mounts", "fuse.gcsfuse(.*?)true", r"fuse.gcsfuse\1false"),
        swaps("mounts", '("/out".*?)false', r"\1true"),
        swaps("mounts", '("/out".*?)false', r'\1"no"'),
    ],
    "S1": [
        says("cloud-init", '{"status": "running"}', 0),
        says("cloud-init", '{"status": "error", "errors": ["no package"]}', 1),
        says("cloud-init", '{"status": "done", "recoverable_errors": {"WARNING": ["Failed to run module"]}}', 2),
        says("cloud-init", "status: done\n"),
    ],
    "S3": [
        swaps("declared-files", "ab" * 32, "cd" * 32),
        swaps("declared-files", '"adm"', '"root"'),
        swaps("declared-files", "0640", "0644"),
        swaps("declared-files", '"problem": ""', '"problem": "does not exist"'),
        swaps("declared-files", "/etc/site.conf", "/etc/other.conf"),
        swaps("declared-files", "/scratch/hf", "/tmp"),
        swaps("declared-files", "HF_HOME", "HF"),
        swaps("declared-files", "files/1", "files/9"),
        swaps("declared-files", '"adm"', "3"),
        swaps("declared-files", '"variables": {"HF_HOME": "/scratch/hf"}', '"variables": []'),
    ],
    "S2": [
        journal(lambda j: j["steps"][1].update(status="failed", reason="apt: 404")),
        journal(lambda j: j["steps"].pop()),
        journal(lambda j: j["steps"][0].pop("hash")),
        journal(lambda j: j.update(schema="other/1")),
        lambda one: one["expectation"].update(own_steps={"30-driver": "b" * 64}),
    ],
}
"""The mutations that each check must detect. A check without an entry cannot be added."""

MUTATIONS["B2"] = [
    swaps("nccl", r'"busbw_gb_s": 478.2', '"busbw_gb_s": 119.0'),
    swaps("nccl", r'"busbw_gb_s": 478.2', '"busbw_gb_s": NaN'),
    swaps("nccl", r'"busbw_gb_s": 478.2', '"busbw_gb_s": Infinity'),
    swaps("nccl", r'"wrong": 0', '"wrong": 4'),
    swaps("nccl", r'"ranks": 8', '"ranks": 7'),
    lambda one: one["expectation"].pop("floors"),
]
MUTATIONS["B3"] = [
    swaps("pair", "441.5", "61.0"),
    swaps("pair", "441.5", "NaN"),
    swaps("pair", '"ranks": 16', '"ranks": 8'),
    swaps("pair", '"wrong": 0', '"wrong": 4'),
    swaps("pair", "AWS Libfabric", "Socket"),
    swaps("pair", r'\["AWS Libfabric"\]', "[]"),
    swaps("pair", "gpuinfra.pair/1", "gpuinfra.nccl/1"),
    lambda one: one["expectation"].pop("floors"),
]
MUTATIONS["B8"] = [
    swaps("fabric-result", "441.5", "61.0"),
    swaps("fabric-result", "441.5", "NaN"),
    swaps("fabric-result", "AWS Libfabric", "Socket"),
    swaps("fabric-result", r'\\"wrong\\": 0', r'\\"wrong\\": 4'),
    swaps("fabric-result", '"state": "good"', '"state": "slow"'),
    swaps("fabric-result", '"state": "good"', '"state": "unknown"'),
    swaps("fabric-result", '"state": "good"', '"state": "fine"'),
    swaps("fabric-result", '"pair": {', '"other": {'),
    swaps("fabric-result", "gpuinfra.fabric-result/1", "gpuinfra.fabric-result/9"),
    lambda one: one["expectation"].pop("floors"),
]
MUTATIONS["B4"] = [
    swaps("nccl-network", "AWS Libfabric", "Socket"),
    swaps("nccl-network", r'\["AWS Libfabric"\]', '["AWS Libfabric", "Socket"]'),
    swaps("nccl-network", r'\["AWS Libfabric"\]', "[]"),
    swaps("nccl-network", '"efa": 4', '"efa": 3'),
    swaps(
        "nccl-network", "Using network AWS Libfabric", "Could not open XML topology file /a : No such file or directory"
    ),
    lambda one: one["expectation"].pop("fabric_devices"),
]
MUTATIONS["B5"] = [
    swaps("nvbandwidth", "12.30", "6.10"),
    swaps("nvbandwidth", r'"12.30",\s+', ""),
    swaps("nvbandwidth", "Passed", "Error"),
    swaps("nvbandwidth", "12.30", "nan"),
    swaps("nvbandwidth", "12.30", "inf"),
]

MUTATIONS["N2"] = [
    swaps("ports", r'(mlx5_ib3.*?"state": )"4: ACTIVE"', r'\1"1: DOWN"'),
    swaps("ports", r'(mlx5_ib3.*?"physical": )"5: LinkUp"', r'\1"2: Polling"'),
    swaps("ports", r'(mlx5_ib3.*?"rate": )"400', r'\1"200'),
    swaps("ports", r'(mlx5_ib3.*?"rate": )"400[^"]*"', r"\1null"),
    swaps("ports", r'{"device": "mlx5_ib3".*?}, ', ""),
    lambda one: one["expectation"].pop("fabric_device_gbps"),
]
MUTATIONS["N3"] = [
    says("fabric-libraries", "/usr/local/lib/other\n", 1),
    says("fabric-libraries", "", 1),
]


def lost_carrier(text: str, times: int = 6) -> Callable[[Node], None]:
    """The service that configures the interface logs the same line repeatedly."""

    def mutate(one: Node) -> None:
        one["probes"]["link-log"]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 {text}\n" * times

    return mutate


MUTATIONS["N6"] = [
    lost_carrier("systemd-networkd[512]: ib0: Lost carrier"),
    lambda one: [kernel_line("mlx5_core 0103:00:00.0 ib2: Link down")(one) for _ in range(6)],
    swaps("ports", r'(mlx5_ib3.*?"link_downed": )"0"', r'\1"6"'),
    swaps("ports", r'(mlx5_ib3.*?"link_downed": )"0"', r'\1"many"'),
]
MUTATIONS["N7"] = [
    swaps("ports", '"state": "4: ACTIVE"', '"state": "1: DOWN"'),
    swaps("ports", '"rate": "400', '"rate": "100'),
    swaps("ports", '"rate": "400[^"]*"', '"rate": null'),
    swaps("ports", '"layer": "Ethernet"', '"layer": "InfiniBand"'),
    swaps("ports", "gpuinfra.ports/1", "gpuinfra.ports/2"),
    lambda one: one["expectation"].pop("fabric_device_gbps"),
]
MUTATIONS["N8"] = [
    swaps("gvnics", r"^0000:87.*\n", ""),
    swaps("gvnics", "1ae0:0042", "1ae0:0043"),
    says("gvnics", "", 1),
    says("gvnics", "", 0),
    lambda one: one["expectation"].pop("gvnics"),
]
MUTATIONS["N9"] = [
    swaps("ports", "0x800b", "0x7fff"),
    swaps("ports", "0x800b", "0x8123"),
    swaps("ports", "0x800b", "none"),
    swaps("ports", '"layer": "InfiniBand"', '"layer": "Ethernet"'),
]
MUTATIONS["M2"] = [says("prometheus", "failed\n", 3), says("alertmanager", "activating\n", 3)]
MUTATIONS["M1"] = [swaps("metrics", r'^DCGM_FI_DEV_GPU_TEMP.gpu="3".*\n', ""), says("metrics", "", 7)]


def diagnosed(probe: str) -> list[Callable[[Node], None]]:
    """Outputs of DCGM's diagnostics that are not a pass."""
    return [
        swaps(probe, '"status": "Pass"', '"status": "Fail"'),
        swaps(probe, '"status": "Pass"', '"status": "Warn"'),
        swaps(probe, '"status": "Pass"', '"status": 0'),
        swaps(probe, "Pass", "Skip", 0),
        swaps(probe, '"status": "Pass"', '"status": "Skip"'),
        swaps(probe, '"entity_id": 3,', '"entity_id": 2,'),
        swaps(probe, '"name": "software"', '"name": "hardware"'),
        lambda one: one["probes"][probe].update(exit=226),
        swaps(probe, '"test_categories"', '"runtime_error": "no GPU is supported", "test_categories"'),
        says(probe, "Error: unable to connect to nv-hostengine\n", 1),
        says(probe, "{}\n"),
    ]


MUTATIONS["B1"] = diagnosed("dcgm")
MUTATIONS["B6"] = [*diagnosed("dcgm-long"), lambda one: one["expectation"].pop("burn_in")]
MUTATIONS["B7"] = [
    swaps("heat", '"steady": true', '"steady": false'),
    swaps("heat", '"reasons": "0x0000000000000004"', '"reasons": "0x0000000000000048"'),
    swaps("heat", '"reasons": "0x0000000000000004"', '"reasons": "4"'),
    swaps("heat", '"new_errors": 0', '"new_errors": 2'),
    swaps("heat", '"new_errors": 0', '"new_errors": null'),
    swaps("heat", '"busy_percent": 100.0', '"busy_percent": 3.0'),
    swaps("heat", '"busy_percent": 100.0', '"busy_percent": null'),
    swaps("heat", '"highest_c": 66.0', '"highest_c": "warm"'),
    swaps("heat", r'{"index": 0.*?}, ', ""),
    swaps("heat", "gpuinfra.heat/1", "gpuinfra.heat/2"),
]
MUTATIONS["N5"] = [
    swaps("links", '"gbps": 95.5', '"gbps": 60.0'),
    swaps("links", '"gbps": 95.5', '"gbps": null'),
    swaps("links", '"gbps": 95.5', '"gbps": NaN'),
    swaps("links", '"gbps": 95.5', '"gbps": "95.5"'),
    swaps("links", '"gbps": 95.5', '"gbps": 0', 32),
    swaps("links", '"problem": null', '"problem": "fi_pingpong timed out after 60 s"'),
    swaps("links", '"counters": {}', '"counters": {"rx_drops": 3}'),
    swaps("links", r'{"device": "device-0".*?}}, ', ""),
    swaps("links", "gpuinfra.links/1", "gpuinfra.links/2"),
]
"""An EFA machine without a published floor; a separate test covers a machine with one."""

MUTATIONS["P7"] = [
    says("memory", "Mem: 900000000000 1 2 3 4 5\n"),
    says("memory", "total\n"),
    lambda one: one["expectation"].pop("memory_gib"),
]
MUTATIONS["P8"] = [says("cpus", "48\n"), says("cpus", "many\n"), lambda one: one["expectation"].pop("vcpus")]
MUTATIONS["P9"] = [
    swaps("disk-models", "^Amazon EC2 NVMe Instance Storage\n", ""),
    swaps("disk-models", "^Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"),
    says("disk-models", "", 1),
    lambda one: one["expectation"].update(local_disk_model="("),
    lambda one: one["expectation"].pop("local_disk_model"),
]
MUTATIONS["G18"] = [
    swaps("nvidia-smi-xml", "<replay_counter>0<", "<replay_counter>1001<"),
    swaps("nvidia-smi-xml", "<replay_rollover_counter>0<", "<replay_rollover_counter>1<"),
    swaps("nvidia-smi-xml", "<replay_counter>0<", "<replay_counter>some<"),
]
MUTATIONS["X4"] = [
    swaps("pcie", '"fatal": 0', '"fatal": 1'),
    swaps("pcie", '"nonfatal": 0', '"nonfatal": 1'),
    swaps("pcie", '"nonfatal": 0', '"nonfatal": 101'),
    swaps("pcie", '"correctable": 2', '"correctable": 100'),
    swaps("pcie", '"correctable": 2', '"correctable": 10001'),
    swaps("pcie", '"correctable": 2', '"correctable": "2"'),
    swaps("pcie", '"device": "0000:20:1d.0"', '"device": null'),
    swaps("pcie", "gpuinfra.pcie/1", "gpuinfra.pcie/2"),
]
MUTATIONS["N11"] = [
    swaps("ports", '"state": "4: ACTIVE"', '"state": "1: DOWN"'),
    swaps("ports", '"state": "4: ACTIVE"', '"state": null'),
    swaps("ports", r'{"device".*?"layer": "Unspecified".*?}}, ', ""),
    swaps("ports", '"layer": "Unspecified"', '"layer": "Ethernet"'),
]
MUTATIONS["N12"] = [
    swaps("ports", r'(mlx5_ib3.*?"firmware": )"[^"]*"', r'\1"28.0.1"'),
    swaps("ports", r'(mlx5_ib3.*?"firmware": )"[^"]*"', r"\1null"),
    swaps("ports", r'(mlx5_ib3.*?"firmware": )"[^"]*"', r"\g<1>28"),
]
MUTATIONS["B9"] = [
    swaps("gpu-copies", '"274.00"', '"120.00"'),
    swaps("gpu-copies", '"274.00"', '"N/A"'),
    swaps("gpu-copies", '"N/A"', '"274.00"'),
    swaps("gpu-copies", '"274.00"', '"nan"'),
    swaps("gpu-copies", "Passed", "Waived"),
    swaps("gpu-copies", "device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"),
]
MUTATIONS["B10"] = [
    swaps("gpu-memory", '"790.00"', '"700.00"'),
    swaps("gpu-memory", r'"790.00",\s+', ""),
    swaps("gpu-memory", '"790.00"', '"inf"'),
    swaps("gpu-memory", "Passed", "Error"),
    says("gpu-memory", "CUDA_ERROR_OUT_OF_MEMORY\n", 1),
]

CASES = [(check, at) for check, mutations in MUTATIONS.items() for at in range(len(mutations))]


def test_every_check_has_a_mutation() -> None:
    """Every check can fail."""
    assert set(MUTATIONS) == set(ALL)
    assert all(MUTATIONS.values())


@pytest.mark.parametrize(
    "expectation", MACHINES, ids=lambda one: f"{one['machine']}{' with MIG' if one.get('mig') else ''}"
)
def test_healthy_node_passes_every_check(expectation: dict[str, Any]) -> None:
    """With healthy outputs every required check passes, and listed skips have a reason."""
    checks = judged(node(expectation))
    assert {name: check["reason"] for name, check in checks.items() if check["outcome"] not in ("pass", "skip")} == {}
    assert {name: check["reason"] for name, check in checks.items() if check["outcome"] == "skip"} == expectation[
        "skips"
    ]
    assert verdict(list(checks.values()), expectation).verified


def test_every_check_passes_on_some_healthy_node() -> None:
    """A check that always fails would be useless."""
    passing = {
        name for machine in MACHINES for name, check in judged(node(machine)).items() if check["outcome"] == "pass"
    }
    assert passing == set(ALL)


@pytest.mark.parametrize(("check", "at"), CASES, ids=[f"{check}-{at}" for check, at in CASES])
def test_check_detects_its_mutation(check: str, at: int) -> None:
    """Each mutation makes its check warn, fail or end in error, with a cause, a reason and a hint, and blocks the node according to the severity.

    If the values look correct, the line about the check shows its reason instead.
    """
    one = node(next(machine for machine in MACHINES if check in machine["required"]))
    MUTATIONS[check][at](one)
    checks = judged(one)
    found = checks[check]
    assert found["outcome"] in ("warn", "fail", "error")
    assert found["reason"]
    assert found["hint"]
    assert isinstance(found["cause"], Cause)
    assert (found["cause"] is Cause.UNREADABLE) >= (found["outcome"] == "error")
    # A check that could not be judged blocks the node at any severity.
    if found["outcome"] in ("fail", "error") or (
        ALL[check].severity in (Severity.BLOCK, Severity.DRAIN) and not ALL[check].may_warn
    ):
        assert not verdict(list(checks.values()), one["expectation"]).verified
    if found["found"] is None or found["found"] == found["expected"]:
        assert describe(found) == f"{check} {found['name']}: {found['reason']}"
    else:
        assert f"{check} {found['name']}: found " in describe(found) or found["outcome"] == "error"


@pytest.mark.parametrize("probe", sorted({probe for check in ALL.values() for probe in check.probes}))
@pytest.mark.parametrize("how", ["missing", "truncated", "garbage", "no text", "timed out"])
def test_check_without_probe_output_does_not_pass(probe: str, how: str) -> None:
    """A check does not pass if the output of one of its probes is missing, truncated or garbled."""
    readers = {check.id for check in ALL.values() if probe in check.probes}
    while readers:
        machine, asked = max(
            (
                (one, {name for name in readers & set(one["required"]) if probe in ALL[name].probes_for(one)})
                for one in ASKED
            ),
            key=lambda pair: len(pair[1]),
        )
        assert asked, f"no healthy machine is asked for {sorted(readers)}"
        readers -= asked
        one = node(machine)
        if "secure-boot" in one["probes"]:  # only where it is on is the module's signer asked for
            says("secure-boot", "SecureBoot enabled\n")(one)
            says("module-signer", "Build time autogenerated kernel key\n")(one)
        answer = one["probes"].pop(probe)
        broken = {
            "missing": None,
            "truncated": {**answer, "truncated": True},
            "garbage": {**answer, "stdout": "\udcff\x1b[2J\x00;;;{{{<", "exit": 0},
            "no text": {**answer, "stdout": None},
            "timed out": {**answer, "problem": "timed out after 60 s", "exit": 124, "stdout": ""},
        }[how]
        if broken is not None:
            one["probes"][probe] = broken
        checks = judged(one)
        assert {name: checks[name]["outcome"] for name in asked if checks[name]["outcome"] == "pass"} == {}


def test_missing_gpu_is_counted_by_checks_over_all_gpus() -> None:
    """Versions and links that are correct on seven of eight GPUs show the number of GPUs."""
    one = node()
    swaps("nvidia-smi-csv", r"^3, .*\n", "")(one)
    swaps("nvlink-status", r"^GPU 3.*\n(\s+Link.*\n)*", "")(one)
    checks = judged(one)
    version = checks["D2"]["expected"]
    assert (checks["D2"]["outcome"], checks["D2"]["found"]) == ("fail", f"{version} on 7 of 8 GPUs")
    assert (checks["F3"]["outcome"], checks["F3"]["found"]) == ("fail", "12 on 7 of 8 GPUs")


def test_outcomes_have_exactly_the_documented_fields() -> None:
    """Outcomes match docs/reference/formats.md and consist of JSON scalars and lists of them."""
    for check in judged(node()).values():
        assert list(check) == [
            "id",
            "name",
            "phase",
            "severity",
            "outcome",
            "found",
            "expected",
            "unit",
            "hint",
            "reason",
            "cause",
        ]
        for field in ("found", "expected"):
            values = check[field] if isinstance(check[field], list) else [check[field]]
            assert all(value is None or isinstance(value, str | int | float | bool) for value in values)


def test_unknown_required_check_blocks() -> None:
    """An expectation with an unknown check is never verified."""
    one = node()
    one["expectation"]["required"].append("Z9")
    checks = judged(one)
    assert checks["Z9"]["outcome"] == "error"
    assert not verdict(list(checks.values()), one["expectation"]).verified


def test_required_check_without_outcome_blocks() -> None:
    """A node is verified only if every required check has an outcome; checks of other phases are listed as missing."""
    one = node()
    checks = judge(one["probes"], one["expectation"], journal=one["journal"], phases=["presence"])
    result = verdict(checks, one["expectation"])
    assert not result.verified
    assert "G5" in result.missing
    assert {check["phase"] for check in checks} == {"presence"}


def test_an_expectation_without_checks_is_refused() -> None:
    """Without required checks every node would be verified, so this is an error."""
    for required in ([], None, "P1"):
        with pytest.raises(ValueError, match="lists no required checks"):
            judge({}, {"required": required})


def test_skip_counts_only_if_the_machines_record_lists_it() -> None:
    """A check that skips itself does not pass a node unless the record lists the skip."""
    one = node()
    one["expectation"]["nvswitch"] = False
    checks = judged(one)
    assert checks["F1"]["outcome"] == "skip"
    assert not verdict(list(checks.values()), one["expectation"]).verified
    one["expectation"]["skips"]["F1"] = "no NVSwitch"
    assert verdict(list(judged(one).values()), one["expectation"]).verified
    one["expectation"]["skips"]["F1"] = ""
    with pytest.raises(ValueError, match="has no reason"):
        judged(one)


def test_missing_field_is_an_error_of_the_check_that_needs_it() -> None:
    """An incomplete machine record never makes a node pass."""
    fields = {
        "gpus",
        "gpu_name",
        "gpu_memory_mib",
        "pci_ids",
        "pcie_gen",
        "pcie_width",
        "nvlinks_per_gpu",
        "nvlink_gb_s",
    }
    fields |= {"nvswitch", "fabric_devices", "open_module", "ecc", "root_free_gib", "file_systems", "steps", "software"}
    for field in sorted(fields):
        one = node()
        del one["expectation"][field]
        assert any(check["outcome"] == "error" for check in judged(one).values()), field


def test_declared_step_has_the_declared_checksum() -> None:
    """A declared step passes with the SHA-256 of its script; the reason of a failed one keeps its exit code and the last lines of its output."""
    one = node()
    one["expectation"]["own_steps"] = {"30-driver": "a" * 64}
    assert judged(one)["S2"]["outcome"] == "pass"
    reason = "the script exited with code 4; last output: " + " / ".join(letter * 100 for letter in "xyz")
    journal(lambda j: j["steps"][1].update(status="failed", reason=reason))(one)
    assert judged(one)["S2"]["reason"] == f"30-driver is failed: {reason}"


def test_an_idle_gpu_may_lower_its_link_generation() -> None:
    """A lower PCIe generation of an idle GPU passes with a reason; a lower width does not."""
    one = node()
    cell("pcie.link.gen.current", "1")(one)
    found = judged(one)["G3"]
    assert found["outcome"] == "pass"
    assert "1 idle" in present(found["reason"])


def test_root_causes_come_first() -> None:
    """When a GPU falls off the bus ten checks fail; the Xid comes first, with what to do."""
    one = node()
    kernel_line("NVRM: Xid (PCI:0000:20:1d): 79, pid=1, name=x, GPU has fallen off the bus.")(one)
    says("nvidia-smi-list", "Unable to determine the device handle for GPU0000:20:1D.0: Unknown Error\n", 255)(one)
    first = verdict(list(judged(one).values()), one["expectation"]).blockers[0]
    assert first["id"] == "X1"
    assert "0000:20:1d" in present(first["reason"])
    assert "reboot" in first["hint"]


@pytest.mark.parametrize(
    ("stdout", "stderr", "outcome"),
    [
        ("", "od: /sys/firmware/efi/efivars/SecureBoot-x: No such file or directory", "pass"),
        ("   6   0   0   0   0\n", "", "pass"),
        ("   6   0   0   0   1\n", "", "fail"),
        ("   6   0   0\n", "", "error"),
    ],
)
def test_without_mokutil_the_efi_variable_is_read(stdout: str, stderr: str, outcome: str) -> None:
    """On images without mokutil, a missing variable or a zero means that Secure Boot is disabled."""
    one = node()
    one["probes"]["secure-boot"] = record(["od", "-An", "-tu1", "x"], stdout, 1 if stderr else 0, stderr=stderr)
    says("module-signer", "\n")(one)
    assert judged(one)["P4"]["outcome"] == outcome


def test_not_checked_lists_other_checks() -> None:
    """Reports can list the checks that a machine neither requires nor skips."""
    others = not_checked(P4D)
    assert sorted([*others, *P4D["required"], *P4D["skips"]]) == sorted(ALL)
    assert {"B2", "B3", "L2", "N2", "N5"} <= set(others)
    assert "F2" in not_checked({"required": ["P1"]})


def test_prebuilt_module_passes() -> None:
    """Without DKMS, a module among the running kernel's own modules, in the pinned version and built for that kernel, survives a reboot."""
    one = node()
    prebuilt_module(one)
    found = judged(one)["D3"]
    assert (found["outcome"], found["found"]) == ("pass", f"nvidia {DRIVER} for {KERNEL}, prebuilt")


def test_driver_without_reboot_warns_but_does_not_block() -> None:
    """A driver that was installed in this boot gives a warning; D3 verifies that the module stays, so the node is handed over."""
    one = node()
    MUTATIONS["D7"][0](one)
    checks = judged(one)
    assert (checks["D7"]["outcome"], checks["D7"]["cause"]) == ("warn", Cause.NOT_REBOOTED)
    assert "has not been verified after a reboot" in present(checks["D7"]["reason"])
    assert verdict(list(checks.values()), one["expectation"]).verified
    one["journal"]["steps"][1]["boot_id"] = BOOT  # steps that run again in a later boot do not take its proof away
    one["journal"]["recorded"]["driver_boot"] = EARLIER_BOOT
    assert judged(one)["D7"]["outcome"] == "pass"
    del one["journal"]["recorded"]["driver_boot"]  # the image brought it, and this boot loaded it
    assert judged(one)["D7"]["outcome"] == "pass"


def test_a_node_without_a_container_runtime_passes() -> None:
    """A node without a container runtime passes with a reason, unless the declaration lists one."""
    one = node()
    one["expectation"].pop("containers")
    for probe in ("docker", "containerd"):
        one["probes"][probe] = record([probe], "", 127, problem="not found")
    checks = judged(one)
    assert (checks["C1"]["outcome"], checks["C3"]["outcome"]) == ("pass", "pass")
    assert "no container runtime is installed" in present(checks["C1"]["reason"])


def test_link_must_reach_the_floor_of_its_machine() -> None:
    """If a floor is published, a link below it fails even if all other links are as slow."""
    one = node(AZURE)
    assert judged(one)["N5"]["expected"] == 360
    one["probes"]["links"]["stdout"] = one["probes"]["links"]["stdout"].replace("392.8", "350.0")
    assert judged(one)["N5"]["outcome"] == "fail"


def test_an_application_xid_warns() -> None:
    """An application error does not drain a node and does not pass in silence; Xid 154 that asks for nothing is only shown."""
    one = node()
    kernel_line("NVRM: Xid (PCI:0000:20:1d GPU-I:01): 31, pid=1, name=python3, Ch 00000008, MMU FaultyPart")(one)
    kernel_line(
        "NVRM: Xid (PCI:0000:20:1d): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
    )(one)
    found = judged(one)["X1"]
    assert (found["outcome"], found["found"]) == ("warn", [31, 154])


def test_docker_on_a_machine_without_gpus_needs_no_runtime_nvidia() -> None:
    """Docker that the declaration lists must answer on a CPU machine; the runtime nvidia is only for GPUs."""
    one = node()
    one["expectation"].update(gpus=0, required=["C1"])
    one["probes"]["docker"]["stdout"] = '{"ServerVersion": "29.8.1", "Runtimes": {"runc": {}}}'
    assert judged(one)["C1"]["outcome"] == "pass"
    one["probes"]["docker"] = record(["docker"], "", 127, problem="not found")
    assert judged(one)["C1"]["reason"] == "the declaration lists docker, but it is not installed"
