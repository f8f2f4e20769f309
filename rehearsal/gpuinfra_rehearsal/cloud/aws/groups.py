"""Auto Scaling groups and launch templates for the fleet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import places, refreshes
from gpuinfra_rehearsal.cloud.aws.images import ImageContent, image_of
from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.groups import new_instance, reservation_room
from gpuinfra_rehearsal.cloud.core.interfaces import GroupKind, Instance, View

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"


def template_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the launch template (ID or name, and version) from either of the two inputs that can specify it."""
    if mixed := inputs.get("mixedInstancesPolicy"):
        named = (mixed.get("launchTemplate") or {}).get("launchTemplateSpecification") or {}
        return {
            "id": named.get("launchTemplateId"),
            "name": named.get("launchTemplateName"),
            "version": named.get("version"),
        }
    return dict(inputs.get("launchTemplate") or {})


def resolve_template(store: Store, inputs: dict[str, Any], region: str) -> tuple[Resource, int, dict[str, Any]] | None:
    """Return (template, version number, contents of the version), or None if the template does not exist."""
    named = template_of(inputs)
    template_record = store.find(TEMPLATE, str(named.get("id"))) if named.get("id") else None
    if template_record is None and named.get("name"):
        template_record = next(
            (one for one in store.list(TEMPLATE) if one.outputs.get("name") == named["name"] and one.region == region),
            None,
        )
    if template_record is None:
        return None
    version = str(named.get("version") or "$Default")
    number = {
        "$Latest": template_record.outputs["latestVersion"],
        "$Default": template_record.outputs["defaultVersion"],
    }.get(version, version)
    data = store.get("template-version", f"{template_record.id}:{int(number)}") if str(number).isdigit() else None
    return (template_record, int(number), data) if data is not None else None


def desired(inputs: dict[str, Any]) -> int:
    """Return the desired number of instances of a group."""
    wanted = inputs.get("desiredCapacity")
    return int(wanted) if wanted is not None else int(inputs.get("minSize") or 0)


def tags_of(inputs: dict[str, Any]) -> dict[str, str]:
    """Return the group's tags that are propagated to its instances."""
    return {tag["key"]: str(tag["value"]) for tag in inputs.get("tags") or [] if tag.get("propagateAtLaunch")}


def cluster_and_pool(group: Resource) -> tuple[str, str]:
    """Return the cluster and the pool from the group's tags. A group without these tags is its own pool."""
    tags = tags_of(group.plain)
    return tags.get("gpuinfra:cluster", "cluster"), tags.get("gpuinfra:pool") or group.id


def kind_of(store: Store, group: Resource) -> str:
    """Return the capacity kind: reserved, block, on_demand or spot."""
    inputs = group.plain
    resolved = resolve_template(store, inputs, group.region)
    template = resolved[2] if resolved else {}
    market = (template.get("instanceMarketOptions") or {}).get("marketType")
    shares = (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}
    if market == "capacity-block":
        return "block"
    above = shares.get("onDemandPercentageAboveBaseCapacity")
    if market == "spot" or (above is not None and int(above) == 0 and not shares.get("onDemandBaseCapacity")):
        return "spot"
    return "reserved" if reservations_of(inputs, template) else "on_demand"


def reservations_of(inputs: dict[str, Any], template: dict[str, Any]) -> list[str]:
    """Return the IDs of the reservations that the group or its template targets."""
    own = (inputs.get("capacityReservationSpecification") or {}).get("capacityReservationTarget") or {}
    below = (template.get("capacityReservationSpecification") or {}).get("capacityReservationTarget") or {}
    named = [*(own.get("capacityReservationIds") or []), *(own.get("capacityReservationResourceGroupArns") or [])]
    named += [below[key] for key in ("capacityReservationId", "capacityReservationResourceGroupArn") if below.get(key)]
    return [str(one) for one in named]


def machine_of(inputs: dict[str, Any], template: dict[str, Any]) -> str:
    """Return the machine type: the first override, otherwise the template's machine type."""
    overrides = ((inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}).get("overrides") or []
    chosen = next((one["instanceType"] for one in overrides if one.get("instanceType")), None)
    return str(chosen or template.get("instanceType") or "")


def instance_tags(template: dict[str, Any]) -> dict[str, str]:
    """Return the tags that a template assigns to its instances."""
    tags: dict[str, str] = {}
    for spec in template.get("tagSpecifications") or []:
        if spec.get("resourceType") == "instance":
            tags |= {key: str(value) for key, value in (spec.get("tags") or {}).items()}
    return tags


