"""Selects the bootstrap steps for a pool and their time limits.

IDs are file names in `bootstrap/`. The kernel comes first, because the driver, fabric, and Lustre modules are built for it.
On a prebuilt image, the same steps verify the installed software and skip the installation.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.model import BootstrapStep, OwnStep
from gpuinfra.spec.steps import NodeStep


def steps(facts: PoolFacts) -> tuple[BootstrapStep, ...]:
    """Return the steps for a pool in order. Declared steps come last."""
    machine, lock = facts.machine, facts.lock
    chosen = [
        BootstrapStep(
            id="10-prepare", timeout_s=900, retries=2, why="installs tools, sets limits and disables automatic upgrades"
        ),
        *(
            BootstrapStep(
                id=agent.step,
                timeout_s=600,
                retries=2,
                why="the declaration sends the logs to the log service of the cloud",
            )
            for agent in (facts.log_agent,)
            if agent
        ),
        BootstrapStep(
            id="20-kernel",
            timeout_s=1800,
            retries=2,
            why="installs the headers for the running kernel and holds the kernel packages",
        ),
    ]
    if machine.gpu:
        chosen.append(BootstrapStep(id="30-driver", timeout_s=1800, retries=2, why="GPUs require a driver"))
        if lock.choice("nvlsm"):
            why = "fourth-generation NVSwitch requires a subnet manager, which fabric manager uses"
            chosen.append(BootstrapStep(id="33-nvlink-subnet-manager", timeout_s=600, retries=2, why=why))
        if machine.nvswitch:
            why = "NVSwitch connects the GPUs, and CUDA requires a fabric manager whose version matches the driver"
            chosen.append(BootstrapStep(id="35-fabric-manager", timeout_s=600, retries=2, why=why))
        if facts.mig:
            chosen.append(
                BootstrapStep(id="37-mig", timeout_s=600, retries=2, why="the declaration partitions the GPUs with MIG")
            )
        chosen.append(
            BootstrapStep(id="40-cuda", timeout_s=1800, retries=2, why="tests and programs are compiled on the nodes")
        )
        chosen.append(
            BootstrapStep(id="45-nccl", timeout_s=600, retries=2, why="programs that do not bundle NCCL use it")
        )
    if lock.choice("docker"):
        chosen.append(BootstrapStep(id="48-docker", timeout_s=900, retries=2, why="the declaration lists docker"))
    if machine.fabric and lock.fabric:
        why = f"{machine.fabric.devices} {lock.fabric} devices connect the nodes"
        chosen.append(BootstrapStep(id=f"50-{lock.fabric}", timeout_s=1200, retries=2, why=why))
    if lock.choice("gdrcopy"):
        why = "GDRCopy copies small messages to GPU memory without a copy engine"
        chosen.append(BootstrapStep(id="55-gdrcopy", timeout_s=600, retries=2, why=why))
    if facts.lustre:
        chosen.append(
            BootstrapStep(id="60-lustre", timeout_s=900, retries=3, why="the cluster has a Lustre file system")
        )
    if facts.homes:
        chosen.append(BootstrapStep(id="62-home", timeout_s=600, retries=3, why="the cluster has home directories"))
    if facts.users:
        chosen.append(BootstrapStep(id="64-users", timeout_s=300, retries=2, why="the declaration lists users"))
    if machine.gpu:
        chosen.append(BootstrapStep(id="70-container-toolkit", timeout_s=900, retries=2, why="containers use the GPUs"))
    if lock.choice("enroot"):
        chosen.append(BootstrapStep(id="71-enroot", timeout_s=600, retries=2, why="the declaration lists enroot"))
    if facts.metadata:
        why = "the metadata service has no hop limit, so a packet filter on the node controls access from containers"
        chosen.append(BootstrapStep(id="72-metadata", timeout_s=600, retries=2, why=why))
    if machine.gpu:
        chosen.append(BootstrapStep(id="75-dcgm", timeout_s=900, retries=2, why="DCGM diagnoses and monitors the GPUs"))
    if lock.choice("dcgm_exporter"):
        why = "the declaration requests GPU metrics for Prometheus"
        chosen.append(BootstrapStep(id="77-dcgm-exporter", timeout_s=600, retries=2, why=why))
    if lock.choice("node_exporter"):
        why = "Prometheus on the control node collects the metrics of each node"
        chosen.append(BootstrapStep(id="78-node-exporter", timeout_s=600, retries=2, why=why))
    if machine.local_disk_gb:
        why = f"{machine.local_disk_gb} GB of local disks are combined into one scratch file system"
        chosen.append(BootstrapStep(id="80-scratch", timeout_s=600, retries=1, why=why))
    if facts.bucket_client:
        why = "the declaration mounts buckets, whose cache is on the local disks"
        chosen.append(BootstrapStep(id=facts.bucket_client.step, timeout_s=900, retries=2, why=why))
    chosen.append(
        BootstrapStep(
            id="90-holds",
            timeout_s=120,
            retries=1,
            why="holds packages, so that upgrades do not change verified software",
        )
    )
    if facts.files:
        why = "the declaration lists files or environment variables"
        if lock.choice("prometheus"):
            why = "Prometheus and Alertmanager read their configuration from files"
        chosen.append(BootstrapStep(id="92-files", timeout_s=300, retries=2, why=why))
    if lock.choice("prometheus"):
        why = "Prometheus and Alertmanager collect the metrics of the nodes and send alerts"
        chosen.append(BootstrapStep(id="94-monitoring", timeout_s=900, retries=3, why=why))
    if facts.packages:
        chosen.append(BootstrapStep(id="95-packages", timeout_s=1800, retries=2, why="the declaration lists packages"))
    return (*chosen, *facts.own_steps)


OWN = "own-"
"""Prefix of the IDs of declared steps."""


def own_steps(declared: Iterable[NodeStep], pool: str) -> tuple[OwnStep, ...]:
    """Return the declared steps for a pool, in the order of the declaration."""
    return tuple(
        OwnStep(
            id=f"{OWN}{step.name}",
            timeout_s=step.timeout_minutes * 60,
            retries=step.retries,
            why="the declaration contains it",
            source=step.file or step.url or "",
            sha256=step.script.sha256 if step.script else step.sha256 or "",
            reboot=step.reboot,
            content=step.script.content if step.script else None,
        )
        for step in declared
        if not step.pools or pool in step.pools
    )
