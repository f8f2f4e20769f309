"""The outputs of a healthy node: from the stand-in device tools, plus a few lines for each other command, without namespaces.

The checks judge these outputs, and must detect their mutations.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuinfra.node import evidence, notices, ports
from gpuinfra.node.checks import ALL
from gpuinfra.node.checks.fabric_test import SCHEMA
from gpuinfra.node.checks.network import FABRIC_LIBRARIES
from gpuinfra.node.probe import probe_all
from gpuinfra.node.probes import FABRIC_RESULT, NODE_PART, NOTICES, Probe
from gpuinfra.plan.expectation import expectation
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.model import FilePlan, FileSystemPlan
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.lock import LockRequest, lock
from gpuinfra_rehearsal import devices
from gpuinfra_rehearsal.nodes.state import hardware_of

RECORDINGS = Path(__file__).parents[1] / "recordings" / "nvidia-smi"
KERNEL = "6.8.0-1040-aws"
DRIVER = "580.173.02"
BOOT, EARLIER_BOOT = "00000000-0000-4000-8000-000000000002", "00000000-0000-4000-8000-000000000001"

P4D: Any = {
    "schema": "gpuinfra.expectation/1",
    "machine": "p4d.24xlarge",
    "cloud": "aws",
    "gpus": 8,
    "gpu_name": "NVIDIA A100-SXM4-40GB",
    "gpu_memory_mib": 40960,
    "pci_ids": ["10de:20b0"],
    "pcie_gen": 4,
    "pcie_width": 16,
    "nvlinks_per_gpu": 12,
    "nvlink_gb_s": 25.0,
    "nvswitch": True,
    "fabric_devices": 4,
    "fabric_provider": "efa",
    "open_module": True,
    "ecc": True,
    "arch": "ampere",
    "software": {"driver": {"pin": DRIVER, "range": [">=580.95", "<581"]}},
    "root_free_gib": 50,
    "vcpus": 96,
    "memory_gib": 1152,
    "local_disks": 8,
    "local_disk_model": "Amazon EC2 NVMe Instance Storage",
    "file_systems": ["/scratch"],
    "containers": ["docker"],
    "floors": [{"check": "B5", "at_least": 10}],
    "skips": {"F2": "A100 reports no fabric state", "F6": "fourth-generation NVSwitch only"},
    "steps": ["10-prepare", "30-driver"],
}
P4D["required"] = [check.id for check in ALL.values() if check.applies(P4D) and check.id not in (*P4D["skips"], "B1")]
H100 = {
    **P4D,
    "machine": "p5.48xlarge",
    "arch": "hopper",
    "gpu_name": "NVIDIA H100 80GB HBM3",
    "gpu_memory_mib": 81559,
    "pci_ids": ["10de:2330"],
    "pcie_gen": 5,
    "nvlinks_per_gpu": 18,
    "nvlink_gb_s": 26.562,
    "fabric_devices": 32,
    "vcpus": 192,
    "memory_gib": 2048,
    "floors": [{"check": "B2", "at_least": 460}, {"check": "B5", "at_least": 21}, {"check": "B3", "at_least": 400}],
    "burn_in": 3,
    "lnet_efa": 8,
    "required": [*P4D["required"], "L3", "F2", "F6", "B3", "N5", "B6", "B7", "B8", "B1", "B2", "M1", "M2", "C5"],
    "skips": {},
    "containers": ["docker", "enroot"],
    "software": {**P4D["software"], "enroot": {"pin": "4.2.1", "range": [">=4", "<5"]}},
}
"""An H100 node that also requires the speed checks and Blackwell's F6, so that every check passes on some machine."""

PAIR = {"schema": "gpuinfra.pair/1", "ranks": 16, "busbw_gb_s": 441.5, "wrong": 0, "network": ["AWS Libfabric"]}


