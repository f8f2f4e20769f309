"""Google Cloud regions, reserved addresses and Managed Lustre sizes."""

from __future__ import annotations

import re

from gpuinfra.clouds.gcp.prices import PRICES

REGIONS = frozenset(
    {
        "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3", "asia-south1",
        "asia-south2", "asia-southeast1", "asia-southeast2", "australia-southeast1", "australia-southeast2", "europe-central2",
        "europe-north1", "europe-north2", "europe-southwest1", "europe-west1", "europe-west10", "europe-west12", "europe-west2",
        "europe-west3", "europe-west4", "europe-west6", "europe-west8", "europe-west9", "me-central1", "me-central2", "me-west1",
        "northamerica-northeast1", "northamerica-northeast2", "northamerica-south1", "southamerica-east1", "southamerica-west1",
        "us-central1", "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
    }
)  # fmt: skip
"""https://cloud.google.com/compute/docs/regions-zones, retrieved 2026-11"""

REGION_FORM = r"(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-(?:north|south)?(?:north|south|east|west|central)\d{1,2}"
"""Form of the names of regions, such as `us-west8` and `asia-southeast3`."""

SCHEDULER_REGIONS = frozenset(
    {
        "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3", "asia-south1", "asia-south2", "asia-southeast1",
        "asia-southeast2", "asia-southeast3", "australia-southeast1", "europe-central2", "europe-west1", "europe-west12", "europe-west2",
        "europe-west3", "europe-west4", "europe-west6", "me-central1", "me-central2", "me-west1", "northamerica-northeast1",
        "northamerica-northeast2", "southamerica-east1", "us-central1", "us-east1", "us-east4", "us-west1", "us-west2", "us-west3", "us-west4",
    }
)  # fmt: skip
"""Regions in which Cloud Scheduler is known to exist. It can exist in more.

https://docs.cloud.google.com/scheduler/docs/locations (its first rows) and release-notes (April and September 2026); retrieved 2026-11-30. The others are
the regions of Cloud Tasks (inferred: both services began in the regions of App Engine; https://cloud.google.com/tasks/docs/locations, retrieved 2026-11-30).
A job with an HTTP target needs no App Engine app (https://cloud.google.com/scheduler/docs/setup, retrieved 2026-11-30)."""

IAP_RANGE = "35.235.240.0/20"
"""Source addresses of IAP TCP forwarding. GoogleCloudPlatform/cluster-toolkit:modules/network/vpc/main.tf"""
RESERVED_ADDRESSES = 4
"""Number of addresses that Google Cloud reserves in each primary range (inferred)."""


def region_of(zone: str) -> str | None:
    """Return the region of a zone, or `None` if the name matches no region."""
    region, dash, letter = zone.rpartition("-")
    return region if dash and re.fullmatch(REGION_FORM, region) and re.fullmatch("[a-z]", letter) else None


LUSTRE_TIERS = {
    125: (72_000, 12_240_000, ((None, 72_000),)),
    250: (36_000, 40_032_000, ((6_120_000, 36_000), (None, 288_000))),
    500: (18_000, 20_016_000, ((3_060_000, 18_000), (None, 144_000))),
    1000: (9_000, 10_008_000, ((1_530_000, 9_000), (None, 72_000))),
}
"""Maps throughput in MB/s per TiB to the minimum in GiB, the maximum in GiB, and increments as (up to GiB, increment in GiB).

https://docs.cloud.google.com/managed-lustre/docs/quotas, retrieved 2026-11; an instance created below an increment boundary can grow only up to that boundary.
"""

SERVICE_PRICES = PRICES.services(REGIONS)
"""Prices of services other than nodes. The prices of Managed Lustre do not come from a primary source."""
