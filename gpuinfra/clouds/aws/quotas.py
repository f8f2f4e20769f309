"""Compares the quotas of a Region with a plan: vCPUs of nodes, and file systems.

Quota codes of file systems and their units: a published list of `ListServiceQuotas` of all services (fsx and elasticfilesystem), and NVIDIA's
validation suite ai-cloud-validation, which reads L-8F1B9C74 in GiB; both retrieved 2026-11-27. AWS counts each deployment type of Lustre
separately: https://docs.aws.amazon.com/fsx/latest/LustreGuide/limits.html, retrieved 2026-11-27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuinfra.clouds.aws.api_errors import asked, code_of
from gpuinfra.clouds.aws.region.recovery import quota_request
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, Unanswered, failed, quota_row
from gpuinfra.plan.model import FileSystemPlan, Plan

SYSTEMS, GIB, MB_S = "file systems", "GiB", "MB/s"
_PERSISTENT_1, _PERSISTENT_2, _SCRATCH = (
    {"L-9AFA1F09": SYSTEMS, "L-C8640C82": GIB},
    {"L-FD6F2F22": SYSTEMS, "L-8F1B9C74": GIB},
    {"L-C48231E5": SYSTEMS, "L-AD2FC696": GIB},
)
LUSTRE = {
    "PERSISTENT_1": _PERSISTENT_1,
    "PERSISTENT_2": _PERSISTENT_2,
    "SCRATCH_1": _SCRATCH,
    "SCRATCH_2": _SCRATCH,
}
"""Maps a deployment type to the codes of its quotas and their units."""
OPENZFS = {"L-59D0763F": SYSTEMS, "L-88479C21": GIB, "L-4EDE4065": MB_S}
EFS = {"L-848C634D": SYSTEMS}


class Quotas:
    """Requests for the quotas of one account in one Region."""

    def __init__(self, client: Callable[[str], Any], region: str) -> None:
        """`client` returns the boto3 client of a service."""
        self.client, self.region = client, region

    def questions(self, plan: Plan) -> Iterator[PreflightQuestion]:
        """Yield one question for each kind of file system that the stack creates."""
        needs: dict[tuple[str, ...], list[FileSystemPlan]] = {}
        for entry in plan.file_systems:
            if codes := _codes(entry):
                needs.setdefault(tuple(codes), []).append(entry)
        for entries in needs.values():
            where = ", ".join(entry.name for entry in entries)
            yield PreflightQuestion(topic="quota", where=where, ask=lambda entries=entries: self.file_systems(entries))

    def file_systems(self, entries: list[FileSystemPlan]) -> Iterator[PreflightRow]:
        """The quotas cover file systems of one kind. A file system of the stack that exists already is part of the usage."""
        codes, service = _codes(entries[0]), _service(entries[0])
        need = sum(map(_needed, entries), Counter[str]())
        try:
            used, unread = self._created(codes, service), ""
        except Unanswered as error:
            used, unread = None, error.found
        for code, unit in codes.items():
            quota = self._quota(service, code)
            yield quota_row(
                f"{quota.get('QuotaName', code)} ({code}) in {self.region}",
                float(quota["Value"]),
                None if used is None else used[unit],
                need[unit],
                lambda total, code=code: quota_request(code, total, self.region, service),
                unit=unit,
                of=SYSTEMS,
                unread=unread,
            )

    def _created(self, codes: Mapping[str, str], service: str) -> Counter[str]:
        """Return what the file systems of the account use of these quotas."""
        if service == "elasticfilesystem":
            with asked("elasticfilesystem:DescribeFileSystems"):
                pages = self.client("efs").get_paginator("describe_file_systems").paginate()
                return Counter({SYSTEMS: sum(len(page["FileSystems"]) for page in pages)})
        with asked("fsx:DescribeFileSystems"):
            pages = self.client("fsx").get_paginator("describe_file_systems").paginate()
            return sum(_amounts(codes, (one for page in pages for one in page["FileSystems"])), Counter[str]())

    def vcpus(self, code: str, needs: Mapping[str, int]) -> Iterator[PreflightRow]:
        """The quota covers the vCPUs of all nodes. `needs` maps a kind of capacity to its vCPUs.

        EC2 quotas count the vCPUs of running instances by family, and separately for spot; reservations count even when they are unused:
        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits, retrieved 2026-11-22.
        """
        quota = self._quota("ec2", code)
        total = sum(needs.values())
        used, unread = self._usage(quota.get("UsageMetric"))
        yield quota_row(
            f"{quota.get('QuotaName', code)} ({code}) in {self.region}",
            float(quota["Value"]),
            used,
            total,
            lambda total: quota_request(code, total, self.region),
            # The usage already includes the nodes of a reservation, because a reservation counts even when it is unused.
            added=total - needs.get("reserved", 0),
            unit="vCPUs",
            unread=unread,
        )

    def _quota(self, service: str, code: str) -> dict[str, Any]:
        """Return a quota of the account, or AWS's default if the account has no value."""
        from botocore.exceptions import ClientError

        quotas = self.client("service-quotas")
        with asked("servicequotas:GetServiceQuota"):
            try:
                quota = quotas.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
            except ClientError as error:
                if code_of(error) != "NoSuchResourceException":
                    raise
                quota = None
        if quota is None:
            with asked("servicequotas:GetAWSDefaultServiceQuota"):
                quota = quotas.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
        if reason := quota.get("ErrorReason"):
            raise failed("servicequotas:GetServiceQuota", f"{reason.get('ErrorCode')}: {reason.get('ErrorMessage')}")
        return dict(quota)

    def _usage(self, metric: Mapping[str, Any] | None) -> tuple[float | None, str]:
        """Return the highest usage in the last hour, from the metric that Service Quotas specifies, or the reason why it is unknown."""
        if not metric:
            return None, "the quota has no metric"
        now = datetime.now(UTC)
        statistic = str(metric.get("MetricStatisticRecommendation") or "Maximum")
        dimensions = [{"Name": key, "Value": value} for key, value in metric.get("MetricDimensions", {}).items()]
        try:
            with asked("cloudwatch:GetMetricStatistics"):
                points = self.client("cloudwatch").get_metric_statistics(
                    Namespace=metric["MetricNamespace"],
                    MetricName=metric["MetricName"],
                    Dimensions=dimensions,
                    StartTime=now - timedelta(hours=1),
                    EndTime=now,
                    Period=3600,
                    Statistics=[statistic],
                )["Datapoints"]
        except Unanswered as error:
            return None, error.found
        # AWS publishes no data points while the quota is not in use.
        return max((float(one[statistic]) for one in points), default=0.0), ""


