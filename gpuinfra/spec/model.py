"""The declaration of one cluster, in neutral words plus one target.

Everything that is not written has a default, which `gpuinfra plan` shows.
Values are plain: what is born elsewhere (a network, a key) is an argument of the component and never passes through here.
Reading YAML is in `load.py`; what is wrong with a declaration is said by `gpuinfra.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gpuinfra.spec.base import Name, Part, Word
from gpuinfra.spec.generic import AtPlace, Place
from gpuinfra.spec.machines import MachineRecord
from gpuinfra.spec.policy import Access, Audit, Budget, Handover, Network, Software, Use
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.storage import Home, Lustre, ObjectMount, Storage
from gpuinfra.spec.target import Target

LAYERS = ("foundation", "site", "cluster")


class ClusterSpec(AtPlace[Place], Part):
    """One GPU cluster."""

    name: Name = Field(examples=["train"])
    """Name of the cluster, part of every resource's name."""
    where: Target
    """Cloud, region and zone."""
    pools: tuple[Pool, ...] = Field(default=(), max_length=50)
    """Pools of nodes. A stack with foundation or site only has none."""
    storage: tuple[Storage, ...] = Field(default=(), max_length=20)
    """File systems that all nodes mount."""
    network: Network = Network()
    """Addresses and the way out."""
    software: Software = Software()
    """Image, driver, CUDA and what will run."""
    audit: Audit = Audit()
    """The audit trail."""
    budget: Budget = Budget()
    """The budget alert."""
    access: Access = Access()
    """Who may reach nodes."""
    handover: Handover = Handover()
    """How long `up` waits for its nodes."""
    machines: tuple[MachineRecord, ...] = Field(default=(), max_length=20)
    """Machine types that the catalogue does not have yet."""
    layers: tuple[Literal["foundation", "site", "cluster"], ...] | None = Field(
        default=None, min_length=1, max_length=3
    )
    """Which layers this stack holds. Left out: all but those that `use` names; without pools, foundation and site."""
    use: Use = Use()
    """Layers that other stacks hold."""
    duration_hours: int | None = Field(default=None, strict=True, ge=1, le=87_600)
    """How long the cluster will live, for the price. Left out: only hour and month are shown."""
    tags: dict[Word, Word] = Field(default_factory=dict, max_length=30)
    """Tags for everything that takes them."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            where: Place,
            pools: Sequence[Pool[Place]] = (),
            storage: Sequence[Lustre | Home | ObjectMount] = (),
            network: Network = ...,
            software: Software = ...,
            audit: Audit = ...,
            budget: Budget = ...,
            access: Access = ...,
            handover: Handover = ...,
            machines: Sequence[MachineRecord] = (),
            layers: Sequence[Literal["foundation", "site", "cluster"]] | None = None,
            use: Use = ...,
            duration_hours: int | None = None,
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @property
    def cloud(self) -> str:
        """Name of the cloud."""
        return self.where.cloud

    @property
    def nodes(self) -> int:
        """Nodes of all pools."""
        return sum(entry.count for pool in self.pools for entry in pool.capacity)

    @property
    def made_layers(self) -> tuple[str, ...]:
        """Layers that this stack makes, in the order foundation, site, cluster."""
        if self.layers is not None:
            return tuple(layer for layer in LAYERS if layer in self.layers)
        used = {layer for layer in ("foundation", "site") if getattr(self.use, layer)}
        if not self.pools:
            used.add("cluster")
        return tuple(layer for layer in LAYERS if layer not in used)


__all__ = ["LAYERS", "ClusterSpec"]
