"""What the settings of an Auto Scaling group and its template amount to, and what its instances are made of."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.aws import places
from gpuinfra.rehearsal.cloud.aws.images import Image, image_of
from gpuinfra.rehearsal.cloud.core import ids, wire
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.groups import Made, View

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"


def template_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """Which template a group launches, from either place where a group may say so: id or name, and version."""
    if mixed := inputs.get("mixedInstancesPolicy"):
        named = (mixed.get("launchTemplate") or {}).get("launchTemplateSpecification") or {}
        return {
            "id": named.get("launchTemplateId"),
            "name": named.get("launchTemplateName"),
            "version": named.get("version"),
        }
    return dict(inputs.get("launchTemplate") or {})


def resolve_template(cloud: Cloud, inputs: dict[str, Any], region: str) -> tuple[Resource, int, dict[str, Any]] | None:
    """The template, the version's number and what it says; None when there is none."""
    named = template_of(inputs)
    found = cloud.store.find(TEMPLATE, str(named.get("id"))) if named.get("id") else None
    if found is None and named.get("name"):
        found = next(
            (
                one
                for one in cloud.store.list(TEMPLATE)
                if one.outputs.get("name") == named["name"] and one.region == region
            ),
            None,
        )
    if found is None:
        return None
    version = str(named.get("version") or "$Default")
    number = {"$Latest": found.outputs["latestVersion"], "$Default": found.outputs["defaultVersion"]}.get(
        version, version
    )
    data = cloud.store.get("template-version", f"{found.id}:{int(number)}") if str(number).isdigit() else None
    return (found, int(number), data) if data is not None else None


def desired(inputs: dict[str, Any]) -> int:
    """How many instances a group wants."""
    wanted = inputs.get("desiredCapacity")
    return int(wanted) if wanted is not None else int(inputs.get("minSize") or 0)


def tags_of(inputs: dict[str, Any]) -> dict[str, str]:
    """The group's tags that its instances carry."""
    return {tag["key"]: str(tag["value"]) for tag in inputs.get("tags") or [] if tag.get("propagateAtLaunch")}


def cluster_and_pool(group: Resource) -> tuple[str, str]:
    """Whose instances a group makes, by its tags; a group without them is a pool of its own."""
    tags = tags_of(wire.plain(group.inputs))
    return tags.get("gpuinfra:cluster", "cluster"), tags.get("gpuinfra:pool") or group.id


def kind_of(cloud: Cloud, group: Resource) -> str:
    """reserved, block, on_demand or spot: what the group's settings amount to."""
    inputs = wire.plain(group.inputs)
    resolved = resolve_template(cloud, inputs, group.region)
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
    """Ids of the reservations that the group or its template targets."""
    own = (inputs.get("capacityReservationSpecification") or {}).get("capacityReservationTarget") or {}
    below = (template.get("capacityReservationSpecification") or {}).get("capacityReservationTarget") or {}
    named = [*(own.get("capacityReservationIds") or []), *(own.get("capacityReservationResourceGroupArns") or [])]
    named += [below[key] for key in ("capacityReservationId", "capacityReservationResourceGroupArn") if below.get(key)]
    return [str(one) for one in named]


def machine_of(inputs: dict[str, Any], template: dict[str, Any]) -> str:
    """The machine type: the first override, else the template's."""
    overrides = ((inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}).get("overrides") or []
    chosen = next((one["instanceType"] for one in overrides if one.get("instanceType")), None)
    return str(chosen or template.get("instanceType") or "")


def instance_tags(template: dict[str, Any]) -> dict[str, str]:
    """The tags that a template gives its instances."""
    found: dict[str, str] = {}
    for spec in template.get("tagSpecifications") or []:
        if spec.get("resourceType") == "instance":
            found |= {key: str(value) for key, value in (spec.get("tags") or {}).items()}
    return found


