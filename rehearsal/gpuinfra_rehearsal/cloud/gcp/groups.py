"""Zonal managed instance groups and instance templates for the fleet.

| Google's term | here |
| --- | --- |
| target size | `targetSize`, raised by accepted resize requests; a later change of `targetSize` overrides them |
| versions with target sizes | desired number of instances of each template (canary) |
| proactive update | replaces outdated instances, at most `maxUnavailable` at once, or after `maxSurge` new ones |
| health check | an instance is available when its health was HEALTHY at least once (`health.py`) |
| opportunistic update | instances remain until they are terminated for another reason |

Error texts and codes are from the Compute Engine documentation and user reports
(GoogleCloudPlatform/llm-pipeline-examples#87, NVIDIA/aicr#2764).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.groups import new_instance, reservation_room
from gpuinfra_rehearsal.cloud.core.interfaces import GroupKind, Instance, View
from gpuinfra_rehearsal.cloud.gcp.health import available, probe
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, last, path_of

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
RESERVATION = "gcp:compute/reservation:Reservation"
REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
NOTICE_S = 30.0
"""Time between the preemption notice and the termination of a spot machine with GPUs
(https://docs.cloud.google.com/compute/docs/instances/spot)."""
SERIES = 1_000_000_000_000_000_000
"""The first instance number. It has the same length as Google's numbers and is clearly synthetic."""


def template_of(store: Store, link: str) -> Resource | None:
    """Return the template for a link."""
    return store.find(TEMPLATE, path_of(link))


def versions_of(group: Resource) -> list[dict[str, Any]]:
    """Return the group's versions. The version without a target size gets the remaining instances."""
    return list(group.plain.get("versions") or [])


def shares(group: Resource, wanted: int) -> list[tuple[str, int]]:
    """Return (path of a template, number of its instances). The numbers add up to `wanted`."""
    versions, left, parts = versions_of(group), wanted, []
    for version in versions:
        size = version.get("targetSize")
        if not size:
            continue
        if size.get("percent") is not None:
            count = math.ceil(wanted * int(size["percent"]) / 100)
        else:
            count = int(size.get("fixed") or 0)
        parts.append((path_of(str(version.get("instanceTemplate") or "")), min(count, left)))
        left -= min(count, left)
    rest = next((one for one in versions if not one.get("targetSize")), None)
    if rest is not None:
        parts.append((path_of(str(rest.get("instanceTemplate") or "")), left))
    return parts


def size_of(store: Store, group: Resource) -> int:
    """Return the current target size: the declared size plus the instances that resize requests added."""
    declared = int(group.plain.get("targetSize") or 0)
    stored = store.get("gcp-size", group.id)
    return int(stored["size"]) if stored and stored["declared"] == declared else declared


def grow(store: Store, group: Resource, by: int) -> None:
    """Add the size of an accepted resize request to the group."""
    declared = int(group.plain.get("targetSize") or 0)
    store.put("gcp-size", group.id, {"declared": declared, "size": size_of(store, group) + by})


def resize(store: Store, group: Resource, size: int) -> None:
    """Set the target size of a group."""
    with store.change():
        store.drop("gcp-size", group.id)
        changed = {"targetSize": size}
        store.update(group.changed(**changed))


def waiting(store: Store, group: Resource) -> dict[str, dict[str, Any]]:
    """Return the accepted resize requests of a group that are not yet fulfilled, by ID."""
    every = store.all("gcp-request")
    return {id: one for id, one in every.items() if id.startswith(f"{group.id}/") and one["state"] == "ACCEPTED"}


def serve(store: Store, group: Resource) -> None:
    """Fulfill all waiting resize requests, which increases the group's size."""
    for id, request in waiting(store, group).items():
        grow(store, group, int(request["by"]))
        store.put("gcp-request", id, {**request, "state": "SUCCEEDED"})


def recreate(store: Store, group: Resource, name: str) -> None:
    """Keep a name for the instance that replaces a recreated instance."""
    with store.change():
        kept = store.get("gcp-names", group.id) or {"names": []}
        store.put("gcp-names", group.id, {"names": [*kept["names"], name]})


def _kept_name(store: Store, group: Resource) -> str:
    """Take the name of a recreated instance. Returns an empty string if there is none."""
    kept = store.get("gcp-names", group.id) or {"names": []}
    if not kept["names"]:
        return ""
    store.put("gcp-names", group.id, {"names": kept["names"][1:]})
    return str(kept["names"][0])


def data_of(store: Store, group: Resource) -> dict[str, Any]:
    """Return the inputs of the group's newest template, or an empty mapping if it has none."""
    links = [str(one.get("instanceTemplate") or "") for one in versions_of(group)]
    template = template_of(store, links[-1]) if links else None
    return template.plain if template else {}


def kind_of(template: dict[str, Any]) -> str:
    """Return the capacity kind: reserved, flex, on_demand or spot."""
    scheduling = template.get("scheduling") or {}
    model = scheduling.get("provisioningModel")
    if model == "SPOT" or (model is None and scheduling.get("preemptible")):
        return "spot"
    if model == "FLEX_START":
        return "flex"
    return "reserved" if model == "RESERVATION_BOUND" or reservations_of(template) else "on_demand"


def reservations_of(template: dict[str, Any]) -> list[str]:
    """Return the names of the reservations that the template targets."""
    affinity = template.get("reservationAffinity") or {}
    if affinity.get("type") != "SPECIFIC_RESERVATION":
        return []
    return [
        last(str(one).partition("/reservationBlocks/")[0])
        for one in (affinity.get("specificReservation") or {}).get("values") or []
    ]


class ManagedGroups(GroupKind):
    """Google's zonal managed instance groups, with the action names of Compute Engine."""

    cloud = "gcp"
    tokens = (GROUP,)
    launched = "compute.instances.insert {vm}"
    failed = "compute.instances.insert failed: {code}"
    ended = "compute.instances.delete {id}"
    cause = "the group's target size is {wanted}"
    lost = "compute.instances.repair.recreateInstance: the VM was not running although its target status is RUNNING"
    reclaimed = "compute.instances.preempted: the VM was preempted"
    notice_s = NOTICE_S

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """Return the desired state from the group's inputs. The template's labels contain the cluster and the pool,
        because a group has no labels."""
        template, policy = data_of(cloud.store, group), group.plain.get("updatePolicy") or {}
        labels = template.get("labels") or {}
        wanted = size_of(cloud.store, group) + sum(int(one["by"]) for one in waiting(cloud.store, group).values())
        method = policy.get("replacementMethod") or "SUBSTITUTE"
        surge = 0 if method == "RECREATE" else _share(policy, "maxSurge", wanted, 1)
        if surge and wanted < len(have) and _waits(cloud, group, wanted, have):
            wanted = min(
                len(have), wanted + surge
            )  # The additional machines remain until the new machines are available.
        return View(
            cluster=str(labels.get("gpuinfra-cluster") or "cluster"),
            pool=str(labels.get("gpuinfra-pool") or last(group.id)),
            kind=kind_of(template),
            wanted=wanted,
            surge=surge,
            unavailable=max(1, _share(policy, "maxUnavailable", wanted, 0 if surge else 1)),
        )

    def targets(self, cloud: Cloud, group: Resource) -> tuple[str, ...]:
        template = data_of(cloud.store, group)
        labels = template.get("labels") or {}
        pool, own = str(labels.get("gpuinfra-pool") or ""), str(labels.get("gpuinfra-group") or "")
        return (pool, own, last(group.id), kind_of(template), _zone(group))

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> ApiRejected | None:
        template = data_of(cloud.store, group)
        if not template:
            return ApiRejected("RESOURCE_NOT_FOUND", "The instance template of the group was not found.", status=404)
        kind, zone, target = kind_of(template), _zone(group), self.targets(cloud, group)
        machine = str(template.get("machineType") or "")
        if refused := cloud.faults.refusal(self.cloud, *target):
            return ApiRejected(*refused)
        if cloud.faults.without_quota(*target):
            # The text and its source are in clouds/gcp/handover/refusals.json.
            return ApiRejected("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.", status=403)
        if cloud.faults.without_capacity(wanted, *target):
            return ApiRejected(
                "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                f"The zone 'projects/{PROJECT}/zones/{zone}' does not have enough resources available to fulfill the request. "
                f"'(resource type:compute)'. A {machine} VM instance is currently unavailable in the {zone} zone."
                + (" Consider trying your request with another provisioning model." if kind == "spot" else ""),
                status=503,
            )
        # A resize request is fulfilled completely or not at all.
        asked = max(wanted - have, sum(int(one["by"]) for one in waiting(cloud.store, group).values()))
        for name in reservations_of(template):
            made = cloud.store.find(RESERVATION, f"projects/{PROJECT}/zones/{zone}/reservations/{name}")
            size = (made.plain.get("specificReservation") or {}).get("count") if made else None
            room = reservation_room(cloud, name, size, zone=zone)
            if room and asked > room[1]:
                return ApiRejected(
                    "RESERVATION_CAPACITY_EXCEEDED",
                    f"Specified reservation '{name}' does not have available capacity for the request: it holds {room[0]} of {machine}.",
                )
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        serve(cloud.store, group)
        path = _next_template(cloud.store, group, have)
        template = template_of(cloud.store, path)
        data = template.plain if template else {}
        labels, zone, serial = dict(data.get("labels") or {}), _zone(group), cloud.store.next("gce")
        image = str((next(iter(data.get("disks") or []), {}) or {}).get("sourceImage") or "")
        os, prebuilt = image_of(cloud, image)
        base = str(group.plain.get("baseInstanceName") or last(group.id))
        view = replace(self.view(cloud, group, have), kind=kind_of(data))
        return new_instance(self.cloud, group, view, name, serial) | {
            "id": str(SERIES + serial),
            "group_name": str(labels.get("gpuinfra-group") or ""),
            "region": zone.rpartition("-")[0],
            "zone": zone,
            "zone_id": zone,
            "vm": _kept_name(cloud.store, group) or f"{base}-{_four(serial)}",
            "machine": str(data.get("machineType") or ""),
            "image_id": image,
            "os": os,
            "prebuilt": prebuilt,
            "template": path,
            "template_name": last(path),
            "reservations": reservations_of(data),
            "account": str((data.get("serviceAccount") or {}).get("email") or ""),
            "scopes": list((data.get("serviceAccount") or {}).get("scopes") or []),
            "attributes": {key: str(value) for key, value in (data.get("metadata") or {}).items()},
            "startup": str(data.get("metadataStartupScript") or ""),
            "interfaces": data.get("networkInterfaces") or [],
            "tags": labels,
        }

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> list[Instance]:
        """With a proactive policy, return the outdated instances that the update can replace now. It waits for new instances
        that are not available."""
        policy = group.plain.get("updatePolicy") or {}
        if policy.get("type", "PROACTIVE") != "PROACTIVE":
            return []
        older = _outdated(group, size_of(cloud.store, group), have)
        waits, view = _waits(cloud, group, size_of(cloud.store, group), have), self.view(cloud, group, have)
        if view.surge:
            return [] if waits else older
        return older[: max(0, view.unavailable - waits)]

    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """Order newest first."""
        return sorted(have, key=lambda one: (-one["launched"], one["id"]))

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
        """Probe the machines, and terminate preempted ones when their notice period ends."""
        probe(cloud, group, have)
        for instance in have:
            if instance.get("preempted") and time.time() - instance["preempted"] >= NOTICE_S:
                cloud.fleet.terminate(instance["id"], self.reclaimed)


def _outdated(group: Resource, size: int, have: Sequence[Instance]) -> list[Instance]:
    """Return the instances in excess of each version's number, oldest first."""
    room = dict(shares(group, size))
    older: list[Instance] = []
    for instance in sorted(have, key=lambda one: -one["launched"]):
        if room.get(instance["template"], 0) > 0:
            room[instance["template"]] -= 1
        elif instance["template"] not in room or any(
            left > 0 for left in room.values()
        ):  # another version lacks instances
            older.append(instance)
    return sorted(older, key=lambda one: (one["launched"], one["id"]))


def _waits(cloud: Cloud, group: Resource, size: int, have: Sequence[Instance]) -> int:
    """Return the number of new instances for which a rolling update waits. 0 if no instance is outdated."""
    outdated = [one["id"] for one in _outdated(group, size, have)]
    return sum(one["id"] not in outdated and not available(cloud, group, one) for one in have) if outdated else 0


def preempt(store: Store, instance_id: str) -> bool:
    """Send a preemption notice to a spot machine. Returns False if no such machine is running."""
    with store.change():
        instance = store.get("instance", instance_id)
        if (
            instance is None
            or instance["state"] == "terminated"
            or (instance.get("cloud"), instance["kind"]) != ("gcp", "spot")
        ):
            return False
        store.put("instance", instance_id, {**instance, "preempted": time.time()})
    return True


def image_of(cloud: Cloud, link: str) -> tuple[str, bool]:
    """Return (operating system, whether it contains the driver and the fabric software) of an image or family, based on its name."""
    path = path_of(link)
    made = cloud.store.find("gcp:compute/image:Image", path)
    named = str((cloud.external(path) or {}).get("family") or "")
    text = f"{path} {made.plain.get('family') or ''} {named}" if made else f"{path} {named}"
    version = re.search(r"ubuntu[a-z-]*-(\d\d)(\d\d)\b", text)
    return (
        f"ubuntu-{version.group(1)}.{version.group(2)}" if version else "ubuntu-22.04",
        bool(re.search(r"accelerator|nvidia|deeplearning|tcpx", text)),
    )


def _next_template(store: Store, group: Resource, have: Sequence[Instance]) -> str:
    """Return the template of the next instance: the template of the version that lacks the most instances."""
    wanted = shares(group, max(size_of(store, group), len(have) + 1))
    counted = {path: sum(one["template"] == path for one in have) for path, _ in wanted}
    return max(wanted, key=lambda one: one[1] - counted[one[0]], default=("", 0))[0]


def _share(policy: dict[str, Any], name: str, wanted: int, default: int) -> int:
    """Return `maxSurge` or `maxUnavailable`, which is a number or a percentage of the target size."""
    if policy.get(f"{name}Fixed") is not None:
        return int(policy[f"{name}Fixed"])
    if policy.get(f"{name}Percent") is not None:
        return math.ceil(wanted * int(policy[f"{name}Percent"]) / 100)
    return default


def _zone(group: Resource) -> str:
    return last(str(group.plain.get("zone") or group.id.split("/zones/")[-1].split("/")[0]))


def _four(serial: int) -> str:
    """Return the four letters that a group appends to its base name."""
    letters = "0123456789bcdfghjklmnpqrstvwxz"
    text = ""
    for _ in range(4):
        serial, digit = divmod(serial, len(letters))
        text = letters[digit] + text
    return text
