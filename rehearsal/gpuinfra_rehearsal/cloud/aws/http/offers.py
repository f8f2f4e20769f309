"""Quotas, parameters, images, capacity reservations and Capacity Block offerings, as preflight and the calendar read them.

Responses have the fields of the API references of Service Quotas (GetServiceQuota), Systems Manager (GetParameter) and EC2
(DescribeImages, DescribeCapacityReservations), retrieved 2026-11-23, and of EC2 (DescribeCapacityBlockOfferings,
DescribeCapacityBlockExtensionOfferings), retrieved 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import operator
from gpuinfra_rehearsal.cloud.aws.behaviors.audit import parameter_value
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.aws.images import COPY, image_id
from gpuinfra_rehearsal.cloud.core import offers, receiver
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud


def get_service_quota(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return an EC2 quota. It has no usage metric."""
    cloud.operator.check(operator, operator.http("servicequotas:GetServiceQuota", "*", region))
    code = str(asked.get("QuotaCode"))
    value = float(offers.limit(cloud, code, region))
    return {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": code, "Value": value, "Unit": "None"}}


def get_parameter(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return a parameter by name."""
    name = str(asked.get("Name"))
    cloud.operator.check(operator, operator.http("ssm:GetParameter", f"arn:aws:ssm:{region}::parameter{name}", region))
    value = parameter_value(cloud.store, name, region)
    if value is None:
        raise ApiRejected("ParameterNotFound", f"Parameter {name} not found.")
    return {"Parameter": {"Name": name, "Type": "String", "Value": value, "Version": 1}}


def secret_parameter(cloud: Cloud, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter of your account that holds a secret. It exists, because the policy of a role lists it."""
    name = str(asked.get("Name"))
    value = receiver.address(cloud, name) if asked.get("WithDecryption") else "encrypted"
    return {"Parameter": {"Name": name, "Type": "SecureString", "Value": value, "Version": 1}}


def describe_images(
    cloud: Cloud, ids: Sequence[str], filters: Mapping[str, Sequence[str]], region: str
) -> dict[str, Any]:
    """Describe images by ID, or by `name`. A name has one image."""
    ids = [*ids, *(image_id(cloud.store, name, region) for name in filters.get("name", ()) if not ids)]
    images = []
    for id_ in ids:
        looked_up = cloud.store.get("image", id_)
        copied = looked_up is not None and "copied_to" in looked_up
        exists = cloud.store.find(COPY, id_, region) if copied else looked_up or offers.available(cloud, id_, region)
        if not exists:
            raise ApiRejected("InvalidAMIID.NotFound", f"The image id '[{id_}]' does not exist")
        name = str((looked_up or {}).get("name") or id_)
        arch = "arm64" if "arm64" in name else "x86_64"
        images.append({"imageId": id_, "name": name, "imageState": "available", "architecture": arch, "rootDeviceName": "/dev/sda1"})  # fmt: skip
    return {"imagesSet": images}


def describe_capacity_reservations(cloud: Cloud, ids: Sequence[str], region: str) -> dict[str, Any]:
    """Describe reservations that the control interface describes with `machine`, `count`, `zone_id`,
    `state` (if it is not active) and `type` (if it is a Capacity Block)."""
    reservations = []
    for id_ in ids:
        stored = cloud.store.get("external", id_) or {}
        if "machine" not in stored:
            raise ApiRejected("UnsupportedOperation", f"the rehearsal does not know the machine type of {id_}")
        used = sum(id_ in instance["reservations"] for instance in cloud.fleet.running())
        state = str(stored.get("state", "active"))
        count = int(stored.get("count") or 0)
        reservations.append(
            {
                "capacityReservationId": id_, "ownerId": ACCOUNT, "instanceType": stored["machine"], "availabilityZoneId": stored.get("zone_id"),
                "state": state, "totalInstanceCount": count, "availableInstanceCount": count - used if state == "active" else 0,
                "instanceMatchCriteria": "targeted", "reservationType": stored.get("type", "default"), "endDateType": "unlimited",
            }
        )  # fmt: skip
    return {"capacityReservationSet": reservations}


def describe_block_offerings(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe the Capacity Blocks that the control interface describes with `offering`, `machine`, `count`, `zone`, `starts`,
    `hours` and `fee`, and that fit the search."""
    least = asked.get("StartDateRange", "")
    offerings = [
        {
            "capacityBlockOfferingId": id, "instanceType": one["machine"], "availabilityZone": one.get("zone"),
            "instanceCount": one["count"], "startDate": one["starts"], "endDate": _after(one["starts"], one["hours"]),
            "capacityBlockDurationHours": one["hours"], "upfrontFee": str(one["fee"]), "currencyCode": "USD", "tenancy": "default",
        }
        for id, one in cloud.store.all("external").items()
        if one.get("offering") == "block" and _fits(one, asked, "CapacityDurationHours")
        and (one["machine"], str(one["count"])) == (asked.get("InstanceType"), asked.get("InstanceCount"))
        and (not least or datetime.fromisoformat(one["starts"]) >= datetime.fromisoformat(least))
    ]  # fmt: skip
    return {"capacityBlockOfferingSet": offerings[:1]}


def describe_extension_offerings(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe the extensions that the control interface describes with `offering`, `reservation`, `machine`, `count`, `starts`,
    `hours` and `fee`, and that fit the search."""
    offerings = [
        {
            "capacityBlockExtensionOfferingId": id, "instanceType": one["machine"], "instanceCount": one["count"],
            "availabilityZone": one.get("zone"), "capacityBlockExtensionStartDate": one["starts"],
            "capacityBlockExtensionEndDate": _after(one["starts"], one["hours"]), "capacityBlockExtensionDurationHours": one["hours"],
            "upfrontFee": str(one["fee"]), "currencyCode": "USD", "tenancy": "default",
        }
        for id, one in cloud.store.all("external").items()
        if one.get("offering") == "extension" and _fits(one, asked, "CapacityBlockExtensionDurationHours")
        and one["reservation"] == asked.get("CapacityReservationId")
    ]  # fmt: skip
    return {"capacityBlockExtensionOfferingSet": offerings[:1]}


def _fits(offering: Mapping[str, Any], asked: Mapping[str, Any], hours: str) -> bool:
    return str(offering["hours"]) == asked.get(hours)


def _after(start: str, hours: int) -> str:
    return (datetime.fromisoformat(start) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
