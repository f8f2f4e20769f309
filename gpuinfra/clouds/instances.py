"""Component instances that all clouds have, for the resource tables. Pure. `cloud` is the part of a component type that identifies the cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpuinfra.base import naming
from gpuinfra.plan.model import FileSystemPlan, Plan
from gpuinfra.plan.planned import PlannedInstance

AUDIT = "audit records must be readable after the cluster is deleted"
EVIDENCE = "the evidence of a node is needed long after the node is deleted"
DATA = "holds data"
CONTROL_ROLE = "control"
"""Part of the names of the identity of the control node."""
STORE = "metrics"
"""Part of the names of the managed store to which the control node writes."""


def top(plan: Plan, **values: str) -> PlannedInstance:
    """Return the instance of the cluster."""
    return PlannedInstance(component=plan.name, parents=(("gpuinfra:index:GpuCluster", plan.name),), values=values)


def inside(cloud: str, above: PlannedInstance, type_: str, part: str, **values: str) -> PlannedInstance:
    """Return the instance of a component nested in another component. It inherits the values of the outer instance, which `values` can override."""
    name = naming.logical(above.component, part)
    parents = (*above.parents, (f"gpuinfra:{cloud}:{type_}", name))
    return PlannedInstance(component=name, parents=parents, values={**above.values, **values})


def foundations(cloud: str, plan: Plan, **values: str) -> Iterator[PlannedInstance]:
    """Yield the foundation if this stack creates it."""
    if "foundation" in plan.layers:
        yield inside(cloud, top(plan, **values), "Foundation", "foundation")


def audit_trails(cloud: str, plan: Plan, **values: str) -> Iterator[PlannedInstance]:
    """Yield the audit trail."""
    if plan.audit.trail:
        for above in foundations(cloud, plan):
            yield inside(cloud, above, "AuditTrail", "audit", **values)


def keys(cloud: str, plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the customer-managed keys for the audit trail and for data."""
    for above in audit_trails(cloud, plan):
        yield inside(cloud, above, "Key", "key", purpose="audit")
    for above in foundations(cloud, plan):
        yield inside(cloud, above, "Key", "data", purpose="data")


def evidence(cloud: str, plan: Plan, **values: str) -> Iterator[PlannedInstance]:
    """Yield the evidence store."""
    for above in foundations(cloud, plan, **values):
        yield inside(cloud, above, "Evidence", "evidence")


