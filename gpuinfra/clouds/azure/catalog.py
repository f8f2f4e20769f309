"""Azure VM sizes: GPUs, InfiniBand, zones and capacity kinds.

This module contains only facts. Sources: the size pages on Microsoft Learn (SIZES), the node health-check configurations that Azure
publishes (NHC), and quota family names used by schedulers (QUOTA).
Azure passes InfiniBand adapters through, so layouts contain Ethernet interfaces only.
Sizes with InfiniBand are listed explicitly, because the letter `r` (RDMA) in a size name is not a reliable sign of InfiniBand.
For prices, see `prices.json`. For regions, see `regions.py`. For decisions, see `profile.py`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from gpuinfra.catalog import gpus
from gpuinfra.catalog.floors import (
    A100_BOARD,
    A100_COPY,
    H100_BOARD,
    H100_COPY,
    H100_MEMORY,
    H200_BOARD,
    UNPUBLISHED,
    collective,
)
from gpuinfra.catalog.notation import numa_halves, zones_by_region
from gpuinfra.catalog.records import CapacityKind, Fabric, Floor, MachineType, NicLimits, NicShape, NumaNode, Source
from gpuinfra.clouds.azure.prices import PRICES

_SIZES = "https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/"
_NHC = "Azure/azurehpc-health-checks:conf/"
_TOPOLOGY = "Azure/azhpc-images:topology/"
_FIELD_GUIDE = "Azure/ai-infrastructure-on-azure:skills/slurm/sku_performance_baseline/SKILL.md"
_READ = date(2026, 11, 20)
_NHC_READ = date(2026, 11, 22)
_ZONES_NOTE = (
    "zones from the Resource SKUs list of one subscription on 2026-08-13; the list differs between subscriptions"
)
SPOT_QUOTA = "lowPriorityCores"
"""A single quota applies to the spot cores of all families. https://learn.microsoft.com/azure/quotas/spot-quota"""

K = CapacityKind
_EITHER = frozenset({K.ON_DEMAND, K.SPOT})
"""Azure does not offer on-demand capacity reservations for the ND series and NCads H100 v5, so these sizes have no `reserved` capacity.

https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview, 2026-02-17
"""
_NC_A100 = _EITHER | {K.RESERVED}
_ETHERNET = (NicShape(card=0, device=0, kind="nic"),)


def _source(page: str, note: str = _ZONES_NOTE) -> Source:
    return Source(page=_SIZES + page, read=_READ, note=note)


def _quota(family: str) -> dict[CapacityKind, str]:
    """Return quota names. Ignore case and spaces when you compare them, because the documentation uses different spellings."""
    return {K.ON_DEMAND: family, K.RESERVED: family, K.SPOT: SPOT_QUOTA}


def _infiniband(gbps: float, generation: str, devices: int = 8) -> Fabric:
    return Fabric(provider="infiniband", devices=devices, gbps=gbps * devices, generation=generation)


def _floors(
    conf: str, *, copy: float, hca: float | None = None, one_node: float | None = None, gib: float = 16
) -> tuple[Floor, ...]:
    """Return the thresholds of Azure's node health checks."""
    source = _NHC + conf
    unpublished = f"{source}; {UNPUBLISHED}"
    rows = [Floor(check="B5", what="host to device copy", at_least=copy, unit="GB/s", source=source, read=_NHC_READ)]
    if one_node:
        rows.append(collective("B2", one_node, gib=gib, healthy=None, source=unpublished, read=_NHC_READ))
    if hca:
        what = "RDMA write of 8 MiB with GPU memory, one adapter, in one node"
        rows.append(Floor(check="N5", what=what, at_least=hca, unit="Gb/s", source=unpublished, read=_NHC_READ))
    return tuple(rows)


