"""Builds a cluster on any cloud in this order: foundation, site, cluster, handover.

Each cloud implements `ClusterBuilder` in `components/cluster.py`. The order, the references to other stacks, and the outputs are the same on all clouds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import pulumi

from gpuinfra.base import naming
from gpuinfra.clouds.existing import ExistingBase, Layer, UsedResources, joined, outputs, references
from gpuinfra.clouds.homes import FileSystems
from gpuinfra.clouds.node_pool import BaseNodePool
from gpuinfra.clouds.nodes_ready import BaseNodesReady, BaseNodesReadyArgs
from gpuinfra.clouds.scope import BaseScope
from gpuinfra.plan.model import FileSystemPlan, Plan, PoolPlan

SubnetIds = pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]]
"""Subnet IDs, keyed by the subnet's name in the plan."""


@dataclass(frozen=True, kw_only=True)
class FoundationOutputs:
    """References from the foundation to the layers above it. Clouds add their own fields. Each field is a stack output."""

    evidence_bucket: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class SiteOutputs:
    """References from the site to the cluster. Clouds add their own fields. Each field is a stack output."""

    subnet_ids: SubnetIds
    file_systems: FileSystems = ()


@dataclass(frozen=True, kw_only=True)
class Pools:
    """The node pools of a cluster."""

    pools: Sequence[BaseNodePool[Any]]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Outputs of the cluster, in addition to its groups and the handover."""


A = TypeVar("A")
C = TypeVar("C")
F = TypeVar("F", bound=FoundationOutputs)
S = TypeVar("S", bound=SiteOutputs)


class ClusterBuilder(ABC, Generic[F, S]):
    """Interface that each cloud implements."""

    existing_type: ClassVar[type[ExistingBase]]
    """The cloud's class for existing resources that a program passes in."""
    scope_type: ClassVar[type[BaseScope]] = BaseScope
    ready_type: ClassVar[type[BaseNodesReady[Any]]]
    ready_args: ClassVar[type[BaseNodesReadyArgs]]
    foundation_refs: ClassVar[type[FoundationOutputs]]
    site_refs: ClassVar[type[SiteOutputs]]

    def __init__(self, parent: pulumi.Resource, plan: Plan, existing: UsedResources, *, moving: bool = False) -> None:
        """`opts` applies to every component that the builder creates. `moving` is true while the stack returns to its first region."""
        self.plan = plan
        self.existing = existing
        self.moving = moving
        self.opts = pulumi.ResourceOptions(parent=parent)
        self.prepare(parent)

    def prepare(self, parent: pulumi.Resource) -> None:
        """Read the account information into `self.scope`. Called before the first layer is created."""
        self.scope: Any = self.scope_type.of(self.plan, pulumi.InvokeOutputOptions(parent=parent))
        self.opts = self.scope.options(self.opts)  # For resources that are direct children of the cluster.

    def create(self, component: Callable[[str, A, pulumi.ResourceOptions], C], part: str, args: A) -> C:
        """Create a component that is a direct child of the cluster. `part` is the rest of its name."""
        return component(naming.logical(self.plan.name, part), args, self.opts)

    @abstractmethod
    def foundation(self) -> F:
        """Create the audit trail, keys, evidence store, and budget."""

    @abstractmethod
    def site(self, foundation: F) -> S:
        """Create the network and file systems."""

    @abstractmethod
    def cluster(self, foundation: F, site: S) -> Pools:
        """Create the node identity and the pools."""

    def of_pool(self, pool: PoolPlan, role: C, control: C | None, site: S) -> tuple[C, S]:
        """Return the identity of a pool, and the site with the file systems that it mounts. The control node has its own identity, and mounts none."""
        if control is not None and self.plan.monitoring and pool.name == self.plan.monitoring.pool:
            return control, replace(site, file_systems=())
        return role, site

    def outputs(self) -> dict[str, Any]:
        """Return the outputs that every stack on this cloud has."""
        return {}

    def passed_network(self, field: str) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]] | None:
        """Return the ID and subnets of a network that the program passes in, or None. `field` is the field of `existing` that contains the ID."""
        id_ = getattr(self.existing, field)
        if id_ is not None:
            if self.existing.subnet_ids is None:
                raise ValueError(f"existing has {field} but no subnet_ids; pass both")
            return id_, self.existing.subnet_ids
        if self.plan.network is None:
            raise ValueError("the plan has a site but no network")
        return None

    def existing_network(self, field: str) -> tuple[pulumi.Input[str], Mapping[str, pulumi.Input[str]]] | None:
        """Return the ID and subnets of an existing network from the program or the declaration, or None if this stack creates the network."""
        network = self.plan.network
        if (passed := self.passed_network(field)) or network is None or network.existing_id is None:
            return passed
        return network.existing_id, {one.name: one.existing_id for one in network.subnets if one.existing_id}


