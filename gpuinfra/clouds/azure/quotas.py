"""Compares the quotas of a subscription in a region with a plan: vCPUs of nodes, and file systems.

Paths and fields are from the Azure REST API reference. The names of the quotas of file systems are from the examples in Azure/azure-rest-api-specs:
`AmlFilesystem` (Microsoft.StorageCache 2026-01-01, AscResourceUsages_Get) and `totalTibsPerSubscription` (Microsoft.NetApp 2025-06-01, Usages_List),
retrieved 2026-11-27. Azure Managed Lustre counts file systems ("exceeding quota limits of resource type AmlFilesystem. Maximum allowed: 4",
microsoft/mcp issue 1165). Azure NetApp Files counts the TiB of capacity pools:
https://learn.microsoft.com/azure/azure-netapp-files/regional-capacity-quota, retrieved 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.clouds.azure.catalog import MACHINES, SPOT_QUOTA
from gpuinfra.clouds.azure.permissions import PREFLIGHT
from gpuinfra.clouds.azure.region.second_region import SECOND_REGION
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, failed, quota_needs, quota_row
from gpuinfra.clouds.region.second_region import Quota
from gpuinfra.plan.model import Plan, PoolPlan

COMPUTE, STORAGE_CACHE, NETAPP = "2024-07-01", "2026-01-01", "2025-06-01"
"""Versions of the APIs."""
REGIONAL_QUOTA = "cores"
"""The quota of all dedicated vCPUs in a region (Total Regional vCPUs), which applies in addition to the quota of the family."""
LUSTRE_QUOTA, NETAPP_QUOTA = "AmlFilesystem", "totalTibsPerSubscription"
GIB_PER_TIB = 1024

Every = Callable[[str, str, str], list[dict[str, Any]]]
"""Returns all entries of a list. The arguments are the permission, the path and the API version."""


class Quotas:
    """Requests for the quotas of one subscription in one region."""

    def __init__(self, every: Every, subscription: str, region: str) -> None:
        self.every, self.subscription, self.region = every, subscription, region

    def questions(self, plan: Plan) -> Iterator[PreflightQuestion]:
        """Yield one question for each service with quotas that the plan uses."""
        if plan.pools:
            yield PreflightQuestion(topic="quota", where=self.region, ask=lambda: self.vcpus(plan))
        if lustre := [one for one in plan.file_systems if one.kind == "lustre"]:
            yield PreflightQuestion(topic="quota", where=LUSTRE_QUOTA, ask=lambda: self.lustre(len(lustre)))
        if pools := [one for one in plan.file_systems if one.service == "netapp"]:
            tib = sum(-(-one.capacity_gib // GIB_PER_TIB) for one in pools)
            yield PreflightQuestion(topic="quota", where=NETAPP_QUOTA, ask=lambda: self.netapp(tib))

    def vcpus(self, plan: Plan) -> Iterator[PreflightRow]:
        """The quotas of the families, of all dedicated vCPUs in the region, and of all spot vCPUs cover the nodes.

        A family that the subscription does not list has no quota: https://learn.microsoft.com/azure/quotas/per-vm-quota-requests, retrieved 2026-11-20.
        """
        listed = self.every(PREFLIGHT["quota"][0], self._path("Microsoft.Compute"), COMPUTE)
        usages = {_plain((one.get("name") or {}).get("value")): one for one in listed}
        for name, kinds in sorted(quota_needs(plan, of_node).items()):
            usage, total = usages.get(_plain(name), {}), sum(kinds.values())
            yield quota_row(
                f"{name} in {self.region}",
                int(usage.get("limit") or 0),
                int(usage.get("currentValue") or 0),
                total,
                lambda total, name=name: self._request(name, total),
                # A capacity reservation uses quota when it is created, so the usage includes its nodes.
                added=total - kinds.get("reserved", 0),
                unit="vCPUs",
            )

    def lustre(self, count: int) -> Iterator[PreflightRow]:
        """The quota covers the file systems of Azure Managed Lustre."""
        listed = self.every(PREFLIGHT["quota"][1], self._path("Microsoft.StorageCache"), STORAGE_CACHE)
        usage = _named(listed, LUSTRE_QUOTA, "Microsoft.StorageCache")
        yield self._row(LUSTRE_QUOTA, usage, count, "file systems", "Azure Managed Lustre")

    def netapp(self, tib: int) -> Iterator[PreflightRow]:
        """The regional capacity quota covers the capacity pools of Azure NetApp Files."""
        listed = self.every(PREFLIGHT["quota"][2], self._path("Microsoft.NetApp"), NETAPP)
        usage = _named(listed, NETAPP_QUOTA, "Microsoft.NetApp").get("properties") or {}
        yield self._row(NETAPP_QUOTA, usage, tib, "TiB", "Azure NetApp Files")

    def _row(self, name: str, usage: Mapping[str, Any], total: int, unit: str, service: str) -> PreflightRow:
        return quota_row(
            f"{name} in {self.region}",
            int(usage.get("limit") or 0),
            int(usage.get("currentValue") or 0),
            total,
            # Microsoft.Quota, which `az quota update` calls, does not have these services.
            lambda total: (
                f"create a support request in the Azure portal: Service and subscription limits (quotas), {service}, "
                f"{self.region}, new limit {total} {unit}, subscription {self.subscription}"
            ),
            unit=unit,
            of="file systems",
        )

    def _path(self, namespace: str) -> str:
        return f"/subscriptions/{self.subscription}/providers/{namespace}/locations/{self.region}/usages"

    def _request(self, name: str, total: int) -> str:
        quota = Quota(name=name, per_node=1, unit="vCPUs")
        return SECOND_REGION.request(quota, total, self.region, self.subscription)


def of_node(pool: PoolPlan, kind: CapacityKind) -> list[tuple[str, int]]:
    """Return the quotas against which the vCPUs of a node count: the quota of all spot vCPUs, or the quotas of the family and of the region."""
    machine = MACHINES[pool.machine]
    name = machine.quotas[kind]
    return [(one, machine.vcpus) for one in ((name,) if name == SPOT_QUOTA else (name, REGIONAL_QUOTA))]


def _named(listed: list[dict[str, Any]], name: str, namespace: str) -> dict[str, Any]:
    """Return the usage with this name. Raises `Unanswered` if the answer does not contain it."""
    entry = next((one for one in listed if _plain((one.get("name") or {}).get("value")) == _plain(name)), None)
    if entry is None:
        raise failed(f"{namespace}/locations/usages/read", f"the answer does not contain {name}")
    return entry


def _plain(name: object) -> str:
    """Return a name without case and spaces. Azure uses several spellings of quotas."""
    return str(name or "").replace(" ", "").lower()