_NDR_WRITE = Floor(
    check="N5", what="RDMA write of 8 MiB with GPU memory, one adapter, in one node", at_least=360, unit="Gb/s", healthy=392.8, read=date(2026, 11, 29),
    source=_NHC + "nd96isr_h200_v5.conf (380 for H100); 392.8 to 393.0 Gb/s on an ND96isr_H100_v5 (notes on these checks, ib_write_bw)",
)  # fmt: skip
_A100_BRIDGE = collective(
    "B2", 191, gib=8, healthy=208, source="github.com/NVIDIA/nccl-tests/issues/178: 208 GB/s between two A100 with 12 NVLinks; "
    + _NHC + "nc48ads_a100_v4.conf: 193 at 16 GiB", read=date(2026, 11, 30)
)  # fmt: skip
_A100_PAIR = collective(
    "B3", 172, gib=8, healthy=187, source="Azure/aks-rdma-infiniband:tests/expected-output.md: 187 GB/s between two ND A100 v4", read=_READ
)  # fmt: skip
_H200_PAIR = collective(
    "B3", 335, gib=4, healthy=364.9, source="stas00/ml-engineering at 744d01e1:network/README.md: 364.87 GB/s between four nodes of eight H200 with rings and 3,200 Gb/s (p5en), of which two have less traffic between them", read=date(2026, 11, 28)
)  # fmt: skip

ND_A100_40 = MachineType(
    name="Standard_ND96asr_v4",
    family="ndv4",
    gpu=gpus.A100_40,
    gpus=8,
    vcpus=96,
    memory_gib=900,
    local_disks=8,
    local_disk_gb=6442,
    network_gbps=24,
    nics=_ETHERNET,
    limits=NicLimits(cards=8, per_card=1, total=8, fabric=8),
    fabric=_infiniband(200, "HDR"),
    nvswitch=True,
    numa_nodes=4,
    numa=tuple(NumaNode(gpus=two, fabric=two) for two in ((2, 3), (0, 1), (6, 7), (4, 5))),
    numa_source=_TOPOLOGY + "ndv4-topo.xml, retrieved 2026-11-27",
    capacity=_EITHER,
    quotas=_quota("Standard NDASv4_A100 Family"),
    floors=(*_floors("nd96asr_v4.conf", copy=21, hca=180), A100_BOARD, A100_COPY, _A100_PAIR),
    source=_source("ndasra100v4-series"),
    notes=("No Trusted Launch.",),
)

ND_A100_80 = replace(
    ND_A100_40,
    name="Standard_ND96amsr_A100_v4",
    gpu=gpus.A100_80,
    memory_gib=1900,
    local_disk_gb=6872,
    zones=zones_by_region("swedencentral:3 canadaeast eastus2 italynorth southcentralus uksouth westeurope westus2"),
    quotas=_quota("standard NDAMSv4_A100Family"),
    floors=(*_floors("nd96amsr_a100_v4.conf", copy=21, hca=180), A100_BOARD, A100_COPY, _A100_PAIR),
    source=_source("ndma100v4-series"),
)  # fmt: skip

ND_H100 = MachineType(
    name="Standard_ND96isr_H100_v5",
    family="ndv5",
    gpu=gpus.H100,
    gpus=8,
    vcpus=96,
    memory_gib=1900,
    local_disks=8,
    local_disk_gb=30064,
    network_gbps=80,
    nics=_ETHERNET,
    limits=NicLimits(cards=8, per_card=1, total=8, fabric=8),
    fabric=_infiniband(400, "NDR"),
    nvswitch=True,
    numa_nodes=2,
    numa=numa_halves(8, 8),
    numa_source=_TOPOLOGY + "ndv5-topo.xml, retrieved 2026-11-27",
    capacity=_EITHER,
    zones=zones_by_region(
        "canadacentral:2 italynorth:3 norwayeast southeastus swedencentral uksouth:3 westeurope:2 australiaeast centralus eastus "
        "eastus2 japaneast koreacentral polandcentral southafricanorth southcentralus uaenorth westus2"
    ),
    quotas=_quota("standardNDSH100v5Family"),
    floors=(
        *_floors("nd96isr_h100_v5.conf", copy=48),
        _NDR_WRITE,
        H100_BOARD,
        H100_COPY,
        H100_MEMORY,
        collective("B3", 400, gib=16, healthy=450, source=_FIELD_GUIDE + ": about 450 GB/s expected, below 400 warn, below 300 replace", read=_READ),
    ),
    source=_source("ndh100v5-series"),
)  # fmt: skip

