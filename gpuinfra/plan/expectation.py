"""The values expected from a healthy node in a pool: the content of `expectation.json` (docs/reference/formats.md).

The values come from the catalog record and the software lock. `REQUIRED` determines which checks a node runs. The checks are in `gpuinfra.node`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.model import FilePlan, OwnStep, Step
from gpuinfra.software.environment import ROOT_FREE_GIB
from gpuinfra.software.lock import Lock


class Facts(NamedTuple):
    """Facts that determine whether a check applies."""

    machine: MachineType
    fabric: bool
    lustre: bool
    cloud: str
    mig: bool = False
    burn_in: int = 1
    fabric_test: bool = False
    """Whether the nodes must pass the fabric test (`fabric_test.py`)."""
    home: bool = False
    lnet_efa: int = 0
    """Number of EFA devices that Lustre uses."""
    containers: tuple[str, ...] = ()
    """Container runtimes that the declaration lists."""
    exporter: bool = False
    """Whether the nodes run the DCGM exporter."""
    buckets: bool = False
    """Whether the nodes mount buckets."""
    guarded: bool = False
    """Whether nodes block containers from the metadata service."""
    files: bool = False
    """Whether the declaration lists files or environment variables."""


def _always(_: Facts) -> bool:
    return True


def _gpu(f: Facts) -> bool:
    return f.machine.gpu is not None


def _switch(f: Facts) -> bool:
    return f.machine.nvswitch


def _blackwell(f: Facts) -> bool:
    """Whether the machine type has a fourth-generation NVSwitch, which requires a subnet manager."""
    return f.machine.nvswitch and f.machine.gpu is not None and f.machine.gpu.arch == "blackwell"


def _partitioned(f: Facts) -> bool:
    """Whether GPUs are partitioned with MIG."""
    return f.mig


def _links(f: Facts) -> bool:
    return bool(f.machine.gpu and f.machine.gpu.nvlinks and f.machine.gpus > 1)


def _efa(f: Facts) -> bool:
    return bool(f.fabric and f.machine.fabric and f.machine.fabric.provider == "efa")


def _fabric(f: Facts) -> bool:
    return bool(f.fabric and f.machine.fabric)


def _provider(*names: str) -> Callable[[Facts], bool]:
    """Return a condition that is true for these fabric providers."""
    return lambda f: bool(f.fabric and f.machine.fabric and f.machine.fabric.provider in names)


def _several_gvnics(f: Facts) -> bool:
    """Whether the node has gVNICs for the fabric or a second host network, in addition to its primary interface."""
    return f.fabric and gvnics(f.machine) > 1


def gvnics(machine: MachineType) -> int:
    """Return the number of gVNICs that the machine type has, which is 0 on clouds other than Google Cloud."""
    return sum(1 for nic in machine.nics if nic.kind == "gvnic")


def _lustre(f: Facts) -> bool:
    return f.lustre


def _home(f: Facts) -> bool:
    return f.home


def _buckets(f: Facts) -> bool:
    return f.buckets


def _over_efa(f: Facts) -> bool:
    return f.lnet_efa > 0


def _container_runtime(f: Facts) -> bool:
    """Whether containers use the GPUs, or the declaration lists a runtime that C1 reads."""
    return f.machine.gpu is not None or "docker" in f.containers


def _enroot(f: Facts) -> bool:
    return "enroot" in f.containers


def _exporter(f: Facts) -> bool:
    return f.exporter


def _guarded(f: Facts) -> bool:
    return f.guarded


def _files(f: Facts) -> bool:
    return f.files


def _fabric_state(f: Facts) -> bool:
    """Whether the GPUs report a fabric state. Hopper and later GPUs do."""
    return f.machine.nvswitch and f.machine.gpu is not None and f.machine.gpu.arch != "ampere"


def _host_copy(f: Facts) -> bool:
    """Whether the catalog has a floor for the copy between host memory and GPU. The copy test sees only one instance of a GPU with MIG."""
    return not f.mig and any(floor.check == "B5" for floor in f.machine.floors)


def _network_plugin(f: Facts) -> bool:
    """Whether NCCL can use the fabric. NCCL runs on whole GPUs; with MIG, it finds no more than one instance."""
    return _fabric(f) and _gpu(f) and not f.mig


def _fabric_test(f: Facts) -> bool:
    return f.fabric_test


def _burn_in(level: int) -> Callable[[Facts], bool]:
    return lambda f: f.machine.gpu is not None and f.burn_in >= level and not f.mig


REQUIRED: dict[str, Callable[[Facts], bool]] = {
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


def expectation(
    machine: MachineType,
    lock: Lock,
    *,
    cloud: str,
    fabric: bool,
    file_systems: tuple[str, ...],
    lustre: bool,
    steps: tuple[Step, ...],
    homes: tuple[str, ...] = (),
    buckets: tuple[tuple[str, bool], ...] = (),
    lnet_efa: int = 0,
    mig: tuple[str, ...] = (),
    burn_in: int = 1,
    fabric_test: bool = False,
    energy: bool = False,
    guarded: tuple[str, ...] = (),
    files: tuple[FilePlan, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the content of `expectation.json` for a pool. `buckets` contains the mount of each bucket and whether it is read-only.
    `energy` makes the nodes record the energy of their GPUs."""
    containers = tuple(name for name in ("docker", "enroot") if lock.choice(name))
    facts = Facts(
        machine=machine,
        fabric=fabric,
        lustre=lustre,
        cloud=cloud,
        mig=bool(mig),
        burn_in=burn_in,
        fabric_test=fabric_test,
        home=bool(homes),
        buckets=bool(buckets),
        lnet_efa=lnet_efa,
        guarded=bool(guarded),
        files=bool(files),
        containers=containers,
        exporter=lock.choice("dcgm_exporter") is not None,
    )
    gpu = machine.gpu
    content: dict[str, object] = {
        "schema": "gpuinfra.expectation/1",
        "machine": machine.name,
        "cloud": cloud,
        "gpus": machine.gpus,
        "nvswitch": machine.nvswitch,
        "fabric_devices": machine.fabric.devices if machine.fabric and fabric else 0,
        "fabric_device_gbps": machine.fabric.gbps / machine.fabric.devices if machine.fabric and fabric else 0,
        "fabric_provider": lock.fabric,
        "open_module": lock.flavour == "open",
        "software": _software(lock),
        "root_free_gib": ROOT_FREE_GIB if gpu else 10,
        "file_systems": list(file_systems),
        "required": [check for check, needed in REQUIRED.items() if needed(facts)],
        "skips": _skips(machine, mig=bool(mig)),
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
    if own := {step.id: step.sha256 for step in steps if isinstance(step, OwnStep)}:
        content["own_steps"] = own
    if files:
        content["files"] = [
            {"path": one.path, "sha256": one.sha256, "owner": one.owner, "group": one.group, "mode": one.mode}
            for one in files
        ]
    if variables:
        content["variables"] = dict(variables)
    if lnet_efa:
        content["lnet_efa"] = lnet_efa
    if containers:
        content["containers"] = list(containers)
    if guarded:
        content["metadata_guarded"] = list(guarded)
    if homes:
        content["homes"] = list(homes)
    if buckets:
        content["buckets"] = [{"mount": mount, "read_only": read_only} for mount, read_only in buckets]
    if mig:
        content |= {"mig": True, "mig_profiles": list(mig)}
    if energy:
        content["energy"] = True
    if burn_in > 1:
        content["burn_in"] = burn_in
    if fabric and gvnics(machine):
        content["gvnics"] = gvnics(machine)
    if machine.floors:
        content["floors"] = [
            {"check": floor.check, "what": floor.what, "at_least": floor.at_least, "unit": floor.unit}
            for floor in machine.floors
        ]
    return content


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
