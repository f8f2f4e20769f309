"""The control node: a pool with one node, on which Prometheus and Alertmanager run.

The declaration of this pool is derived from the declaration of the cluster. The control node mounts no file systems, has no declared users, packages
and scripts, and is checked as each node without GPUs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from gpuinfra.base import naming
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.monitoring.alerts import ALERTS, AlertPool, AlertSeverity, rule_file
from gpuinfra.monitoring.config import (
    ALERTMANAGER,
    FOLDER,
    PROMETHEUS,
    REMOTE_WRITE,
    UNUSED_NODE_SERIES,
    AlertReceiver,
    ReceiverKind,
    RemoteEndpoint,
    ScrapeJob,
    alertmanager_file,
    prometheus_file,
    topic_name,
)
from gpuinfra.monitoring.discovery import Json
from gpuinfra.plan.files import planned_file
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.model import DataDisk, EmailPlan, FilePlan, MonitoringPlan, PoolPlan, RepairPlan, StorePlan
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.capacity import OnDemand
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.monitoring import CONTROL_POOL, Monitoring, Receiver
from gpuinfra.spec.policy import Software
from gpuinfra.spec.pool import DiskSpec, Pool

EXPORTER_STEP, NODE_STEP = "77-dcgm-exporter", "78-node-exporter"
PORT, NODE_PORT = 9400, 9100
"""Ports of the DCGM exporter and of node exporter."""
SYSTEM_GIB = 30
"""Root disk of the control node, without the metrics. Azure's image of Ubuntu has 30 GiB, and a root disk is not smaller than its image."""
SERIES_PER_GPU = 60
"""Upper limit for the series of the DCGM exporter for one GPU."""
SERIES_PER_NODE, SERIES_PER_DEVICE = 400, 20
"""Upper limits for the series of node exporter for one node, without those of its vCPUs (one for each) and of its fabric devices."""
BYTES_PER_SAMPLE = 2
"""Prometheus documents one to two bytes for a sample (https://prometheus.io/docs/prometheus/latest/storage/, retrieved 2026-11-29)."""
BYTES_PER_SERIES, BASE_GIB = 4_500, 1
"""Memory of Prometheus for one series, and memory of everything else on the control node. Prometheus 3.13.2 used at most 2,863 bytes for each of
1.7 million series (`bench/monitoring.py`, 2026-11-29). Half as much again is for queries of people and dashboards."""
SAMPLES_PER_DAY = 86_400 // 30
"""Samples of one series, with the interval of `config.SCRAPE_S`."""


def control_spec(spec: ClusterSpec) -> ClusterSpec | None:
    """Return the declaration of the control node, or None if the stack has none. It has no node while no pool has nodes."""
    declared = spec.monitoring
    if declared is None or "cluster" not in spec.made_layers:
        return None
    pool = Pool(
        name=CONTROL_POOL,
        machine=declared.machine or control_machine(spec),
        capacity=OnDemand(count=1 if spec.nodes else 0),
        disk=DiskSpec(size_gib=SYSTEM_GIB),
    )
    return spec.model_copy(
        update={
            "pools": (pool,),
            "storage": (),
            "software": Software(mirror_url=spec.software.mirror_url),
            "access": spec.access.model_copy(update={"users": ()}),
            "handover": spec.handover.model_copy(update={"fabric_test": "off", "burn_in": 1}),
        }
    )


def control_machine(spec: ClusterSpec) -> str:
    """Return the default machine type of the control node: that of the cloud, or the cheapest one in the catalog with enough memory for the metrics."""
    default, region = profile_of(spec.cloud).control.machine, spec.where.region
    machines = {name: one for name, one in profile_of(spec.cloud).machines.items() if runs_prometheus(one)}
    enough = [name for name, one in machines.items() if one.memory_gib >= memory_gib(spec)]

    def price(name: str) -> tuple[float, int]:
        listed = machines[name].price(CapacityKind.ON_DEMAND, region)
        return listed.usd_per_hour if listed else math.inf, machines[name].memory_gib

    return default if default in enough or not enough else min(enough, key=price)


def runs_prometheus(machine: MachineType) -> bool:
    """Return whether a machine type can be a control node: without GPUs, and with the processors for which the lock has checksums."""
    return machine.gpu is None and machine.arch == "x86_64"


