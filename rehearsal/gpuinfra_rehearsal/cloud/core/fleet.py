"""The instances of every group on every cloud: launches, replaces and terminates them.

One thread compares the desired and the actual instances of each group. An instance is written to the store before its
machine starts on the node host, so no instance is created twice if the process is killed in between.

Names follow the launch order within a pool (`gpu-1`, `gpu-2`), across its groups in the order reserved, block, flex,
on-demand, spot. A new group waits briefly for its siblings before its first launch, because the engine creates them in
parallel. While a pool has groups, no number is reused: the replacement of `gpu-1` gets the next free number. A
`GroupKind` implements the differences between clouds.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import ids, notices, registry
from gpuinfra_rehearsal.cloud.core.groups import groups, kind_of_cloud, kind_of_group
from gpuinfra_rehearsal.cloud.core.interfaces import GroupKind, View

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource
    from gpuinfra_rehearsal.nodes.state import AttachedDisk

_ORDER = ("reserved", "block", "flex", "on_demand", "spot")
_SETTLE_S = 1.0
"""How long a new group waits for its siblings before its first launch."""
_RETRY_S = 5.0
"""How often a group without capacity retries."""
_TICK_S = 0.5


class Fleet:
    """The instances of all groups."""

    def __init__(self, cloud: Cloud, host: Any | None, unavailable: str = "") -> None:
        self.cloud, self.store, self.host = cloud, cloud.store, host
        self.unavailable = unavailable
        """The reason that instances do not boot in this rehearsal. Empty if they boot."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed_at: dict[str, float] = {}

    def start(self) -> None:
        if self.host is not None:
            self.host.ssh_ports.logins = self.logins
        for instance in self.running():
            if instance.get("new_disk"):
                self.reimage(instance["id"])
            else:
                self._power_on(instance)
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.cloud.wake()
        if self._thread:
            self._thread.join(timeout=10)

    def instances(self) -> dict[str, dict[str, Any]]:
        """Return all instances, keyed by ID, including terminated instances."""
        return self.store.all("instance")

    def running(self) -> list[dict[str, Any]]:
        """Return the instances that are not terminated, oldest first."""
        return [one for one in self.instances().values() if one["state"] != "terminated"]

    def console(self, id: str) -> str:
        """Return the serial console of an instance."""
        return self.host.console(id) if self.host else f"gpuinfra: this node does not boot: {self.unavailable}\n"

    def logins(self, id: str) -> Mapping[str, Iterable[str]]:
        """Return the users who can log in to an instance, with their public keys."""
        instance = self.store.get("instance", id)
        if instance is None:
            return {}
        (stand_in,) = (one for one in registry.installed() if one.name == instance["cloud"])
        return stand_in.logins(self.cloud, instance)

    def ssh_port(self, id: str) -> int | None:
        """Return the loopback port on which the sshd of an instance listens."""
        return self.host.ssh_ports.numbers().get(id) if self.host else None

    def of_group(self, group: Resource) -> list[dict[str, Any]]:
        return self.members(group.region, group.id)

    def members(self, region: str, name: str) -> list[dict[str, Any]]:
        """Return a group's running instances, oldest first. The region is empty if the group's ID includes it."""
        return [one for one in self.running() if one["group"] == name and region in ("", one["region"])]

    def terminate(self, id: str, why: str) -> bool:
        """Terminate an instance. Its group replaces it. Returns False if no such instance is running."""
        with self.store.change():
            instance = self.store.get("instance", id)
            if instance is None or instance["state"] == "terminated":
                return False
            instance |= {"state": "terminated", "ended": time.time(), "why": why}
            self.store.put("instance", id, instance)
            text = kind_of_cloud(instance["cloud"]).ended.format(**instance)
            self._activity(instance["region"], instance["group"], text, why, "Successful")
        if self.host:
            self.host.terminate(id)
        self.cloud.wake()
        return True

    def lose(self, id: str) -> bool:
        """Terminate an instance as a hardware failure does. Its group replaces it."""
        instance = self.store.get("instance", id)
        return instance is not None and self.terminate(id, kind_of_cloud(instance["cloud"]).lost)

    def holder(self, disk: str) -> str | None:
        """Return the ID of the running instance that has a disk, given the key of the disk."""
        return next(
            (one["id"] for one in self.running() if disk in [held["key"] for held in one.get("disks", ())]), None
        )

    def attach_disk(self, id: str, disk: AttachedDisk) -> None:
        """Attach a disk that no instance has. It is free again as soon as the instance ends."""
        with self.store.change():
            instance = self.store.get("instance", id)
            if instance is None or instance["state"] == "terminated":
                return
            held = [*instance.get("disks", ()), dataclasses.asdict(disk)]
            self.store.put("instance", id, instance | {"disks": held})
        if self.host:
            self.host.attach_disk(id, disk)

    def reimage(self, id: str) -> None:
        """Give an instance a new disk. It keeps its ID and boots as if for the first time.

        The caller sets the instance's `new_disk` together with the values of the new disk, so that a kill in between
        does not keep the old disk.
        """
        if self.host:
            self.host.terminate(id)
        instance = self.store.get("instance", id)
        if instance is None:
            return
        self._power_on(instance)
        with self.store.change():
            now = self.store.get("instance", id)
            if now is not None:
                self.store.put("instance", id, now | {"new_disk": False})

    def redeploy(self, id: str) -> None:
        """Move an instance to a different host and boot it. It keeps its ID and its disk."""
        with self.store.change():
            instance = self.store.get("instance", id)
            if instance is None or instance["state"] == "terminated":
                return
            self.store.put("instance", id, instance | {"moves": instance.get("moves", 0) + 1, "health": "Unknown"})
        if self.host:
            self.host.redeploy(id)

    def abandon(self, group: Resource) -> None:
        """Terminate the instances of a deleted group."""
        for instance in self.of_group(group):
            self.terminate(instance["id"], "the group was deleted")
        others = [other for other in groups(self.store) if (other.type, other.id) != (group.type, group.id)]
        if not any(self._pool(other) == self._pool(group) for other in others):
            self._forget(*self._pool(group))

    def _view(self, group: Resource) -> View:
        return kind_of_group(group).view(self.cloud, group, self.of_group(group))

    def _pool(self, group: Resource) -> tuple[str, str]:
        view = self._view(group)
        return view.cluster, view.pool

    def _forget(self, cluster: str, pool: str) -> None:
        """Remove a pool that has no groups left. A new pool with that name starts at 1, so no instance can keep a name
        from the old pool."""
        with self.store.change():
            self.store.reset(f"pool {cluster}/{pool}")
            for instance in self.instances().values():
                if (instance["cluster"], instance["pool"]) == (cluster, pool):
                    self.store.drop("instance", instance["id"])

    def has_capacity(self, group: Resource, wanted: int) -> bool:
        """Return whether the cloud has the capacity that the group requests."""
        return kind_of_group(group).shortage(self.cloud, group, 0, wanted) is None

    def activities(self, region: str, group: str) -> list[dict[str, Any]]:
        """Return a group's activities, newest first."""
        activities = [
            one
            for one in self.store.all("activity").values()
            if one["group"] == group and region in ("", one["region"])
        ]
        return sorted(activities, key=lambda one: one["n"], reverse=True)

    # The thread

    def _run(self) -> None:
        reported = ""
        while not self._stop.is_set():
            self.cloud.changed.wait(_TICK_S)
            self.cloud.changed.clear()
            if self._stop.is_set():
                return
            try:
                self.reconcile()
            except (
                Exception
            ) as error:  # A defect here does not stop the rehearsal. cloud.log and the call log contain the error.
                if repr(error) != reported:
                    reported = repr(error)
                    traceback.print_exc()
                self.store.log("reconcile", "groups", "", "", repr(error))
                if self._stop.wait(_TICK_S):
                    return

    def reconcile(self) -> None:
        """Make one pass over all groups."""
        for stand_in in registry.installed():
            stand_in.tick(self.cloud)
        with self.store.change():
            held = {one.id for one in groups(self.store)}
            orphans = [one for one in self.running() if one["group"] not in held]
        for instance in orphans:
            self.terminate(instance["id"], "its group does not exist")
        for instance in self.running():
            kind = kind_of_cloud(instance["cloud"])
            if notices.is_over(self.cloud, instance, kind.notice_s):
                self.terminate(instance["id"], kind.reclaimed)
        every = [(group, self._view(group)) for group in groups(self.store)]
        every.sort(key=lambda one: (_ORDER.index(one[1].kind), one[0].created, one[0].id))
        young = {(view.cluster, view.pool) for group, view in every if time.time() - group.created < _SETTLE_S}
        for listed, seen in every:
            # Read the group again, because it might have changed while earlier groups were processed.
            group = self.store.find(listed.type, listed.id, listed.region)
            if group is None or (seen.cluster, seen.pool) in young:
                continue
            self._serve(group)

    def _serve(self, group: Resource) -> None:
        """Bring one group closer to its desired state."""
        kind, have = kind_of_group(group), self.of_group(group)
        view = kind.view(self.cloud, group, have)
        kind.tend(self.cloud, group, have)
        if len(have) < view.wanted:
            if view.may_launch and not self._delayed(group, kind):
                self._scale_out(group, kind, view.wanted)
            return
        with self.store.change():
            # Run in a transaction, so that the group does not change between the read and the check for outdated
            # instances.
            now = self.store.find(group.type, group.id, group.region)
            outdated = kind.outdated(self.cloud, now, have) if now else []
        extra = len(have) - view.wanted
        if outdated and extra < min(view.surge, len(outdated)) and view.may_launch:
            self._scale_out(group, kind, view.wanted + min(view.surge, len(outdated)))
        elif outdated and (extra or not view.surge):
            for instance in outdated[: extra or view.unavailable]:
                self.terminate(instance["id"], "an instance of another template replaces it")
        elif extra:
            for instance in kind.first_to_go(have)[:extra]:
                self.terminate(instance["id"], f"the desired capacity was changed from {len(have)} to {view.wanted}")

    def _delayed(self, group: Resource, kind: GroupKind) -> bool:
        """Return whether a fault delays the first node of a group."""
        return time.time() - group.created < self.cloud.faults.delay(*kind.targets(self.cloud, group))

    def _scale_out(self, group: Resource, kind: GroupKind, wanted: int) -> None:
        key = f"{group.region}:{group.id}"
        if time.time() - self._failed_at.get(key, 0) < _RETRY_S:
            return
        cluster, pool = self._pool(group)
        have, cause = self.of_group(group), kind.cause.format(wanted=wanted)
        while len(have) < wanted:
            if shortage := kind.shortage(self.cloud, group, len(have), len(have) + 1):
                self._failed_at[key] = time.time()
                text = kind.failed.format(code=shortage.code, message=shortage.message)
                self._activity(group.region, group.id, text, cause, "Failed", shortage.message, shortage.code)
                return
            with self.store.change():
                # The group might have been deleted since it was read.
                if self.store.find(group.type, group.id, group.region) is None:
                    return
                number = self.store.next(f"pool {cluster}/{pool}")
                instance = kind.make(self.cloud, group, f"{pool}-{number}", have)
                self.store.put("instance", instance["id"], instance)
                self._activity(group.region, group.id, kind.launched.format(**instance), cause, "Successful")
            self.cloud.faults.launched(instance["name"])
            self._power_on(instance)
            now = self.store.get("instance", instance["id"])
            if self.host and (now is None or now["state"] == "terminated"):
                self.host.terminate(instance["id"])  # its group was deleted before the machine started
            have.append(instance)

    def _power_on(self, instance: dict[str, Any]) -> None:
        if self.host is None:
            return
        from gpuinfra_rehearsal.nodes import Instance
        from gpuinfra_rehearsal.nodes.state import AttachedDisk

        self.host.launch(
            Instance(
                id=instance["id"], machine=instance["machine"], os=instance["os"], prebuilt=instance["prebuilt"], name=instance["name"],
                pool=instance["pool"], cluster=instance["cluster"], cloud=instance["cloud"], region=instance["region"], zone=instance["zone_id"],
                faults=self.cloud.faults.of_node(instance["name"]),
            )
        )  # fmt: skip
        for disk in instance.get("disks", ()):
            self.host.attach_disk(instance["id"], AttachedDisk(**disk))

    def _activity(
        self, region: str, group: str, description: str, cause: str, status: str, message: str = "", code: str = ""
    ) -> None:
        number = self.store.next("activity")
        now = time.time()
        self.store.put("activity", f"{number:010}", {
            "n": number, "id": ids.uuid(number), "region": region, "group": group, "description": description, "cause": cause,
            "status": status, "message": message, "code": code, "start": now, "end": now,
        })  # fmt: skip
