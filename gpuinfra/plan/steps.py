"""Which bootstrap steps a pool runs, and how long each may take.

The ids are file names in `bootstrap/`; the order is kernel, driver, fabric, Lustre, because modules are built for the kernel
that is held first. A prebuilt image runs the same steps: what it brings is proven and skipped.
"""

from __future__ import annotations

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.model import Step
from gpuinfra.software.lock import Lock


def steps(
    machine: MachineType, lock: Lock, *, lustre: bool, home: bool, mig: bool = False, metadata: bool = False
) -> tuple[Step, ...]:
    """The steps of one pool, in order; `metadata` where the node itself decides who reaches the cloud's metadata service."""
    chosen = [
        Step(id="10-prepare", timeout_s=900, retries=2, why="tools, limits, and no upgrade behind our back"),
        Step(id="20-kernel", timeout_s=1800, retries=2, why="headers of the running kernel, which is then held"),
    ]
    if machine.gpu:
        chosen.append(Step(id="30-driver", timeout_s=1800, retries=2, why="the GPUs need their driver"))
        if lock.choice("nvlsm"):
            why = "fourth-generation NVSwitch has a subnet manager, which fabric manager expects"
            chosen.append(Step(id="33-nvlink-subnet-manager", timeout_s=600, retries=2, why=why))
        if machine.nvswitch:
            why = "NVSwitch connects the GPUs, and CUDA starts only with a fabric manager of the driver's version"
            chosen.append(Step(id="35-fabric-manager", timeout_s=600, retries=2, why=why))
        if mig:
            chosen.append(Step(id="37-mig", timeout_s=600, retries=2, why="the declaration cuts the GPUs by MIG"))
        chosen.append(Step(id="40-cuda", timeout_s=1800, retries=2, why="tests and programs are built on the node"))
        chosen.append(Step(id="45-nccl", timeout_s=600, retries=2, why="programs that bring no NCCL of their own"))
    if machine.fabric and lock.fabric:
        why = f"{machine.fabric.devices} {lock.fabric} devices connect the nodes"
        chosen.append(Step(id=f"50-{lock.fabric}", timeout_s=1200, retries=2, why=why))
    if lock.choice("gdrcopy"):
        why = "small messages reach GPU memory without a copy engine"
        chosen.append(Step(id="55-gdrcopy", timeout_s=600, retries=2, why=why))
    if lustre:
        chosen.append(Step(id="60-lustre", timeout_s=900, retries=3, why="the cluster has a Lustre file system"))
    if home:
        chosen.append(Step(id="62-home", timeout_s=600, retries=3, why="the cluster has home directories"))
    if machine.gpu:
        chosen.append(Step(id="70-container-toolkit", timeout_s=900, retries=2, why="containers see the GPUs"))
    if metadata:
        why = "the cloud has no hop limit, so the node itself keeps containers from its identity, or lets them"
        chosen.append(Step(id="72-metadata", timeout_s=600, retries=2, why=why))
    if machine.gpu:
        chosen.append(Step(id="75-dcgm", timeout_s=900, retries=2, why="GPUs are diagnosed and counted"))
    if machine.local_disk_gb:
        why = f"{machine.local_disk_gb} GB of local disks become one fast scratch"
        chosen.append(Step(id="80-scratch", timeout_s=600, retries=1, why=why))
    chosen.append(Step(id="90-holds", timeout_s=120, retries=1, why="no upgrade may change what was verified"))
    return tuple(chosen)