def build(
    builder: type[ClusterBuilder[Any, Any]],
    parent: pulumi.Resource,
    plan: Plan,
    existing: ExistingBase | None,
    *,
    foundation_stack: str | None,
    site_stack: str | None,
    moving: bool = False,
) -> dict[str, Any]:
    """Create all resources of the plan as children of `parent` and return the outputs of the cluster. `moving` is true while the stack returns to its first
    region."""
    given = builder.existing_type() if existing is None else existing
    if not isinstance(given, builder.existing_type):
        raise TypeError(
            f"existing is {type(given).__module__}.{type(given).__name__}, but where.cloud is {plan.cloud}; "
            f"pass gpuinfra.clouds.{plan.cloud}.Existing"
        )
    below = Layer(name="foundation", stack=foundation_stack, refs=builder.foundation_refs)
    around = Layer(name="site", stack=site_stack, refs=builder.site_refs)
    references_given = joined(given, (below, around), pulumi.ResourceOptions(parent=parent))
    used = UsedResources(references_given)
    cloud = builder(parent, plan, used, moving=moving)
    result = cloud.outputs()
    if "foundation" in plan.layers:
        foundation = cloud.foundation()
        result |= outputs(foundation)
    else:
        foundation = references(below, references_given)
        used.add(below)
    if "site" in plan.layers:
        site = cloud.site(foundation)
        result |= outputs(site)
    elif "cluster" in plan.layers:
        site = references(around, references_given)
        used.add(around)
    else:
        used.check(given)
        return result
    if "cluster" in plan.layers and plan.pools:
        result |= _nodes(cloud, foundation, site)
    used.check(given)
    return result


def _nodes(cloud: ClusterBuilder[Any, Any], foundation: FoundationOutputs, site: SiteOutputs) -> dict[str, Any]:
    """Create the pools and wait for their nodes."""
    created = cloud.cluster(foundation, site)
    groups = {group.plan.name: group.group for pool in created.pools for group in pool.groups}
    ready = cloud.ready_type(
        naming.logical(cloud.plan.name, "ready"),
        cloud.ready_args(scope=cloud.scope, plan=cloud.plan.handover, pools=created.pools),
        pulumi.ResourceOptions(parent=cloud.opts.parent),
    )
    return {"groups": groups, **created.outputs, **ready.outputs}


def pool_args(pool: PoolPlan, foundation: FoundationOutputs, site: SiteOutputs) -> dict[str, Any]:
    """Return the pool arguments that are the same on all clouds."""
    return {
        "plan": pool,
        "bucket": _bundle_bucket(foundation, site),
        "file_systems": site.file_systems,
    }


def _bundle_bucket(foundation: FoundationOutputs, site: SiteOutputs) -> pulumi.Input[str]:
    """Return the bucket for bundles. If the site replicates the bucket, the value resolves after the replication is set up, because clouds replicate
    only objects that are written later. A site in a different stack is already set up."""
    recovery = getattr(site, "recovery", None)
    replicas = recovery.get("buckets") if isinstance(recovery, dict) else None
    if not isinstance(replicas, dict) or "evidence" not in replicas:
        return foundation.evidence_bucket
    return pulumi.Output.all(foundation.evidence_bucket, replicas["evidence"]).apply(lambda found: str(found[0]))


def site_subnet(site: SiteOutputs, name: str, pool: PoolPlan) -> pulumi.Input[str]:
    """Return the ID of a subnet in the site. A different stack may have created the site for other machine types."""

    def found(subnets: Mapping[str, Any]) -> Any:
        if name not in subnets:
            raise ValueError(
                f"the site has no subnet {name}, which pool {pool.name} ({pool.machine}) needs; it has {', '.join(sorted(subnets))}; "
                f"add network.machines: [{pool.machine}] to the site's declaration and run `pulumi up` on the site stack first"
            )
        return subnets[name]

    if isinstance(site.subnet_ids, pulumi.Output):
        return site.subnet_ids.apply(found)
    # With a plain mapping, the pool depends only on its own subnet, not on all subnets.
    return found(site.subnet_ids)


def site_bucket(site: SiteOutputs, file_system: FileSystemPlan, key: str = "mount_name") -> pulumi.Input[str]:
    """Return a mounted bucket as declared, or the value of `key` in the entry of the bucket that the site created.
    A different stack may have created the site."""
    if file_system.bucket != "auto":
        return file_system.bucket or ""

    def found(buckets: Sequence[Mapping[str, Any]]) -> Any:
        for entry in buckets:
            if (entry["kind"], entry["mount"]) == ("object", file_system.mount):
                return entry[key]
        raise ValueError(
            f"the site created no bucket for {file_system.mount}; add the entry to `storage` in the site's declaration and run "
            "`pulumi up` on the site stack first"
        )

    if isinstance(site.file_systems, pulumi.Output):
        return site.file_systems.apply(found)
    return found(site.file_systems)