def memory_gib(spec: ClusterSpec) -> int:
    """Return the memory that the control node needs for the metrics of all nodes in GiB."""
    return math.ceil(BASE_GIB + series_of(spec) * BYTES_PER_SERIES / 2**30)


def series_of(spec: ClusterSpec) -> int:
    """Return an upper limit for the number of series of all nodes."""
    return sum(pool.nodes * _series(machine) for _, pool, machine in pools_of(spec))


def metrics_gib(spec: ClusterSpec, declared: Monitoring) -> int:
    """Return the space for the metrics of all nodes in GiB: 10, or the double as often as necessary.

    Each node more would otherwise enlarge the disk, and EBS refuses a second change of a volume within hours (ModifyVolume in the EC2 API Reference).
    """
    used = series_of(spec) * SAMPLES_PER_DAY * BYTES_PER_SAMPLE * declared.retention_days
    # The share that Prometheus uses is `RESERVE` of `gpuinfra.node.data_disk`.
    return 10 * 2 ** math.ceil(math.log2(max(10, 1.5 * used / 2**30) / 10))


def _series(machine: MachineType) -> int:
    devices = machine.fabric.devices if machine.fabric else 0
    return machine.gpus * SERIES_PER_GPU + SERIES_PER_NODE + machine.vcpus + devices * SERIES_PER_DEVICE


def monitoring_plan(spec: ClusterSpec, control: PoolPlan) -> MonitoringPlan:
    """Return the plan of the control node. `control` is its pool."""
    declared = spec.monitoring
    assert declared is not None
    remote = declared.remote_write
    return MonitoringPlan(
        pool=control.name,
        retention_days=declared.retention_days,
        disk=DataDisk(size_gib=metrics_gib(spec, declared), kind=control.disk.kind, zone=control.groups[0].zone),
        receivers=tuple(name for name, _ in _named(declared)),
        secrets=(*(one.secret for one in declared.receivers if one.secret), *([remote.secret] if remote else [])),
        emails=tuple(
            EmailPlan(receiver=name, recipients=tuple(sorted(one.to or spec.budget.recipients)))
            for name, one in _named(declared)
            if one.kind == "email"
        ),
        remote_write=remote.url if remote else None,
        store=_store(spec, declared),
        repair=RepairPlan(mode=spec.repair.mode, at_most=spec.repair.at_most) if repairs(spec) else None,
    )


def _store(spec: ClusterSpec, declared: Monitoring) -> StorePlan | None:
    facts = profile_of(spec.cloud).control.store
    if declared.store is None or facts is None:
        return None
    return StorePlan(
        service=facts.name,
        retention_days=declared.store_retention_days,
        samples_per_day=series_of(spec) * SAMPLES_PER_DAY,
        recipients=tuple(sorted(spec.budget.recipients)),
        watches=spec.nodes > 0,
    )


def repairs(spec: ClusterSpec) -> bool:
    """Return whether the control node does something with faulty nodes."""
    return spec.monitoring is not None and "cluster" in spec.made_layers and spec.repair.mode != "off"


def alert_pools(spec: ClusterSpec, pools: Iterable[PoolPlan]) -> list[AlertPool]:
    """Return what the alert rules need of the pools that serve metrics, and of the control node. A pool without nodes has no targets."""
    declared = [
        AlertPool(
            name=pool.name,
            gpus=pool.expectation["gpus"] if EXPORTER_STEP in steps else 0,
            mig=bool(pool.expectation.get("mig")),
            node=NODE_STEP in steps,
            infiniband=pool.expectation["fabric_provider"] == "infiniband" and pool.expectation["fabric_devices"] > 0,
            checkpoint_s=spec.recovery.rpo_minutes * 60 if spec.recovery and "checkpoints" in pool.expectation else 0,
        )
        for pool in pools
        for steps in [{step.id for step in pool.steps}]
        if {EXPORTER_STEP, NODE_STEP} & steps
        and pool.name != CONTROL_POOL
        and any(group.max_count for group in pool.groups)
    ]
    if spec.monitoring is None or not declared:
        return declared
    return [*declared, AlertPool(name=CONTROL_POOL, gpus=0, node=True, control=True, repair=repairs(spec))]


