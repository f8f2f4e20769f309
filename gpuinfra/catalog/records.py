"""Records that every cloud's catalogue is made of.

A record carries facts with the page they were read on and the date; decisions are in the plan.
Nothing here imports a cloud's SDK or knows a cloud by name, so a catalogue can be read and tested anywhere.
How to add a machine type: `docs/add-a-machine.md`; a new type of a known family is one record and no code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class CapacityKind(StrEnum):
    """How a node is bought. The words of the spec, the plan and the price list."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"
    BLOCK = "block"
    FLEX = "flex"

    @property
    def is_revocable(self) -> bool:
        """True where the provider may take the node back at any time."""
        return self is CapacityKind.SPOT

    @property
    def is_bounded(self) -> bool:
        """True where the capacity has a size that cannot be exceeded, so that a replacement has to wait for its predecessor's end."""
        return self in (CapacityKind.RESERVED, CapacityKind.BLOCK, CapacityKind.FLEX)


class OpenModule(StrEnum):
    """Which flavour of NVIDIA's kernel module a GPU takes."""

    REQUIRED = "required"
    SUPPORTED = "supported"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a fact was read, and when."""

    page: str
    """Address of a page, or `owner/repository:path`."""
    read: date
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU product, the same on every cloud."""

    key: str
    """Short name for people and for `gpuinfra catalog --gpu`: `A100-40GB`."""
    name: str
    """The name that `nvidia-smi` prints."""
    arch: str
    """`volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`."""
    memory_mib: int
    """What `nvidia-smi` reports as `memory.total`."""
    pci_ids: tuple[str, ...]
    """`vendor:device`, lower case."""
    pcie_gen: int
    pcie_width: int
    nvlinks: int
    """NVLink links of one GPU; 0 where the product has none."""
    nvlink_gb_s: float | None
    """Rate of one link in GB/s as `nvidia-smi nvlink -s` prints it."""
    driver_floor: str
    """First driver that knows the device."""
    open_module: OpenModule
    ecc: bool
    source: Source
    mig: bool = False
    compute_capability: str = ""
    """`8.0`, `9.0`: what a CUDA build must target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NicShape:
    """One network interface in a machine's layout."""

    card: int
    device: int
    kind: str
    """The provider's word: `interface`, `efa`, `efa-only`; `gvnic`, `rdma`; `nic`, `ib`."""
    network: str = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class NicLimits:
    """What one node may have at most."""

    cards: int
    per_card: int
    total: int
    fabric: int
    """Fabric devices that the machine may have."""
    fabric_free_cards: tuple[int, ...] = ()
    """Cards that cannot carry a fabric device (card 0 of p6-b300)."""
    single_cards: tuple[int, ...] = ()
    """Cards that hold one interface only (odd cards of p6e-gb200)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """The network that GPUs of different nodes talk over."""

    provider: str
    """`efa`, `infiniband`, `tcpx`, `tcpxo`, `gib`."""
    devices: int
    gbps: float
    """Sum of all devices, gigabits a second."""
    generation: str = ""
    older: str = ""
    """The stack before it, which a kernel of its own takes the machine back to: `tcpx` on A3 High."""
    gpudirect: bool = True
    rdma_read: bool = True
    rdma_write: bool = True

    @property
    def is_rdma(self) -> bool:
        """True where the fabric reads remote memory without the remote CPU."""
        return self.rdma_read


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """A dated price of one node for one hour."""

    kind: CapacityKind
    region: str
    usd_per_hour: float
    read: date
    source: str
    usd_low: float | None = None
    """Low end, where only a range is known; `usd_per_hour` is then its high end, so that a plan is never too cheap."""
    term: str = ""
    """`1y`, `3y` for a commitment's price; empty otherwise."""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The least that a healthy machine reaches in one measurement."""

    check: str
    """Id of the check that uses it: `B2`, `B3`, `B5`."""
    what: str
    at_least: float
    unit: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineType:
    """One machine type of one cloud."""

    name: str
    family: str
    gpu: Gpu | None
    gpus: int
    vcpus: int
    memory_gib: int
    source: Source
    arch: str = "x86_64"
    local_disks: int = 0
    local_disk_gb: int = 0
    """All local disks together, GB."""
    network_gbps: float = 0
    nics: tuple[NicShape, ...] = ()
    """The layout that gpuinfra uses."""
    ips: int = 1
    """Addresses that one node takes from its subnet in that layout."""
    limits: NicLimits | None = None
    fabric: Fabric | None = None
    nvswitch: bool = False
    """NVSwitch connects the GPUs, so a fabric manager of exactly the driver's version is needed."""
    numa_nodes: int | None = None
    hypervisor: str = ""
    """Generation of the provider's platform: `nitro-v3`."""
    capacity: frozenset[CapacityKind] = frozenset()
    zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Region -> zones where the provider has been seen to offer it; empty where nothing was found."""
    block_regions: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()
    quotas: dict[CapacityKind, str] = field(default_factory=dict)
    """Kind -> code or name of the quota that counts it."""
    floors: tuple[Floor, ...] = ()
    unit_nodes: tuple[int, ...] = ()
    """Node counts that can be bought where the provider sells racks only: (9, 18)."""
    proprietary_module: str = ""
    """Reason for the closed kernel module on this machine; empty where the open one is right."""
    notes: tuple[str, ...] = ()

    @property
    def price_kinds(self) -> frozenset[CapacityKind]:
        """Kinds that some price is known for."""
        return frozenset(price.kind for price in self.prices)

    def price(self, kind: CapacityKind, region: str) -> Price | None:
        """The newest price of this kind in this region; one marked `*` holds where no price of the region is known."""
        known = [p for p in self.prices if p.kind is kind and not p.term and p.region in (region, "*")]
        return max(known, key=lambda p: (p.region == region, p.read), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServicePrice:
    """A dated price of something that is not a node."""

    key: str
    """`nat_hour`, `lustre_gib_month:250`, ..."""
    unit: str
    region: str
    usd: float
    read: date
    source: str
    certain: bool = True
    """False for a figure that is commonly stated and was not seen in a primary source."""
