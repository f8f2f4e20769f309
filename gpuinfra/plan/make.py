"""Creates a plan from a declaration.

The cloud's profile makes the decisions that differ between clouds. The order of pools, file systems, and tags in the declaration
does not affect the plan. Adding a pool does not change the names or addresses of other pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime

from gpuinfra.base import naming
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.environment import environment
from gpuinfra.plan.expectation import expectation
from gpuinfra.plan.fabric_test import FabricTestPlan, fabric_test
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.files import of_pool, variables
from gpuinfra.plan.logs import log_files, logs_plan
from gpuinfra.plan.machines import machines_of, zoning_of
from gpuinfra.plan.model import (
    AuditPlan,
    BudgetPlan,
    Decision,
    EvidencePlan,
    ExistingFileSystemPlan,
    FilePlan,
    FileSystemPlan,
    Group,
    HandoverPlan,
    Image,
    IngressPlan,
    NetworkPlan,
    NodeRolePlan,
    Plan,
    PoolPlan,
    RolesPlan,
)
from gpuinfra.plan.monitoring import control_files, control_spec, monitoring_plan, repairs
from gpuinfra.plan.profile import CloudProfile, planned_cloud
from gpuinfra.plan.recovery import recovery_plan, with_replication
from gpuinfra.plan.steps import own_steps, steps
from gpuinfra.plan.storage import created, existing_of, named
from gpuinfra.plan.window import moment, until
from gpuinfra.plan.zones import Zoning
from gpuinfra.software.pool import pool_lock
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.monitoring import CONTROL_POOL
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.storage import ObjectMount


def build_plan(spec: ClusterSpec, today: date, now: datetime | None = None) -> Plan:
    """Return the plan for a declaration that has no findings of level error.

    `now` is the time, which determines whether a capacity window that starts today is open. If it is None, the window is open.
    """
    cloud = planned_cloud(spec.cloud).profile
    all_machines = machines_of(spec)
    machines = {pool.machine: all_machines[pool.machine] for pool in spec.pools}
    zoning = zoning_of(spec)
    decisions: list[Decision] = [Decision(path="where.zone", chosen=zoning.default, why=zoning.why)]
    file_systems = _file_systems(spec, cloud, zoning, decisions)
    existing = _existing(spec, cloud)
    pools = tuple(
        _pool(
            spec,
            cloud,
            pool,
            machines[pool.machine],
            zoning.by_pool[pool.name],
            (*file_systems, *existing),
            now or today,
            decisions,
        )
        for pool in sorted(spec.pools, key=lambda pool: pool.name)
    )
    monitoring = None
    if spec.monitoring and (control := control_spec(spec)):
        pools = (*pools, _control(control, cloud, zoning.default, pools, now or today, decisions))
        monitoring = monitoring_plan(spec, pools[-1])
    layers = spec.made_layers
    plan = Plan(
        name=spec.name,
        cloud=spec.cloud,
        region=spec.where.region,
        zones=tuple(sorted({zoning.default, *zoning.by_pool.values()})),
        layers=layers,
        network=_network(spec, cloud.network(spec, zoning, today)) if "site" in layers else None,
        own_networks=cloud.own_networks(spec, zoning) if "cluster" in layers else (),
        pools=pools,
        file_systems=file_systems if "site" in layers else (),
        audit=AuditPlan(
            trail=spec.audit.trail == "create" and "foundation" in layers,
            existing_bucket=spec.audit.bucket,
            lock_days=spec.audit.lock_days,
            lock_mode=spec.audit.lock_mode.upper(),
            data_events=spec.audit.data_events,
            recorded_buckets=None if spec.audit.all_buckets else _recorded(file_systems if "site" in layers else ()),
            second_region=spec.recovery.region if spec.recovery else None,
            log_retention_days=spec.audit.log_retention_days,
        ),
        budget=None,
        handover=HandoverPlan(
            wait=spec.handover.wait, floor=spec.handover.floor, deadline_s=spec.handover.deadline_minutes * 60
        ),
        evidence=EvidencePlan(operators=spec.access.operators, reached_from=spec.access.evidence_from),
        roles=RolesPlan(
            permissions_boundary=spec.access.permissions_boundary,
            node_policies=spec.access.node_policies,
            node_role_in_site=spec.access.node_role_in_site,
            node_roles=tuple(NodeRolePlan(role=one.role, scope=one.scope) for one in spec.access.node_roles),
        ),
        tags={"gpuinfra:cluster": spec.name, "gpuinfra:managed-by": "gpuinfra", **dict(sorted(spec.tags.items()))},
        mounted_buckets=tuple(one for one in file_systems if one.kind == "object")
        if "cluster" in layers or spec.access.node_role_in_site
        else (),
        existing_file_systems=existing if {"site", "cluster"} & set(layers) else (),
        recovery=recovery_plan(spec, cloud.replication, file_systems, pools) if cloud.replication else None,
        monitoring=monitoring,
        logs=logs_plan(spec),
        registry=spec.software.registry,
        project=getattr(spec.where, "project", None),
        today=today,
    )
    plan = replace(plan, budget=_budget(spec, plan, today), decisions=tuple(decisions))
    return replace(plan, resources=cloud.resources(plan), kept=cloud.kept(plan))


def _network(spec: ClusterSpec, network: NetworkPlan) -> NetworkPlan:
    """Return the network with the declared connections from other networks."""
    declared = spec.access.ingress
    accepted = tuple(IngressPlan(sources=one.sources, ports=one.ports, protocol=one.protocol) for one in declared)
    return replace(network, ingress=accepted)


def _recorded(file_systems: Iterable[FileSystemPlan]) -> tuple[str, ...]:
    """Return the purposes of the buckets whose objects the audit trail records: evidence, and created buckets of file systems."""
    return ("evidence", *(one.name for one in file_systems if one.bucket == "auto"))


def _control(
    spec: ClusterSpec,
    cloud: CloudProfile,
    zone: str,
    pools: tuple[PoolPlan, ...],
    today: date,
    decisions: list[Decision],
) -> PoolPlan:
    """Return the plan of the control node. `spec` is its own declaration."""
    (pool,) = spec.pools
    assert spec.monitoring is not None
    files = control_files(spec, spec.monitoring, pools, zone)
    made = _pool(spec, cloud, pool, machines_of(spec)[pool.machine], zone, (), today, decisions, files)
    # Only one node can attach the disk with the metrics, so a node that starts before its predecessor ends would only wait.
    return replace(made, groups=tuple(replace(group, terminate_first=True) for group in made.groups))


def _pool(
    spec: ClusterSpec,
    cloud: CloudProfile,
    pool: Pool,
    machine: MachineType,
    zone: str,
    file_systems: tuple[FileSystemPlan | ExistingFileSystemPlan, ...],
    today: date,
    decisions: list[Decision],
    own_files: tuple[FilePlan, ...] = (),
) -> PoolPlan:
    """Return the plan of a pool, and add its decisions. `own_files` are the files of the control node."""
    image, image_why = cloud.image(spec, pool, machine)
    groups, placed = cloud.groups(pool, machine, zone, today)
    if spec.expires_at:
        groups = tuple(until(group, today, moment(spec.expires_at)) for group in groups)
    tested = fabric_test(spec, pool, machine)
    facts = _facts(spec, cloud, pool, machine, image, file_systems, tested)
    if own_files:
        facts = replace(facts, files=own_files)
    pool_steps = steps(facts)
    decisions.append(Decision(path=f"{pool.name}.image", chosen=image.ref, why=image_why))
    decisions.append(Decision(path=f"{pool.name}.image.release", chosen=image.on, why=image.contains))
    decisions.extend(placed)
    decisions.extend(_decisions(pool.name, zone, groups, facts, tested))
    return PoolPlan(
        name=pool.name,
        machine=pool.machine,
        count=sum(group.count for group in groups),
        groups=groups,
        nics=cloud.nics(machine, fabric=facts.fabric),
        image=image,
        disk=cloud.disk(pool, machine, image),
        steps=pool_steps,
        expectation=expectation(facts, pool_steps),
        versions=environment(facts),
        files=facts.files,
        metadata_hop_limit=2 if pool.containers_reach_metadata else 1,
        subnet=cloud.subnet(zone),
        ssh_keys=spec.access.ssh_keys,
        canary=pool.renew.canary,
        at_once_percent=pool.renew.at_once_percent,
        tags=dict(sorted(pool.tags.items())),
    )


def _facts(
    spec: ClusterSpec,
    cloud: CloudProfile,
    pool: Pool,
    machine: MachineType,
    image: Image,
    file_systems: tuple[FileSystemPlan | ExistingFileSystemPlan, ...],
    tested: FabricTestPlan,
) -> PoolFacts:
    return PoolFacts(
        cloud=spec.cloud,
        machine=machine,
        software=cloud.software,
        lock=pool_lock(spec, pool, machine, cloud.software, image),
        fabric=machine.fabric is not None and pool.fabric != "none",
        file_systems=file_systems,
        other_homes="site" not in spec.made_layers,
        mig=tuple(sorted(pool.mig, reverse=True)),
        fabric_test=tested.required,
        burn_in=spec.handover.burn_in,
        replacing_xids=cloud.replacing_xids if machine.gpu else (),
        energy=pool.idle_stop is not None,
        checkpoints=(spec.recovery.checkpoints or "") if spec.monitoring and spec.recovery else "",
        orders=naming.repair_orders(spec.name) if repairs(spec) and pool.name != CONTROL_POOL else "",
        repair=spec.repair.mode if repairs(spec) and pool.name == CONTROL_POOL else "",
        log_files=log_files(spec),
        metadata=cloud.metadata_to_guard,
        containers_reach_metadata=pool.containers_reach_metadata,
        users=spec.access.users,
        packages=spec.software.packages,
        files=of_pool(spec, pool),
        variables=variables(spec, pool),
        own_steps=own_steps(spec.software.steps, pool.name),
        mirror_url=spec.software.mirror_url,
    )


def _decisions(
    name: str, zone: str, groups: tuple[Group, ...], facts: PoolFacts, tested: FabricTestPlan
) -> Iterator[Decision]:
    """Yield the decisions about the zone, the software, the users, the test and the files of a pool."""
    if facts.fabric and len(groups) > 1:
        reason = "the fabric does not span zones, so all capacity in the pool is in one zone"
        yield Decision(path=f"{name}.zone", chosen=zone, why=reason)
    for choice in facts.lock.choices:
        yield Decision(path=f"{name}.software.{choice.name}", chosen=choice.version, why=choice.why)
    for user in facts.users:
        chosen = f"{user.uid}, {facts.users_home}/{user.name}{', sudo' if user.sudo else ''}"
        why = f"the declaration lists the user with {counted(len(user.ssh_keys), 'key')}"
        yield Decision(path=f"{name}.users.{user.name}", chosen=chosen, why=why)
    yield Decision(path=f"{name}.fabric_test", chosen=tested.mode, why=tested.why)
    for file in facts.files:
        chosen = f"{file.owner}:{file.group} {file.mode}"
        yield Decision(path=f"{name}.files.{file.path}", chosen=chosen, why=f"from {file.source}")


def _file_systems(
    spec: ClusterSpec, cloud: CloudProfile, zoning: Zoning, decisions: list[Decision]
) -> tuple[FileSystemPlan, ...]:
    """Return the file systems, sorted by mount."""
    plans: list[FileSystemPlan] = []
    for name, entry in created(spec.storage):
        zone = (entry.zone if entry.kind == "lustre" else None) or zoning.default
        plan = with_replication(spec, cloud.file_system(entry, name, zone, spec.where.region))
        plans.append(plan)
        if entry.kind == "lustre":
            capacity = cloud.lustre(entry)
            decisions.append(
                Decision(path=f"{plan.name}.capacity_gib", chosen=str(capacity.billed), why=capacity.reason)
            )
    return tuple(plans)


def _existing(spec: ClusterSpec, cloud: CloudProfile) -> tuple[ExistingFileSystemPlan, ...]:
    """Return the existing file systems, sorted by mount."""
    return tuple(
        cloud.existing_file_system(entry, mount, name, spec.where.region)
        for name, entry in named(spec.storage)
        if not isinstance(entry, ObjectMount) and (mount := existing_of(entry))
    )


def _budget(spec: ClusterSpec, plan: Plan, today: date) -> BudgetPlan | None:
    if "foundation" not in spec.made_layers:
        return None
    if spec.budget.limit_usd_per_month is not None:
        limit, derived = spec.budget.limit_usd_per_month, False
    else:
        limit, derived = planned_cloud(plan.cloud).budget_limit(plan, today), True
    return BudgetPlan(
        limit_usd_per_month=limit,
        recipients=tuple(sorted(spec.budget.recipients)),
        thresholds_percent=tuple(sorted(spec.budget.thresholds_percent)),
        derived=derived,
        currency=spec.budget.currency,
        amount_per_month=round(limit * (spec.budget.units_per_usd or 1), 2),
    )