ND_H200 = replace(
    ND_H100,
    name="Standard_ND96isr_H200_v5",
    gpu=gpus.H200,
    numa=(),
    numa_source="",
    memory_gib=1850,
    zones=zones_by_region(
        "polandcentral australiasoutheast ukwest francecentral italynorth spaincentral switzerlandnorth uksouth eastus2 westus3"
    ),
    quotas=_quota("standardNDISRH200V5Family"),
    floors=(*_floors("nd96isr_h200_v5.conf", copy=48), _NDR_WRITE, H200_BOARD, H100_COPY, _H200_PAIR),
    source=_source("nd-h200-v5-series"),
    notes=("Has an Ethernet RDMA device mlx5_an0 in addition to mlx5_ib0..7.",),
)  # fmt: skip

ND_GB200 = MachineType(
    name="Standard_ND128isr_NDR_GB200_v6",
    family="ndv6",
    gpu=gpus.GB200,
    gpus=4,
    vcpus=128,
    memory_gib=900,
    arch="arm64",
    local_disks=4,
    local_disk_gb=16000,
    network_gbps=160,
    nics=_ETHERNET,
    limits=NicLimits(cards=1, per_card=1, total=1, fabric=4),
    fabric=_infiniband(400, "NDR", 4),
    capacity=frozenset({K.ON_DEMAND}),
    quotas=_quota("standardNDISRGB200V6NDRFamily"),
    source=_source("nd-gb200-v6-series", "the page lists 160 in a column labeled Mbps; the GB300 page uses Gb/s"),
    notes=("A rack has 18 nodes and 72 GPUs in one NVLink domain. InfiniBand connects racks.",),
)

ND_GB300 = replace(
    ND_GB200,
    name="Standard_ND128isr_GB300_v6",
    gpu=gpus.GB300,
    memory_gib=864,
    fabric=_infiniband(400, "XDR", 4),
    quotas=_quota("standardNDISRGB300V6Family"),
    floors=(
        collective("B3", 800, gib=16, healthy=937, source=_FIELD_GUIDE + ": about 937 GB/s expected in a rack, below 800 warn, below 600 replace", read=_READ),
    ),
    source=_source("nd-gb300-v6-series", "the page states 4 x 800 Gb/s, the field guide measured 4 x 400; the lower value is used"),
    notes=(*ND_GB200.notes, "No service healing."),
)  # fmt: skip

ND_GB300_G5 = replace(
    ND_GB300,
    name="Standard_ND128isrG5_GB300_v6",
    quotas=_quota("standardNDISRGB300G5V6Family"),
)


def _no_infiniband(base: MachineType, name: str) -> MachineType:
    """Return the size without `r` in its name, which has the same board without InfiniBand."""
    return replace(
        base,
        name=name,
        fabric=None,
        numa=(),
        numa_source="",
        limits=NicLimits(cards=8, per_card=1, total=8, fabric=0),
        zones={},
        floors=tuple(floor for floor in base.floors if floor.check in {"B2", "B5"}),
        notes=("No InfiniBand: not suitable for multi-node jobs.",),
    )


def _nc(
    name: str,
    gpu: str,
    count: int,
    vcpus: int,
    memory: int,
    gbps: float,
    nics: int,
    disk_gib: int,
    quota: str,
    page: str,
    *,
    zones: str = "",
    floors: tuple[Floor, ...] = (),
    capacity: frozenset[CapacityKind] = _EITHER,
    notes: tuple[str, ...] = (),
) -> MachineType:
    return MachineType(
        name=name,
        family=name.split("_")[1][:2].lower() + name.rsplit("_", 1)[1],
        gpu=gpus.GPUS[gpu],
        gpus=count,
        vcpus=vcpus,
        memory_gib=memory,
        local_disks=count,
        local_disk_gb=round(disk_gib * 1.073741824),
        network_gbps=gbps,
        nics=_ETHERNET,
        limits=NicLimits(cards=nics, per_card=1, total=nics, fabric=0),
        capacity=capacity,
        zones=zones_by_region(zones),
        quotas=_quota(quota),
        floors=floors,
        source=_source(page),
        notes=notes,
    )


