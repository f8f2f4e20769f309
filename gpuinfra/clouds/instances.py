"""Component instances that all clouds have, for the resource tables. Pure. `cloud` is the part of a component type that identifies the cloud."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinfra import naming
from gpuinfra.clouds.planned import Instance
from gpuinfra.plan.model import FileSystemPlan, Plan

AUDIT = "audit records must be readable after the cluster is deleted"
EVIDENCE = "the evidence of a node is used long after the node is deleted"
DATA = "holds data"


def top(plan: Plan, **values: str) -> Instance:
    """Return the instance of the cluster."""
    return Instance(component=plan.name, parents=(("gpuinfra:index:GpuCluster", plan.name),), values=values)


def inside(cloud: str, above: Instance, type_: str, part: str, **values: str) -> Instance:
    """Return the instance of a component inside another component, with the values of the outer instance."""
    name = naming.logical(above.component, part)
    parents = (*above.parents, (f"gpuinfra:{cloud}:{type_}", name))
    return Instance(component=name, parents=parents, values={**above.values, **values})


def foundations(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """Yield the foundation if this stack creates it."""
    if "foundation" in plan.layers:
        yield inside(cloud, top(plan, **values), "Foundation", "foundation")


def audit_trails(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """Yield the audit trail."""
    if plan.audit.trail:
        for above in foundations(cloud, plan):
            yield inside(cloud, above, "AuditTrail", "audit", **values)


def keys(cloud: str, plan: Plan) -> Iterator[Instance]:
    """Yield the customer-managed keys for the audit trail and for data."""
    for above in audit_trails(cloud, plan):
        yield inside(cloud, above, "Key", "key", purpose="audit")
    for above in foundations(cloud, plan):
        yield inside(cloud, above, "Key", "data", purpose="data")


def evidence(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """Yield the evidence store."""
    for above in foundations(cloud, plan, **values):
        yield inside(cloud, above, "Evidence", "evidence")


def budgets(plan: Plan) -> Iterator[Instance]:
    """Yield the monthly budget."""
    if "foundation" in plan.layers and plan.budget:
        yield Instance(component=naming.logical(plan.name, "foundation", "budget"))


def bucket(cloud: str, above: Instance, part: str, purpose: str, why: str) -> Instance:
    """Return a private bucket of a component. `why` is the reason for retaining it."""
    return inside(cloud, above, "PrivateBucket", part, purpose=purpose, why=why)


def buckets(cloud: str, plan: Plan, file_systems: Iterable[tuple[FileSystemPlan, Instance]]) -> Iterator[Instance]:
    """Yield the private buckets for audit records, evidence, and file system data. `destroy` retains each of them; the last argument of
    `bucket` is the reason. AWS adds a bucket for access logs (`aws/instances.py`), and on Azure the buckets are storage accounts.
    """
    for above in audit_trails(cloud, plan):
        if plan.audit.existing_bucket is None:
            yield bucket(cloud, above, "records", "audit", AUDIT)
    for above in evidence(cloud, plan):
        yield bucket(cloud, above, "store", "evidence", EVIDENCE)
    for one, above in file_systems:
        if one.bucket == "auto":
            yield bucket(cloud, above, "data", one.name, DATA)
