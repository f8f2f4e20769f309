"""Searches for Capacity Blocks that continue or replace the Capacity Block of a group. All requests are read-only, and gpuinfra never buys a block.

EC2 returns the offering that fits the search best (API references of DescribeCapacityBlockOfferings and
DescribeCapacityBlockExtensionOfferings, and the page "Extend Capacity Blocks" of the EC2 user guide, retrieved 2026-11-26).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any

from gpuinfra.clouds.aws.api_errors import asked
from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.preflight import Preflight
from gpuinfra.clouds.aws.reservations import moment
from gpuinfra.clouds.offerings import Offering, Search, Wanted
from gpuinfra.clouds.preflight import Unanswered

READS = ("ec2:DescribeCapacityBlockOfferings", "ec2:DescribeCapacityBlockExtensionOfferings")
"""Permissions that the search requires."""
EXTENSION_LEAD = timedelta(hours=1)
"""A Capacity Block can be extended until one hour before its end."""
PLATFORM = "Linux/UNIX"


def allowed_days(days: int) -> int:
    """Return the length of an offering that AWS sells: 1 to 14 days, or whole weeks up to 26."""
    return max(1, days) if days <= 14 else min(182, -(-days // 7) * 7)


def connect(region: str, config: Mapping[str, object]) -> Search:
    """Return the search in a region."""
    cloud = Preflight(region, config)

    def find(wanted: Wanted, now: datetime) -> Iterator[Offering]:
        cloud.find_credentials()
        yield from search(cloud, wanted, now)

    return find


def search(cloud: Preflight, wanted: Wanted, now: datetime) -> Iterator[Offering]:
    """Yield the extension of a Capacity Block and the next Capacity Block. Raises `Unanswered`, for a refused extension after the next block."""
    record = MACHINES.get(wanted.machine)
    if record and record.unit_nodes:
        fix = (
            "aws ec2 describe-capacity-block-offerings --ultraserver-type TYPE --ultraserver-count COUNT --capacity-duration-hours "
            f"{allowed_days(wanted.days) * 24} --region {cloud.region}"
        )
        raise Unanswered("gpuinfra does not search for UltraServers", "a search by UltraServer type", fix)
    hours = allowed_days(wanted.days) * 24
    refused: Unanswered | None = None
    if now < wanted.ends - EXTENSION_LEAD:
        try:
            yield from _extensions(cloud, wanted, hours)
        except Unanswered as problem:
            # EC2 extends a block only if it is scheduled or active and has no extension that waits for its payment. The next block does not depend on this.
            refused = problem
    yield from _blocks(cloud, wanted, hours, max(now, wanted.ends))
    if refused is not None:
        raise refused


def _extensions(cloud: Preflight, wanted: Wanted, hours: int) -> Iterator[Offering]:
    with asked(READS[1]):
        answer = cloud.client("ec2").describe_capacity_block_extension_offerings(
            CapacityReservationId=wanted.reservation, CapacityBlockExtensionDurationHours=hours
        )
    for extension in answer["CapacityBlockExtensionOfferings"]:
        ident = str(extension["CapacityBlockExtensionOfferingId"])
        command = (
            f"aws ec2 purchase-capacity-block-extension --capacity-block-extension-offering-id {quote(ident)} "
            f"--capacity-reservation-id {quote(wanted.reservation)} --region {cloud.region}"
        )
        yield _offering(extension, "extension", ident, "CapacityBlockExtensionStartDate", "CapacityBlockExtensionEndDate", command)  # fmt: skip


def _blocks(cloud: Preflight, wanted: Wanted, hours: int, after: datetime) -> Iterator[Offering]:
    with asked(READS[0]):
        answer = cloud.client("ec2").describe_capacity_block_offerings(
            InstanceType=wanted.machine,
            InstanceCount=wanted.nodes,
            CapacityDurationHours=hours,
            StartDateRange=after.astimezone(UTC),
        )
    for block in answer["CapacityBlockOfferings"]:
        ident = str(block["CapacityBlockOfferingId"])
        command = f"aws ec2 purchase-capacity-block --capacity-block-offering-id {quote(ident)} --instance-platform {PLATFORM} --region {cloud.region}"
        yield _offering(block, "block", ident, "StartDate", "EndDate", command)


def _offering(answer: Mapping[str, Any], kind: str, ident: str, start: str, end: str, command: str) -> Offering:
    return Offering(
        kind=kind,
        id=ident,
        machine=str(answer.get("InstanceType") or ""),
        nodes=int(answer.get("InstanceCount") or 0),
        zone=str(answer.get("AvailabilityZone") or ""),
        starts=moment(answer.get(start)),
        ends=moment(answer.get(end)),
        price=str(answer.get("UpfrontFee") or ""),
        currency=str(answer.get("CurrencyCode") or ""),
        command=command,
    )
