"""What the settings of a managed instance group and its template amount to, and what its instances are made of.

| Google's word | here |
| --- | --- |
| target size | `targetSize`, raised by accepted resize requests; a later change of `targetSize` is a resize of its own |
| versions with target sizes | how many instances of each template there should be: the canary |
| proactive update | instances of no wanted version are replaced, at most `maxUnavailable` at once, or after `maxSurge` new ones |
| opportunistic update | instances stay until something else ends them |

Words and codes of errors from the Compute Engine documentation and from what people report (sheet of Google facts, section 12).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.core import ids, wire
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.groups import Made, View

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
TEMPLATES = (
    "gcp:compute/instanceTemplate:InstanceTemplate",
    "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate",
)
RESERVATION = "gcp:compute/reservation:Reservation"
REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
NOTICE_S = 30.0
"""How long a spot machine with GPUs lives on after it was told that it is preempted (sheet of Google facts, 4.1)."""
SERIES = 1_000_000_000_000_000_000
"""Instance numbers are this and a count: as long as Google's, and visibly synthetic."""


def path_of(link: str) -> str:
    """`projects/P/...` of a link, a path or a unique link."""
    found = re.search(r"projects/[^?]+", link)
    return found[0] if found else link


def last(path: str) -> str:
    """The last segment of a path."""
    return path_of(path).rpartition("/")[2]


def template_of(cloud: Cloud, link: str) -> Resource | None:
    """The template behind a link."""
    path = path_of(link)
    return next((found for kind in TEMPLATES if (found := cloud.store.find(kind, path))), None)


def versions_of(group: Resource) -> list[dict[str, Any]]:
    """The group's versions; the last one without a size of its own takes the rest."""
    return list(wire.plain(group.inputs).get("versions") or [])


def shares(group: Resource, wanted: int) -> list[tuple[str, int]]:
    """(template's path, how many of it), the whole of `wanted`."""
    versions, left, found = versions_of(group), wanted, []
    for version in versions:
        size = version.get("targetSize")
        if not size:
            continue
        if size.get("percent") is not None:
            count = math.ceil(wanted * int(size["percent"]) / 100)
        else:
            count = int(size.get("fixed") or 0)
        found.append((path_of(str(version.get("instanceTemplate") or "")), min(count, left)))
        left -= min(count, left)
    rest = next((one for one in versions if not one.get("targetSize")), None)
    if rest is not None:
        found.append((path_of(str(rest.get("instanceTemplate") or "")), left))
    return found


def size_of(cloud: Cloud, group: Resource) -> int:
    """The target size as the group knows it now: what was declared, and what resize requests added since."""
    declared = int(wire.plain(group.inputs).get("targetSize") or 0)
    known = cloud.store.get("gcp-size", group.id)
    return int(known["size"]) if known and known["declared"] == declared else declared


def grow(cloud: Cloud, group: Resource, by: int) -> None:
    """An accepted resize request adds to the group."""
    declared = int(wire.plain(group.inputs).get("targetSize") or 0)
    cloud.store.put("gcp-size", group.id, {"declared": declared, "size": size_of(cloud, group) + by})


def waiting(cloud: Cloud, group: Resource) -> dict[str, dict[str, Any]]:
    """Resize requests of a group that were accepted and not served yet, by id."""
    every = cloud.store.all("gcp-request")
    return {id: one for id, one in every.items() if id.startswith(f"{group.id}/") and one["state"] == "ACCEPTED"}


def serve(cloud: Cloud, group: Resource) -> None:
    """There is room for what was asked: the group grows, and the requests are done."""
    for id, one in waiting(cloud, group).items():
        grow(cloud, group, int(one["by"]))
        cloud.store.put("gcp-request", id, {**one, "state": "SUCCEEDED"})


def data_of(cloud: Cloud, group: Resource) -> dict[str, Any]:
    """What the group's newest template says; nothing where it has none."""
    links = [str(one.get("instanceTemplate") or "") for one in versions_of(group)]
    found = template_of(cloud, links[-1]) if links else None
    return wire.plain(found.inputs) if found else {}


def kind_of(template: dict[str, Any]) -> str:
    """reserved, flex, on_demand or spot: what the template's scheduling amounts to."""
    scheduling = template.get("scheduling") or {}
    model = scheduling.get("provisioningModel")
    if model == "SPOT" or (model is None and scheduling.get("preemptible")):
        return "spot"
    if model == "FLEX_START":
        return "flex"
    return "reserved" if model == "RESERVATION_BOUND" or reservations_of(template) else "on_demand"


def reservations_of(template: dict[str, Any]) -> list[str]:
    """Names of the reservations that the template targets."""
    affinity = template.get("reservationAffinity") or {}
    if affinity.get("type") != "SPECIFIC_RESERVATION":
        return []
    return [
        last(str(one).partition("/reservationBlocks/")[0])
        for one in (affinity.get("specificReservation") or {}).get("values") or []
    ]