class AutoScaling(GroupKind):
    """AWS groups, with the messages of EC2 Auto Scaling."""

    cloud = "aws"
    tokens = (GROUP,)
    launched = "Launching a new EC2 instance: {id}"
    failed = "Launching a new EC2 instance.  Status Reason: {message}"
    ended = "Terminating EC2 instance: {id}"
    cause = "an instance was started in response to a difference between desired and actual capacity, increasing the capacity to {wanted}."
    lost = "an instance was taken out of service in response to an EC2 health check indicating it has been terminated"
    reclaimed = "an instance was taken out of service in response to an EC2 instance interruption notice"
    notice_s = 120.0

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """Return the desired state from the group's inputs. The minimum healthy percentage of an instance refresh
        limits how many instances are terminated at once."""
        inputs = group.plain
        cluster, pool = cluster_and_pool(group)
        healthy = refreshes.preferences(cloud.store, group.region, group.id).get("minHealthyPercentage")
        floor = math.ceil(len(have) * (90 if healthy is None else int(healthy)) / 100)
        return View(
            cluster=cluster,
            pool=pool,
            kind=kind_of(cloud.store, group),
            wanted=desired(inputs),
            may_launch="Launch" not in (inputs.get("suspendedProcesses") or []),
            unavailable=max(1, len(have) - floor),
        )

    def targets(self, cloud: Cloud, group: Resource) -> tuple[str, ...]:
        tags = tags_of(group.plain)
        zone = _zone(cloud, group, group.plain, cloud.fleet.of_group(group))[1]
        return (tags.get("gpuinfra:pool", ""), tags.get("gpuinfra:group", ""), group.id, kind_of(cloud.store, group), zone)  # fmt: skip

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> ApiRejected | None:
        inputs = group.plain
        kind, target = kind_of(cloud.store, group), self.targets(cloud, group)
        resolved = resolve_template(cloud.store, inputs, group.region)
        if resolved is None:
            return ApiRejected(
                "ValidationError", "The launch template of the group does not exist. Launching EC2 instance failed."
            )
        machine = machine_of(inputs, resolved[2])
        words = {"reserved": "On-Demand", "block": "Capacity Block", "on_demand": "On-Demand", "spot": "Spot"}[kind]
        name = _zone(cloud, group, inputs, cloud.fleet.of_group(group))[0]
        if refused := cloud.faults.refusal(self.cloud, *target):
            code, message = refused
            return ApiRejected(code, message.rpartition("Status Reason: ")[2])
        if cloud.faults.without_quota(*target):
            # The text and its source are in clouds/aws/handover/refusals.json.
            text = (
                "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the specified "
                "instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
            )
            return ApiRejected("VcpuLimitExceeded", f"{text} Launching EC2 instance failed.")
        if cloud.faults.without_capacity(wanted, *target):
            if kind == "spot":
                reason = "There is no Spot capacity available that matches your request."
            else:
                reason = (
                    f"We currently do not have sufficient {machine} capacity in the Availability Zone you requested ({name}). "
                    "Our system will be working on provisioning additional capacity."
                )
            return ApiRejected(
                "InsufficientInstanceCapacity",
                f"Could not launch {words} Instances. InsufficientInstanceCapacity - {reason} Launching EC2 instance failed.",
            )
        for reservation in reservations_of(inputs, resolved[2]):
            made = cloud.store.find("aws:ec2/capacityReservation:CapacityReservation", reservation)
            room = reservation_room(cloud, reservation, made.plain.get("instanceCount") if made else None)
            if room and wanted - have > room[1]:
                return ApiRejected(
                    "ReservationCapacityExceeded",
                    f"Could not launch {words} Instances. ReservationCapacityExceeded - The requested reservation {reservation} does not have "
                    "sufficient compatible and available capacity for this request. Launching EC2 instance failed.",
                )
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        inputs = group.plain
        resolved = resolve_template(cloud.store, inputs, group.region)
        assert resolved is not None
        template, version, data = resolved
        tags = tags_of(inputs)
        serial = cloud.store.next("i")
        image: ImageContent = image_of(cloud.store, str(data.get("imageId") or ""))
        zone, zone_id, subnet = _zone(cloud, group, inputs, have)
        return new_instance(self.cloud, group, self.view(cloud, group, have), name, serial) | {
            "id": f"i-{ids.hexa(serial, 17)}",
            "group_name": tags.get("gpuinfra:group", ""),
            "region": group.region,
            "zone": zone,
            "zone_id": zone_id,
            "subnet": subnet,
            "machine": machine_of(inputs, data),
            "image_id": str(data.get("imageId") or ""),
            "os": image.os,
            "prebuilt": image.prebuilt,
            "template": template.id,
            "template_name": template.outputs.get("name", ""),
            "template_version": version,
            "reservations": reservations_of(inputs, data),
            "profile": data.get("iamInstanceProfile") or {},
            "metadata": data.get("metadataOptions") or {},
            "interfaces": data.get("networkInterfaces") or [],
            "tags": {**instance_tags(data), **tags, "aws:autoscaling:groupName": group.id},
        }

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> list[Instance]:
        """During an instance refresh, return the instances with another template or version that it replaces next."""
        resolved = resolve_template(cloud.store, group.plain, group.region)
        wanted = (resolved[0].id, resolved[1]) if resolved else None
        older = [one for one in have if wanted and (one["template"], one["template_version"]) != wanted]
        return older[: refreshes.next_count(cloud.store, group.region, group.id, len(have), len(older))]

    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """Order by template version, oldest first, then by instance, newest first."""
        return sorted(have, key=lambda one: (one["template_version"], -one["launched"], one["id"]))


def _zone(cloud: Cloud, group: Resource, inputs: dict[str, Any], have: Sequence[Instance]) -> tuple[str, str, str]:
    """Return (zone name, zone ID, subnet) of the next instance. The group's subnets are used in turn."""
    subnets = inputs.get("vpcZoneIdentifiers") or []
    if not subnets:
        name = (inputs.get("availabilityZones") or [places.zones(group.region)[0][0]])[0]
        return name, places.zone_id(group.region, name) or "", ""
    chosen = subnets[len(have) % len(subnets)]
    subnet = cloud.store.find("aws:ec2/subnet:Subnet", chosen)
    described = cloud.external(chosen) or {}
    name = (
        str(subnet.outputs.get("availabilityZone"))
        if subnet
        else described.get("availabilityZone") or places.zones(group.region)[0][0]
    )
    return name, places.zone_id(group.region, name) or "", chosen
