"""The state of a stand-in node: the schema of `standin.json`, and its first version.

Stand-in tools compute their output from this file, so the output reveals a step that did not run. A fault is one word
in this file. `standin.json` is replaced atomically (`tools/state.py`), so readers need no lock.

| field | content |
| --- | --- |
| `instance` | ID, name (`gpu-1`, launch order), cloud, cluster, pool, region, zone |
| `machine`, `hardware` | machine type, and its devices (from its cloud's catalog) |
| `image` | operating system, and whether it includes driver and fabric (`tools/images.json`) |
| `kernel` | the running kernel; `kernels` lists the installed kernels |
| `boot_id`, `boots`, `booted` | ID and number of this boot |
| `faults`, `passing_s` | requested faults, and how long those last that pass; checks do not read them |
| `packages` | name -> version, hold, origin |
| `modules`, `module_files`, `dkms` | loaded modules; kernel -> module -> facts; DKMS builds |
| `driver` | `userspace` and `loaded` version, `open`; None without a driver |
| `fabric_manager`, `efa`, `persistenced` | installed versions |
| `lnet` | LNet configuration of this boot |
| `nft` | nftables tables of this boot |
| `owners` | owners of files other than root, by device, inode and time of change |
| `mounts` | Lustre and scratch mounts, which the node's /proc/mounts cannot show |
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.catalog.clouds import machines_of

SCHEMA = "gpuinfra.standin/1"
TOOLS = Path(__file__).resolve().parent.parent / "tools"

NODE_FAULTS: dict[str, str] = {
    "never-reports": "the node's network never comes up, so cloud-init hangs and nothing is uploaded",
    "driver-mismatch": "the loaded kernel module is older than the driver's libraries, as after an unattended upgrade",
    "fabric-manager-stopped": "fabric manager exits after it starts",
    "lustre-mount-fails": "the file system's server does not respond",
    "home-mount-refused": "the server of the home directories denies access to the mount",
    "accounts-locked": "a process of the image does not release its lock on /etc/passwd",
    "image-profile": "a script of the image in /etc/profile.d sets HF_HOME for all login shells",
    "bucket-mount-refused": "the cloud denies the nodes' identity access to a mounted bucket",
    "bucket-missing": "a mounted bucket does not exist",
    "bucket-unreachable": "the service that stores a mounted bucket does not respond",
    "lustre-over-tcp": "a security group rule is missing, so Lustre silently falls back from EFA to TCP",
    "nccl-library-broken": "a library that NCCL's network plugin needs is missing, so NCCL silently falls back to sockets",
    "nccl-environment": "root's .nccl.conf, left in the image by a test, turns off network plugins and InfiniBand",
    "download-corrupt": "one byte of every vendor download is corrupt",
    "script-corrupt": "one byte of the downloaded script of each declared step is corrupt",
    "enroot-corrupt": "one byte of each package file of enroot is corrupt",
    "packages-missing": "Ubuntu's repository does not contain the declared packages",
    "packages-unreachable": "Ubuntu's repository returns status 503 for the files of the declared packages",
    "package-lock": "another process holds the lock of apt and dpkg for two minutes, as an unattended upgrade does",
    "clock-off": "the clock is ten minutes ahead for two minutes, until a time service corrects it",
    "dns-off": "the name servers do not answer for two minutes",
    "spot-notice": "the cloud announces a spot interruption, and terminates the node after the notice period of the cloud",
    "maintenance": "the cloud announces maintenance of the node's host in ten minutes",
    "repository-503": "vendors' repositories and download servers return status 503",
}
"""Node faults other than device faults. Device faults are in `gpuinfra_rehearsal.devices`."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One machine that the stand-in cloud launched."""

    id: str
    machine: str
    os: str = "ubuntu-22.04"
    prebuilt: bool = True
    name: str = "node-1"
    """Pool and launch number: `gpu-1`."""
    pool: str = "gpu"
    cluster: str = "cluster"
    cloud: str = "aws"
    region: str = "us-east-1"
    zone: str = ""
    faults: tuple[str, ...] = ()
    passing_s: float = 120.0
    """How long each fault that passes lasts."""


@dataclass(frozen=True, kw_only=True)
class AttachedDisk:
    """A disk of the stack that is attached to one node."""

    key: str
    """Folder of its content, which stays when the node ends."""
    device: str
    """Name of the block device, such as `/dev/nvme9n1`."""
    link: str
    """Link to the device that udev creates with the rules of the cloud's images."""


def image_cloud(cloud: str) -> str:
    """Return the cloud whose images and hardware layout a stand-in node uses: its own, or AWS for a cloud without
    tables here."""
    return cloud if cloud in DISK_MODELS else Instance.cloud


def first_state(instance: Instance) -> dict[str, Any]:
    """Return the state before the first boot: the kernel of the image, and no packages."""
    images = _table("images.json")["images"]
    like = image_cloud(instance.cloud)
    image = images[f"{like}/{instance.os}/{'prebuilt' if instance.prebuilt else 'plain'}"]
    hardware = hardware_of(instance.cloud, instance.machine)
    return {
        "schema": SCHEMA,
        "instance": {
            **{name: getattr(instance, name) for name in ("id", "name", "cluster", "pool", "region", "zone")},
            "cloud": like,
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
        "passing_s": instance.passing_s,
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
    """Return the devices of a machine type from its cloud's catalog. Empty for an unknown type."""
    machine = machines_of(cloud).get(machine_name)
    if machine is None:
        return {
            "gpus": 0, "gpu": None, "efa": 0, "fabric": None, "fabric_devices": 0, "fabric_gbps": 0, "nvswitches": 0, "nvme": 0, "nvme_gb": 0,
            "nvme_model": "", "vcpus": 0, "memory_gib": 0,
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
        "nvme": machine.local_disks or int(machine.local_disk_gb > 0),
        "nvme_gb": machine.local_disk_gb // (machine.local_disks or 1),
        "nvme_model": DISK_MODELS.get(cloud) or _disk_model(cloud),
        "vcpus": machine.vcpus,
        "memory_gib": machine.memory_gib,
    }


NVSWITCHES = {"ampere": 6, "hopper": 4, "blackwell": 2}
"""NVSwitch devices of an 8-GPU board. Ampere: six bridges in leptonai/gpud's recording lspci.nn.a100; the others are
assumed."""
DISK_MODELS = {"aws": "Amazon EC2 NVMe Instance Storage", "azure": "Microsoft NVMe Direct Disk", "gcp": "nvme_card"}


def _disk_model(cloud: str) -> str:
    from gpuinfra.plan.profile import profile_of  # it imports pydantic, which a node of an ordinary user may not have

    return profile_of(cloud).software.local_disk_model


def _table(name: str) -> dict[str, Any]:
    return json.loads((TOOLS / name).read_text(encoding="utf-8"))