def control_files(
    spec: ClusterSpec, declared: Monitoring, pools: Iterable[PoolPlan], zone: str
) -> tuple[FilePlan, ...]:
    """Return the configuration of Prometheus and Alertmanager. It does not contain the nodes, which Prometheus finds by their tags.

    `spec` is the declaration of the control node, `zone` its zone, and `pools` are the other pools.
    """
    pools = tuple(pools)
    served = alert_pools(spec, pools)
    names = [pool.name for pool in served if pool.gpus]
    zones = {pool.name: {group.zone for group in pool.groups} for pool in pools} | {CONTROL_POOL: {zone}}

    def job(name: str, pools: list[str], port: int, drop: Sequence[tuple[Sequence[str], str]] = ()) -> ScrapeJob:
        places = sorted(set[str]().union(*(zones[pool] for pool in pools)))
        discovery = profile_of(spec.cloud).discovery(spec.name, spec.where.region, places, port)
        return ScrapeJob(name=name, discovery=discovery, pools=pools, drop=drop)

    jobs = (job("dcgm", names, PORT), job("node", list(zones), NODE_PORT, UNUSED_NODE_SERIES))
    remote = declared.remote_write
    endpoint = RemoteEndpoint(url=remote.url, username=remote.username) if remote else None
    facts = profile_of(spec.cloud).control.store
    store = facts.authorization(spec.where.region) if declared.store and facts else None
    files = {
        f"{FOLDER}/prometheus.yml": _json(prometheus_file(spec.name, jobs, endpoint, store)),
        f"{FOLDER}/rules.yml": _json(rule_file(spec.name, served, _prices(spec, pools))),
        f"{FOLDER}/alertmanager.yml": _json(alertmanager_file(_receivers(spec, declared))),
        f"{FOLDER}/secrets.json": _json({name: one.secret for name, one in _named(declared) if one.secret}),
        f"{FOLDER}/prometheus-secrets.json": _json({REMOTE_WRITE: remote.secret} if remote else {}),
        f"{FOLDER}/environment": f"RETENTION_TIME={declared.retention_days}d\n",
        f"{FOLDER}/repair.json": _json(_repair(spec, pools)),
    }  # fmt: skip
    return tuple(planned_file(path, content, "monitoring") for path, content in sorted(files.items()))


def _repair(spec: ClusterSpec, pools: Sequence[PoolPlan]) -> dict[str, Json]:
    """Return the settings of `node.pyz repair`, which also creates the silences for planned work if the mode is off."""
    return {
        "cluster": spec.name,
        "mode": spec.repair.mode,
        "at_most": spec.repair.at_most,
        "deadline_s": spec.handover.deadline_minutes * 60,
        "pools": [pool.name for pool in pools],
        "zones": {pool.name: sorted({group.zone for group in pool.groups}) for pool in pools},
        "alerts": {one.name: one.repair.value for one in ALERTS if one.repair is not None},
        "orders": naming.repair_orders(spec.name),
        "maintenance": naming.planned_work(spec.name),
        "prometheus": f"http://{PROMETHEUS}",
        "alertmanager": f"http://{ALERTMANAGER}",
    }


def _prices(spec: ClusterSpec, pools: Iterable[PoolPlan]) -> dict[str, float]:
    """Return the highest public price of one node of each pool. Without a price of its own, capacity costs at most the on-demand price."""
    machines, prices = profile_of(spec.cloud).machines, dict[str, float]()
    for pool in pools:
        for group in pool.groups:
            if (machine := machines.get(pool.machine)) is None:
                continue
            listed = machine.price(CapacityKind(group.kind), spec.where.region)
            if listed := listed or machine.price(CapacityKind.ON_DEMAND, spec.where.region):
                prices[pool.name] = max(prices.get(pool.name, 0), listed.usd_per_hour)
    return prices


def _named(declared: Monitoring) -> list[tuple[str, Receiver]]:
    return [(f"{one.kind}-{index}", one) for index, one in enumerate(declared.receivers)]


def _receivers(spec: ClusterSpec, declared: Monitoring) -> list[AlertReceiver]:
    email = profile_of(spec.cloud).control.email
    return [
        AlertReceiver(
            name=name,
            kind=ReceiverKind(one.kind),
            at_least=AlertSeverity(one.at_least),
            channel=one.channel,
            email={email.section: [email.settings(spec.name, spec.where.region, f"${{{topic_name(name)}}}")]}
            if email and one.kind == "email"
            else None,
        )
        for name, one in _named(declared)
    ]


def _json(content: object) -> str:
    """Return JSON, which is also YAML."""
    return json.dumps(content, indent=1) + "\n"
