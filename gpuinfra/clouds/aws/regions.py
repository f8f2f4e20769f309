"""AWS Regions and zone IDs.

Zones are identified by zone ID (`use1-az4`), because zone letters differ between accounts.
"""

from __future__ import annotations

import re

from gpuinfra.clouds.aws.prices import PRICES

PREFIXES = {
    "us-east-1": "use1",
    "us-east-2": "use2",
    "us-west-1": "usw1",
    "us-west-2": "usw2",
    "af-south-1": "afs1",
    "ap-east-1": "ape1",
    "ap-south-1": "aps1",
    "ap-south-2": "aps2",
    "ap-northeast-1": "apne1",
    "ap-northeast-2": "apne2",
    "ap-northeast-3": "apne3",
    "ap-southeast-1": "apse1",
    "ap-southeast-2": "apse2",
    "ap-southeast-3": "apse3",
    "ap-southeast-4": "apse4",
    "ap-southeast-5": "apse5",
    "ap-southeast-7": "apse7",
    "ca-central-1": "cac1",
    "ca-west-1": "caw1",
    "eu-central-1": "euc1",
    "eu-central-2": "euc2",
    "eu-north-1": "eun1",
    "eu-south-1": "eus1",
    "eu-south-2": "eus2",
    "eu-west-1": "euw1",
    "eu-west-2": "euw2",
    "eu-west-3": "euw3",
    "il-central-1": "ilc1",
    "me-central-1": "mec1",
    "me-south-1": "mes1",
    "mx-central-1": "mxc1",
    "sa-east-1": "sae1",
    "us-gov-east-1": "usge1",
    "us-gov-west-1": "usgw1",
}
"""Maps a Region to the prefix of its zone IDs. https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html, retrieved 2026-08."""

UNLISTED = (
    "ap-east-2", "ap-southeast-6", "me-west-1", "sa-west-1", "cn-north-1", "cn-northwest-1", "eusc-de-east-1", "us-iso-east-1", "us-iso-west-1",
    "us-isob-east-1", "us-isob-west-1", "eu-isoe-west-1", "us-isof-east-1", "us-isof-south-1",
)  # fmt: skip
"""Regions of botocore 1.43 that are not in `PREFIXES`. The prices, the machine types and the images of these Regions are not known."""


def zone_prefix(region: str) -> str:
    """Return the prefix of the zone IDs of a Region: `use1` of `us-east-1`. All prefixes in `PREFIXES` have this form; for other Regions, it is inferred."""
    first, *middle, number = region.split("-")
    words = (re.findall("gov|iso[bef]?|north|south|east|west|central", word) or [word] for word in middle)
    return first + "".join(part[0] for word in words for part in word) + number


_REGIONS = {zone_prefix(region): region for region in UNLISTED} | {
    prefix: region for region, prefix in PREFIXES.items()
}
LOCAL_ZONES = {"us-east-1": ("use1-atl2-az1", "us-east-1-dfw-2a")}
"""Maps a Region to its Local Zones with GPU machine types. An account must opt in to Local Zones."""


WITHOUT_OPENZFS = frozenset(
    {
        "af-south-1", "ap-east-1", "ap-northeast-3", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5", "ap-southeast-7", "ca-west-1", "eu-south-1",
        "us-gov-east-1",
    }
)  # fmt: skip
"""Regions without FSx for OpenZFS of the type SINGLE_AZ_2 (https://docs.aws.amazon.com/fsx/latest/OpenZFSGuide/available-aws-regions.html, retrieved
2026-11-27). Other Regions are not verified."""


def region_of(zone: str) -> str | None:
    """Return the Region of a zone ID, or `None` if the ID matches no Region."""
    for region, zones in LOCAL_ZONES.items():
        if zone in zones:
            return region
    match = re.fullmatch(r"([a-z]+\d)-az[1-6]", zone)
    return _REGIONS.get(match[1]) if match else None


def zone_number(zone: str) -> int:
    """Return the number in a zone ID. Local Zones are numbered from 7, because a Region has at most six Availability Zones."""
    if match := re.fullmatch(r"[a-z]+\d-az(\d)", zone):
        return int(match[1])
    return 7


def partition(region: str) -> str:
    """`aws`, `aws-us-gov`, `aws-cn` or another partition of botocore."""
    return next((name for prefix, name in _PARTITIONS.items() if region.startswith(prefix)), "aws")


_PARTITIONS = {
    "us-gov-": "aws-us-gov",
    "cn-": "aws-cn",
    "eusc-": "aws-eusc",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
}
"""Maps the beginning of the names of Regions to the partition (botocore 1.43: `partitions.json`)."""


def zones_of(text: str, local: dict[str, tuple[str, ...]] | None = None) -> dict[str, tuple[str, ...]]:
    """Parse text such as `use1:1,2,4 usw2:1-4` into zone IDs by Region."""
    zones_of_region: dict[str, tuple[str, ...]] = {}
    for part in text.split():
        prefix, numbers = part.split(":")
        zones: list[int] = []
        for piece in numbers.split(","):
            low, _, high = piece.partition("-")
            zones.extend(range(int(low), int(high or low) + 1))
        zones_of_region[_REGIONS[prefix]] = tuple(f"{prefix}-az{number}" for number in zones)
    for region, extra in (local or {}).items():
        zones_of_region[region] = (*zones_of_region.get(region, ()), *extra)
    return zones_of_region


SERVICE_PRICES = PRICES.services(frozenset(PREFIXES))
"""Prices of services other than nodes. A plan lists the prices of bucket storage, logs and data events per unit, because their cost depends on usage."""
