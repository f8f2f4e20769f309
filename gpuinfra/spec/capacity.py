"""How nodes are bought: a tagged union, one class for each kind of capacity.

Which kinds a cloud has is in its profile; what cannot be combined is refused by rules with the provider's own reason.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.spec.base import Count, Moment, Part, Real, Whole, Word, YesNo
from gpuinfra.spec.generic import AnyTarget, Aws, Gcp, OnTarget


class OnDemand(OnTarget[AnyTarget], Part):
    """Nodes at the list price, if the provider has them at that moment."""

    kind: Literal["on_demand"] = "on_demand"
    """The kind of capacity."""
    count: Count
    """Nodes."""


class Spot(OnTarget[AnyTarget], Part):
    """Nodes from spare capacity; the provider may take them back with two minutes' notice or less."""

    kind: Literal["spot"] = "spot"
    """The kind of capacity."""
    count: Count
    """Nodes."""
    strategy: Literal[
        "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"
    ] = "price-capacity-optimized"
    """AWS's allocation strategy; other clouds have none and ignore the default."""
    max_price_usd: Real | None = Field(default=None, gt=0)
    """Highest price for one node and hour in USD. Left out: the on-demand price, which interrupts least."""


class Reserved(OnTarget[AnyTarget], Part):
    """Nodes from capacity that is already reserved: an AWS capacity reservation or a group of them, a Google reservation."""

    kind: Literal["reserved"] = "reserved"
    """The kind of capacity."""
    id: Word | None = Field(default=None, examples=["cr-0123456789abcdef0"])
    """Id or name of the reservation."""
    group_arn: Word | None = None
    """AWS: ARN of a resource group of reservations, in place of `id`."""
    count: Count
    """Nodes."""
    holds: Count | None = None
    """Nodes that the reservation holds, when known; a larger `count` is then refused."""
    zone: Word | None = None
    """Zone of the reservation, when known; it has to be the pool's."""
    placement_group: Word | None = None
    """AWS: name of the placement group that the reservation was made in. Left out: nodes on a reservation get no placement group."""
    overflow: YesNo = False
    """AWS: also start nodes at the on-demand price where the reservation is full."""


class Block(OnTarget[Aws], Part):
    """Nodes of an AWS Capacity Block for ML: bought upfront, from a start to an end."""

    kind: Literal["block"] = "block"
    """The kind of capacity."""
    id: Word = Field(examples=["cr-0123456789abcdef0"])
    """Id of the block's reservation; gpuinfra never buys one."""
    count: Count
    """Nodes."""
    starts_at: Moment
    """Start of the block, UTC: `2026-12-01T11:30:00Z`."""
    ends_at: Moment
    """End of the block, UTC; nodes are gone 35 minutes before it."""


class Flex(OnTarget[Gcp], Part):
    """Nodes from Google's flex-start: queued until capacity is there, then for a bounded time."""

    kind: Literal["flex"] = "flex"
    """The kind of capacity."""
    count: Count
    """Nodes."""
    max_run_hours: Whole = Field(ge=1, le=168)
    """Longest run in hours, at most seven days."""


Capacity = Annotated[OnDemand | Spot | Reserved | Block | Flex, Field(discriminator="kind")]
