"""The declaration of a cluster: settings that all clouds share, and one target cloud.

Optional fields have defaults, which `gpuinfra plan` shows.
Fields contain plain values. Outputs of other resources, such as a network or a key, are passed to the component as arguments.
They are not part of the declaration.
`load.py` reads YAML, and `gpuinfra.rules` checks a declaration.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gpuinfra.spec.base import Hours, Line, Name, SpecModel, UtcTime, defaults
from gpuinfra.spec.generic import AtPlace, Place
from gpuinfra.spec.logs import Logs
from gpuinfra.spec.machines import MachineRecord
from gpuinfra.spec.monitoring import Monitoring
from gpuinfra.spec.policy import Access, Audit, BudgetSpec, Handover, LayersUsed, NetworkSpec, Software
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.recovery import Recovery
from gpuinfra.spec.repair import Repair
from gpuinfra.spec.storage import Home, Lustre, ObjectMount, Storage
from gpuinfra.spec.target import Target
from gpuinfra.spec.workload import Workload

LAYERS = ("foundation", "site", "cluster")


class ClusterSpec(AtPlace[Place], SpecModel):
    """A GPU cluster: the pools, storage, and settings that `up` creates in one region of one cloud."""

    name: Name = Field(examples=["train"])
    """Name of the cluster. It is part of the name of every resource."""
    where: Target
    """Cloud, region, and zone in which the cluster runs."""
    pools: tuple[Pool, ...] = Field(default=(), max_length=50)
    """Pools of nodes, each with one machine type. A stack without the cluster layer has no pools."""
    storage: tuple[Storage, ...] = Field(
        default=(), max_length=20, examples=[[{"kind": "lustre", "capacity_gib": 4800}]]
    )
    """File systems that all nodes mount, such as Lustre."""
    network: NetworkSpec = defaults(NetworkSpec)
    """Addresses, outbound connections, and flow logs of the network."""
    software: Software = defaults(Software)
    """Image, driver, CUDA, and framework versions."""
    audit: Audit = defaults(Audit)
    """Audit trail settings, including the locked bucket."""
    budget: BudgetSpec = defaults(BudgetSpec)
    """Limit and recipients of the budget alert."""
    access: Access = defaults(Access)
    """Users and networks that can access nodes and evidence."""
    handover: Handover = defaults(Handover)
    """Number of nodes that `up` waits for, and the deadline."""
    recovery: Recovery | None = None
    """Second region and recovery targets. If omitted, nothing is replicated to a different region."""
    monitoring: Monitoring | None = None
    """The control node, which collects metrics and sends alerts. If omitted, the stack has no control node."""
    repair: Repair = defaults(Repair)
    """What the control node does with a node that fails a check after the handover."""
    logs: Logs | None = None
    """The logs of the nodes in the log service of the cloud. If omitted, logs are only on the nodes."""
    workload: Workload | None = None
    """The job that the cluster runs. `gpuinfra plan` then shows its tokens per day, energy and price. Nothing on the nodes depends on it."""
    machines: tuple[MachineRecord, ...] = Field(default=(), max_length=20)
    """Machine types that are not in the catalog."""
    layers: tuple[Literal["foundation", "site", "cluster"], ...] | None = Field(
        default=None, min_length=1, max_length=3, examples=[["foundation", "site"]]
    )
    """Layers that this stack creates. If omitted, the stack creates every layer that is not in `use`.
    Without pools, it creates only the foundation and the site."""
    use: LayersUsed = defaults(LayersUsed)
    """Layers that other stacks create."""
    duration_hours: Hours | None = Field(default=None, ge=1, le=87_600, examples=[720])
    """Planned lifetime of the cluster. It is used to calculate the total price. If omitted, only prices per hour and per month are shown."""
    expires_at: UtcTime | None = Field(default=None, examples=["2026-12-31T18:00:00Z"])
    """Time in UTC at which the nodes of the cluster are removed. On AWS, scheduled actions terminate them.
    On other clouds, `gpuinfra up` deletes them. Networks and file systems remain until you run `destroy`. If omitted, the cluster has no end."""
    tags: dict[Line, Line] = Field(default_factory=dict, max_length=30, examples=[{"team": "research"}])
    """Tags for every resource that supports tags."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            where: Place,
            pools: Sequence[Pool[Place]] = (),
            storage: Sequence[Lustre | Home | ObjectMount] = (),
            network: NetworkSpec = ...,
            software: Software = ...,
            audit: Audit = ...,
            budget: BudgetSpec = ...,
            access: Access = ...,
            handover: Handover = ...,
            recovery: Recovery | None = None,
            monitoring: Monitoring | None = None,
            repair: Repair = ...,
            logs: Logs | None = None,
            workload: Workload | None = None,
            machines: Sequence[MachineRecord] = (),
            layers: Sequence[Literal["foundation", "site", "cluster"]] | None = None,
            use: LayersUsed = ...,
            duration_hours: int | None = None,
            expires_at: str | None = None,
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @property
    def cloud(self) -> str:
        """Cloud of the cluster: `aws`, `azure`, or `gcp`."""
        return self.where.cloud

    @property
    def nodes(self) -> int:
        """Number of nodes in all pools."""
        return sum(entry.count for pool in self.pools for entry in pool.capacity)

    @property
    def made_layers(self) -> tuple[str, ...]:
        """Layers that this stack creates, in the order foundation, site, cluster."""
        if self.layers is not None:
            return tuple(layer for layer in LAYERS if layer in self.layers)
        used = {layer for layer in ("foundation", "site") if getattr(self.use, layer)}
        if not self.pools:
            used.add("cluster")
        return tuple(layer for layer in LAYERS if layer not in used)


__all__ = ["LAYERS", "ClusterSpec"]
