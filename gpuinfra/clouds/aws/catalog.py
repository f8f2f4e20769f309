"""AWS machine types: network layouts, zones, capacity kinds and prices.

This module contains only facts. Sources: the instance-type reference and VPC limits that the Karpenter provider generates from the EC2 API
(KARP), the AWS guide to EFA on accelerated instances (EFA), a public catalog built from instance-type offerings (SKY),
the AWS price list (PRICE), and the AWS pages on Capacity Blocks (CB). Each price records the date on which it was read.
For regions, zones and service prices, see `regions.py`. For decisions, see `profile.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from gpuinfra.catalog import gpus
from gpuinfra.catalog.floors import over_link
from gpuinfra.catalog.records import (
    CapacityKind,
    Fabric,
    Floor,
    MachineType,
    NicLimits,
    NicShape,
    Price,
    Source,
)
from gpuinfra.clouds.aws.regions import zones_of

KARP = Source(
    page="aws/karpenter-provider-aws:website/content/en/preview/reference/instance-types.md",
    read=date(2026, 8, 18),
    note="limits of interfaces: pkg/providers/instancetype/zz_generated.vpclimits.go of 2026-08-06",
)
EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"
PRICE = "AWS price list of 2026-07-28, us-east-1, Linux, shared tenancy"
PRICE_READ = date(2026, 7, 28)
SKY = "skypilot-org/skypilot-catalog:catalogs/v8/aws/vms.csv"
SKY_READ = date(2026, 5, 31)
CB = "https://aws.amazon.com/ec2/capacityblocks/pricing/"

_READ = date(2026, 11, 20)
_TOPOLOGY = "aws/aws-ofi-nccl:topology"
_DUMPS = "aws/aws-ofi-nccl:tests/unit/fixtures/topology"
_DCGM = "NVIDIA/DCGM:nvvs/diag-skus.yaml.in at 72fa3feaa67d, minimum of this GPU"
_FLOORS_READ = date(2026, 11, 22)

K = CapacityKind
_ANY = frozenset({K.ON_DEMAND, K.SPOT, K.RESERVED})
_TRAIN = _ANY | {K.BLOCK}

_P_QUOTA = {K.ON_DEMAND: "L-417A185B", K.RESERVED: "L-417A185B"}
_G_QUOTA = {K.ON_DEMAND: "L-DB2E81BA", K.RESERVED: "L-DB2E81BA", K.SPOT: "L-3819A6DF"}
_STANDARD_QUOTA = {K.ON_DEMAND: "L-1216C47A", K.RESERVED: "L-1216C47A", K.SPOT: "L-34B43A08"}


def efa_layout(cards: int, *, efa_on_card_0: bool = True, only: Iterable[int] | None = None) -> tuple[NicShape, ...]:
    """Return a layout with a single IP address: an ENA interface at (0,0) and an EFA-only interface on each card that supports EFA.

    On card 0, EFA is device 1, because device 0 is the primary interface. On other cards, EFA is device 0. [EFA]
    """
    first = [NicShape(card=0, device=0, kind="interface")]
    if efa_on_card_0:
        first.append(NicShape(card=0, device=1, kind="efa-only"))
    others = range(1, cards) if only is None else only
    return (*first, *(NicShape(card=card, device=0, kind="efa-only") for card in others))


def _on_demand(usd: float, note: str = "") -> Price:
    return Price(kind=K.ON_DEMAND, region="us-east-1", usd_per_hour=usd, read=PRICE_READ, source=PRICE, note=note)


def _spot(**seen: tuple[float, float]) -> tuple[Price, ...]:
    return tuple(
        Price(
            kind=K.SPOT,
            region=region.replace("_", "-"),
            usd_per_hour=high,
            usd_low=low,
            read=SKY_READ,
            source=SKY,
            note="observed as a range between 2025-12 and 2026-05; this is the upper bound",
        )
        for region, (low, high) in seen.items()
    )


def _block(usd: float, read: date = date(2026, 8, 1), region: str = "*") -> Price:
    note = "updated quarterly; charged upfront at the time of purchase"
    return Price(kind=K.BLOCK, region=region, usd_per_hour=usd, read=read, source=CB, note=note)


def _plan(usd: float, term: str) -> Price:
    return Price(
        kind=K.ON_DEMAND,
        region="us-east-1",
        usd_per_hour=usd,
        read=date(2026, 8, 7),
        source="awslabs/accelerated-compute-tutorials:docs/ko/ai-infra/purchase-options/index.md",
        term=term,
        note="Savings Plan; applies to on-demand and reserved hours, but not to Capacity Blocks or spot",
    )


_US_CB = ("us-east-1", "us-east-2", "us-west-2")

P4D = MachineType(
    name="p4d.24xlarge",
    family="p4",
    gpu=gpus.A100_40,
    gpus=8,
    vcpus=96,
    memory_gib=1152,
    local_disks=8,
    local_disk_gb=8000,
    network_gbps=400,
    nics=efa_layout(4),
    limits=NicLimits(cards=4, per_card=15, total=60, fabric=4),
    fabric=Fabric(provider="efa", devices=4, gbps=400, generation="v1", rdma_write=False),
    nvswitch=True,
    numa_nodes=2,
    hypervisor="nitro-v3",
    capacity=_TRAIN,
    zones=zones_of("use1:1,2,4,6 use2:1-3 usw2:1-4 apne1:4 aps1:1-3 apse2:1,2 cac1:1,2 euc1:1-3 euw1:2 euw2:2,3"),
    block_regions=_US_CB,
    prices=(
        _on_demand(21.957642, "32.7726 until June 2025; many pages still show the old price"),
        *_spot(us_east_1=(2.5, 8.2), us_east_2=(6.0, 21.9), us_west_2=(8.0, 9.7)),
        _block(11.80),
        _plan(13.92, "1y"),
        _plan(9.37, "3y"),
    ),
    quotas={**_P_QUOTA, K.SPOT: "L-7212CCBC"},
    floors=(
        over_link(3, source=f"{_TOPOLOGY}/p4d-24xl-topo.xml: 8 GT/s and 16 lanes between processor and switch", read=_FLOORS_READ),
        Floor(check="B2", what="all-reduce of 16 GiB in one node", at_least=228, unit="GB/s", source="Azure/azurehpc-health-checks:conf/nd96asr_v4.conf, same board", read=_READ),
        Floor(check="B3", what="all-reduce of 2 GiB over two nodes", at_least=70, unit="GB/s", source="awslabs/awsome-distributed-ai:micro-benchmarks/nccl-tests/README.md measures 78.3 on p4de", read=_READ),
    ),
    source=KARP,
    notes=("EFA on p4d and p4de connects only to nodes of the same machine type.",),
)  # fmt: skip

P4DE = replace(
    P4D,
    name="p4de.24xlarge",
    gpu=gpus.A100_80,
    zones=zones_of("use1:4,6 usw2:1-3 apne1:1,4 apse1:2,3 euc1:1,2"),
    block_regions=("us-east-1", "us-west-2"),
    prices=(_on_demand(27.44705), *_spot(us_east_1=(8.7, 10.0), us_west_2=(10.3, 11.0)), _block(17.712)),
)

P5_4XL = MachineType(
    name="p5.4xlarge",
    family="p5",
    gpu=gpus.H100,
    gpus=1,
    vcpus=16,
    memory_gib=256,
    local_disks=1,
    local_disk_gb=3800,
    network_gbps=100,
    nics=efa_layout(1),
    limits=NicLimits(cards=1, per_card=4, total=4, fabric=1),
    fabric=Fabric(provider="efa", devices=1, gbps=100, generation="v2", gpudirect=False),
    hypervisor="nitro-v4",
    capacity=_TRAIN,
    zones=zones_of("use1:1-6 use2:1-3 usw2:1-4 apne1:1 aps1:1-3 apse2:3 apse3:1 euw2:1-3"),
    block_regions=(*_US_CB, "ap-northeast-1", "ap-south-1", "ap-southeast-2", "eu-west-2", "sa-east-1"),
    prices=(_on_demand(6.88), _block(5.191)),
    quotas={**_P_QUOTA, K.SPOT: "L-C4BD4855"},
    floors=(
        over_link(
            4, source=f"{_TOPOLOGY}/p5.48xl-topo.xml, machine of the same generation (AMD EPYC 7R13)", read=_FLOORS_READ
        ),
    ),
    source=KARP,
    notes=("Does not support GPUDirect RDMA, according to the P5 page.",),
)

P5 = MachineType(
    name="p5.48xlarge",
    family="p5",
    gpu=gpus.H100,
    gpus=8,
    vcpus=192,
    memory_gib=2048,
    local_disks=8,
    local_disk_gb=30400,
    network_gbps=3200,
    nics=efa_layout(32),
    limits=NicLimits(cards=32, per_card=2, total=64, fabric=32),
    fabric=Fabric(provider="efa", devices=32, gbps=3200, generation="v2"),
    nvswitch=True,
    numa_nodes=2,
    hypervisor="nitro-v4",
    capacity=_TRAIN,
    zones=zones_of(
        "use1:1-6 use2:1-3 usw2:1-4 usw1:1,3 apne1:1,4 apne2:1 aps1:1-3 apse2:1-3 apse3:1 cac1:4 eun1:1-3 euw2:1-3",
        local={"us-east-1": ("use1-atl2-az1",)},
    ),
    block_regions=(
        "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ap-northeast-1", "ap-southeast-3", "ap-south-1", "ap-southeast-2",
        "eu-west-2", "eu-north-1", "sa-east-1",
    ),
    prices=(
        _on_demand(55.04, "98.32 until June 2025; many pages still show the old price"),
        *_spot(us_east_1=(17.6, 25.8), us_east_2=(11.3, 12.0), us_west_2=(12.7, 16.1)),
        _block(31.464, date(2025, 12, 4)),
        _block(41.528),
    ),
    quotas={**_P_QUOTA, K.SPOT: "L-C4BD4855"},
    floors=(
        over_link(4, source=f"{_TOPOLOGY}/p5.48xl-topo.xml: 16 GT/s and 16 lanes between processor and bridge", read=_FLOORS_READ),
        Floor(check="B2", what="all-reduce of 16 GiB in one node", at_least=460, unit="GB/s", source="Azure/azurehpc-health-checks:conf/nd96isr_h100_v5.conf, same board", read=_READ),
        Floor(check="B3", what="all-reduce of 2 GiB over two nodes", at_least=400, unit="GB/s", source="awslabs/awsome-distributed-ai:micro-benchmarks/nccl-tests/README.md measures 444", read=_READ),
    ),
    source=KARP,
)  # fmt: skip

P5E = replace(
    P5,
    name="p5e.48xlarge",
    gpu=gpus.H200,
    zones=zones_of("use2:1-3 usw2:3 apse2:3 apse3:1,3 eun1:1 euw2:2"),
    block_regions=(
        "us-east-2", "us-west-1", "us-west-2", "ap-southeast-3", "ap-south-1", "ap-northeast-1", "ap-southeast-2", "eu-west-2",
        "eu-north-1", "sa-east-1",
    ),
    prices=(*_spot(us_east_2=(18.7, 63.0), us_west_2=(19.5, 19.5)), _block(34.608, date(2025, 12, 4)), _block(47.76)),
    floors=(
        Floor(check="B2", what="all-reduce of 16 GiB in one node", at_least=431, unit="GB/s", source="Azure/azurehpc-health-checks:conf/nd96isr_h200_v5.conf, same board", read=_READ),
        next(floor for floor in P5.floors if floor.check == "B5"),
    ),
    notes=("No on-demand price in us-east-1.",),
)  # fmt: skip

P5EN = replace(
    P5,
    name="p5en.48xlarge",
    gpu=gpus.H200,
    nics=efa_layout(16),
    limits=NicLimits(cards=16, per_card=4, total=64, fabric=16),
    fabric=Fabric(provider="efa", devices=16, gbps=3200, generation="v3"),
    hypervisor="nitro-v5",
    zones=zones_of(
        "use1:2,6 use2:1-3 usw2:2-4 usw1:3 apne1:4 apne2:1 aps1:1,3 apse3:2,3 eun1:1,3 eus2:1,2 mec1:1,3",
        local={"us-east-1": ("use1-atl2-az1",)},
    ),
    block_regions=(
        "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ap-southeast-3", "ap-south-1", "ap-northeast-2", "ap-northeast-1",
        "eu-west-2", "eu-south-2", "eu-north-1",
    ),
    prices=(
        _on_demand(63.296),
        *_spot(us_east_1=(16.6, 30.29), us_east_2=(16.2, 24.2), us_west_2=(15.5, 23.9)),
        _block(54.92),
        _block(63.158, date(2026, 10, 8)),
    ),
    floors=(
        Floor(check="B2", what="all-reduce of 16 GiB in one node", at_least=431, unit="GB/s", source="Azure/azurehpc-health-checks:conf/nd96isr_h200_v5.conf, same board", read=_READ),
        over_link(5, source=f"{_DUMPS}/p5en/topology.xml: Xeon 8488C, which has PCIe 5.0", read=_FLOORS_READ),
    ),
    notes=("EFA devices can appear late; the check retries three times.",),
)  # fmt: skip

P6_B200 = replace(
    P5,
    name="p6-b200.48xlarge",
    family="p6",
    gpu=gpus.B200,
    nics=efa_layout(8),
    limits=NicLimits(cards=8, per_card=4, total=32, fabric=8),
    fabric=Fabric(provider="efa", devices=8, gbps=3200, generation="v4"),
    hypervisor="nitro-v6",
    zones=zones_of("use1:6 use2:1-3 usw2:1,2,4", local={"us-east-1": ("use1-atl2-az1",)}),
    block_regions=("us-east-1", "us-east-2", "us-west-2", "ap-south-1", "us-gov-west-1", "us-gov-east-1"),
    prices=(
        _on_demand(113.9328),
        _plan(49.22, "3y"),
        *_spot(us_east_1=(21.0, 21.0), us_east_2=(21.2, 22.6), us_west_2=(23.1, 28.4)),
        _block(74.88, date(2025, 12, 4)),
        _block(98.84),
    ),
    quotas=dict(_P_QUOTA),
    floors=(
        Floor(check="B2", what="all-reduce of 16 GiB in one node", at_least=750, unit="GB/s", source="github.com/NVIDIA/nccl/issues/1807: more than 830 on eight B200", read=_FLOORS_READ),
        over_link(5, source=f"{_DUMPS}/p6-b200/topology.xml: Xeon 8559C, which has PCIe 5.0", read=_FLOORS_READ),
    ),
    notes=("Idle TCP connections are dropped after 350 s; use TCP keepalive.", "The spot quota code is not confirmed."),
)  # fmt: skip

P6_B300 = replace(
    P6_B200,
    name="p6-b300.48xlarge",
    gpu=gpus.B300,
    memory_gib=4096,
    network_gbps=6400,
    nics=efa_layout(17, efa_on_card_0=False),
    limits=NicLimits(cards=17, per_card=4, total=68, fabric=16, fabric_free_cards=(0,)),
    fabric=Fabric(provider="efa", devices=16, gbps=6400, generation="v4"),
    zones=zones_of("usw2:2"),
    block_regions=("us-east-1", "us-west-2", "us-gov-east-1"),
    prices=(_on_demand(142.416), *_spot(us_west_2=(33.4, 33.4)), _block(112.32)),
    floors=(
        Floor(
            check="B2",
            what="all-reduce of 16 GiB in one node",
            at_least=750,
            unit="GB/s",
            source="github.com/NVIDIA/nccl/issues/1807: more than 830 on eight B200; same NVLink generation",
            read=_FLOORS_READ,
        ),
        over_link(5, source=f"{_DUMPS}/p6-b300/topology.xml: Xeon 8559C, which has PCIe 5.0", read=_FLOORS_READ),
    ),
    notes=(*P6_B200.notes, "Card 0 has no EFA."),
)

P6E_GB200 = MachineType(
    name="p6e-gb200.36xlarge",
    family="p6e",
    gpu=gpus.GB200,
    gpus=4,
    vcpus=144,
    arch="arm64",
    memory_gib=960,
    local_disks=3,
    local_disk_gb=22500,
    network_gbps=1600,
    nics=efa_layout(17, efa_on_card_0=False, only=(1, 5, 9, 13)),
    limits=NicLimits(cards=17, per_card=2, total=26, fabric=8, fabric_free_cards=(0,), single_cards=tuple(range(1, 17, 2))),
    fabric=Fabric(provider="efa", devices=4, gbps=1600, generation="v3"),
    hypervisor="nitro-v5",
    capacity=frozenset({K.BLOCK}),
    zones={"us-east-1": ("us-east-1-dfw-2a",)},
    block_regions=("us-east-1",),
    prices=(_block(42.328),),
    unit_nodes=(9, 18),
    source=Source(page="https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-nvidia-ultraserver.html", read=date(2026, 8, 1)),
    notes=(
        "Available only in UltraServers: 9 or 18 instances per Capacity Block. Requires IMEX. Does not support MIG.",
        "Sources differ on the EFA generation: v3 in the documentation, v4 on the product page.",
    ),
)  # fmt: skip


_G_FLOORS = {
    "A10G": over_link(3, width=8, source=_DCGM, read=_FLOORS_READ),
    "L4": over_link(3, source=_DCGM, read=_FLOORS_READ),
    "L40S": over_link(4, width=8, source=_DCGM, read=_FLOORS_READ),
}


def _g(
    size: str,
    family: str,
    gpu: str,
    count: int,
    vcpus: int,
    memory: int,
    disk: int,
    gbps: float,
    *,
    efa: int = 0,
    per_card: int,
    cards: int = 1,
    usd: float | None = None,
) -> MachineType:
    generation = {"g5": "v1", "g6": "v2", "g6e": "v2"}[family]
    fabric = Fabric(
        provider="efa",
        devices=efa,
        gbps=gbps,
        generation=generation,
        gpudirect=False,
        rdma_read=family != "g5",
        rdma_write=family != "g5",
    )
    return MachineType(
        name=f"{family}.{size}",
        family=family,
        gpu=gpus.GPUS[gpu],
        gpus=count,
        vcpus=vcpus,
        memory_gib=memory,
        local_disks=2 if disk > 3000 else 1,
        local_disk_gb=disk,
        network_gbps=gbps,
        nics=efa_layout(cards) if efa else (NicShape(card=0, device=0, kind="interface"),),
        limits=NicLimits(cards=cards, per_card=per_card, total=per_card * cards, fabric=efa),
        fabric=fabric if efa else None,
        hypervisor="nitro-v3" if family == "g5" else "nitro-v4",
        capacity=_ANY,
        prices=(_on_demand(usd),) if usd else (),
        quotas=_G_QUOTA,
        floors=(_G_FLOORS[gpu],),
        proprietary_module=(
            "On g5, AWS images use the proprietary kernel module with GSP firmware disabled" if family == "g5" else ""
        ),
        source=KARP,
    )


_SMALL = (
    _g("xlarge", "g5", "A10G", 1, 4, 16, 250, 2.5, per_card=4, usd=1.006),
    _g("2xlarge", "g5", "A10G", 1, 8, 32, 450, 5, per_card=4),
    _g("4xlarge", "g5", "A10G", 1, 16, 64, 600, 10, per_card=8),
    _g("8xlarge", "g5", "A10G", 1, 32, 128, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g5", "A10G", 1, 64, 256, 1900, 25, efa=1, per_card=8),
    _g("12xlarge", "g5", "A10G", 4, 48, 192, 3800, 40, efa=1, per_card=15, usd=5.672),
    _g("24xlarge", "g5", "A10G", 4, 96, 384, 3800, 50, efa=1, per_card=15),
    _g("48xlarge", "g5", "A10G", 8, 192, 768, 7600, 100, efa=1, per_card=7, usd=16.288),
    _g("xlarge", "g6", "L4", 1, 4, 16, 250, 2.5, per_card=4, usd=0.8048),
    _g("2xlarge", "g6", "L4", 1, 8, 32, 450, 5, per_card=4),
    _g("4xlarge", "g6", "L4", 1, 16, 64, 600, 10, per_card=8),
    _g("8xlarge", "g6", "L4", 1, 32, 128, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g6", "L4", 1, 64, 256, 1880, 25, efa=1, per_card=15),
    _g("12xlarge", "g6", "L4", 4, 48, 192, 3760, 40, efa=1, per_card=8, usd=4.6016),
    _g("24xlarge", "g6", "L4", 4, 96, 384, 3760, 50, efa=1, per_card=15),
    _g("48xlarge", "g6", "L4", 8, 192, 768, 7520, 100, efa=1, per_card=15, usd=13.3504),
    _g("xlarge", "g6e", "L40S", 1, 4, 32, 250, 2.5, per_card=4, usd=1.861),
    _g("2xlarge", "g6e", "L40S", 1, 8, 64, 450, 5, per_card=4),
    _g("4xlarge", "g6e", "L40S", 1, 16, 128, 600, 20, per_card=8),
    _g("8xlarge", "g6e", "L40S", 1, 32, 256, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g6e", "L40S", 1, 64, 512, 1900, 35, efa=1, per_card=15),
    _g("12xlarge", "g6e", "L40S", 4, 48, 384, 3800, 100, efa=1, per_card=10, usd=10.49264),
    _g("24xlarge", "g6e", "L40S", 4, 96, 768, 3800, 200, efa=2, cards=2, per_card=10),
    _g("48xlarge", "g6e", "L40S", 8, 192, 1536, 7600, 400, efa=4, cards=4, per_card=10, usd=30.13118),
)


def _cpu(name: str, vcpus: int, memory: int, gbps: float, per_card: int) -> MachineType:
    return MachineType(
        name=name,
        family=name.split(".")[0],
        gpu=None,
        gpus=0,
        vcpus=vcpus,
        memory_gib=memory,
        network_gbps=gbps,
        nics=(NicShape(card=0, device=0, kind="interface"),),
        limits=NicLimits(cards=1, per_card=per_card, total=per_card, fabric=0),
        hypervisor="nitro-v4",
        capacity=_ANY,
        quotas=_STANDARD_QUOTA,
        source=KARP,
    )


_CPU = (
    _cpu("m7i.xlarge", 4, 16, 1.562, 4),
    _cpu("m7i.2xlarge", 8, 32, 3.125, 4),
    _cpu("m7i.4xlarge", 16, 64, 6.25, 8),
    _cpu("m7i.8xlarge", 32, 128, 12.5, 8),
    _cpu("c7i.4xlarge", 16, 32, 6.25, 8),
    _cpu("c7i.8xlarge", 32, 64, 12.5, 8),
    _cpu("c7i.24xlarge", 96, 192, 37.5, 15),
)

MACHINES: dict[str, MachineType] = {
    m.name: m for m in (P4D, P4DE, P5_4XL, P5, P5E, P5EN, P6_B200, P6_B300, P6E_GB200, *_SMALL, *_CPU)
}
"""Machine type -> record."""
