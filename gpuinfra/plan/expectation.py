"""The values expected from a healthy node in a pool: the content of `expectation.json` (docs/reference/formats.md).

The values come from the catalog record and the software lock. `REQUIRED` determines which checks a node runs. The checks are in `gpuinfra.node`.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.environment import ROOT_FREE_GIB
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.model import Step
from gpuinfra.software.lock import Lock


def _always(_: PoolFacts) -> bool:
    return True


def _gpu(f: PoolFacts) -> bool:
    return f.machine.gpu is not None


def _switch(f: PoolFacts) -> bool:
    return f.machine.nvswitch


def _blackwell(f: PoolFacts) -> bool:
    """Whether the machine type has a fourth-generation NVSwitch, which requires a subnet manager."""
    return f.machine.nvswitch and f.machine.gpu is not None and f.machine.gpu.arch == "blackwell"


def _partitioned(f: PoolFacts) -> bool:
    """Whether GPUs are partitioned with MIG."""
    return bool(f.mig)


def _links(f: PoolFacts) -> bool:
    return bool(f.machine.gpu and f.machine.gpu.nvlinks and f.machine.gpus > 1)


def _efa(f: PoolFacts) -> bool:
    return bool(f.fabric and f.machine.fabric and f.machine.fabric.provider == "efa")


def _fabric(f: PoolFacts) -> bool:
    return bool(f.fabric and f.machine.fabric)


def _provider(*names: str) -> Callable[[PoolFacts], bool]:
    """Return a condition that is true for these fabric providers."""
    return lambda f: bool(f.fabric and f.machine.fabric and f.machine.fabric.provider in names)


def _several_gvnics(f: PoolFacts) -> bool:
    """Whether the node has gVNICs for the fabric or a second host network, in addition to its primary interface."""
    return f.gvnics > 1


def _lustre(f: PoolFacts) -> bool:
    return bool(f.lustre)


def _home(f: PoolFacts) -> bool:
    return bool(f.homes)


def _buckets(f: PoolFacts) -> bool:
    return bool(f.buckets)


def _over_efa(f: PoolFacts) -> bool:
    return f.lnet_efa > 0


def _container_runtime(f: PoolFacts) -> bool:
    """Whether containers use the GPUs, or the declaration lists a runtime that C1 reads."""
    return f.machine.gpu is not None or "docker" in f.containers


def _enroot(f: PoolFacts) -> bool:
    return "enroot" in f.containers


def _exporter(f: PoolFacts) -> bool:
    return f.exporter


def _guarded(f: PoolFacts) -> bool:
    return bool(f.guarded)


def _files(f: PoolFacts) -> bool:
    return bool(f.files)


def _fabric_state(f: PoolFacts) -> bool:
    """Whether the GPUs report a fabric state. Hopper and later GPUs do."""
    return f.machine.nvswitch and f.machine.gpu is not None and f.machine.gpu.arch != "ampere"


def _host_copy(f: PoolFacts) -> bool:
    """Whether the catalog has a floor for the copy between host memory and GPU. The copy test sees only one instance of a GPU with MIG."""
    return not f.mig and any(floor.check == "B5" for floor in f.machine.floors)


def _network_plugin(f: PoolFacts) -> bool:
    """Whether NCCL can use the fabric. NCCL runs on whole GPUs; with MIG, it finds no more than one instance."""
    return _fabric(f) and _gpu(f) and not f.mig


def _fabric_test(f: PoolFacts) -> bool:
    return f.fabric_test


def _burn_in(level: int) -> Callable[[PoolFacts], bool]:
    return lambda f: f.machine.gpu is not None and f.burn_in >= level and not f.mig


REQUIRED: dict[str, Callable[[PoolFacts], bool]] = {
    **dict.fromkeys(("P2", "P3", "S1", "S2"), _always),
    **dict.fromkeys(("P1", "P4", "P5", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8"), _gpu),
    **dict.fromkeys((f"G{number}" for number in range(1, 15)), _gpu),
    **dict.fromkeys(("X1", "C1", "C2", "C3"), _gpu),
    "C1": _container_runtime,
    "C4": _guarded,
    "C5": _enroot,
    "M1": _exporter,
    "B1": _gpu,
    "B4": _network_plugin,
    "B5": _host_copy,
    "G15": _partitioned,
    "B6": _burn_in(2),
    "B7": _burn_in(3),
    "B8": _fabric_test,
    "X2": _switch,
    "F1": _switch,
    "F2": _fabric_state,
    "F3": _links,
    "F4": _links,
    "F5": _switch,
    "F6": _blackwell,
    "N1": _efa,
    "N2": _provider("infiniband"),
    "N3": _provider("gib", "tcpxo"),
    "N4": _fabric,
    "N6": _provider("infiniband", "gib", "tcpx", "tcpxo"),
    "N7": _provider("gib"),
    "N8": _several_gvnics,
    "N9": _provider("infiniband"),
    "L1": _lustre,
    "L2": _home,
    "L3": _over_efa,
    "L4": _buckets,
    "S3": _files,
}
"""Maps each check to the condition under which nodes run it. Other checks (N5, B2, B3) run on request, and the report lists them as not checked."""


def expectation(facts: PoolFacts, steps: tuple[Step, ...]) -> dict[str, object]:
    """Return the content of `expectation.json` for a pool whose nodes run these steps."""
    machine, lock, gpu = facts.machine, facts.lock, facts.machine.gpu
    fabric = machine.fabric if facts.fabric else None
    content: dict[str, object] = {
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
        "file_systems": list(facts.lustre),
        "required": [check for check, needed in REQUIRED.items() if needed(facts)],
        "skips": _skips(machine, mig=bool(facts.mig)),
        "steps": [step.id for step in steps],
    }
    if gpu:
        content |= {
            "gpu_name": gpu.name,
            "gpu_memory_mib": gpu.memory_mib,
            "pci_ids": list(gpu.pci_ids),
            "pcie_gen": gpu.pcie_gen,
            "pcie_width": gpu.pcie_width,
            "nvlinks_per_gpu": gpu.nvlinks if machine.gpus > 1 else 0,
            "nvlink_gb_s": gpu.nvlink_gb_s,
            "ecc": gpu.ecc,
            "arch": gpu.arch,
        }
    optional: dict[str, object] = {
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
        "mig": bool(facts.mig),
        "mig_profiles": list(facts.mig),
        "energy": facts.energy,
        "burn_in": facts.burn_in if facts.burn_in > 1 else None,
        "gvnics": facts.gvnics,
        "floors": [
            {"check": floor.check, "what": floor.what, "at_least": floor.at_least, "unit": floor.unit}
            for floor in machine.floors
        ],
    }
    return content | {name: value for name, value in optional.items() if value}


def _software(lock: Lock) -> dict[str, object]:
    content: dict[str, object] = {}
    for choice in lock.choices:
        if choice.version in ("image", "kernel"):
            continue
        entry: dict[str, object] = {"pin": choice.version}
        if choice.low and choice.high:
            entry["range"] = [f">={choice.low}", f"<{choice.high}"]
        content[choice.name] = entry
    return content


def _skips(machine: MachineType, *, mig: bool) -> dict[str, str]:
    """Return the checks that can be skipped on this machine type, and the reasons."""
    skips: dict[str, str] = {}
    if machine.nvswitch and machine.gpu:
        if machine.gpu.arch == "ampere":
            skips["F2"] = f"{machine.gpu.key.split('-')[0]} reports no fabric state; the field is N/A on Ampere"
        if machine.gpu.arch != "blackwell":
            skips["F6"] = "only fourth-generation NVSwitch (B200 and later) has an NVLink subnet manager"
    if mig and machine.gpu:
        links = "a GPU with MIG reports no NVLink"
        skips |= {
            check: links for check, applies in (("F3", _linked), ("F4", _linked), ("F5", _joined)) if applies(machine)
        }
        skips["B5"] = "the test sees only one instance of a GPU with MIG"
        if machine.fabric:
            skips["B4"] = "NCCL does not run on several MIG instances of a node"
        skips["B1"] = "NVIDIA's diagnostics test whole GPUs only"
    return skips


def _linked(machine: MachineType) -> bool:
    return bool(machine.gpu and machine.gpu.nvlinks and machine.gpus > 1)


def _joined(machine: MachineType) -> bool:
    return machine.nvswitch
