"""Quotas, parameters, images and capacity reservations, as preflight reads them.

Responses have the fields of the API references of Service Quotas (GetServiceQuota), Systems Manager (GetParameter) and EC2
(DescribeImages, DescribeCapacityReservations), retrieved 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.aws import operator
from gpuinfra.rehearsal.cloud.aws.behaviors.audit import parameter_value
from gpuinfra.rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra.rehearsal.cloud.aws.images import image_id
from gpuinfra.rehearsal.cloud.core import offers
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.interfaces import Cloud


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
        raise CloudError("ParameterNotFound", f"Parameter {name} not found.")
    return {"Parameter": {"Name": name, "Type": "String", "Value": value, "Version": 1}}


def describe_images(
    cloud: Cloud, ids: Sequence[str], filters: Mapping[str, Sequence[str]], region: str
) -> dict[str, Any]:
    """Describe images by ID, or by `name`. A name has one image."""
    ids = [*ids, *(image_id(cloud.store, name, region) for name in filters.get("name", ()) if not ids)]
    found = []
    for one in ids:
        looked_up = cloud.store.get("image", one)
        if looked_up is None and not offers.available(cloud, one, region):
            raise CloudError("InvalidAMIID.NotFound", f"The image id '[{one}]' does not exist")
        name = str((looked_up or {}).get("name") or one)
        arch = "arm64" if "arm64" in name else "x86_64"
        found.append({"imageId": one, "name": name, "imageState": "available", "architecture": arch, "rootDeviceName": "/dev/sda1"})  # fmt: skip
    return {"imagesSet": found}


def describe_capacity_reservations(cloud: Cloud, ids: Sequence[str], region: str) -> dict[str, Any]:
    """Describe reservations that the control interface describes with `machine`, `count`, `zone_id` and, if it is not active, `state`."""
    found = []
    for one in ids:
        known = cloud.store.get("external", one) or {}
        if "machine" not in known:
            raise CloudError("UnsupportedOperation", f"the rehearsal does not know the machine type of {one}")
        used = sum(one in instance["reservations"] for instance in cloud.fleet.running())
        state = str(known.get("state", "active"))
        count = int(known.get("count") or 0)
        found.append(
            {
                "capacityReservationId": one, "ownerId": ACCOUNT, "instanceType": known["machine"], "availabilityZoneId": known.get("zone_id"),
                "state": state, "totalInstanceCount": count, "availableInstanceCount": count - used if state == "active" else 0,
                "instanceMatchCriteria": "targeted", "reservationType": "default", "endDateType": "unlimited",
            }
        )  # fmt: skip
    return {"capacityReservationSet": found}
