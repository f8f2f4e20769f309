"""What Auto Scaling groups do: make, keep, replace and remove instances.

One thread compares what each group wants with what it has. An instance is first a row in the store and then a machine of the
node host, so that a kill between the two leaves work to do and nothing twice.

Names are launch order within a pool (`gpu-1`, `gpu-2`), over its groups in the order reserved, block, on-demand, spot; a group waits a
moment for its siblings before its first launch, because the engine creates them side by side. While a pool has groups, a
number is never used twice: the replacement of `gpu-1` gets the next free one.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud import ids, places, schedules, wire
from gpuinfra.rehearsal.cloud.errors import CloudError
from gpuinfra.rehearsal.cloud.groups import (
    GROUP,
    cluster_and_pool,
    desired,
    first_to_go,
    instance_tags,
    kind_of,
    machine_of,
    pool_key,
    reservations_of,
    resolve_template,
    tags_of,
)
from gpuinfra.rehearsal.cloud.images import Image, image_of

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.cloud import Cloud
    from gpuinfra.rehearsal.cloud.store import Resource

_ORDER = ("reserved", "block", "on_demand", "spot")
_SETTLE_S = 1.0
"""How long a new group waits for its siblings before it launches."""
_RETRY_S = 5.0
"""How often a group without capacity says so again."""
_TICK_S = 0.5


class Fleet:
    """The instances of all groups."""

    def __init__(self, cloud: Cloud, host: Any | None, unavailable: str = "") -> None:
        self.cloud, self.store, self.host = cloud, cloud.store, host
        self.unavailable = unavailable
        """Why instances never become nodes here; empty when they do."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed_at: dict[str, float] = {}

    def start(self) -> None:
        for instance in self.instances().values():
            if instance["state"] != "terminated":
                self._power_on(instance)
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.cloud.wake()
        if self._thread:
            self._thread.join(timeout=10)

    def instances(self) -> dict[str, dict[str, Any]]:
        """Every instance by id, the terminated ones too."""
        return self.store.all("instance")

    def of_group(self, group: Resource) -> list[dict[str, Any]]:
        return self.members(group.region, group.id)

    def members(self, region: str, name: str) -> list[dict[str, Any]]:
        """A group's instances that are not gone, oldest first."""
        return [
            one
            for one in self.instances().values()
            if one["group"] == name and one["region"] == region and one["state"] != "terminated"
        ]

    def terminate(self, id: str, why: str) -> bool:
        """End an instance, as a hardware failure or a person would; its group replaces it."""
        with self.store.change():
            instance = self.store.get("instance", id)
            if instance is None or instance["state"] == "terminated":
                return False
            instance |= {"state": "terminated", "ended": time.time(), "why": why}
            self.store.put("instance", id, instance)
            self._activity(instance["region"], instance["group"], f"Terminating EC2 instance: {id}", why, "Successful")
        if self.host:
            self.host.terminate(id)
        self.cloud.wake()
        return True

    def abandon(self, group: Resource) -> None:
        """The group is deleted: its instances go with it."""
        for instance in self.of_group(group):
            self.terminate(instance["id"], "the group was deleted")
        if not any(pool_key(other) == pool_key(group) for other in self.store.list(GROUP) if other.id != group.id):
            self._forget(group)

    def _forget(self, group: Resource) -> None:
        """A pool that has ended begins at 1 when it comes again, so nothing may be left that bears its names."""
        cluster, pool = cluster_and_pool(group)
        with self.store.change():
            self.store.reset(f"pool {pool_key(group)}")
            for instance in self.instances().values():
                if (instance["cluster"], instance["pool"]) == (cluster, pool):
                    self.store.drop("instance", instance["id"])

    def has_capacity(self, group: Resource, wanted: int) -> bool:
        """Whether the cloud would give the group what it wants now."""
        return self._shortage(group, wire.plain(group.inputs), 0, wanted) is None

    def activities(self, region: str, group: str) -> list[dict[str, Any]]:
        """What a group did, newest first."""
        found = [
            one for one in self.store.all("activity").values() if one["group"] == group and one["region"] == region
        ]
        return sorted(found, key=lambda one: one["n"], reverse=True)

    # The thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self.cloud.changed.wait(_TICK_S)
            self.cloud.changed.clear()
            if self._stop.is_set():
                return
            try:
                self.reconcile()
            except Exception as error:  # a defect here must show in the cloud's own log, and not end the rehearsal
                self.store.log("reconcile", GROUP, "", "", repr(error))
                if self._stop.wait(_TICK_S):
                    return

    def reconcile(self) -> None:
        """One pass over all groups."""
        schedules.run_due(self.store)
        groups = sorted(
            self.store.list(GROUP), key=lambda one: (_ORDER.index(kind_of(self.cloud, one)), one.created, one.id)
        )
        young = {pool_key(one) for one in groups if time.time() - one.created < _SETTLE_S}
        for listed in groups:
            # Read again: it may have changed while the groups before it were served.
            group = self.store.find(GROUP, listed.id, listed.region)
            if group is None or pool_key(group) in young:
                continue
            inputs = wire.plain(group.inputs)
            have = self.of_group(group)
            wanted = desired(inputs)
            if len(have) < wanted and "Launch" not in (inputs.get("suspendedProcesses") or []):
                self._scale_out(group, inputs, have, wanted)
            elif len(have) > wanted:
                for instance in first_to_go(have)[: len(have) - wanted]:
                    self.terminate(instance["id"], f"the desired capacity was changed from {len(have)} to {wanted}")
            else:
                self._roll(group.region, group.id)

    def _scale_out(self, group: Resource, inputs: dict[str, Any], have: list[dict[str, Any]], wanted: int) -> None:
        key = f"{group.region}:{group.id}"
        if time.time() - self._failed_at.get(key, 0) < _RETRY_S:
            return
        while len(have) < wanted:
            if shortage := self._shortage(group, inputs, len(have), len(have) + 1):
                self._failed_at[key] = time.time()
                self._activity(
                    group.region,
                    group.id,
                    "Launching a new EC2 instance.  Status Reason: " + shortage.message,
                    _cause(wanted),
                    "Failed",
                    shortage.message,
                )
                return
            with self.store.change():
                instance = self._make(group, inputs)
                self._activity(
                    group.region,
                    group.id,
                    f"Launching a new EC2 instance: {instance['id']}",
                    _cause(wanted),
                    "Successful",
                )
            self._power_on(instance)
            have.append(instance)

    def _shortage(self, group: Resource, inputs: dict[str, Any], have: int, wanted: int) -> CloudError | None:
        """Why the next instance cannot be had, in EC2's words."""
        tags, kind = tags_of(inputs), kind_of(self.cloud, group)
        resolved = resolve_template(self.cloud, inputs, group.region)
        if resolved is None:
            return CloudError(
                "ValidationError", "The launch template of the group does not exist. Launching EC2 instance failed."
            )
        machine = machine_of(inputs, resolved[2])
        zone = self._zone(group, inputs)[0]
        words = {"reserved": "On-Demand", "block": "Capacity Block", "on_demand": "On-Demand", "spot": "Spot"}[kind]
        if self.cloud.faults.without_capacity(
            tags.get("gpuinfra:pool", ""), tags.get("gpuinfra:group", ""), group.id, kind
        ):
            if kind == "spot":
                reason = "There is no Spot capacity available that matches your request."
            else:
                reason = (
                    f"We currently do not have sufficient {machine} capacity in the Availability Zone you requested ({zone}). "
                    "Our system will be working on provisioning additional capacity."
                )
            return CloudError(
                "InsufficientInstanceCapacity",
                f"Could not launch {words} Instances. InsufficientInstanceCapacity - {reason} Launching EC2 instance failed.",
            )
        for reservation, size in self._reservations(inputs, resolved[2]):
            if self._used(reservation) + (wanted - have) > size:
                return CloudError(
                    "ReservationCapacityExceeded",
                    f"Could not launch {words} Instances. ReservationCapacityExceeded - The requested reservation {reservation} does not have "
                    "sufficient compatible and available capacity for this request. Launching EC2 instance failed.",
                )
        return None

    def _reservations(self, inputs: dict[str, Any], template: dict[str, Any]) -> list[tuple[str, int]]:
        """Targeted reservations whose size is known: made in this cloud, or told to it. One that nobody knows is taken to be large enough."""
        found = []
        for id in reservations_of(inputs, template):
            made = self.store.find("aws:ec2/capacityReservation:CapacityReservation", id)
            size = (
                wire.plain(made.inputs).get("instanceCount") if made else (self.cloud.external(id) or {}).get("count")
            )
            if size is not None:
                found.append((id, int(size)))
        return found

    def _used(self, reservation: str) -> int:
        return sum(
            1
            for one in self.instances().values()
            if one["state"] != "terminated" and reservation in one["reservations"]
        )

    def _make(self, group: Resource, inputs: dict[str, Any]) -> dict[str, Any]:
        resolved = resolve_template(self.cloud, inputs, group.region)
        assert resolved is not None
        template, version, data = resolved
        tags = tags_of(inputs)
        cluster, pool = cluster_and_pool(group)
        number = self.store.next(f"pool {pool_key(group)}")
        serial = self.store.next("i")
        image: Image = image_of(self.store, str(data.get("imageId") or ""))
        zone, zone_id, subnet = self._zone(group, inputs)
        instance = {
            "id": f"i-{ids.hexa(serial, 17)}",
            "name": f"{pool}-{number}",
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
            "kind": kind_of(self.cloud, group),
            "reservations": reservations_of(inputs, data),
            "profile": data.get("iamInstanceProfile") or {},
            "metadata": data.get("metadataOptions") or {},
            "interfaces": data.get("networkInterfaces") or [],
            "tags": {**instance_tags(data), **tags, "aws:autoscaling:groupName": group.id},
            "launched": time.time(),
            "state": "running",
        }
        self.store.put("instance", instance["id"], instance)
        return instance

    def _zone(self, group: Resource, inputs: dict[str, Any]) -> tuple[str, str, str]:
        """Zone name, zone id and subnet: the group's subnets in turn."""
        subnets = inputs.get("vpcZoneIdentifiers") or []
        if not subnets:
            name = (inputs.get("availabilityZones") or [places.zones(group.region)[0][0]])[0]
            return name, places.zone_id(group.region, name) or "", ""
        chosen = subnets[len(self.of_group(group)) % len(subnets)]
        found = self.store.find("aws:ec2/subnet:Subnet", chosen)
        told = self.cloud.external(chosen) or {}
        name = (
            str(found.outputs.get("availabilityZone"))
            if found
            else told.get("availabilityZone") or places.zones(group.region)[0][0]
        )
        return name, places.zone_id(group.region, name) or "", chosen

    def _power_on(self, instance: dict[str, Any]) -> None:
        if self.host is None:
            return
        from gpuinfra.rehearsal.nodes import Instance

        self.host.launch(
            Instance(
                id=instance["id"], machine=instance["machine"], os=instance["os"], prebuilt=instance["prebuilt"], name=instance["name"],
                pool=instance["pool"], cluster=instance["cluster"], cloud="aws", region=instance["region"], zone=instance["zone_id"],
                faults=self.cloud.faults.of_node(instance["name"]),
            )
        )  # fmt: skip

    def _roll(self, region: str, name: str) -> None:
        """One step of an instance refresh: as many outdated instances at once as the group's minimum of healthy ones allows."""
        with (
            self.store.change()
        ):  # nobody may change the group between the look and the verdict that nothing is outdated
            group = self.store.find(GROUP, name, region)
            if group is None or self.store.get("refresh", f"{region}:{name}") is None:
                return
            inputs, have = wire.plain(group.inputs), self.of_group(group)
            resolved = resolve_template(self.cloud, inputs, region)
            outdated = [
                one
                for one in have
                if resolved and (one["template"], one["template_version"]) != (resolved[0].id, resolved[1])
            ]
            if not outdated:
                self.store.drop("refresh", f"{region}:{name}")
                return
        preferences = (inputs.get("instanceRefresh") or {}).get("preferences") or {}
        healthy = preferences.get("minHealthyPercentage")
        floor = math.ceil(len(have) * (90 if healthy is None else int(healthy)) / 100)
        for instance in outdated[: max(1, len(have) - floor)]:
            self.terminate(instance["id"], "an instance refresh replaces it")

    def _activity(self, region: str, group: str, description: str, cause: str, status: str, message: str = "") -> None:
        number = self.store.next("activity")
        now = time.time()
        self.store.put("activity", f"{number:010}", {
            "n": number, "id": ids.uuid(number), "region": region, "group": group, "description": description, "cause": cause,
            "status": status, "message": message, "start": now, "end": now,
        })  # fmt: skip


def _cause(wanted: int) -> str:
    return f"an instance was started in response to a difference between desired and actual capacity, increasing the capacity to {wanted}."
