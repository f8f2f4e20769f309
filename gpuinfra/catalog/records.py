"""The record types that the catalogs of all clouds use.

A record contains facts, each with its source page and retrieval date. Decisions are in the plan.
This module imports no cloud SDK and names no cloud, so that catalogs can be read and tested without one.
To add a machine type, see `docs/internals/add-a-machine.md`. A machine type of a known family requires one record and no code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


class CapacityKind(StrEnum):
    """Kinds of capacity, as used in the spec, the plan, and the price list."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"
    BLOCK = "block"
    FLEX = "flex"

    @property
    def is_bounded(self) -> bool:
        """Whether the capacity has a fixed size, so that a node must be terminated before its replacement can start."""
        return self in (CapacityKind.RESERVED, CapacityKind.BLOCK, CapacityKind.FLEX)


class OpenModule(StrEnum):
    """Whether a GPU requires, supports, or does not support NVIDIA's open kernel module."""

    REQUIRED = "required"
    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The source page of a fact and its retrieval date."""

    page: str
    """URL of a page, or `owner/repository:path`."""
    read: date
    note: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU product. Products are identical on all clouds."""

    key: str
    """Short name, which `gpuinfra catalog --gpu` accepts: `A100-40GB`."""
    name: str
    """Product name in `nvidia-smi` output."""
    arch: str
    """`volta`, `turing`, `ampere`, `ada`, `hopper`, `blackwell`."""
    memory_mib: int
    """Memory in MiB, as `memory.total` in `nvidia-smi`."""
    pci_ids: tuple[str, ...]
    """PCI IDs as `vendor:device` in lowercase."""
    pcie_gen: int
    driver_floor: str
    """First driver version that supports the device."""
    source: Source
    nvlinks: int = 0
    """Number of NVLink links per GPU, or 0 if the product has none."""
    nvlink_gb_s: float | None = None
    """Rate per NVLink link in GB/s, as reported by `nvidia-smi nvlink -s`."""
    pcie_width: int = 16
    open_module: OpenModule = OpenModule.SUPPORTED
    ecc: bool = True
    mig: bool = False
    needs_imex: bool = False
    """Whether the GPUs of several nodes share an NVLink domain, which requires the service `nvidia-imex` on each node
    (https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide, retrieved 2026-11-22)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NicShape:
    """A network interface in a machine's layout."""

    card: int
    device: int
    kind: str
    """Type in the provider's terms: `interface`, `efa`, `efa-only` (AWS); `gvnic`, `rdma` (Google Cloud); `nic`, `ib` (Azure)."""
    network: str = "main"


@dataclass(frozen=True, kw_only=True, slots=True)
class NicLimits:
    """Maximum numbers of network interfaces per node."""

    cards: int
    per_card: int
    total: int
    fabric: int
    """Maximum number of fabric devices."""
    fabric_free_cards: tuple[int, ...] = ()
    """Network cards that do not support a fabric device (card 0 of p6-b300)."""
    single_cards: tuple[int, ...] = ()
    """Network cards that support only one interface (odd cards of p6e-gb200)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """The network that connects the GPUs of different nodes."""

    provider: str
    """`efa`, `infiniband`, `tcpx`, `tcpxo`, `gib`."""
    devices: int
    gbps: float
    """Total bandwidth of all devices in Gbit/s."""
    generation: str = ""
    older: str = ""
    """Older fabric provider that the machine supports with a special kernel: `tcpx` on A3 High."""
    gpudirect: bool = True
    rdma_read: bool = True

    @property
    def is_rdma(self) -> bool:
        """Whether the fabric supports RDMA."""
        return self.rdma_read


@dataclass(frozen=True, kw_only=True, slots=True)
class NumaNode:
    """The devices of one NUMA node, by index in the order of their PCI addresses."""

    gpus: tuple[int, ...]
    fabric: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The hourly price of a node on a given date."""

    kind: CapacityKind
    region: str
    usd_per_hour: float
    read: date
    source: str
    usd_low: float | None = None
    """Lower bound if only a price range is known. `usd_per_hour` is then the upper bound, so that plans do not underestimate the cost."""
    term: str = ""
    """Commitment term, `1y` or `3y`. Empty for a price without a commitment."""
    note: str = ""
    certain: bool = True
    """False for an estimate, and for a price that does not come from a primary source."""


