"""The table of a cloud's resources: one row for each kind of resource, and the resources that a plan creates from it. Pure.

A row states everything that is known about a kind: its type, its logical name, what `destroy` does with it, what it costs, which permissions
it needs, and how `adopt` finds it. Components take logical name and lifetime from the row; the resource count, `gpuinfra permissions`,
`gpuinfra adopt` and the tests read the same row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpuinfra import naming
from gpuinfra.plan.model import Kept, Plan
from gpuinfra.plan.model import Lifetime as DataLifetime

Parents = tuple[tuple[str, str], ...]
"""Type and logical name of components, outermost first."""

K = TypeVar("K")
"""The key that a cloud's `adopt` looks a resource up by."""


@dataclass(frozen=True)
class Actions:
    """Permissions by operation, as words. `action?input` is needed if that input is set, and on an update if it changes."""

    create: str
    read: str
    update: str = ""
    delete: str = ""

    def of(self, operation: str) -> tuple[str, ...]:
        """The words of one operation."""
        return tuple(getattr(self, operation).split())


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """What `destroy` does with a resource."""

    retained: str | None
    """Why the resource is retained, None if it is removed. A pattern over the values of the instance."""
    with_data: bool = False
    """True if the resource is retained only where its instance holds data that the plan retains."""


REMOVED = Lifetime(retained=None)


def retained(reason: str, *, with_data: bool = False) -> Lifetime:
    """Left in the account by `destroy`, always or only together with retained data."""
    return Lifetime(retained=reason, with_data=with_data)


@dataclass(frozen=True, kw_only=True)
class Price:
    """Whether the price of a cluster counts a resource."""

    item: str | None
    """The price item that counts it: `node`, `disk_gib_month`, `lustre_gib_month`, `nat_hour`, `nat_vm_hour`, `address_hour`, `endpoint_hour`."""
    reason: str = ""
    """Why the price does not count it."""


FREE = Price(item=None, reason="free of charge")
BY_USAGE = Price(item=None, reason="billed by use, which a plan does not know")


def priced(item: str) -> Price:
    """Counted as a price item."""
    return Price(item=item)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One place in a plan where a row creates one resource."""

    component: str
    """Logical name of the component or of the group of resources."""
    parents: Parents = ()
    """Components around the resource, outermost first."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What fills the patterns of the row: `subnet`, `index`, `purpose`."""
    data: bool = False
    """True if the plan retains data in it."""


@dataclass(frozen=True)
class ResourceKind(Generic[K]):
    """One row: a kind of resource that a component creates."""

    type: str
    """Pulumi type."""
    name: str
    """Pattern of the logical name: `{component}-{subnet}-gateway`."""
    each: Callable[[Plan], Iterable[Instance]]
    """The instances in a plan."""
    lifetime: Lifetime
    price: Price
    actions: Actions
    lookup: Callable[[Instance], K] | None = None
    """How `adopt` finds a retained resource. None where creating the resource again has the same result."""

    def logical(self, component: str, **values: str | int) -> str:
        """The logical name of one resource."""
        return self.name.format(component=component, **values)

    def retains(self, *, data: bool | None = None) -> bool:
        """Whether `destroy` leaves the resource. A row that depends on data requires `data`, and no other row takes it."""
        if self.lifetime.with_data is (data is None):
            expected = "requires data=" if self.lifetime.with_data else "does not depend on data"
            raise ValueError(f"the lifetime of {self.type} {self.name} {expected}")
        return self.lifetime.retained is not None and data is not False

    def planned(self, instance: Instance) -> PlannedResource[K]:
        """The resource of one instance."""
        kept = self.retains(data=instance.data if self.lifetime.with_data else None)
        reason = (self.lifetime.retained or "").format(**instance.values) if kept else None
        return PlannedResource(
            type=self.type,
            name=self.logical(instance.component, **instance.values),
            retained=reason,
            parents=instance.parents,
            lookup=self.lookup(instance) if self.lookup and kept else None,
            kind=self,
        )


@dataclass(frozen=True, kw_only=True)
class PlannedResource(Generic[K]):
    """One resource that a plan creates."""

    type: str
    name: str
    """Logical name."""
    retained: str | None = None
    """Why `destroy` leaves it, None if it is removed."""
    parents: Parents = ()
    """Components around a retained resource, outermost first; `adopt` imports it below the same components."""
    lookup: K | None = None
    """How `adopt` finds it."""
    kind: ResourceKind[K] | None = None
    """Its row."""


def rows(module: Mapping[str, Any]) -> tuple[ResourceKind[Any], ...]:
    """The rows that a module defines, in their order."""
    return tuple(value for value in module.values() if isinstance(value, ResourceKind))


def planned(table: Iterable[ResourceKind[K]], plan: Plan) -> Iterator[PlannedResource[K]]:
    """The resources that a plan creates."""
    for kind in table:
        for instance in kind.each(plan):
            yield kind.planned(instance)


def retained_subnets(plan: Plan) -> frozenset[str]:
    """Subnets that hold retained Lustre file systems, by the names in the plan. A cloud deletes no network that is in use."""
    created = "site" in plan.layers
    return frozenset(
        one.subnet
        for one in plan.file_systems
        if created and one.kind == "lustre" and one.lifetime is DataLifetime.KEPT
    )


def pools(plan: Plan) -> Iterator[Instance]:
    """Pools of nodes."""
    for pool in plan.pools if "cluster" in plan.layers else ():
        yield Instance(component=naming.logical(plan.name, pool.name))


def groups(plan: Plan) -> Iterator[Instance]:
    """Groups of nodes."""
    for pool in plan.pools if "cluster" in plan.layers else ():
        for group in pool.groups:
            yield Instance(component=naming.logical(plan.name, group.name))


def nodes_ready(plan: Plan) -> Iterator[Instance]:
    """`NodesReady` waits for the nodes of a cluster."""
    if "cluster" in plan.layers and plan.pools:
        yield Instance(component=plan.name)


def count(resources: Iterable[PlannedResource[Any]]) -> dict[str, int]:
    """Resources by type."""
    return dict(sorted(Counter(one.type for one in resources).items()))


def kept(resources: Iterable[PlannedResource[Any]]) -> tuple[Kept, ...]:
    """The resources that `destroy` leaves, with the reason, sorted by name."""
    found = (Kept(what=one.name, type=one.type, why=one.retained) for one in resources if one.retained)
    return tuple(sorted(found, key=lambda one: (one.what, one.type)))


@dataclass(frozen=True, kw_only=True)
class Found(Generic[K]):
    """A retained resource that is in the account."""

    resource: PlannedResource[K]
    id: str
    """The id that the engine imports it by."""


def find_retained(resources: Iterable[PlannedResource[K]], find: Callable[[K], str | None]) -> list[Found[K]]:
    """The retained resources that `find` finds in the account."""
    found = []
    for one in resources:
        if one.lookup is not None and (id_ := find(one.lookup)):
            found.append(Found(resource=one, id=id_))
    return found
