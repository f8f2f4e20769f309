"""The record types of every cloud's catalog.

A record holds facts, each with its source page and the date on which it was read. The plan holds decisions.
This module imports no cloud SDK and names no cloud, so catalogs can be read and tested anywhere.
`docs/add-a-machine.md` describes how to add a machine type; a new type of a known family is one record and no code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class CapacityKind(StrEnum):
    """How a node is bought: the values that the spec, the plan and the price list use."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"
    BLOCK = "block"
    FLEX = "flex"

    @property
    def is_bounded(self) -> bool:
        """True if the capacity has a fixed size, so that a node must end before its replacement can start."""
        return self in (CapacityKind.RESERVED, CapacityKind.BLOCK, CapacityKind.FLEX)


class OpenModule(StrEnum):
    """Whether NVIDIA's open kernel module is required, supported or not supported for a GPU."""

    REQUIRED = "required"
    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The page and date of a fact."""

    page: str
    """URL of a page, or `owner/repository:path`."""
    read: date
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU product, identical on every cloud."""

    key: str
    """Short name, which `gpuinfra catalog --gpu` accepts: `A100-40GB`."""
    name: str
    """Product name as `nvidia-smi` prints it."""
    arch: str
    """`volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`."""
    memory_mib: int
    """Memory in MiB, `memory.total` of `nvidia-smi`."""
    pci_ids: tuple[str, ...]
    """PCI IDs as `vendor:device` in lowercase."""
    pcie_gen: int
    pcie_width: int = 16
    nvlinks: int = 0
    """Number of NVLink links of one GPU; 0 if the product has none."""
    nvlink_gb_s: float | None = None
    """Rate of one NVLink link in GB/s, as `nvidia-smi nvlink -s` prints it."""
    driver_floor: str
    """First driver version that supports the device."""
    open_module: OpenModule = OpenModule.SUPPORTED
    ecc: bool = True
    source: Source
    mig: bool = False
    compute_capability: str = ""
    """CUDA compute capability, such as `9.0`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NicShape:
    """One network interface in a machine's layout."""

    card: int
    device: int
    kind: str
    """Type in the provider's terms: `interface`, `efa`, `efa-only`; `gvnic`, `rdma`; `nic`, `ib`."""
    network: str = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class NicLimits:
    """Maximum numbers of network interfaces of one node."""

    cards: int
    per_card: int
    total: int
    fabric: int
    """Maximum number of fabric devices."""
    fabric_free_cards: tuple[int, ...] = ()
    """Network cards that cannot hold a fabric device (card 0 of p6-b300)."""
    single_cards: tuple[int, ...] = ()
    """Network cards that hold only one interface (odd cards of p6e-gb200)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """The network that connects the GPUs of different nodes."""

    provider: str
    """`efa`, `infiniband`, `tcpx`, `tcpxo`, `gib`."""
    devices: int
    gbps: float
    """Bandwidth of all devices together in Gbit/s."""
    generation: str = ""
    older: str = ""
    """Previous fabric stack, which the machine uses with that stack's own kernel: `tcpx` on A3 High."""
    gpudirect: bool = True
    rdma_read: bool = True
    rdma_write: bool = True

    @property
    def is_rdma(self) -> bool:
        """True if the fabric can read remote memory without the remote CPU."""
        return self.rdma_read


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of one node for one hour on a given date."""

    kind: CapacityKind
    region: str
    usd_per_hour: float
    read: date
    source: str
    usd_low: float | None = None
    """Lower bound if only a range is known. `usd_per_hour` is then the upper bound, so that plans do not underestimate."""
    term: str = ""
    """`1y` or `3y` for the price of a commitment; empty otherwise."""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The minimum result of a healthy machine in one measurement."""

    check: str
    """ID of the check that uses it: `B2`, `B3`, `B5`."""
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
    """Capacity of all local disks together in GB."""
    network_gbps: float = 0
    nics: tuple[NicShape, ...] = ()
    """Layout of the network interfaces that gpuinfra creates."""
    ips: int = 1
    """IP addresses that one node uses in its subnet with that layout."""
    limits: NicLimits | None = None
    fabric: Fabric | None = None
    nvswitch: bool = False
    """Whether NVSwitch connects the GPUs, which requires a fabric manager of exactly the driver's version."""
    numa_nodes: int | None = None
    hypervisor: str = ""
    """Generation of the provider's platform, such as `nitro-v3`."""
    capacity: frozenset[CapacityKind] = frozenset()
    zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Region -> zones that are known to offer the machine type; empty if none is known."""
    block_regions: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()
    quotas: dict[CapacityKind, str] = field(default_factory=dict)
    """Kind of capacity -> code or name of the quota that applies."""
    floors: tuple[Floor, ...] = ()
    unit_nodes: tuple[int, ...] = ()
    """Allowed node counts if the provider sells only whole units: (9, 18)."""
    proprietary_module: str = ""
    """Reason to use the proprietary kernel module on this machine; empty if the open module is used."""
    notes: tuple[str, ...] = ()

    def price(self, kind: CapacityKind, region: str) -> Price | None:
        """The newest price of this kind in this region, else the newest price for all regions (`*`)."""
        known = [p for p in self.prices if p.kind is kind and not p.term and p.region in (region, "*")]
        return max(known, key=lambda p: (p.region == region, p.read), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServicePrice:
    """The price of a service other than nodes on a given date."""

    key: str
    """Service and tier: `nat_hour`, `lustre_gib_month:250`."""
    unit: str
    region: str
    usd: float
    read: date
    source: str
    certain: bool = True
    """False for a figure without a primary source."""
