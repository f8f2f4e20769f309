"""The values expected from a healthy node in a pool: the content of `expectation.json` (docs/reference/formats.md).

The values come from the catalog record and the software lock. The classes of the checks determine which checks a node runs (`gpuinfra/node/checks/`).
"""

from __future__ import annotations

from typing import cast

from gpuinfra.catalog.records import ALL_REDUCE, Floor
from gpuinfra.node.checks import ALL
from gpuinfra.node.expectation import Expectation, ExpectedFloor, ExpectedSoftware, Uses
from gpuinfra.plan.environment import ROOT_FREE_GIB
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.model import BootstrapStep
from gpuinfra.software.lock import SoftwareLock


def expectation(facts: PoolFacts, steps: tuple[BootstrapStep, ...]) -> Expectation:
    """Return the content of `expectation.json` for a pool whose nodes run these steps."""
    machine, lock, gpu = facts.machine, facts.lock, facts.machine.gpu
    fabric = machine.fabric if facts.fabric else None
    pool: Expectation = {
        "schema": "gpuinfra.expectation/1",
        "machine": machine.name,
        "cloud": facts.cloud,
        "gpus": machine.gpus,
        "nvswitch": machine.nvswitch,
        "fabric_devices": fabric.devices if fabric else 0,
        "fabric_device_gbps": fabric.gbps / fabric.devices if fabric else 0,
        "fabric_provider": lock.fabric,
        "open_module": lock.flavour == "open",
        "software": _software(lock),
        "root_free_gib": ROOT_FREE_GIB if gpu else 10,
        "vcpus": machine.vcpus,
        "memory_gib": machine.memory_gib,
        "file_systems": list(facts.lustre),
        "required": [],
        "skips": {},
        "steps": [step.id for step in steps],
    }
    if gpu:
        pool.update(
            gpu_name=gpu.name,
            gpu_memory_mib=gpu.memory_mib,
            pci_ids=list(gpu.pci_ids),
            pcie_gen=gpu.pcie_gen,
            pcie_width=gpu.pcie_width,
            nvlinks_per_gpu=gpu.nvlinks if machine.gpus > 1 else 0,
            nvlink_gb_s=gpu.nvlink_gb_s,
            ecc=gpu.ecc,
            arch=gpu.arch,
        )
    uses: Uses = {
        "own_steps": {step.id: step.sha256 for step in facts.own_steps},
        "files": [
            {"path": file.path, "sha256": file.sha256, "owner": file.owner, "group": file.group, "mode": file.mode}
            for file in facts.files
        ],
        "variables": dict(facts.variables),
        "lnet_efa": facts.lnet_efa,
        "containers": list(facts.containers),
        "metadata_guarded": list(facts.guarded),
        "homes": list(facts.homes),
        "buckets": [{"mount": bucket.mount, "read_only": bucket.read_only} for bucket in facts.buckets],
        "replacing_xids": list(facts.replacing_xids),
        "mig": bool(facts.mig),
        "mig_profiles": list(facts.mig),
        "energy": facts.energy,
        "checkpoints": facts.checkpoints if facts.lustre else "",
        "orders": facts.orders,
        "repair": facts.repair,
        "fabric_test": facts.fabric_test,
        "burn_in": facts.burn_in if facts.burn_in > 1 else 0,
        "gvnics": facts.gvnics,
        "local_disks": machine.local_disks,
        "local_disk_model": facts.software.local_disk_model if machine.local_disks else "",
        "floors": [_floor(floor) for floor in machine.floors],
    }
    pool.update(cast("Expectation", {name: value for name, value in uses.items() if value}))
    for check in ALL.values():
        if not check.applies(pool):
            continue
        if reason := check.skipped(pool):
            pool["skips"][check.id] = reason
        else:
            pool["required"].append(check.id)
    return pool


def _floor(floor: Floor) -> ExpectedFloor:
    entry: ExpectedFloor = {
        "check": floor.check, "what": floor.what, "at_least": floor.at_least, "unit": floor.unit,
    }  # fmt: skip
    if floor.gib is not None:
        entry["gib"] = floor.gib
    if floor.collective != ALL_REDUCE:
        entry["collective"] = floor.collective
    return entry


def _software(lock: SoftwareLock) -> dict[str, ExpectedSoftware]:
    content: dict[str, ExpectedSoftware] = {}
    for choice in lock.choices:
        if choice.version in ("image", "kernel"):
            continue
        entry: ExpectedSoftware = {"pin": choice.version}
        if choice.low and choice.high:
            entry["range"] = [f">={choice.low}", f"<{choice.high}"]
        content[choice.name] = entry
    return content
