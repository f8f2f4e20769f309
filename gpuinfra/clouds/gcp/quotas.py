"""Compares the quotas of a project with a plan: GPUs or vCPUs of nodes, and file systems.

The Cloud Quotas API is documented at https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos
(retrieved 2026-11-23). The IDs of the quotas of file systems are from Google's code, retrieved 2026-11-27:

- `EnterpriseStorageGibPerRegion` for zonal Filestore instances: quota checks of GoogleCloudPlatform/cluster-toolkit.
- `Capacity`, by zone, for Managed Lustre: Google's sample hypercomputer_gpu_tune_gemma3_27b_nemo_rl_lustre. The quota can differ by network
  (`network_name`), and a value of -1 is no limit: managed-lustre/README.md and find_available_zone.sh in cluster-toolkit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.gcp.api_errors import Invalid, NotFound
from gpuinfra.clouds.gcp.catalog import MACHINES
from gpuinfra.clouds.gcp.region.recovery import quota_preference, quota_request
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, failed, quota_needs, quota_row, skipped
from gpuinfra.plan.model import FileSystemPlan, Plan, PoolPlan

FILESTORE, LUSTRE = "EnterpriseStorageGibPerRegion", "Capacity"
LARGE_ZONAL_GIB = 10240
"""Smallest capacity of the upper range of the zonal tier, which replaces high scale SSD
(docs.cloud.google.com/filestore/docs/service-tiers-zonal, retrieved 2026-11-27)."""
UNLIMITED = "-1"


class Quotas:
    """Requests for the quotas of one project in one region."""

    def __init__(self, get: Callable[..., dict[str, Any]], project: str, region: str) -> None:
        """`get` sends a request to an API and returns the response."""
        self.get, self.project, self.region = get, project, region

    def questions(self, plan: Plan) -> Iterator[PreflightQuestion]:
        """Yield one question for each quota that the plan uses."""
        for name, needs in sorted(quota_needs(plan, of_node).items()):
            yield PreflightQuestion(topic="quota", where=name, ask=functools.partial(self.nodes, name, needs))
        homes = [one for one in plan.file_systems if one.service == "filestore"]
        if homes:
            yield PreflightQuestion(topic="quota", where=FILESTORE, ask=functools.partial(self.filestore, homes))
        lustre = [one for one in plan.file_systems if one.kind == "lustre"]
        existing = plan.network.existing_id if plan.network else None
        network = str(existing or "").rpartition("/")[2]
        for zone in sorted({str(one.zone) for one in lustre}):
            gib = sum(one.capacity_gib for one in lustre if one.zone == zone)
            yield PreflightQuestion(topic="quota", where=zone, ask=functools.partial(self.lustre, zone, network, gib))

    def nodes(self, name: str, needs: Mapping[str, int]) -> Iterator[PreflightRow]:
        """The quota covers all nodes. `needs` maps a kind of capacity to GPUs, or to vCPUs for machine types without GPUs.

        Older families have a regional metric that includes the usage. Newer families have a quota per family without usage.
        """
        if not name:
            fix = quota_request("", 0, self.region, self.project)
            yield skipped("quota", ", ".join(needs), "no quota is known for this kind of capacity", fix)
            return
        quota_id, _, family = name.partition(" ")
        key, _, value = family.partition("=")
        if family:
            place = {"region": self.region, key: value}
            limit, used = self._limit("compute.googleapis.com", quota_id, self.region, place), None
        else:
            limit, used = self._by_metric(quota_id)
        total = sum(needs.values())
        yield quota_row(
            f"{name} in {self.region}",
            limit,
            used,
            total,
            lambda total: quota_request(name, total, self.region, self.project),
            # A reservation uses quota when it is created, so the usage includes its nodes.
            added=total - needs.get("reserved", 0),
        )

    def filestore(self, homes: list[FileSystemPlan]) -> Iterator[PreflightRow]:
        """The quota covers the zonal Filestore instances below 10 TiB. No public source names the quota of larger instances."""
        service = "file.googleapis.com"
        if large := [one.name for one in homes if one.capacity_gib >= LARGE_ZONAL_GIB]:
            fix = f"gcloud quotas info list --service={service} --project={self.project}"
            why = "no quota is known for zonal instances of 10 TiB or more"
            yield skipped("quota", ", ".join(large), why, fix)
        if total := sum(one.capacity_gib for one in homes if one.capacity_gib < LARGE_ZONAL_GIB):
            place = {"region": self.region}
            yield self._storage(service, FILESTORE, self.region, place, total)

    def lustre(self, zone: str, network: str, total: int) -> Iterator[PreflightRow]:
        """The quota covers the Managed Lustre instances in a zone. `network` is the name of an existing network, or empty."""
        dimensions = {"zone": zone, "network_name": network}
        yield self._storage("lustre.googleapis.com", LUSTRE, zone, dimensions, total)

    def _storage(self, service: str, quota_id: str, place: str, limits: Mapping[str, str], total: int) -> PreflightRow:
        dimensions = {key: value for key, value in limits.items() if value}
        return quota_row(
            f"{service}/{quota_id} in {place}",
            self._limit(service, quota_id, place, limits),
            None,
            total,
            lambda total: quota_preference(service, quota_id, total, dimensions, self.project),
            unit="GiB",
            of="file systems",
        )

    def _by_metric(self, metric: str) -> tuple[float, float]:
        try:
            quotas = self.get("compute", f"projects/{self.project}/regions/{self.region}").get("quotas") or ()
        except (NotFound, Invalid) as error:
            raise failed("compute.googleapis.com", str(error)) from None
        quota = next((one for one in quotas if one.get("metric") == metric), None)
        if quota is None:
            raise failed("compute.googleapis.com", f"the region has no metric {metric}")
        return float(quota.get("limit") or 0), float(quota.get("usage") or 0)

    def _limit(self, service: str, quota_id: str, place: str, limits: Mapping[str, str]) -> float:
        """Return the limit for a region or zone and these dimensions. The most specific entry applies. A missing entry or value means a limit of 0."""
        path = f"v1/projects/{self.project}/locations/global/services/{service}/quotaInfos/{quota_id}"
        try:
            entries = self.get("cloudquotas", path).get("dimensionsInfos") or ()
        except (NotFound, Invalid) as error:
            raise failed("cloudquotas.googleapis.com", str(error)) from None
        fitting = []
        for entry in entries:
            dimensions = entry.get("dimensions") or {}
            places = entry.get("applicableLocations") or [place]
            if place in places and all(limits.get(key, value) == value for key, value in dimensions.items()):
                value = str((entry.get("details") or {}).get("value") or 0)
                fitting.append((len(dimensions), math.inf if value == UNLIMITED else float(value)))
        return max(fitting, default=(0, 0.0), key=lambda one: one[0])[1]


def of_node(pool: PoolPlan, kind: CapacityKind) -> list[tuple[str, int]]:
    """Return a node's quota and its number of GPUs, or of vCPUs if it has no GPUs. The quota name is empty if it is unknown."""
    machine = MACHINES[pool.machine]
    return [(machine.quotas.get(kind, ""), machine.gpus or machine.vcpus)]