class AutoScaling:
    """AWS's groups (`GroupKind`)."""

    cloud = "aws"
    tokens = (GROUP,)

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> View:
        """What the group's inputs say; an instance refresh ends as many at once as its floor of healthy ones allows."""
        inputs = wire.plain(group.inputs)
        cluster, pool = cluster_and_pool(group)
        healthy = ((inputs.get("instanceRefresh") or {}).get("preferences") or {}).get("minHealthyPercentage")
        floor = math.ceil(len(have) * (90 if healthy is None else int(healthy)) / 100)
        return View(
            cluster=cluster,
            pool=pool,
            kind=kind_of(cloud, group),
            wanted=desired(inputs),
            may_launch="Launch" not in (inputs.get("suspendedProcesses") or []),
            unavailable=max(1, len(have) - floor),
        )

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why the next instance cannot be had, in EC2's words."""
        inputs = wire.plain(group.inputs)
        tags, kind = tags_of(inputs), kind_of(cloud, group)
        resolved = resolve_template(cloud, inputs, group.region)
        if resolved is None:
            return CloudError(
                "ValidationError", "The launch template of the group does not exist. Launching EC2 instance failed."
            )
        machine = machine_of(inputs, resolved[2])
        words = {"reserved": "On-Demand", "block": "Capacity Block", "on_demand": "On-Demand", "spot": "Spot"}[kind]
        if cloud.faults.without_capacity(tags.get("gpuinfra:pool", ""), tags.get("gpuinfra:group", ""), group.id, kind):
            if kind == "spot":
                reason = "There is no Spot capacity available that matches your request."
            else:
                zone = _zone(cloud, group, inputs, cloud.fleet.of_group(group))[0]
                reason = (
                    f"We currently do not have sufficient {machine} capacity in the Availability Zone you requested ({zone}). "
                    "Our system will be working on provisioning additional capacity."
                )
            return CloudError(
                "InsufficientInstanceCapacity",
                f"Could not launch {words} Instances. InsufficientInstanceCapacity - {reason} Launching EC2 instance failed.",
            )
        for reservation, size in _reservations(cloud, inputs, resolved[2]):
            if _used(cloud, reservation) + (wanted - have) > size:
                return CloudError(
                    "ReservationCapacityExceeded",
                    f"Could not launch {words} Instances. ReservationCapacityExceeded - The requested reservation {reservation} does not have "
                    "sufficient compatible and available capacity for this request. Launching EC2 instance failed.",
                )
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Made]) -> Made:
        """An instance as EC2 knows it."""
        inputs = wire.plain(group.inputs)
        resolved = resolve_template(cloud, inputs, group.region)
        assert resolved is not None
        template, version, data = resolved
        tags = tags_of(inputs)
        cluster, pool = cluster_and_pool(group)
        serial = cloud.store.next("i")
        image: Image = image_of(cloud.store, str(data.get("imageId") or ""))
        zone, zone_id, subnet = _zone(cloud, group, inputs, have)
        return {
            "id": f"i-{ids.hexa(serial, 17)}",
            "cloud": self.cloud,
            "name": name,
            "cluster": cluster,
            "pool": pool,
            "group": group.id,
            "group_name": tags.get("gpuinfra:group", ""),
            "region": group.region,
            "zone": zone,
            "zone_id": zone_id,
            "subnet": subnet,
            "address": f"10.{128 + serial // 65536}.{serial // 256 % 256}.{serial % 256}",
            "machine": machine_of(inputs, data),
            "image_id": str(data.get("imageId") or ""),
            "os": image.os,
            "prebuilt": image.prebuilt,
            "template": template.id,
            "template_name": template.outputs.get("name", ""),
            "template_version": version,
            "kind": kind_of(cloud, group),
            "reservations": reservations_of(inputs, data),
            "profile": data.get("iamInstanceProfile") or {},
            "metadata": data.get("metadataOptions") or {},
            "interfaces": data.get("networkInterfaces") or [],
            "tags": {**instance_tags(data), **tags, "aws:autoscaling:groupName": group.id},
            "launched": time.time(),
            "state": "running",
        }

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> list[Made]:
        """Instances of another template or version, while an instance refresh is under way; it ends when there are none."""
        key = f"{group.region}:{group.id}"
        if cloud.store.get("refresh", key) is None:
            return []
        resolved = resolve_template(cloud, wire.plain(group.inputs), group.region)
        wanted = (resolved[0].id, resolved[1]) if resolved else None
        found = [one for one in have if wanted and (one["template"], one["template_version"]) != wanted]
        if not found:
            cloud.store.drop("refresh", key)
        return found

    def first_to_go(self, have: Sequence[Made]) -> list[Made]:
        """Oldest template version first, then the newest instance."""
        return sorted(have, key=lambda one: (one["template_version"], -one["launched"], one["id"]))

    def launched(self, instance: Made) -> str:
        """EC2 Auto Scaling's words."""
        return f"Launching a new EC2 instance: {instance['id']}"

    def failed(self, shortage: CloudError) -> str:
        """EC2 Auto Scaling's words."""
        return "Launching a new EC2 instance.  Status Reason: " + shortage.message

    def ended(self, instance_id: str) -> str:
        """EC2 Auto Scaling's words."""
        return f"Terminating EC2 instance: {instance_id}"

    def cause(self, wanted: int) -> str:
        """EC2 Auto Scaling's words."""
        return f"an instance was started in response to a difference between desired and actual capacity, increasing the capacity to {wanted}."

    def lost(self) -> str:
        """EC2 Auto Scaling's words."""
        return (
            "an instance was taken out of service in response to an EC2 health check indicating it has been terminated"
        )


KIND = AutoScaling()


def _reservations(cloud: Cloud, inputs: dict[str, Any], template: dict[str, Any]) -> list[tuple[str, int]]:
    """Targeted reservations whose size is known: made in this cloud, or told to it. One that nobody knows is taken to be large enough."""
    found = []
    for id in reservations_of(inputs, template):
        made = cloud.store.find("aws:ec2/capacityReservation:CapacityReservation", id)
        size = wire.plain(made.inputs).get("instanceCount") if made else (cloud.external(id) or {}).get("count")
        if size is not None:
            found.append((id, int(size)))
    return found


def _used(cloud: Cloud, reservation: str) -> int:
    every = cloud.fleet.instances().values()
    return sum(1 for one in every if one["state"] != "terminated" and reservation in one["reservations"])


def _zone(cloud: Cloud, group: Resource, inputs: dict[str, Any], have: Sequence[Made]) -> tuple[str, str, str]:
    """Zone name, zone id and subnet: the group's subnets in turn."""
    subnets = inputs.get("vpcZoneIdentifiers") or []
    if not subnets:
        name = (inputs.get("availabilityZones") or [places.zones(group.region)[0][0]])[0]
        return name, places.zone_id(group.region, name) or "", ""
    chosen = subnets[len(have) % len(subnets)]
    found = cloud.store.find("aws:ec2/subnet:Subnet", chosen)
    told = cloud.external(chosen) or {}
    name = (
        str(found.outputs.get("availabilityZone"))
        if found
        else told.get("availabilityZone") or places.zones(group.region)[0][0]
    )
    return name, places.zone_id(group.region, name) or "", chosen