class ManagedGroups:
    """Google's zonal managed instance groups (`GroupKind`)."""

    cloud = "gcp"
    tokens = (GROUP,)

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> View:
        """What the group's inputs say. Labels of the template name cluster and pool: a group has none of its own."""
        template, policy = data_of(cloud, group), wire.plain(group.inputs).get("updatePolicy") or {}
        labels = template.get("labels") or {}
        wanted = size_of(cloud, group) + sum(int(one["by"]) for one in waiting(cloud, group).values())
        method = policy.get("replacementMethod") or "SUBSTITUTE"
        surge = 0 if method == "RECREATE" else _share(policy, "maxSurge", wanted, 1)
        return View(
            cluster=str(labels.get("gpuinfra-cluster") or "cluster"),
            pool=str(labels.get("gpuinfra-pool") or last(group.id)),
            kind=kind_of(template),
            wanted=wanted,
            surge=surge,
            unavailable=max(1, _share(policy, "maxUnavailable", wanted, 0 if surge else 1)),
        )

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why the next instance cannot be had, in Compute Engine's words."""
        template = data_of(cloud, group)
        if not template:
            return CloudError("RESOURCE_NOT_FOUND", "The instance template of the group was not found.", status=404)
        labels, kind, zone = template.get("labels") or {}, kind_of(template), _zone(group)
        machine = str(template.get("machineType") or "")
        if cloud.faults.without_capacity(
            str(labels.get("gpuinfra-pool") or ""), str(labels.get("gpuinfra-group") or ""), last(group.id), kind
        ):
            return CloudError(
                "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                f"The zone 'projects/{ids.PROJECT}/zones/{zone}' does not have enough resources available to fulfill the request. "
                f"'(resource type:compute)'. A {machine} VM instance is currently unavailable in the {zone} zone."
                + (" Consider trying your request with another provisioning model." if kind == "spot" else ""),
                status=503,
            )
        # A resize request is served whole or not at all.
        asked = max(wanted - have, sum(int(one["by"]) for one in waiting(cloud, group).values()))
        for name, size in _reservations(cloud, template, zone):
            if _used(cloud, name, zone) + asked > size:
                return CloudError(
                    "RESERVATION_CAPACITY_EXCEEDED",
                    f"Specified reservation '{name}' does not have available capacity for the request: it holds {size} of {machine}.",
                )
        return None

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Made]) -> Made:
        """An instance as Compute Engine knows it."""
        serve(cloud, group)
        path = _next_template(cloud, group, have)
        found = template_of(cloud, path)
        data = wire.plain(found.inputs) if found else {}
        labels, zone, serial = dict(data.get("labels") or {}), _zone(group), cloud.store.next("gce")
        image = str((next(iter(data.get("disks") or []), {}) or {}).get("sourceImage") or "")
        os, prebuilt = image_of(cloud, image)
        base = str(wire.plain(group.inputs).get("baseInstanceName") or last(group.id))
        address = f"10.{128 + serial // 65536}.{serial // 256 % 256}.{serial % 256}"
        return {
            "id": str(SERIES + serial),
            "cloud": self.cloud,
            "name": name,
            "cluster": str(labels.get("gpuinfra-cluster") or "cluster"),
            "pool": str(labels.get("gpuinfra-pool") or last(group.id)),
            "group": group.id,
            "group_name": str(labels.get("gpuinfra-group") or ""),
            "region": zone.rpartition("-")[0],
            "zone": zone,
            "zone_id": zone,
            "vm": f"{base}-{_four(serial)}",
            "address": address,
            "machine": str(data.get("machineType") or ""),
            "image_id": image,
            "os": os,
            "prebuilt": prebuilt,
            "template": path,
            "template_name": last(path),
            "template_version": 0,
            "kind": kind_of(data),
            "reservations": reservations_of(data),
            "account": str((data.get("serviceAccount") or {}).get("email") or ""),
            "scopes": list((data.get("serviceAccount") or {}).get("scopes") or []),
            "attributes": {key: str(value) for key, value in (data.get("metadata") or {}).items()},
            "startup": str(data.get("metadataStartupScript") or ""),
            "interfaces": data.get("networkInterfaces") or [],
            "tags": labels,
            "launched": time.time(),
            "state": "running",
        }

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> list[Made]:
        """Instances beyond what each version should have, oldest first, under a proactive policy."""
        policy = wire.plain(group.inputs).get("updatePolicy") or {}
        if policy.get("type", "PROACTIVE") != "PROACTIVE":
            return []
        room = dict(shares(group, size_of(cloud, group)))
        found: list[Made] = []
        for one in sorted(have, key=lambda one: -one["launched"]):
            if room.get(one["template"], 0) > 0:
                room[one["template"]] -= 1
            elif one["template"] not in room or room_elsewhere(room):
                found.append(one)
        return sorted(found, key=lambda one: (one["launched"], one["id"]))

    def first_to_go(self, have: Sequence[Made]) -> list[Made]:
        """The newest first."""
        return sorted(have, key=lambda one: (-one["launched"], one["id"]))

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Made]) -> None:
        """Machines that were told that they are preempted end when their notice is over."""
        for one in have:
            if one.get("preempted") and time.time() - one["preempted"] >= NOTICE_S:
                cloud.fleet.terminate(one["id"], "compute.instances.preempted: the VM was preempted")

    def launched(self, instance: Made) -> str:
        """Compute Engine's name of the action."""
        return f"compute.instances.insert {instance['vm']}"

    def failed(self, shortage: CloudError) -> str:
        """Compute Engine's name of the action."""
        return f"compute.instances.insert failed: {shortage.code}"

    def ended(self, instance_id: str) -> str:
        """Compute Engine's name of the action."""
        return f"compute.instances.delete {instance_id}"

    def cause(self, wanted: int) -> str:
        """Why the group acts."""
        return f"the group's target size is {wanted}"

    def lost(self) -> str:
        """What a group says of a machine that went away: it repairs it by making it again."""
        return "compute.instances.repair.recreateInstance: the VM was not running although its target status is RUNNING"