def sized(result: dict[str, Any], expectation: dict[str, Any], check: str) -> dict[str, Any]:
    """A result of the collective and size that the floor of a check names."""
    entry = next((floor for floor in expectation.get("floors", ()) if floor["check"] == check), {})
    if "gib" not in entry:
        return result
    ranks = expectation["gpus"] * (2 if check == "B3" else 1)
    rate = {"bytes": int(entry["gib"] * (1 << 30)), "busbw_gb_s": round(entry["at_least"] * 1.08, 1), "ranks": ranks}
    return {**result, **rate, "collective": entry.get("collective", "all-reduce")}


LNET = "net:\n" + "".join(
    f"    - net type: {net}\n      local NI(s):\n"
    + "".join(
        f"        - nid: 10.0.{at}.10@{net}\n          status: up\n          interfaces:\n              0: {net}{at}\n"
        f"          statistics:\n              send_count: {count}\n              recv_count: {count}\n"
        for at in range(number)
    )
    for net, number, count in (("lo", 1, 0), ("tcp", 1, 90), ("efa", 8, 4096))
)
NCCL = {"schema": "gpuinfra.nccl/1", "ranks": 8, "busbw_gb_s": 478.2, "wrong": 0, "network": ["AWS Libfabric"]}


NETWORKS = {"efa": "AWS Libfabric", "infiniband": "IB", "gib": "gIB", "tcpxo": "FasTrak", "tcpx": "GPUDirectTCPX_v7"}


def nccl_network(device_state: dict[str, Any], expectation: dict[str, Any]) -> dict[str, Any]:
    """The result of `node.pyz nccl` on this machine: NCCL's network, and the devices that its plugin lists."""
    provider = expectation["fabric_provider"]
    name, found = NETWORKS[provider], {}
    if provider == "efa":
        found["efa"] = len(devices.efa_domains(device_state))
    elif provider == "infiniband":
        layers = [layer for _, layer, up in devices.verbs_ports(device_state) if up]
        found = {"IB": layers.count("InfiniBand"), "RoCE": layers.count("Ethernet")}
    return {**NCCL, "network": [name], "network_devices": found, "network_log": [f"Using network {name}"]}


JOURNAL = {
    "schema": "gpuinfra.state/1",
    "steps": [
        {"id": step, "hash": "a" * 64, "status": "done", "boot_id": EARLIER_BOOT, "changed": True}
        for step in P4D["steps"]
    ],
    "recorded": {"driver": DRIVER, "kernel": KERNEL, "driver_boot": EARLIER_BOOT},
}


LUSTRE = FileSystemPlan(
    name="fs-0",
    kind="lustre",
    mount="/scratch",
    capacity_gib=1200,
    deployment="",
    throughput_mb_s_per_tib=None,
    subnet="",
)


def machine(cloud: str, name: str, **more: Any) -> dict[str, Any]:
    """The expectation of a machine type of the catalog, with the software in this module and a Lustre file system."""
    record = profile_of(cloud).machines[name]
    chosen = lock(
        record,
        LockRequest(cloud=profile_of(cloud).software, os="ubuntu-22.04", prebuilt=True, lustre=True, fabric=True),
    )
    facts = PoolFacts(
        cloud=cloud, machine=record, software=profile_of(cloud).software, lock=chosen, fabric=True,
        metadata=profile_of(cloud).metadata_to_guard, replacing_xids=profile_of(cloud).replacing_xids, **{"file_systems": (LUSTRE,), **more},
    )  # fmt: skip
    wanted = expectation(facts, steps=())
    return {**wanted, "steps": P4D["steps"], "software": P4D["software"], "root_free_gib": 50}


