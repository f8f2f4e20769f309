"""Pools: nodes of one machine type, how they are bought, and what they boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from gpuinfra.spec.base import Name, Part, Whole, Word, YesNo
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.generic import On, OnTarget


def _as_list(value: object) -> object:
    return [value] if isinstance(value, (dict, Part)) else value


MigProfile = Annotated[str, StringConstraints(pattern=r"^[1-7]g\.[1-9][0-9]{0,2}gb$")]
"""As nvidia-smi writes it: `3g.40gb`."""


class CustomImage(Part):
    """An image of one's own."""

    ref: Word = Field(examples=["ami-0123456789abcdef0"])
    """AMI id on AWS, image or gallery id on Azure, `projects/P/global/images/I` or a family on Google Cloud."""
    os: Literal["ubuntu-22.04", "ubuntu-24.04"] = "ubuntu-22.04"
    """What it runs."""
    arch: Literal["x86_64", "arm64"] = "x86_64"
    """What it was built for."""
    prebuilt: YesNo = True
    """True where it brings driver and fabric: steps then prove what is there and install only what is missing."""
    size_gib: Whole | None = Field(default=None, ge=8, le=2048)
    """Size of its root snapshot in GiB, when known."""


class Disk(Part):
    """The root disk of a node."""

    size_gib: Whole | None = Field(default=None, ge=8, le=16384)
    """Size in GiB. Left out: 200 for GPU nodes, 50 for others."""
    iops: Whole | None = Field(default=None, ge=3000, le=80000)
    """Operations a second. Left out: the volume type's own."""
    throughput_mib_s: Whole | None = Field(default=None, ge=125, le=2000)
    """Throughput in MiB/s. Left out: 500 for GPU nodes, so that installing does not wait for the disk."""


class Candidate(OnTarget[On], Part):
    """A place to try when the one before it has no capacity; the whole pool moves there."""

    zone: Word | None = None
    """Another zone."""
    machine: Word | None = None
    """Another machine type."""
    capacity: Annotated[tuple[Capacity, ...], BeforeValidator(_as_list)] | None = None
    """What takes the place of the pool's capacity. Needed where the pool has reserved entries, because a reservation does not move."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            zone: str | None = None,
            machine: str | None = None,
            capacity: OnTarget[On] | Sequence[OnTarget[On]] | None = None,
        ) -> None: ...


class Window(Part):
    """How nodes are renewed when their template changes."""

    canary: Whole = Field(default=1, ge=0, le=100)
    """Nodes that go first and have to be verified before the others follow."""
    at_once_percent: Whole = Field(default=20, ge=1, le=100)
    """Most of the pool that may be away at one time."""


class Pool(OnTarget[On], Part):
    """Nodes of one machine type."""

    name: Name
    """Name of the pool, part of its resources' names."""
    machine: Word = Field(examples=["p4d.24xlarge", "Standard_ND96amsr_A100_v4", "a3-megagpu-8g"])
    """The provider's name of the machine type; `gpuinfra catalog` lists them."""
    capacity: Annotated[tuple[Capacity, ...], BeforeValidator(_as_list)] = Field(min_length=1, max_length=20)
    """How the nodes are bought: one entry or a list side by side, one group each."""
    fallback: tuple[Candidate, ...] = Field(default=(), max_length=20)
    """Places that `gpuinfra up` tries in this order when the cloud has no capacity."""
    zone: Word | None = None
    """Zone of this pool. Left out: the one of `where`."""
    image: Literal["default", "plain"] | CustomImage | None = None
    """`default`: the cloud's own GPU image; `plain`: plain Ubuntu, every step installs; or an image of one's own. Left out: the cluster's."""
    disk: Disk = Disk()
    """Root disk."""
    containers_reach_metadata: YesNo = False
    """True lets bridged containers use the node's own role. Kept from them on AWS by the metadata service's hop limit (1 in place of 2), on Azure and Google Cloud by a packet filter on the node. Containers on the host's network reach it in any case."""
    fabric: Literal["auto", "required", "none"] = "auto"
    """`none` leaves the fast network out even where the machine has it; `required` refuses a machine without one."""
    mig: tuple[MigProfile, ...] = Field(default=(), max_length=7, examples=[["3g.40gb", "3g.40gb"]])
    """MIG instances that each GPU of the pool is cut into, by profile. Left out: whole GPUs. A cut GPU has no NVLink, so jobs over several GPUs slow down."""
    renew: Window = Window()
    """How this pool's nodes are renewed when their template changes."""
    quota_vcpus: Whole | None = Field(default=None, ge=0)
    """vCPUs that the account may run of this family, when known; a plan above it is refused."""
    tags: dict[Word, Word] = Field(default_factory=dict, max_length=30)
    """More tags for this pool's nodes."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            machine: str,
            capacity: OnTarget[On] | Sequence[OnTarget[On]],
            fallback: Sequence[Candidate[On]] = (),
            zone: str | None = None,
            image: Literal["default", "plain"] | CustomImage | None = None,
            disk: Disk = ...,
            containers_reach_metadata: bool = False,
            fabric: Literal["auto", "required", "none"] = "auto",
            mig: Sequence[str] = (),
            renew: Window = ...,
            quota_vcpus: int | None = None,
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @property
    def nodes(self) -> int:
        """Nodes of all its capacity."""
        return sum(entry.count for entry in self.capacity)