def second_regions(cloud: str, plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the second region if the plan has one."""
    if plan.recovery:
        yield inside(cloud, top(plan, region=plan.recovery.region), "RegionClone", "recovery")


def second_keys(cloud: str, plan: Plan, *purposes: str) -> Iterator[PlannedInstance]:
    """Yield the keys of the second region."""
    for above in second_regions(cloud, plan):
        for purpose in purposes:
            yield inside(cloud, above, "Key", purpose, purpose=purpose)


def replicas(cloud: str, plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the replicated buckets, with the region of the replica."""
    for above in second_regions(cloud, plan):
        for replica in plan.recovery.replicas if plan.recovery else ():
            yield replace(above, values={**above.values, "purpose": replica.name})


def replica_buckets(cloud: str, plan: Plan, named: Callable[[str, str], str]) -> Iterator[PlannedInstance]:
    """Yield the replica buckets. `named` maps a bucket's purpose and its replica's region to the purpose in the replica's name."""
    for above in second_regions(cloud, plan):
        for replica in plan.recovery.replicas if plan.recovery else ():
            why = EVIDENCE if replica.name == "evidence" else DATA
            yield bucket(cloud, above, replica.name, named(replica.name, above.values["region"]), why)


def alert_recipients(plan: Plan, alerts: Iterable[PlannedInstance]) -> Iterator[PlannedInstance]:
    """Yield the recipients of each replication alert."""
    for above in alerts:
        for index in range(len(plan.recovery.recipients) if plan.recovery else 0):
            yield replace(above, values={**above.values, "index": index})


def declared_roles(plan: Plan, nodes: Iterable[PlannedInstance]) -> Iterator[PlannedInstance]:
    """Yield the roles that the declaration assigns to the node identity."""
    for instance in nodes:
        for node_role in plan.roles.node_roles:
            yield replace(instance, values={**instance.values, "role": node_role.name})


def node_logs(cloud: str, plan: Plan, **values: str) -> Iterator[PlannedInstance]:
    """Yield the logs of the nodes in the log service of the cloud."""
    if plan.logs and plan.pools:
        yield inside(cloud, top(plan, **values), "NodeLogs", "logs")


def log_recipients(plan: Plan, logs: Iterable[PlannedInstance]) -> Iterator[PlannedInstance]:
    """Yield the recipients of the alert about Xids."""
    for instance in logs:
        for index in range(len(plan.logs.recipients) if plan.logs else 0):
            yield replace(instance, values={**instance.values, "index": index})


def if_replacing(plan: Plan, control: Iterable[PlannedInstance]) -> Iterator[PlannedInstance]:
    """Yield the identity of the control node if it replaces nodes."""
    repair = plan.monitoring.repair if plan.monitoring else None
    yield from control if repair and repair.replaces else ()


def secrets(plan: Plan, control: Iterable[PlannedInstance]) -> Iterator[PlannedInstance]:
    """Yield the secrets that the control node can read, each of them once."""
    for instance in control:
        for name in dict.fromkeys(plan.monitoring.secrets if plan.monitoring else ()):
            yield replace(instance, values={**instance.values, "secret": naming.text_token(name)})


def data_disks(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the disk with the data of the control node."""
    if plan.monitoring:
        yield PlannedInstance(component=naming.logical(plan.name, plan.monitoring.pool))


def stores(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the managed store for metrics."""
    if plan.monitoring and plan.monitoring.store:
        yield PlannedInstance(component=naming.logical(plan.name, STORE))


def watching_stores(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the managed store if it reports that the control node is gone."""
    if plan.monitoring and plan.monitoring.store and plan.monitoring.store.watches:
        yield from stores(plan)


def alerting_stores(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the managed store if it sends alerts to recipients."""
    if plan.monitoring and plan.monitoring.store and plan.monitoring.store.recipients:
        yield from watching_stores(plan)


def budgets(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the monthly budget."""
    if "foundation" in plan.layers and plan.budget:
        yield PlannedInstance(component=naming.logical(plan.name, "foundation", "budget"))


def bucket(cloud: str, above: PlannedInstance, part: str, purpose: str, why: str) -> PlannedInstance:
    """Return a private bucket of a component. `why` is the reason for retaining it."""
    return inside(cloud, above, "PrivateBucket", part, purpose=purpose, why=why)


def buckets(
    cloud: str, plan: Plan, file_systems: Iterable[tuple[FileSystemPlan, PlannedInstance]]
) -> Iterator[PlannedInstance]:
    """Yield the private buckets for audit records, evidence, file system data, and mounts. `destroy` retains each of them; the last argument of
    `bucket` is the reason. AWS adds a bucket for access logs (`aws/instances.py`), and on Azure the buckets are storage accounts.
    """
    for above in audit_trails(cloud, plan):
        if plan.audit.existing_bucket is None:
            yield bucket(cloud, above, "records", "audit", AUDIT)
    for above in evidence(cloud, plan):
        yield bucket(cloud, above, "store", "evidence", EVIDENCE)
    for file_system, above in file_systems:
        if file_system.bucket == "auto":
            yield bucket(cloud, above, "data", file_system.name, DATA)
    for file_system in plan.file_systems:
        if file_system.kind == "object" and file_system.bucket == "auto" and "site" in plan.layers:
            yield bucket(cloud, top(plan), file_system.name, file_system.name, DATA)