AZURE = machine("azure", "Standard_ND96isr_H100_v5")
AZURE["required"] = [*AZURE["required"], "N5"]
AZURE_A100 = machine("azure", "Standard_ND96amsr_A100_v4")
GOOGLE = machine(
    "gcp",
    "a3-megagpu-8g",
    file_systems=(
        LUSTRE,
        replace(LUSTRE, kind="home", mount="/home"),
        replace(LUSTRE, kind="object", mount="/data", read_only=True),
        replace(LUSTRE, kind="object", mount="/out"),
    ),
    files=(
        FilePlan(
            path="/etc/site.conf",
            owner="root",
            group="adm",
            mode="0640",
            source="content",
            sha256="ab" * 32,
            content="",
        ),
    ),
    variables={"HF_HOME": "/scratch/hf"},
)
GOOGLE_RDMA = machine("gcp", "a3-ultragpu-8g")
GOOGLE_B200 = machine("gcp", "a4-highgpu-8g")
MIG = machine("aws", "p5.48xlarge", mig=("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"))
"""Machines of other clouds, with the expectations of the plan."""

DOCKER = {
    "ServerVersion": "28.2.2",
    "Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
    "CgroupDriver": "systemd",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}
CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
"""
HEAT = {
    "schema": "gpuinfra.heat/1",
    "seconds": 420.0,
    "steady": True,
    "load": "dcgmi diag -r targeted_stress",
    "ended": None,
    "gpus": [
        {"index": index, "highest_c": 66.0, "memory_highest_c": 70.0, "reasons": "0x0000000000000004", "busy_percent": 100.0, "new_errors": 0}
        for index in range(8)
    ],
}  # fmt: skip


PCIE = {
    "schema": "gpuinfra.pcie/1",
    "counted": 20,
    "devices": [{"device": "0000:20:1d.0", "class": "0x030200", "correctable": 2, "nonfatal": 0, "fatal": 0}],
}
"""A few corrected errors are normal."""


def links(machine: dict[str, Any]) -> dict[str, Any]:
    """The result of `node.pyz links` on a healthy machine."""
    efa = machine["fabric_provider"] == "efa"
    rate = 95.5 if efa else round(0.982 * machine["fabric_device_gbps"], 1)
    devices = [
        {
            "device": f"device-{index}",
            "gbps": rate,
            "memory": "host",
            "problem": None,
            "counters": {},
        }
        for index in range(machine["fabric_devices"])
    ]
    return {"schema": "gpuinfra.links/1", "tool": "fi_pingpong" if efa else "ib_write_bw", "devices": devices}


NFT = """table inet gpuinfra_metadata {
\tchain forward {
\t\ttype filter hook forward priority filter - 10; policy accept;
\t\tip daddr 169.254.169.254 tcp dport != 53 counter packets 3 bytes 180 drop
\t\tip daddr 168.63.129.16 tcp dport != 53 counter packets 0 bytes 0 drop
\t\tip6 daddr fd20:ce::254 tcp dport != 53 counter packets 0 bytes 0 drop
\t}
}
"""
"""The output of nftables 1.0.6 for the rules that the step loads."""
_MODULE = f"filename:       /lib/modules/{KERNEL}/updates/dkms/nvidia.ko\nversion:        {DRIVER}\nvermagic:       {KERNEL} SMP mod_unload modversions \n"
_HOST = {
    "ldconfig": "3 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6\n"
    "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n\tlibcuda.so (libc6) => /lib/i386-linux-gnu/libcuda.so\n",
    "docker": json.dumps(DOCKER) + "\n",
    "enroot": "4.2.1\n",
    "runuser": "user:[4026532874]\n",
    "lnetctl": LNET,
    "nft": NFT,
    "containerd": CONTAINERD,
    "curl": "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
    + "".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{index}"}} 30\n' for index in range(8)),
    NODE_PART: json.dumps(NCCL) + "\n",
    "uname": KERNEL + "\n",
    "find": f"/lib/modules/{KERNEL}/build\n",
    "df": "       Avail\n107374182400\n",
    "mokutil": "SecureBoot disabled\n",
    "lsmod": "Module                  Size  Used by\nib_umad 1 0\nnvidia_uvm           1  0\nnvidia              1  2 nvidia_uvm\n",
    "dkms": f"nvidia/{DRIVER}, {KERNEL}, x86_64: installed\n",
    "apt-mark": f"libnccl2\nlinux-aws\nlinux-image-{KERNEL}\nnvidia-fabricmanager\nnvidia-open\n",
    "systemctl": "active\n",
    "nv-fabricmanager": f"Fabric Manager version is : {DRIVER}\n",
    "grep": "* soft memlock unlimited\n* hard memlock unlimited\n",
    "cloud-init": '{"status": "done", "errors": [], "recoverable_errors": {}}\n',
    "pgrep": "31060 /opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf -B --pid_file /var/run/nvidia-fabricmanager/nvlsm.pid\n",
    "modinfo": f"{KERNEL} SMP mod_unload modversions \n",
}


def network_mounts(machine: dict[str, Any]) -> dict[str, Any]:
    """The result of `node.pyz mounts` on a healthy machine."""
    lustre = [(mount, "lustre", "10.0.0.1@tcp:/abc") for mount in machine["file_systems"]]
    homes = [(mount, "nfs4", "10.0.0.9:" + mount) for mount in machine.get("homes", ())]
    buckets = [(one["mount"], "fuse.gcsfuse", "corpus") for one in machine.get("buckets", ())]
    protected = {one["mount"] for one in machine.get("buckets", ()) if one["read_only"]}
    return {
        "schema": "gpuinfra.mounts/1",
        "mounts": [
            {"mount": mount, "kind": kind, "source": source, "read_only": mount in protected, "problem": None}
            for mount, kind, source in lustre + homes + buckets
        ],
    }


def declared_files(machine: dict[str, Any]) -> dict[str, Any]:
    """The result of `node.pyz files` on a healthy machine."""
    files = [{**one, "problem": ""} for one in machine.get("files", ())]
    return {"schema": "gpuinfra.files/1", "files": files, "variables": machine.get("variables", {})}


def state(*faults: str, expectation: dict[str, Any] = P4D, **hardware: Any) -> dict[str, Any]:
    """The standin.json of a node after its steps; `hardware` replaces the catalog's hardware."""
    cloud = expectation["cloud"]
    modules = ["nvidia", "nvidia_uvm", *{"aws": ["efa"], "azure": ["mlx5_ib", "ib_umad"], "gcp": ["mlx5_ib"]}[cloud]]
    return {
        "instance": {"id": "i-00000000000000001", "name": "gpu-1", "cloud": cloud},
        "machine": expectation["machine"],
        "kernel": KERNEL,
        "booted": "2026-11-21T09:00:00Z",
        "hardware": {**hardware_of(cloud, expectation["machine"]), **hardware},
        "faults": list(faults),
        "modules": modules,
        "driver": {"userspace": DRIVER, "loaded": DRIVER, "open": True},
        "persistenced": True,
        "efa": {"kmod": "3.3.1", "libfabric": "2.7.0amzn2.0"},
        "mig": {
            "enabled": list(range(expectation["gpus"] if expectation.get("mig") else 0)),
            "instances": {str(gpu): list(expectation.get("mig_profiles", ())) for gpu in range(expectation["gpus"])},
        },
    }


