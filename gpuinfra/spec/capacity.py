"""Kinds of capacity, one class each.

Each cloud's profile lists the kinds that the cloud offers. Rules reject invalid combinations and report the provider's reason.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from gpuinfra.spec.base import Hours, Line, Nodes, NodesOrNone, Number, SpecModel, Unit, UtcTime
from gpuinfra.spec.generic import AnyTarget, Aws, Gcp, OnTarget


class OnDemand(OnTarget[AnyTarget], SpecModel):
    """On-demand nodes, billed at the list price and subject to availability when they start."""

    kind: Literal["on_demand"] = "on_demand"
    """Selects on-demand capacity."""
    count: NodesOrNone = Field(examples=[2])
    """Number of nodes to run with this kind of capacity. 0 creates a group without nodes."""


class Spot(OnTarget[AnyTarget], SpecModel):
    """Spot nodes, which run on spare capacity. The provider can reclaim them with two minutes' notice or less."""

    kind: Literal["spot"] = "spot"
    """Selects spot capacity."""
    count: NodesOrNone = Field(examples=[2])
    """Number of nodes to run with this kind of capacity. 0 creates a group without nodes."""
    strategy: Literal[
        "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"
    ] = "price-capacity-optimized"
    """AWS: allocation strategy for spot nodes. Azure and Google Cloud do not have this setting and ignore the default."""
    max_price_usd: Annotated[Number, Unit("USD per node per hour")] | None = Field(default=None, gt=0, examples=[8.5])
    """Maximum hourly price of a node. If omitted, the maximum is the on-demand price, which causes the fewest interruptions."""


class Reserved(OnTarget[AnyTarget], SpecModel):
    """Nodes in an existing reservation: an AWS capacity reservation or a group of capacity reservations,
    an Azure capacity reservation group, or a Google Cloud reservation."""

    kind: Literal["reserved"] = "reserved"
    """Selects reserved capacity."""
    id: Line | None = Field(default=None, examples=["cr-0123456789abcdef0"])
    """ID or name of the reservation. Set either `id` or, on AWS, `group_arn`."""
    group_arn: Line | None = Field(
        default=None, examples=["arn:aws:resource-groups:us-east-1:123456789012:group/gpu-reservations"]
    )
    """AWS: ARN of a resource group of capacity reservations. Set either `group_arn` or `id`."""
    count: NodesOrNone = Field(examples=[2])
    """Number of nodes to run with this kind of capacity. 0 creates a group without nodes."""
    holds: Nodes | None = Field(default=None, examples=[16])
    """Number of nodes that the reservation covers. If set, a larger `count` is an error. If omitted, the size is not checked."""
    zone: Line | None = Field(default=None, examples=["use1-az4"])
    """Zone of the reservation. If set, it must match the pool's zone. If omitted, the zone is not checked."""
    placement_group: Line | None = Field(default=None, examples=["gpu-cluster-group"])
    """AWS: name of the placement group in which the reservation was created. If omitted, nodes in the reservation use no placement group."""
    overflow: StrictBool = False
    """AWS: whether to start on-demand nodes when the reservation is full."""
    starts_at: UtcTime | None = Field(default=None, examples=["2026-12-01T11:30:00Z"])
    """Start of a future reservation in UTC. If set, the group has no nodes before this time. On AWS, they then start by themselves.
    On other clouds, `gpuinfra up` starts them."""
    ends_at: UtcTime | None = Field(default=None, examples=["2026-12-08T11:30:00Z"])
    """End of the reservation in UTC. If set, the group has no nodes after this time. On AWS, they are then terminated.
    On other clouds, `gpuinfra up` deletes them."""


class Block(OnTarget[Aws], SpecModel):
    """Nodes in an AWS Capacity Block for ML, which you buy upfront for a fixed period."""

    kind: Literal["block"] = "block"
    """Selects an AWS Capacity Block for ML."""
    id: Line = Field(examples=["cr-0123456789abcdef0"])
    """ID of the Capacity Block reservation. gpuinfra never buys Capacity Blocks."""
    count: Nodes = Field(examples=[2])
    """Number of nodes to run with this kind of capacity."""
    starts_at: UtcTime = Field(examples=["2026-12-01T11:30:00Z"])
    """Start of the Capacity Block in UTC. Nodes start at this time."""
    ends_at: UtcTime = Field(examples=["2026-12-08T11:30:00Z"])
    """End of the Capacity Block in UTC. Nodes are terminated 35 minutes before this time, and nodes in an UltraServer 65 minutes before."""


class Flex(OnTarget[Gcp], SpecModel):
    """Flex-start nodes on Google Cloud. The request is queued until capacity is available, and the run time is limited."""

    kind: Literal["flex"] = "flex"
    """Selects flex-start capacity."""
    count: Nodes = Field(examples=[2])
    """Number of nodes to run with this kind of capacity."""
    max_run_hours: Hours = Field(ge=1, le=168, examples=[72])
    """Maximum run time of each node. Google Cloud allows at most seven days."""


Capacity = Annotated[OnDemand | Spot | Reserved | Block | Flex, Field(discriminator="kind")]