_NC_A100_REGIONS = (
    "australiaeast brazilsouth canadacentral centralindia centralus eastus eastus2 francecentral germanywestcentral italynorth "
    "japaneast koreacentral northeurope polandcentral southcentralus southeastasia swedencentral switzerlandnorth uksouth "
    "westeurope westus westus2 westus3"
)
_NC_H100_REGIONS = (
    "australiaeast canadacentral centralindia centralus eastus eastus2 germanywestcentral indonesiacentral japaneast koreacentral "
    "malaysiawest northeurope southcentralus southeastasia spaincentral swedencentral switzerlandnorth uksouth westeurope westus "
    "westus2 westus3"
)

_SINGLE = (
    _nc(
        "Standard_NC24ads_A100_v4", "A100-PCIE-80GB", 1, 24, 220, 20, 2, 894, "StandardNCADSA100v4Family", "nca100v4-series",
        zones=_NC_A100_REGIONS, capacity=_NC_A100,
        floors=_floors("nc24ads_a100_v4.conf", copy=21),
    ),
    _nc("Standard_NC48ads_A100_v4", "A100-PCIE-80GB", 2, 48, 440, 40, 4, 1788, "StandardNCADSA100v4Family", "nca100v4-series", zones=_NC_A100_REGIONS, capacity=_NC_A100, floors=(*_floors("nc48ads_a100_v4.conf", copy=21), _A100_BRIDGE)),
    _nc(
        "Standard_NC96ads_A100_v4", "A100-PCIE-80GB", 4, 96, 880, 80, 8, 3576, "StandardNCADSA100v4Family", "nca100v4-series",
        zones=_NC_A100_REGIONS, capacity=_NC_A100,
        floors=_floors("nc96ads_a100_v4.conf", copy=21, one_node=25, gib=8),
    ),
    _nc(
        "Standard_NC40ads_H100_v5", "H100-NVL", 1, 40, 320, 40, 2, 3576, "StandardNCadsH100v5Family", "ncadsh100v5-series",
        zones=_NC_H100_REGIONS,
        floors=_floors("nc40ads_h100_v5.conf", copy=48),
    ),
    _nc(
        "Standard_NC80adis_H100_v5", "H100-NVL", 2, 80, 640, 80, 4, 7152, "StandardNCadsH100v5Family", "ncadsh100v5-series",
        zones=_NC_H100_REGIONS,
        floors=_floors("nc80adis_h100_v5.conf", copy=48, one_node=208),
    ),
    _nc("Standard_NCC40ads_H100_v5", "H100-NVL", 1, 40, 320, 40, 2, 3576, "StandardNCCads2023Family", "nccadsh100v5-series", notes=("Confidential VM. The memory size is not confirmed.",)),
)  # fmt: skip


def _cpu(name: str, vcpus: int, memory: int, gbps: float, nics: int) -> MachineType:
    return MachineType(
        name=name,
        family=name.removeprefix("Standard_").split("_")[0][:1].lower() + name.rsplit("_", 1)[1],
        gpu=None,
        gpus=0,
        vcpus=vcpus,
        memory_gib=memory,
        network_gbps=gbps,
        nics=_ETHERNET,
        limits=NicLimits(cards=nics, per_card=1, total=nics, fabric=0),
        capacity=_EITHER | {K.RESERVED},
        quotas=_quota("standardDSv5Family"),
        source=Source(
            page="https://learn.microsoft.com/azure/virtual-machines/sizes/general-purpose/dsv5-series", read=_READ
        ),
    )


_CPU = (
    _cpu("Standard_D4s_v5", 4, 16, 12.5, 2),
    _cpu("Standard_D8s_v5", 8, 32, 12.5, 4),
    _cpu("Standard_D16s_v5", 16, 64, 12.5, 8),
    _cpu("Standard_D32s_v5", 32, 128, 16, 8),
    _cpu("Standard_D64s_v5", 64, 256, 30, 8),
)

MACHINES = PRICES.machines(
    (
        ND_A100_40,
        ND_A100_80,
        ND_H100,
        ND_H200,
        ND_GB200,
        ND_GB300,
        ND_GB300_G5,
        _no_infiniband(ND_H100, "Standard_ND96is_H100_v5"),
        _no_infiniband(ND_H200, "Standard_ND96is_H200_v5"),
        *_SINGLE,
        *_CPU,
    )
)
"""Machine type -> record."""
