"""Azure regions and region pairs.

A region without a pair does not support geo-redundant storage, so you can choose any second region.
https://learn.microsoft.com/azure/reliability/regions-paired, 2025-01-13
"""

from __future__ import annotations

from gpuinfra.clouds.azure.prices import PRICES

_BOTH_WAYS = (
    ("eastus", "westus"),
    ("eastus2", "centralus"),
    ("northcentralus", "southcentralus"),
    ("westus2", "westcentralus"),
    ("canadacentral", "canadaeast"),
    ("northeurope", "westeurope"),
    ("uksouth", "ukwest"),
    ("francecentral", "francesouth"),
    ("germanywestcentral", "germanynorth"),
    ("norwayeast", "norwaywest"),
    ("swedencentral", "swedensouth"),
    ("switzerlandnorth", "switzerlandwest"),
    ("japaneast", "japanwest"),
    ("koreacentral", "koreasouth"),
    ("southeastasia", "eastasia"),
    ("australiaeast", "australiasoutheast"),
    ("southafricanorth", "southafricawest"),
    ("uaenorth", "uaecentral"),
    ("centralindia", "southindia"),
)
_ONE_WAY = (("westus3", "eastus"), ("brazilsouth", "southcentralus"))
PAIRS = {
    **{first: second for first, second in _BOTH_WAYS},
    **{second: first for first, second in _BOTH_WAYS},
    **dict(_ONE_WAY),
}
"""Maps a region to the region to which geo-redundant storage replicates."""

UNPAIRED = (
    "italynorth", "polandcentral", "spaincentral", "israelcentral", "qatarcentral", "mexicocentral", "newzealandnorth", "austriaeast",
    "indonesiacentral", "malaysiawest", "southeastus",
)  # fmt: skip
"""Regions without a pair."""

REGIONS = frozenset(PAIRS) | frozenset(UNPAIRED)

_DIRECTION = "(?:north|south|east|west|central){1,2}"
REGION_FORM = (
    rf"{_DIRECTION}(?:us|europe|asia|india)\d?|(?!{_DIRECTION})[a-z]{{2,}}?{_DIRECTION}\d?|us(?:gov|dod)[a-z]+"
)
"""Form of the names of regions: a direction and a part of the world, or a country and a direction, such as `southeastus3` and `chilecentral`."""

WITHOUT_ZONES = frozenset(
    (
        "westus", "northcentralus", "westcentralus", "canadaeast", "ukwest", "francesouth", "germanynorth", "norwaywest", "swedensouth",
        "switzerlandwest", "koreasouth", "australiasoutheast", "southafricawest", "uaecentral", "southindia", "southeastus",
    )
)  # fmt: skip
"""Regions without availability zones. https://learn.microsoft.com/azure/reliability/regions-list, retrieved 2026-11-22."""

RDMA_NETWORK = "172.16.0.0/16"
"""The range that Azure reserves for InfiniBand. Networks and their peers must not overlap it.

https://learn.microsoft.com/azure/virtual-machines/setup-infiniband, 2026-09-25
"""

LUSTRE_SKUS = {
    40: ("AMLFS-Durable-Premium-40", 48, 768),
    125: ("AMLFS-Durable-Premium-125", 16, 128),
    250: ("AMLFS-Durable-Premium-250", 8, 128),
    500: ("AMLFS-Durable-Premium-500", 4, 128),
}
"""Maps throughput in MB/s per TiB to SKU, increment and minimum in TiB, and default maximum in TiB.

https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-resource-manager, 2024-11-11;
kubernetes-sigs/azurelustre-csi-driver:pkg/azurelustre/azurelustre_test.go. Larger sizes require a support request.
"""

LUSTRE_SUBNETS = ((16, 27), (40, 26), (92, 25), (196, 24), (400, 23))
"""Maps a capacity in TiB to the prefix length of a subnet that is large enough for it. Each file system has its own subnet.

https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites
"""

SERVICE_PRICES = PRICES.services(REGIONS)
"""Prices of services other than nodes. The prices of Managed Lustre are estimates."""
