"""What the settings of an Auto Scaling group and its template amount to. Reads, never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud import wire

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.cloud import Cloud
    from gpuinfra.rehearsal.cloud.store import Resource

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


def pool_key(group: Resource) -> str:
    """The pool that a group belongs to."""
    return "/".join(cluster_and_pool(group))


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


def first_to_go(have: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Who leaves when a group shrinks: oldest template version first, then the newest instance."""
    return sorted(have, key=lambda one: (one["template_version"], -one["launched"], one["id"]))