def record(argv: Iterable[str], stdout: str = "", code: int = 0, **other: Any) -> dict[str, Any]:
    """The record of one probe."""
    return {
        "argv": list(argv),
        "exit": code,
        "stdout": stdout,
        "stderr": "",
        "truncated": False,
        "seconds": 0.01,
        "problem": None,
        **other,
    }


def fabric_result(**changes: Any) -> dict[str, Any]:
    """The result of a fabric test in which this node is good."""
    pair = record(["python3", "node.pyz", "pair"], json.dumps(PAIR) + "\n")
    found = {"schema": SCHEMA, "state": "good", "test": 1, "nodes": 2, "partner": "i-2", "slow_paths": [], "pair": pair}
    return {**found, **changes}


def played(device_state: dict[str, Any], expectation: dict[str, Any] = P4D):
    """A runner that runs stand-ins instead of commands."""

    def do(argv: Iterable[str], probe: Probe) -> dict[str, Any]:
        words, output = list(argv), io.StringIO()
        if words == ["cat", "/proc/sys/kernel/random/boot_id"]:
            return record(words, BOOT + "\n")
        if words == ["modinfo", "nvidia"]:
            return record(words, _MODULE)
        if words[0] == "nvidia-ctk":
            cut = range(len(expectation.get("mig_profiles", ())))
            gpus = [f"{gpu}:{at}" for gpu in range(expectation["gpus"]) for at in cut] or range(expectation["gpus"])
            return record(words, "".join(f"nvidia.com/gpu={name}\n" for name in [*gpus, "all"]))
        if words == [NODE_PART, "mounts"]:
            return record(words, json.dumps(network_mounts(expectation)) + "\n")
        if words == [NODE_PART, "files"]:
            return record(words, json.dumps(declared_files(expectation)) + "\n")
        if words == [NODE_PART, "pair"]:
            return record(words, json.dumps(sized(PAIR, expectation, "B3")) + "\n")
        if words == [NODE_PART, "nccl"]:
            return record(words, json.dumps(sized(NCCL, expectation, "B2")) + "\n")
        if words[:2] == [NODE_PART, "nccl"] and "--gib" in words:
            return record(words, json.dumps(nccl_network(device_state, expectation)) + "\n")
        if words == [NODE_PART, "heat"]:
            return record(words, json.dumps(HEAT) + "\n")
        if words == [NODE_PART, "pcie"]:
            return record(words, json.dumps(PCIE) + "\n")
        if words[0] == "lsblk":
            disks = [device_state["hardware"]["nvme_model"]] * device_state["hardware"]["nvme"]
            return record(words, "\n".join([*disks, "Amazon Elastic Block Store", ""]))
        if words == [NODE_PART, "links"]:
            result = links(expectation)
            if "rdma-slow" in device_state["faults"]:
                result["devices"][3]["gbps"] /= 4
            return record(words, json.dumps(result) + "\n")
        if words == ["cat", FABRIC_RESULT]:
            return record(words, json.dumps(fabric_result()) + "\n")
        if words == ["cat", NOTICES]:
            return record(words, notices.dumped([]))
        if words[0] == "cat":
            return record(words, devices.files(device_state)[words[1]])
        if words[:2] == [NODE_PART, "ports"]:
            return record(words, json.dumps(ports_of(device_state)) + "\n")
        if words[0] == "find" and "/var/lib/tcpxo/lib64" in words:
            wanted = FABRIC_LIBRARIES.get(device_state["hardware"]["fabric"], "")
            return record(words, wanted + "\n", 1)
        tool = words[0].rpartition("/")[2]
        if tool in devices.TOOLS and tool not in _HOST and "systemd-networkd" not in words:
            with contextlib.redirect_stdout(output):
                code = devices.main(words, device_state)
            return record(words, output.getvalue(), code)
        if words[0] == "journalctl":
            return record(words, "2026-11-21T09:00:09+0000 gpu-1 systemd-networkd[1]: eth0: Gained carrier\n")
        return record(words, _HOST[words[0]])

    return do


def ports_of(device_state: dict[str, Any]) -> dict[str, Any]:
    """The result of `node.pyz ports` on a node whose /sys contains the stand-in's files."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in devices.files(device_state).items():
            if path.startswith(str(ports.SYS)):
                file = Path(folder + path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return ports.ports(Path(folder + str(ports.SYS)))


def probes(
    *faults: str, expectation: dict[str, Any] = P4D, device_state: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The records of all probes of the machine."""
    names = evidence.needed_probes(expectation)
    return probe_all(
        names, played(device_state or state(*faults, expectation=expectation), expectation), retry_wait_s=0
    )


_KEPT: dict[str, dict[str, Any]] = {}


def healthy(expectation: dict[str, Any] = P4D) -> dict[str, Any]:
    """A copy of the records of a healthy machine, to be mutated."""
    key = json.dumps(expectation, sort_keys=True)
    if key not in _KEPT:
        _KEPT[key] = probes(expectation=expectation)
    return copy.deepcopy(_KEPT[key])