def _codes(entry: FileSystemPlan) -> Mapping[str, str]:
    if entry.kind == "lustre":
        return LUSTRE[entry.deployment]
    return {"efs": EFS, "openzfs": OPENZFS}.get(entry.service, {})


def _service(entry: FileSystemPlan) -> str:
    """Return the service code of Service Quotas."""
    return "elasticfilesystem" if entry.service == "efs" else "fsx"


def _needed(entry: FileSystemPlan) -> Counter[str]:
    return Counter({SYSTEMS: 1, GIB: entry.capacity_gib, MB_S: entry.throughput_mb_s or 0})


def _amounts(codes: Mapping[str, str], file_systems: Iterable[Mapping[str, Any]]) -> Iterator[Counter[str]]:
    """Yield what each file system uses of these quotas."""
    for file_system in file_systems:
        kind = str((file_system.get("LustreConfiguration") or {}).get("DeploymentType"))
        counted = OPENZFS if file_system.get("FileSystemType") == "OPENZFS" else LUSTRE.get(kind)
        if counted == codes:
            throughput = (file_system.get("OpenZFSConfiguration") or {}).get("ThroughputCapacity")
            yield Counter({SYSTEMS: 1, GIB: int(file_system.get("StorageCapacity") or 0), MB_S: int(throughput or 0)})
