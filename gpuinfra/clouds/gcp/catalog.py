"""Google Cloud machine types: GPUs, network interfaces, zones and capacity kinds.

This module contains only facts. Sources: the page on accelerator-optimized machines (AOM), the pages on creating managed instance groups
with A3 and A4 machines (MIG3, MIG4), a public catalog of zones (SKY), and reference blueprints (CT).
For prices, see `prices.json`. For regions, see `regions.py`. For decisions, see `profile.py`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import partial

from gpuinfra.catalog import gpus
from gpuinfra.catalog.floors import (
    A100_BOARD,
    A100_COPY,
    B200_BOARD,
    B200_COPY,
    H100_COPY,
    H100_MEMORY,
    H200_BOARD,
    RING_BOARD,
    UNPUBLISHED,
    collective,
    over_link,
)
from gpuinfra.catalog.notation import numa_halves, zones_by_region
from gpuinfra.catalog.records import ALL_GATHER, CapacityKind, Fabric, MachineType, NicLimits, NicShape, Source
from gpuinfra.clouds.gcp.prices import PRICES

_AOM = "https://docs.cloud.google.com/compute/docs/accelerator-optimized-machines"
_READ = date(2026, 11, 20)
_NUMA = "GoogleCloudPlatform/cloud-image-tests:test_suites/acceleratorconfig/numa_test.go at 79e74bbe8431, for A3 Ultra and A4, retrieved 2026-11-27"

K = CapacityKind
_ALL = frozenset({K.ON_DEMAND, K.SPOT, K.RESERVED, K.FLEX})
_NO_ON_DEMAND = frozenset({K.SPOT, K.RESERVED, K.FLEX})
_BOUND = frozenset({K.RESERVED})
_zones = partial(zones_by_region, name="{region}-{zone}")


def _source(note: str = "") -> Source:
    return Source(page=_AOM, read=_READ, note=note)


def _nics(data: int) -> tuple[NicShape, ...]:
    """Return a management interface and `data` interfaces, each in its own network, because the gVNICs of an instance cannot share a network."""
    rest = (NicShape(card=index, device=0, kind="gvnic", network=f"data-{index - 1}") for index in range(1, data + 1))
    return (NicShape(card=0, device=0, kind="gvnic"), *rest)


def _roce(rails: int) -> tuple[NicShape, ...]:
    """Return two host interfaces in separate networks, and an RDMA interface per rail in one network with the RoCE profile."""
    return (
        NicShape(card=0, device=0, kind="gvnic"),
        NicShape(card=1, device=0, kind="gvnic", network="host-1"),
        *(NicShape(card=index + 2, device=0, kind="mrdma", network="roce") for index in range(rails)),
    )


def _limits(nics: int, fabric: int) -> NicLimits:
    return NicLimits(cards=nics, per_card=1, total=nics, fabric=fabric)


def _quota(family: str) -> dict[CapacityKind, str]:
    """Return quota names. Newer families use the Cloud Quotas ID with the dimension `gpu_family`. Spot and flex-start use the preemptible quota."""
    plain = f"GPUS-PER-GPU-FAMILY-per-project-region gpu_family={family}"
    return {
        K.ON_DEMAND: plain,
        K.RESERVED: plain,
        K.SPOT: f"PREEMPTIBLE-{plain}",
        K.FLEX: f"PREEMPTIBLE-{plain}",
    }


def _old_quota(metric: str) -> dict[CapacityKind, str]:
    return {
        K.ON_DEMAND: metric,
        K.RESERVED: metric,
        K.SPOT: f"PREEMPTIBLE_{metric}",
        K.FLEX: f"PREEMPTIBLE_{metric}",
    }


_CHS = "GoogleCloudPlatform/cluster-health-scanner:deploy/helm/health_checks/nccl_healthcheck"
_FLOORS_READ = date(2026, 11, 22)
_PCIE_5_HOST = over_link(
    4,
    source=_AOM + ": Sapphire and Emerald Rapids have PCIe 5.0; no page names the links to the GPUs, so 4.0 is assumed",
    read=_FLOORS_READ,
)
_PCIE_3_HOST = over_link(3, source=_AOM + ": Cascade Lake has PCIe 3.0", read=_FLOORS_READ)
_BLOCK_NOTE = "No on-demand capacity. Use a reservation, spot or flex-start."

A3_HIGH = MachineType(
    name="a3-highgpu-8g",
    family="a3-high",
    gpu=gpus.H100,
    gpus=8,
    vcpus=208,
    memory_gib=1872,
    local_disks=16,
    local_disk_gb=6442,
    network_gbps=1000,
    nics=_nics(4),
    limits=_limits(5, 4),
    fabric=Fabric(provider="tcpxo", older="tcpx", devices=4, gbps=800, rdma_read=False),
    nvswitch=True,
    numa_nodes=2,
    hypervisor="sapphire-rapids",
    capacity=_ALL,
    zones=_zones(
        "asia-east1:c asia-northeast1:b asia-south1:c asia-south2:b asia-southeast1:b,c australia-southeast1:c europe-north1:c "
        "europe-west1:b,c europe-west3:c europe-west4:b,c europe-west9:c us-central1:a,b,c us-east4:a,b,c us-east5:a us-west1:a,b "
        "us-west4:a"
    ),
    quotas=_quota("NVIDIA_H100"),
    floors=(
        collective("B3", 60, gib=0.5, healthy=70.9, name=ALL_GATHER, source=f"GoogleCloudPlatform/cluster-toolkit:examples/gke-a3-highgpu/multi-node-test-plan.md: 70.9 GB/s; threshold of {_CHS}", read=_READ),
        # The environment of TCPX and TCPXO sets NCCL_NVLS_ENABLE=0, so NVSwitch does not reduce data (docs/internals/decisions/network-plugin.md).
        RING_BOARD,
        H100_COPY,
        H100_MEMORY,
        _PCIE_5_HOST,
    ),
    source=_source(),
    notes=(
        "TCPXO since 2026, except with reservations (GoogleCloudPlatform/cluster-toolkit:examples/machine-learning/a3-highgpu-8g/README.md, retrieved 2026-11-21).",
        "TCPX requires Container-Optimized OS or Google's tcpx kernel.",
    ),
)  # fmt: skip

A3_EDGE = replace(
    A3_HIGH,
    name="a3-edgegpu-8g",
    family="a3-edge",
    network_gbps=400,
    fabric=Fabric(provider="tcpx", devices=4, gbps=400, rdma_read=False),
    # The figure between two A3 High nodes is for twice the bandwidth: 400 Gbps carry at most 50 GB/s.
    floors=tuple(floor for floor in A3_HIGH.floors if floor.check != "B3"),
    zones={},
    source=_source("sources disagree on the bandwidth (400, 600 in two regions, up to 800); the lowest value is used"),
)

A3_MEGA = replace(
    A3_HIGH,
    name="a3-megagpu-8g",
    family="a3-mega",
    network_gbps=1800,
    nics=_nics(8),
    limits=_limits(9, 8),
    fabric=Fabric(provider="tcpxo", devices=8, gbps=1600, rdma_read=False),
    zones=_zones(
        "asia-east1:c asia-northeast1:b asia-southeast1:b,c australia-southeast1:c europe-north1:c europe-west1:b,c europe-west3:c "
        "europe-west4:b,c us-central1:a,b,c us-east4:a,b,c us-east5:a us-west1:a,b us-west4:a"
    ),
    quotas=_quota("NVIDIA_H100_MEGA"),
    floors=(
        collective("B3", 150, gib=8, healthy=188.7, name=ALL_GATHER, source=f"GoogleCloudPlatform/cluster-toolkit:examples/gke-a3-megagpu/README.md: 188.7 GB/s; threshold of {_CHS}", read=_READ),
        *(floor for floor in A3_HIGH.floors if floor.check in {"B2", "B5", "B9", "B10"}),
    ),
    source=_source("one page states 1,800 Gbps, another 1,600 for the eight data interfaces without nic0"),
    notes=("Uses nine networks of the project quota.",),
)  # fmt: skip

_ULTRA_PAIR = collective(
    "B3", 250, gib=8, healthy=328.8, name=ALL_GATHER, source=f"GoogleCloudPlatform/cluster-toolkit:examples/gke-consumption-options/dws-flex-start/README.md: 328.8 to 336 GB/s between two A3 Ultra; A4 has the same adapters; threshold of {_CHS} for both", read=_READ
)  # fmt: skip

A3_ULTRA = MachineType(
    name="a3-ultragpu-8g",
    family="a3-ultra",
    gpu=gpus.H200,
    gpus=8,
    vcpus=224,
    memory_gib=2952,
    local_disks=32,
    local_disk_gb=12885,
    network_gbps=3600,
    nics=_roce(8),
    limits=_limits(10, 8),
    fabric=Fabric(provider="gib", devices=8, gbps=3200, generation="CX-7"),
    nvswitch=True,
    numa_nodes=2,
    numa=numa_halves(8, 8),
    numa_source=_NUMA,
    hypervisor="emerald-rapids",
    capacity=_NO_ON_DEMAND,
    zones=_zones(
        "asia-south1:b asia-south2:c europe-west1:b europe-west4:a us-central1:b us-east4:b us-east5:a us-south1:b us-west1:c"
    ),
    quotas=_quota("NVIDIA_H200"),
    floors=(
        _ULTRA_PAIR,
        H200_BOARD,
        H100_COPY,
        _PCIE_5_HOST,
    ),
    source=_source(),
    notes=(_BLOCK_NOTE,),
)  # fmt: skip

A4 = replace(
    A3_ULTRA,
    name="a4-highgpu-8g",
    family="a4",
    gpu=gpus.B200,
    memory_gib=3968,
    zones=_zones(
        "asia-northeast1:b asia-southeast1:b europe-north1:b,c europe-west4:b us-central1:b us-east1:b us-east4:b us-south1:b "
        "us-west2:c us-west3:b,c"
    ),
    quotas=_quota("NVIDIA_B200"),
    floors=(
        _ULTRA_PAIR,
        B200_BOARD,
        B200_COPY,
        _PCIE_5_HOST,
    ),
)

A4X = MachineType(
    name="a4x-highgpu-4g",
    family="a4x",
    gpu=gpus.GB200,
    gpus=4,
    vcpus=140,
    memory_gib=884,
    arch="arm64",
    local_disks=4,
    local_disk_gb=12885,
    network_gbps=2000,
    nics=_roce(4),
    limits=_limits(6, 4),
    fabric=Fabric(provider="gib", devices=4, gbps=1600, generation="CX-7"),
    hypervisor="grace",
    capacity=_BOUND,
    quotas=_quota("NVIDIA_GB200"),
    floors=(
        collective(
            "B3", 160, gib=8, healthy=None, name=ALL_GATHER, source=f"threshold of {_CHS}; {UNPUBLISHED}", read=_READ
        ),
    ),
    source=_source(),
    notes=(
        "Available only with a reservation: no spot, flex-start or resize requests.",
        "An NVLink domain has 18 nodes and 72 GPUs.",
    ),
)

_A2_80_ZONES = "asia-southeast1:c europe-west4:a us-central1:a,c us-east4:c us-east5:a,b"


_A2_MEGA_NOTE = "Check B2 is not required: no bandwidth of an all-reduce over sixteen A100 in one node is published (searched 2026-11-30)."


def _a2(
    name: str,
    gpu: str,
    count: int,
    vcpus: int,
    memory: int,
    disks: int,
    gbps: float,
    *,
    zones: str = "",
) -> MachineType:
    return MachineType(
        name=name,
        family="a2",
        gpu=gpus.GPUS[gpu],
        gpus=count,
        vcpus=vcpus,
        memory_gib=memory,
        local_disks=disks,
        local_disk_gb=round(disks * 375 * 1.073741824),
        network_gbps=gbps,
        nics=_nics(0),
        limits=_limits(1, 0),
        nvswitch=count >= 8,
        numa_nodes=2 if count >= 8 else None,
        hypervisor="cascade-lake",
        capacity=_ALL,
        zones=_zones(zones) if zones else {},
        floors=(A100_BOARD, A100_COPY, _PCIE_3_HOST) if count == 8 else (_PCIE_3_HOST,),
        quotas=_old_quota("NVIDIA_A100_GPUS" if gpu == "A100-40GB" else "NVIDIA_A100_80GB_GPUS"),
        source=_source(),
        notes=(_A2_MEGA_NOTE,) if count == 16 else (),
    )


_A2 = (
    _a2("a2-highgpu-1g", "A100-40GB", 1, 12, 85, 0, 24),
    _a2("a2-highgpu-2g", "A100-40GB", 2, 24, 170, 0, 32),
    _a2("a2-highgpu-4g", "A100-40GB", 4, 48, 340, 0, 50),
    _a2("a2-highgpu-8g", "A100-40GB", 8, 96, 680, 0, 100),
    _a2("a2-megagpu-16g", "A100-40GB", 16, 96, 1360, 0, 100),
    _a2("a2-ultragpu-1g", "A100-80GB", 1, 12, 170, 1, 24, zones=_A2_80_ZONES),
    _a2("a2-ultragpu-2g", "A100-80GB", 2, 24, 340, 2, 32, zones=_A2_80_ZONES),
    _a2("a2-ultragpu-4g", "A100-80GB", 4, 48, 680, 4, 50, zones=_A2_80_ZONES),
    _a2("a2-ultragpu-8g", "A100-80GB", 8, 96, 1360, 8, 100, zones=_A2_80_ZONES),
)  # fmt: skip

_A3_SMALL_NOTE = "With fewer than eight GPUs, only spot and flex-start are available."


def _a3_small(count: int, gbps: float) -> MachineType:
    return replace(
        A3_HIGH,
        name=f"a3-highgpu-{count}g",
        family="a3-high",
        gpus=count,
        vcpus=26 * count,
        memory_gib=234 * count,
        local_disks=2 * count,
        local_disk_gb=round(750 * count * 1.073741824),
        network_gbps=gbps,
        nics=_nics(0),
        limits=_limits(1, 0),
        fabric=None,
        nvswitch=False,
        numa_nodes=None,
        capacity=frozenset({K.SPOT, K.FLEX}),
        floors=tuple(floor for floor in A3_HIGH.floors if floor.check in ("B5", "B10")),
        notes=(_A3_SMALL_NOTE,),
    )


_A3_SMALL = (
    _a3_small(1, 25),
    _a3_small(2, 50),
    _a3_small(4, 100),
)


def _g2(vcpus: int, memory: int, count: int, gbps: float) -> MachineType:
    return MachineType(
        name=f"g2-standard-{vcpus}",
        family="g2",
        gpu=gpus.L4,
        gpus=count,
        vcpus=vcpus,
        memory_gib=memory,
        network_gbps=gbps,
        nics=_nics(0),
        limits=_limits(1, 0),
        hypervisor="cascade-lake",
        capacity=_ALL,
        floors=(_PCIE_3_HOST,),
        quotas=_old_quota("NVIDIA_L4_GPUS"),
        source=_source("local SSD is optional and not attached"),
    )


_G2 = (
    _g2(4, 16, 1, 10),
    _g2(8, 32, 1, 16),
    _g2(12, 48, 1, 16),
    _g2(16, 64, 1, 32),
    _g2(24, 96, 2, 32),
    _g2(32, 128, 1, 32),
    _g2(48, 192, 4, 50),
    _g2(96, 384, 8, 100),
)


def _cpu(vcpus: int, gbps: float) -> MachineType:
    return MachineType(
        name=f"n2-standard-{vcpus}",
        family="n2",
        gpu=None,
        gpus=0,
        vcpus=vcpus,
        memory_gib=4 * vcpus,
        network_gbps=gbps,
        nics=_nics(0),
        limits=_limits(1, 0),
        hypervisor="cascade-lake",
        capacity=frozenset({K.ON_DEMAND, K.SPOT, K.RESERVED}),
        quotas={K.ON_DEMAND: "N2_CPUS", K.RESERVED: "N2_CPUS", K.SPOT: "PREEMPTIBLE_CPUS"},
        source=Source(page="https://docs.cloud.google.com/compute/docs/general-purpose-machines", read=_READ),
    )


_CPU = (_cpu(4, 10), _cpu(8, 16), _cpu(16, 32), _cpu(32, 32), _cpu(64, 32))

MACHINES = PRICES.machines((A3_HIGH, A3_EDGE, A3_MEGA, A3_ULTRA, A4, A4X, *_A3_SMALL, *_A2, *_G2, *_CPU))
"""Machine type -> record."""