KIND = ManagedGroups()


def preempt(cloud: Cloud, instance_id: str) -> bool:
    """Tell a spot machine that it is preempted; False where there is no such machine."""
    with cloud.store.change():
        one = cloud.store.get("instance", instance_id)
        if one is None or one["state"] == "terminated" or (one.get("cloud"), one["kind"]) != ("gcp", "spot"):
            return False
        cloud.store.put("instance", instance_id, {**one, "preempted": time.time()})
    return True


def room_elsewhere(room: dict[str, int]) -> bool:
    """Whether another version lacks instances."""
    return any(left > 0 for left in room.values())


def image_of(cloud: Cloud, link: str) -> tuple[str, bool]:
    """(operating system, brings driver and fabric) of an image or family, by its name: Google's names say both."""
    path = path_of(link)
    made = cloud.store.find("gcp:compute/image:Image", path)
    named = str((cloud.external(path) or {}).get("family") or "")
    text = f"{path} {wire.plain(made.inputs).get('family') or ''} {named}" if made else f"{path} {named}"
    version = re.search(r"ubuntu[a-z-]*-(\d\d)(\d\d)\b", text)
    return (
        f"ubuntu-{version.group(1)}.{version.group(2)}" if version else "ubuntu-22.04",
        bool(re.search(r"accelerator|nvidia|deeplearning|tcpx", text)),
    )


def _next_template(cloud: Cloud, group: Resource, have: Sequence[Made]) -> str:
    """Of which version the next instance is: the one that lacks most."""
    wanted = shares(group, max(size_of(cloud, group), len(have) + 1))
    counted = {path: sum(one["template"] == path for one in have) for path, _ in wanted}
    return max(wanted, key=lambda one: one[1] - counted[one[0]], default=("", 0))[0]


def _share(policy: dict[str, Any], name: str, wanted: int, default: int) -> int:
    """`maxSurge` and `maxUnavailable`, fixed or a percentage of the target size."""
    if policy.get(f"{name}Fixed") is not None:
        return int(policy[f"{name}Fixed"])
    if policy.get(f"{name}Percent") is not None:
        return math.ceil(wanted * int(policy[f"{name}Percent"]) / 100)
    return default


def _zone(group: Resource) -> str:
    return last(str(wire.plain(group.inputs).get("zone") or group.id.split("/zones/")[-1].split("/")[0]))


def _reservations(cloud: Cloud, template: dict[str, Any], zone: str) -> list[tuple[str, int]]:
    """Targeted reservations whose size is known: made in this cloud, or told to it."""
    found = []
    for name in reservations_of(template):
        made = cloud.store.find(RESERVATION, f"projects/{ids.PROJECT}/zones/{zone}/reservations/{name}")
        size = (
            (wire.plain(made.inputs).get("specificReservation") or {}).get("count")
            if made
            else (cloud.external(name) or {}).get("count")
        )
        if size is not None:
            found.append((name, int(size)))
    return found


def _used(cloud: Cloud, name: str, zone: str) -> int:
    every = cloud.fleet.instances().values()
    return sum(
        1 for one in every if one["state"] != "terminated" and name in one["reservations"] and one["zone"] == zone
    )


def _four(serial: int) -> str:
    """The four letters that a group adds to its base name."""
    letters = "0123456789bcdfghjklmnpqrstvwxz"
    text = ""
    for _ in range(4):
        serial, digit = divmod(serial, len(letters))
        text = letters[digit] + text
    return text
