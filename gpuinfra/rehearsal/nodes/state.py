"""What a stand-in node is: the schema of `standin.json`, and its first version.

Everything that a stand-in tool prints comes from this file, so a step that did not run shows, and a fault is one word in it.
`standin.json` is always replaced in one step (`tools/state.py`); readers need no lock.

| field | what it says |
| --- | --- |
| `instance` | id, name (`gpu-1`, launch order), cloud, cluster, pool, region, zone |
| `machine`, `hardware` | machine type, and what is plugged in (its cloud's catalogue) |
| `image` | operating system, and whether it brings driver and fabric (`tools/images.json`) |
| `kernel` | the running kernel; `kernels` those that are installed |
| `boot_id`, `boots`, `booted` | identity and number of this boot |
| `faults` | what is broken; the judgement never looks here |
| `packages` | name -> version, hold, where it came from |
| `modules`, `module_files`, `dkms` | loaded modules; kernel -> module -> facts; what DKMS has built |
| `driver` | `userspace` and `loaded` version, `open`; None where there is none |
| `fabric_manager`, `efa`, `persistenced` | what is installed of them |
| `lnet` | what Lustre's network was told in this boot |
| `nft` | tables of packet filters that were loaded in this boot |
| `mounts` | Lustre and scratch mounts that this node's own /proc/mounts cannot show |
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "gpuinfra.standin/1"
TOOLS = Path(__file__).resolve().parent.parent / "tools"

NODE_FAULTS: dict[str, str] = {
    "never-reports": "the node's network never comes up, so cloud-init hangs and nothing is uploaded",
    "driver-mismatch": "the loaded kernel module is older than the driver's libraries, as after an unattended upgrade",
    "fabric-manager-stopped": "fabric manager ends right after it started",
    "lustre-mount-fails": "the file system's server does not answer",
    "lustre-over-tcp": "a rule of a security group is missing, so Lustre falls back from EFA to TCP without a word",
    "download-corrupt": "one byte of every vendor download is wrong",
    "repository-503": "vendors' repositories and download servers answer 503",
}
"""Faults that this part plays; those of devices are in `gpuinfra.rehearsal.devices`."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One machine that the stand-in cloud started."""

    id: str
    machine: str
    os: str = "ubuntu-22.04"
    prebuilt: bool = True
    name: str = "node-1"
    """Launch order within the pool: `gpu-1`; shown beside the id."""
    pool: str = "gpu"
    cluster: str = "cluster"
    cloud: str = "aws"
    region: str = "us-east-1"
    zone: str = ""
    faults: tuple[str, ...] = ()


def first_state(instance: Instance) -> dict[str, Any]:
    """A machine that was never booted: its image's kernel, and nothing installed yet."""
    images = _table("images.json")["images"]
    image = images[f"{instance.cloud}/{instance.os}/{'prebuilt' if instance.prebuilt else 'plain'}"]
    hardware = hardware_of(instance.cloud, instance.machine)
    return {
        "schema": SCHEMA,
        "instance": {
            "id": instance.id,
            "name": instance.name,
            "cloud": instance.cloud,
            "cluster": instance.cluster,
            "pool": instance.pool,
            "region": instance.region,
            "zone": instance.zone,
        },
        "machine": instance.machine,
        "hardware": hardware,
        "image": {"os": instance.os, "prebuilt": instance.prebuilt, "name": image["name"]},
        "kernel": image["kernel"],
        "kernels": [image["kernel"]],
        "boot_id": "",
        "boots": 0,
        "booted": "",
        "faults": list(instance.faults),
        "packages": {},
        "modules": [],
        "module_files": {},
        "dkms": [],
        "driver": {"userspace": None, "loaded": None, "open": None},
        "fabric_manager": {"installed": None},
        "persistenced": False,
        "efa": {"installer": None, "libfabric": None, "kmod": None},
        "mounts": [],
        "sysctl": {},
    }


def hardware_of(cloud: str, machine_name: str) -> dict[str, Any]:
    """What is plugged into a machine, from its cloud's catalogue; nothing for one that no catalogue has."""
    machines = importlib.import_module(f"gpuinfra.clouds.{cloud}.catalog").MACHINES
    machine = machines.get(machine_name)
    if machine is None:
        return {
            "gpus": 0, "gpu": None, "efa": 0, "fabric": None, "fabric_devices": 0, "fabric_gbps": 0, "nvswitches": 0, "nvme": 0, "nvme_gb": 0,
            "nvme_model": "",
        }  # fmt: skip
    fabric = machine.fabric
    return {
        "gpus": machine.gpus,
        "gpu": machine.gpu.name if machine.gpu else None,
        "efa": machine.fabric.devices if machine.fabric and machine.fabric.provider == "efa" else 0,
        "fabric": fabric.provider if fabric else None,
        "fabric_devices": fabric.devices if fabric else 0,
        "fabric_gbps": fabric.gbps // fabric.devices if fabric else 0,
        "nvswitches": NVSWITCHES[machine.gpu.arch] if machine.nvswitch and machine.gpu else 0,
        "nvme": machine.local_disks,
        "nvme_gb": machine.local_disk_gb // machine.local_disks if machine.local_disks else 0,
        "nvme_model": DISK_MODELS[cloud],
    }


NVSWITCHES = {"ampere": 6, "hopper": 4, "blackwell": 2}
"""NVSwitch devices that an 8-GPU board shows. Ampere: six bridges in leptonai/gpud's recording lspci.nn.a100; the others are assumed."""
DISK_MODELS = {"aws": "Amazon EC2 NVMe Instance Storage", "azure": "Microsoft NVMe Direct Disk", "gcp": "nvme_card"}


def _table(name: str) -> dict[str, Any]:
    return json.loads((TOOLS / name).read_text(encoding="utf-8"))
