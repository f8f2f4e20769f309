"""The resource table of a cloud, with one row per kind of resource, and the resources that a plan creates. Pure.

A row contains all facts about a kind of resource: type, logical name, behavior on `destroy`, price, permissions,
and how `adopt` finds it. Components read the logical name and lifetime from the row. The resource count,
`gpuinfra permissions`, `gpuinfra adopt`, and the tests read the same row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpuinfra.base import naming
from gpuinfra.plan.model import Kept, Plan
from gpuinfra.plan.model import Lifetime as Lifetime

Parents = tuple[tuple[str, str], ...]
"""Types and logical names of components, outermost first."""

K = TypeVar("K")
"""The key that a cloud's `adopt` module uses to look up a resource."""


@dataclass(frozen=True)
class Actions:
    """Permissions by operation, separated by spaces. `action?input` applies if the input is set and, for updates, if it changes."""

    create: str
    read: str
    update: str = ""
    delete: str = ""

    def of(self, operation: str) -> tuple[str, ...]:
        """Return the permissions for an operation."""
        return tuple(getattr(self, operation).split())


@dataclass(frozen=True, kw_only=True)
class DestroyRule:
    """Whether `destroy` deletes or retains a resource."""

    retained: str | None
    """Reason for retaining the resource, or None if it is deleted. A pattern that is filled in with the instance's values."""
    with_data: bool = False
    """True if the resource is retained only when its instance contains retained data."""


REMOVED = DestroyRule(retained=None)


def retained(reason: str, *, with_data: bool = False) -> DestroyRule:
    """Return a lifetime that retains the resource, always or only if it contains retained data."""
    return DestroyRule(retained=reason, with_data=with_data)


@dataclass(frozen=True, kw_only=True)
class PriceRule:
    """Whether a resource is included in the price of a cluster."""

    item: str | None
    """Price item that covers the resource: `node`, `disk_gib_month`, `lustre_gib_month`, `home_gib_month`, `home_mb_s_month`, `nat_hour`,
    `nat_vm_hour`, `address_hour`, `endpoint_hour`, `replication_gb`, `snapshot_gb_month`, `key_month`, `alarm_month`, `alert_month`,
    `bastion_hour`, `dns_zone_month`, `schedule_month`, `metric_samples_10m`, `log_gb`."""
    each: str = ""
    """The resource's name in a price line, if each resource is billed as one unit of the item: `encryption key`."""
    reason: str = ""
    """Reason why the resource is not included."""
    rate: str = ""
    """Price item of the usage for which the resource is billed: `log_gb`, `data_event_100k`, `object_gb_month`, `home_gb`, `metric_gb_month`,
    `metric_query_1b`.
    A plan lists its price as not included."""


FREE = PriceRule(item=None, reason="free of charge")
BY_REQUEST = PriceRule(item=None, reason="billed by request, which a plan cannot predict")


def by_usage(rate: str) -> PriceRule:
    """Exclude a resource that is billed by usage, and list the price of that usage."""
    return PriceRule(item=None, reason="billed by usage, which a plan cannot predict", rate=rate)


LOGS = by_usage("log_gb")
OBJECTS = by_usage("object_gb_month")


def priced(item: str, rate: str = "") -> PriceRule:
    """Include the resource in a price item. `rate` is the price item of usage that is billed in addition."""
    return PriceRule(item=item, rate=rate)


NODE_LOGS = priced("log_gb")
"""The price of a plan assumes how much the nodes write."""


def priced_each(item: str, what: str) -> PriceRule:
    """Include the resource as one unit of a price item. The suffix of the item is its unit, `_hour` or `_month`."""
    return PriceRule(item=item, each=what)


@dataclass(frozen=True, kw_only=True)
class PlannedInstance:
    """A resource that a row creates in a plan, before its name is formatted."""

    component: str
    """Logical name of the component or of the group of resources."""
    parents: Parents = ()
    """Components that contain the resource, outermost first."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values for the patterns of the row: `subnet`, `index`, `purpose`."""
    data: bool = False
    """True if the plan retains data in the resource."""


