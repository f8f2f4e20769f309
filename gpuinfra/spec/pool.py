"""Pools: nodes of one machine type, their capacity, and their image."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from gpuinfra.spec.base import Gib, Line, Name, Percent, SpecModel, Unit, Vcpus, defaults
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.files import Variables
from gpuinfra.spec.formats import text
from gpuinfra.spec.generic import On, OnTarget
from gpuinfra.spec.image import CustomImage, Image, Os


def _as_list(value: object) -> object:
    return [value] if isinstance(value, (dict, SpecModel)) else value


MigProfile = Annotated[
    str, text(r"^[1-7]g\.[1-9][0-9]{0,2}gb$", "a MIG profile in the format that nvidia-smi prints, such as 3g.40gb")
]


HoursText = Annotated[str, text(r"^[1-9][0-9]{0,3}h$", "a number of hours, such as 24h")]


class DiskSpec(SpecModel):
    """The root disk of a node."""

    size_gib: Gib | None = Field(default=None, ge=8, le=16384, examples=[300])
    """Size of the root disk. If omitted, it is 200 GiB for GPU nodes and 50 GiB for other nodes."""
    iops: Annotated[StrictInt, Unit("operations per second")] | None = Field(
        default=None, ge=3000, le=80000, examples=[4000]
    )
    """Provisioned I/O operations per second. If omitted, the default of the volume type is used."""
    throughput_mib_s: Annotated[StrictInt, Unit("MiB/s")] | None = Field(default=None, ge=125, le=2000, examples=[1000])
    """Provisioned throughput of the root disk. If omitted, it is 500 MiB/s for GPU nodes, so that the disk does not slow down the installation."""


class Candidate(OnTarget[On], SpecModel):
    """An alternative to use if no capacity is available for a pool. The entire pool moves to the alternative."""

    zone: Line | None = Field(default=None, examples=["use1-az6"])
    """Zone to use instead of the pool's zone. If omitted, the pool's zone is used."""
    machine: Line | None = Field(default=None, examples=["p5.48xlarge"])
    """Machine type to use instead of the pool's machine type. If omitted, the pool's machine type is used."""
    capacity: Annotated[tuple[Capacity, ...], BeforeValidator(_as_list)] | None = None
    """Capacity that replaces the pool's capacity. Required if the pool has reserved entries, because a reservation cannot move."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            zone: str | None = None,
            machine: str | None = None,
            capacity: OnTarget[On] | Sequence[OnTarget[On]] | None = None,
        ) -> None: ...


class Window(SpecModel):
    """How nodes are replaced when their template changes."""

    canary: Annotated[StrictInt, Unit("nodes")] = Field(default=1, ge=0, le=100, examples=[1])
    """Number of nodes that are replaced first. They must be verified before the other nodes are replaced."""
    at_once_percent: Percent = Field(default=20, ge=1, le=100, examples=[25])
    """Maximum percentage of the pool that can be unavailable at the same time."""


class Pool(OnTarget[On], SpecModel):
    """Nodes of one machine type."""

    name: Name = Field(examples=["gpu"])
    """Name of the pool. It is part of the names of the pool's resources and nodes."""
    machine: Line = Field(examples=["p4d.24xlarge", "Standard_ND96amsr_A100_v4", "a3-megagpu-8g"])
    """The provider's name for the machine type. `gpuinfra catalog` lists machine types."""
    capacity: Annotated[tuple[Capacity, ...], BeforeValidator(_as_list)] = Field(min_length=1, max_length=20)
    """Capacity of the pool: one entry, or a list of entries. Each entry creates one group of nodes."""
    fallback: tuple[Candidate, ...] = Field(default=(), max_length=20)
    """Alternatives if no capacity is available for the pool, in order of preference.
    `gpuinfra up` tries them and updates the stack file with the alternative that has capacity. `pulumi up` ignores them."""
    zone: Line | None = Field(default=None, examples=["use1-az4"])
    """Zone of this pool. If omitted, the zone in `where` is used."""
    image: Image | None = None
    """Image of this pool's nodes. `default` selects the newest release of the cloud's GPU image.
    A date such as `2026-10-06` selects the release with that date.
    `plain` selects Ubuntu without GPU software, which the bootstrap steps then install. A mapping selects an image by its ID.
    If omitted, `software.image` is used."""
    os: Os | None = None
    """Operating system of this pool's nodes. If omitted, `software.os` is used.
    For an image that is selected by ID, set the `os` field of the image instead."""
    environment: Variables = Field(default_factory=dict, examples=[{"NCCL_DEBUG": "WARN"}])
    """Environment variables of login shells and jobs on this pool's nodes, in addition to `software.environment`.
    A variable with the same name replaces the one in `software.environment`."""
    disk: DiskSpec = defaults(DiskSpec)
    """Root disk of each node."""
    containers_reach_metadata: StrictBool = False
    """Whether containers on a bridge network can reach the metadata service and use the node's role.
    If false, access is blocked by the metadata hop limit (1 instead of 2) on AWS, and by a packet filter on Azure and Google Cloud.
    Containers on the host network always have access."""
    fabric: Literal["auto", "required", "none"] = "auto"
    """Use of the machine's fabric network: `auto` uses it if the machine has one, `required` rejects machines without one, `none` does not use it."""
    mig: tuple[MigProfile, ...] = Field(default=(), max_length=7, examples=[["3g.40gb", "3g.40gb"]])
    """MIG instances to create on each GPU, by profile. If omitted, GPUs are not partitioned.
    A partitioned GPU has no NVLink, which slows down jobs that use several GPUs."""
    idle_stop: HoursText | None = Field(default=None, examples=["24h"])
    """Time for which all GPUs of the pool must be idle before `gpuinfra calendar` reports that its nodes can be removed: 12h to 168h.
    The nodes then record the energy that their GPUs use. gpuinfra removes no node by itself. If omitted, the use of the GPUs is not recorded."""
    renew: Window = defaults(Window)
    """How this pool's nodes are replaced when their template changes."""
    quota_vcpus: Vcpus | None = Field(default=None, ge=0, examples=[1000])
    """Your account's vCPU quota for this machine family. If set, a pool that exceeds the quota is an error. If omitted, the quota is not checked."""
    tags: dict[Line, Line] = Field(default_factory=dict, max_length=30, examples=[{"role": "training"}])
    """Tags for this pool's nodes, in addition to the cluster's tags."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            machine: str,
            capacity: OnTarget[On] | Sequence[OnTarget[On]],
            fallback: Sequence[Candidate[On]] = (),
            zone: str | None = None,
            image: str | CustomImage | None = None,
            os: Os | None = None,
            environment: Mapping[str, str] = ...,
            disk: DiskSpec = ...,
            containers_reach_metadata: bool = False,
            fabric: Literal["auto", "required", "none"] = "auto",
            mig: Sequence[str] = (),
            idle_stop: str | None = None,
            renew: Window = ...,
            quota_vcpus: int | None = None,
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @property
    def nodes(self) -> int:
        """Number of nodes in all capacity entries."""
        return sum(entry.count for entry in self.capacity)

    def moved(self, candidate: Candidate[On]) -> "Pool[On]":
        """Return the pool with the zone, machine type and capacity of an alternative."""
        given = {"zone": candidate.zone, "machine": candidate.machine, "capacity": candidate.capacity}
        return self.model_copy(update={name: value for name, value in given.items() if value is not None})