ALL_REDUCE, ALL_GATHER = "all-reduce", "all-gather"


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The minimum result of a healthy machine for one measurement."""

    check: str
    """ID of the check that uses the value: `B2`, `B3`, `B5`, `B9`, `B10`, `N5`."""
    what: str
    at_least: float
    unit: str
    source: str
    read: date
    collective: str = ALL_REDUCE
    """For B2 and B3: what the test runs, `all-reduce` or `all-gather`."""
    gib: float | None = None
    """For B2 and B3: the size of the test. Another size has another rate."""
    healthy: float | None = None
    """The published figure of a healthy machine with the same tool, and for a collective of the same size. None if the cloud publishes only a threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineType:
    """A machine type of a cloud."""

    name: str
    family: str
    gpu: Gpu | None
    gpus: int
    vcpus: int
    memory_gib: int
    source: Source
    arch: str = "x86_64"
    local_disks: int = 0
    """Number of local disks. 0 if the machine has none (`local_disk_gb` is 0) or the number is not known."""
    local_disk_gb: int = 0
    """Total capacity of all local disks in GB."""
    network_gbps: float = 0
    nics: tuple[NicShape, ...] = ()
    """Layout of the network interfaces that gpuinfra creates."""
    ips: int = 1
    """Number of IP addresses that a node with that layout uses in its subnet."""
    limits: NicLimits | None = None
    fabric: Fabric | None = None
    nvswitch: bool = False
    """Whether NVSwitch connects the GPUs. NVSwitch requires a fabric manager with exactly the driver's version."""
    numa_nodes: int | None = None
    numa: tuple[NumaNode, ...] = ()
    """The GPUs and fabric devices of each NUMA node, in order. Empty if no source lists them."""
    numa_source: str = ""
    """Source of `numa`, with its retrieval date."""
    hypervisor: str = ""
    """Platform generation of the provider, such as `nitro-v3`."""
    capacity: frozenset[CapacityKind] = frozenset()
    zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Region -> zones that are known to offer the machine type. Empty if none are known."""
    block_regions: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()
    quotas: dict[CapacityKind, str] = field(default_factory=dict)
    """Kind of capacity -> code or name of the applicable quota."""
    floors: tuple[Floor, ...] = ()
    unit_nodes: tuple[int, ...] = ()
    """Allowed node counts if the provider sells only whole units, such as (9, 18)."""
    proprietary_module: str = ""
    """Reason to use the proprietary kernel module on this machine. Empty if the open module is used."""
    notes: tuple[str, ...] = ()

    def price(self, kind: CapacityKind, region: str) -> Price | None:
        """Return the newest price of this kind for the region, or for all regions (`*`) if the region has none."""
        matching = [p for p in self.prices if p.kind is kind and not p.term and p.region in (region, "*")]
        return max(matching, key=lambda p: (p.region == region, p.read), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServicePrice:
    """The price of a service other than nodes on a given date."""

    key: str
    """Service and tier, such as `nat_hour` or `lustre_gib_month:250`."""
    unit: str
    region: str
    usd: float
    """Price per unit, or 0 if the cloud does not charge."""
    read: date
    source: str
    certain: bool = True
    """False for an estimate, and for a price that does not come from a primary source."""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferPrice:
    """Price of data that leaves a region."""

    usd_per_gb: float | None
    """Price per GB, or None if no source lists it."""
    read: date
    source: str
    certain: bool = True
    """False if the price does not come from a primary source."""