@dataclass(frozen=True)
class ResourceKind(Generic[K]):
    """One row of the table: a kind of resource that a component creates."""

    type: str
    """Pulumi type."""
    name: str
    """Pattern of the logical name: `{component}-{subnet}-gateway`."""
    each: Callable[[Plan], Iterable[PlannedInstance]]
    """Function that returns the instances in a plan."""
    lifetime: DestroyRule
    price: PriceRule
    actions: Actions
    lookup: Callable[[PlannedInstance], K] | None = None
    """Function that returns the `adopt` key of a retained resource. None if the resource can be created again instead."""

    def logical(self, component: str, **values: str | int) -> str:
        """Return the logical name of a resource."""
        return self.name.format(component=component, **values)

    def retains(self, *, data: bool | None = None) -> bool:
        """Return whether `destroy` retains the resource. `data` is required if the lifetime depends on data, and not allowed otherwise."""
        if self.lifetime.with_data is (data is None):
            expected = "requires data=" if self.lifetime.with_data else "does not depend on data"
            raise ValueError(f"the lifetime of {self.type} {self.name} {expected}")
        return self.lifetime.retained is not None and data is not False

    def planned(self, instance: PlannedInstance) -> PlannedResource[K]:
        """Return the resource of an instance."""
        kept = self.retains(data=instance.data if self.lifetime.with_data else None)
        reason = (self.lifetime.retained or "").format(**instance.values) if kept else None
        return PlannedResource(
            type=self.type,
            name=self.logical(instance.component, **instance.values),
            retained=reason,
            parents=instance.parents,
            lookup=self.lookup(instance) if self.lookup and kept else None,
            kind=self,
            region=instance.values.get("region"),
        )


@dataclass(frozen=True, kw_only=True)
class PlannedResource(Generic[K]):
    """A resource that a plan creates."""

    type: str
    name: str
    """Logical name."""
    retained: str | None = None
    """Reason why `destroy` retains the resource, or None if it is deleted."""
    parents: Parents = ()
    """Components that contain a retained resource, outermost first. `adopt` imports the resource into the same components."""
    lookup: K | None = None
    """Key that `adopt` uses to find the resource."""
    kind: ResourceKind[K] | None = None
    """Row of the resource."""
    region: str | None = None
    """Region of a resource that is in a second region, or None for the region of the plan."""


def rows(module: Mapping[str, Any]) -> tuple[ResourceKind[Any], ...]:
    """Return the rows that a module defines, in order of definition."""
    return tuple(value for value in module.values() if isinstance(value, ResourceKind))


def planned(table: Iterable[ResourceKind[K]], plan: Plan) -> Iterator[PlannedResource[K]]:
    """Yield the resources that a plan creates."""
    for kind in table:
        for instance in kind.each(plan):
            yield kind.planned(instance)


def retained_subnets(plan: Plan) -> frozenset[str]:
    """Return the names of the subnets in the plan that contain the servers of retained file systems. Clouds reject the deletion of a network that is in use."""
    created = "site" in plan.layers
    return frozenset(
        one.subnet
        for one in plan.file_systems
        if created and (one.kind == "lustre" or one.holds_subnet) and one.lifetime is Lifetime.KEPT
    )


def pools(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the node pools."""
    for pool in plan.pools if "cluster" in plan.layers else ():
        yield PlannedInstance(component=naming.logical(plan.name, pool.name))


def groups(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the node groups."""
    for pool in plan.pools if "cluster" in plan.layers else ():
        for group in pool.groups:
            yield PlannedInstance(component=naming.logical(plan.name, group.name))


def nodes_ready(plan: Plan) -> Iterator[PlannedInstance]:
    """Yield the resource of `NodesReady`, which waits for the nodes of a cluster."""
    if "cluster" in plan.layers and plan.pools:
        yield PlannedInstance(component=naming.logical(plan.name, "ready"))


def is_counted(type: str, custom: object) -> bool:
    """Whether the resource count includes a resource that the engine reports. It excludes components, the stack, providers
    and values that Pulumi stores in the state."""
    return bool(custom) and not type.startswith("pulumi:")


def count(resources: Iterable[PlannedResource[Any]]) -> dict[str, int]:
    """Return the resource count per type, as `is_counted` defines it."""
    return dict(sorted(Counter(one.type for one in resources).items()))


def kept(resources: Iterable[PlannedResource[Any]]) -> tuple[Kept, ...]:
    """Return the resources that `destroy` retains, with reasons, sorted by name."""
    retained_ones = (Kept(what=one.name, type=one.type, why=one.retained) for one in resources if one.retained)
    return tuple(sorted(retained_ones, key=lambda one: (one.what, one.type)))


@dataclass(frozen=True, kw_only=True)
class RetainedResource(Generic[K]):
    """A retained resource that exists in the account."""

    resource: PlannedResource[K]
    id: str
    """ID that the engine uses to import the resource."""


def find_retained(
    resources: Iterable[PlannedResource[K]], find: Callable[[K], str | None]
) -> list[RetainedResource[K]]:
    """Return the retained resources that `find` locates in the account."""
    existing = []
    for resource in resources:
        if resource.lookup is not None and (id_ := find(resource.lookup)):
            existing.append(RetainedResource(resource=resource, id=id_))
    return existing


def bucket_names(resources: Iterable[PlannedResource[Any]], name: Callable[[Any], str]) -> list[str]:
    """Return the names of the buckets that a plan retains. `name` derives the name from the lookup of a bucket."""
    lookups = (one.lookup for one in resources if one.lookup is not None)
    return list(dict.fromkeys(name(one) for one in lookups if one.kind == "bucket"))
