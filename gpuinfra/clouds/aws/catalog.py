"""AWS machine types: network layouts, zones and capacity kinds.

This module contains only facts. Sources: the instance-type reference and VPC limits that the Karpenter provider generates from the EC2 API
(KARP), and the AWS guide to EFA on accelerated instances (EFA).
For prices, see `prices.json`. For regions and zones, see `regions.py`. For decisions, see `profile.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from gpuinfra.catalog import gpus
from gpuinfra.catalog.floors import (
    A100_BOARD,
    A100_COPY,
    B200_BOARD,
    B200_COPY,
    B300_BOARD,
    H100_BOARD,
    H100_COPY,
    H100_MEMORY,
    H200_BOARD,
    collective,
    over_link,
)  # fmt: skip
from gpuinfra.catalog.notation import numa_halves
from gpuinfra.catalog.records import (
    CapacityKind,
    Fabric,
    MachineType,
    NicLimits,
    NicShape,
    Source,
)
from gpuinfra.clouds.aws.prices import PRICES
from gpuinfra.clouds.aws.regions import zones_of

KARP = Source(
    page="aws/karpenter-provider-aws:website/content/en/preview/reference/instance-types.md",
    read=date(2026, 8, 18),
    note="limits of interfaces: pkg/providers/instancetype/zz_generated.vpclimits.go of 2026-08-06",
)
EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"

_READ = date(2026, 11, 20)
_TOPOLOGY = "aws/aws-ofi-nccl:topology"
_HWLOC = "ai-dynamo/nixl:test/unit/utils/libfabric/topo"
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


_AWSOME = "awslabs/awsome-distributed-ai at 95b939cd"
_B3_READ = date(2026, 11, 28)
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
    fabric=Fabric(provider="efa", devices=4, gbps=400, generation="v1"),
    nvswitch=True,
    numa_nodes=2,
    numa=numa_halves(8, 4),
    numa_source=f"{_TOPOLOGY}/p4d-24xl-topo.xml, retrieved 2026-11-27",
    hypervisor="nitro-v3",
    capacity=_TRAIN,
    zones=zones_of("use1:1,2,4,6 use2:1-3 usw2:1-4 apne1:4 aps1:1-3 apse2:1,2 cac1:1,2 euc1:1-3 euw1:2 euw2:2,3"),
    block_regions=_US_CB,
    quotas={**_P_QUOTA, K.SPOT: "L-7212CCBC"},
    floors=(
        over_link(3, source=f"{_TOPOLOGY}/p4d-24xl-topo.xml: 8 GT/s and 16 lanes between processor and switch", read=_FLOORS_READ),
        A100_BOARD,
        A100_COPY,
        collective("B3", 70, gib=2, healthy=78.3, source=f"{_AWSOME}:micro-benchmarks/nccl-tests/README.md: 78.3 GB/s between two p4de", read=_READ),
    ),
    source=KARP,
    notes=("EFA on p4d and p4de connects only to nodes of the same machine type.",),
)  # fmt: skip

P4DE = replace(
    P4D,
    name="p4de.24xlarge",
    gpu=gpus.A100_80,
    numa_source=f"{_TOPOLOGY}/p4de-24xl-topo.xml, retrieved 2026-11-27",
    zones=zones_of("use1:4,6 usw2:1-3 apne1:1,4 apse1:2,3 euc1:1,2"),
    block_regions=("us-east-1", "us-west-2"),
)

_H200_PAIR = collective(
    "B3", 335, gib=4, healthy=364.9, source="stas00/ml-engineering at 744d01e1:network/README.md: 364.87 GB/s between four p5en with rings (NCCL 2.27.7), of which two have less traffic between them", read=_B3_READ
)  # fmt: skip

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
    quotas={**_P_QUOTA, K.SPOT: "L-C4BD4855"},
    floors=(
        over_link(
            4, source=f"{_TOPOLOGY}/p5.48xl-topo.xml, machine of the same generation (AMD EPYC 7R13)", read=_FLOORS_READ
        ),
        H100_MEMORY,
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
    numa=numa_halves(8, 32),
    numa_source=f"{_HWLOC}/p5.48xl-topo.xml at 8770b655a6b1, and {_TOPOLOGY}/p5.48xl-topo.xml at 79565c0e5a38, retrieved 2026-11-27",
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
    quotas={**_P_QUOTA, K.SPOT: "L-C4BD4855"},
    floors=(
        over_link(4, source=f"{_TOPOLOGY}/p5.48xl-topo.xml: 16 GT/s and 16 lanes between processor and bridge", read=_FLOORS_READ),
        H100_BOARD,
        H100_COPY,
        H100_MEMORY,
        collective("B3", 400, gib=2, healthy=443.7, source=f"{_AWSOME}:micro-benchmarks/nccl-tests/README.md: 443.7 GB/s between two p5", read=_READ),
    ),
    source=KARP,
)  # fmt: skip

P5E = replace(
    P5,
    name="p5e.48xlarge",
    gpu=gpus.H200,
    numa=(),
    numa_source="",
    zones=zones_of("use2:1-3 usw2:3 apse2:3 apse3:1,3 eun1:1 euw2:2"),
    block_regions=(
        "us-east-2", "us-west-1", "us-west-2", "ap-southeast-3", "ap-south-1", "ap-northeast-1", "ap-southeast-2", "eu-west-2",
        "eu-north-1", "sa-east-1",
    ),
    floors=(
        H200_BOARD,
        H100_COPY,
        _H200_PAIR,
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
    numa=numa_halves(8, 16),
    numa_source=f"{_HWLOC}/p5en.48xl-topo.xml at 8770b655a6b1, retrieved 2026-11-27",
    hypervisor="nitro-v5",
    zones=zones_of(
        "use1:2,6 use2:1-3 usw2:2-4 usw1:3 apne1:4 apne2:1 aps1:1,3 apse3:2,3 eun1:1,3 eus2:1,2 mec1:1,3",
        local={"us-east-1": ("use1-atl2-az1",)},
    ),
    block_regions=(
        "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ap-southeast-3", "ap-south-1", "ap-northeast-2", "ap-northeast-1",
        "eu-west-2", "eu-south-2", "eu-north-1",
    ),
    floors=(
        H200_BOARD,
        H100_COPY,
        _H200_PAIR,
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
    numa=numa_halves(8, 8),
    numa_source=f"{_HWLOC}/p6-b200.48xl-topo.xml at 8770b655a6b1, retrieved 2026-11-27",
    hypervisor="nitro-v6",
    zones=zones_of("use1:6 use2:1-3 usw2:1,2,4", local={"us-east-1": ("use1-atl2-az1",)}),
    block_regions=("us-east-1", "us-east-2", "us-west-2", "ap-south-1", "us-gov-west-1", "us-gov-east-1"),
    quotas=dict(_P_QUOTA),
    floors=(
        B200_BOARD,
        B200_COPY,
        collective("B3", 346, gib=16, healthy=377, source=f"{_AWSOME}:architectures/aws-pcs/tests/compute-test.md: 377 GB/s between four nodes, of which two have less traffic between them", read=_B3_READ),
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
    numa=numa_halves(8, 16),
    numa_source=f"{_DUMPS}/p6-b300/topology.xml at fc901d9319ab, retrieved 2026-11-27",
    zones=zones_of("usw2:2"),
    block_regions=("us-east-1", "us-west-2", "us-gov-east-1"),
    floors=(
        B300_BOARD,
        B200_COPY,
        collective(
            "B3",
            600,
            gib=16,
            healthy=654,
            source=f"{_AWSOME}:architectures/aws-pcs/tests/compute-test.md: 654 GB/s between two nodes",
            read=_B3_READ,
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
) -> MachineType:
    nitro_3 = family == "g5"
    generation = "v1" if nitro_3 else "v2"
    fabric = Fabric(
        provider="efa", devices=efa, gbps=gbps, generation=generation, gpudirect=False, rdma_read=not nitro_3
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
        hypervisor="nitro-v3" if nitro_3 else "nitro-v4",
        capacity=_ANY,
        quotas=_G_QUOTA,
        floors=(_G_FLOORS[gpu],),
        proprietary_module=(
            "On g5, AWS images use the proprietary kernel module with GSP firmware disabled" if nitro_3 else ""
        ),
        source=KARP,
    )


_SMALL = (
    _g("xlarge", "g5", "A10G", 1, 4, 16, 250, 2.5, per_card=4),
    _g("2xlarge", "g5", "A10G", 1, 8, 32, 450, 5, per_card=4),
    _g("4xlarge", "g5", "A10G", 1, 16, 64, 600, 10, per_card=8),
    _g("8xlarge", "g5", "A10G", 1, 32, 128, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g5", "A10G", 1, 64, 256, 1900, 25, efa=1, per_card=8),
    _g("12xlarge", "g5", "A10G", 4, 48, 192, 3800, 40, efa=1, per_card=15),
    _g("24xlarge", "g5", "A10G", 4, 96, 384, 3800, 50, efa=1, per_card=15),
    _g("48xlarge", "g5", "A10G", 8, 192, 768, 7600, 100, efa=1, per_card=7),
    _g("xlarge", "g6", "L4", 1, 4, 16, 250, 2.5, per_card=4),
    _g("2xlarge", "g6", "L4", 1, 8, 32, 450, 5, per_card=4),
    _g("4xlarge", "g6", "L4", 1, 16, 64, 600, 10, per_card=8),
    _g("8xlarge", "g6", "L4", 1, 32, 128, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g6", "L4", 1, 64, 256, 1880, 25, efa=1, per_card=15),
    _g("12xlarge", "g6", "L4", 4, 48, 192, 3760, 40, efa=1, per_card=8),
    _g("24xlarge", "g6", "L4", 4, 96, 384, 3760, 50, efa=1, per_card=15),
    _g("48xlarge", "g6", "L4", 8, 192, 768, 7520, 100, efa=1, per_card=15),
    _g("4xlarge", "gr6", "L4", 1, 16, 128, 600, 10, per_card=8),
    _g("xlarge", "g6e", "L40S", 1, 4, 32, 250, 2.5, per_card=4),
    _g("2xlarge", "g6e", "L40S", 1, 8, 64, 450, 5, per_card=4),
    _g("4xlarge", "g6e", "L40S", 1, 16, 128, 600, 20, per_card=8),
    _g("8xlarge", "g6e", "L40S", 1, 32, 256, 900, 25, efa=1, per_card=8),
    _g("16xlarge", "g6e", "L40S", 1, 64, 512, 1900, 35, efa=1, per_card=15),
    _g("12xlarge", "g6e", "L40S", 4, 48, 384, 3800, 100, efa=1, per_card=10),
    _g("24xlarge", "g6e", "L40S", 4, 96, 768, 3800, 200, efa=2, cards=2, per_card=10),
    _g("48xlarge", "g6e", "L40S", 8, 192, 1536, 7600, 400, efa=4, cards=4, per_card=10),
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

MACHINES = PRICES.machines((P4D, P4DE, P5_4XL, P5, P5E, P5EN, P6_B200, P6_B300, P6E_GB200, *_SMALL, *_CPU))
"""Machine type -> record."""
