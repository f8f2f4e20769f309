"""Instances of components that all clouds have, for the tables of resources. Pure. `cloud` is the part of a component's type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinfra import naming
from gpuinfra.clouds.planned import Instance
from gpuinfra.plan.model import FileSystemPlan, Plan

AUDIT = "audit records must be readable after the cluster is gone"
EVIDENCE = "evidence of a node is read long after the node is gone"
DATA = "holds data"


def top(plan: Plan, **values: str) -> Instance:
    """The cluster."""
    return Instance(component=plan.name, parents=(("gpuinfra:index:GpuCluster", plan.name),), values=values)


def inside(cloud: str, above: Instance, type_: str, part: str, **values: str) -> Instance:
    """A component below another one; it inherits the values."""
    name = naming.logical(above.component, part)
    parents = (*above.parents, (f"gpuinfra:{cloud}:{type_}", name))
    return Instance(component=name, parents=parents, values={**above.values, **values})


def foundations(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """The foundation, if this stack creates it."""
    if "foundation" in plan.layers:
        yield inside(cloud, top(plan, **values), "Foundation", "foundation")


def audit_trails(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """The audit trail."""
    if plan.audit.trail:
        for above in foundations(cloud, plan):
            yield inside(cloud, above, "AuditTrail", "audit", **values)


def keys(cloud: str, plan: Plan) -> Iterator[Instance]:
    """Customer keys of the audit trail and of data."""
    for above in audit_trails(cloud, plan):
        yield inside(cloud, above, "Key", "key", purpose="audit")
    for above in foundations(cloud, plan):
        yield inside(cloud, above, "Key", "data", purpose="data")


def evidence(cloud: str, plan: Plan, **values: str) -> Iterator[Instance]:
    """The evidence store."""
    for above in foundations(cloud, plan, **values):
        yield inside(cloud, above, "Evidence", "evidence")


def budgets(plan: Plan) -> Iterator[Instance]:
    """The monthly budget."""
    if "foundation" in plan.layers and plan.budget:
        yield Instance(component=naming.logical(plan.name, "foundation", "budget"))


def bucket(cloud: str, above: Instance, part: str, purpose: str, why: str) -> Instance:
    """A private bucket of a component, retained because of `why`."""
    return inside(cloud, above, "PrivateBucket", part, purpose=purpose, why=why)


def buckets(cloud: str, plan: Plan, file_systems: Iterable[tuple[FileSystemPlan, Instance]]) -> Iterator[Instance]:
    """Private buckets: audit records, evidence, and data of file systems."""
    for above in audit_trails(cloud, plan):
        if plan.audit.existing_bucket is None:
            yield bucket(cloud, above, "records", "audit", AUDIT)
    for above in evidence(cloud, plan):
        yield bucket(cloud, above, "store", "evidence", EVIDENCE)
    for one, above in file_systems:
        if one.bucket == "auto":
            yield bucket(cloud, above, "data", one.name, DATA)
