"""What groups of machines do on every cloud: make, keep, replace and remove instances.

One thread compares what each group wants with what it has. An instance is first a row in the store and then a machine of the
node host, so that a kill between the two leaves work to do and nothing twice.

Names are launch order within a pool (`gpu-1`, `gpu-2`), over its groups in the order reserved, block, flex, on-demand, spot; a group waits a
moment for its siblings before its first launch, because the engine creates them side by side. While a pool has groups, a
number is never used twice: the replacement of `gpu-1` gets the next free one.
What differs from cloud to cloud is a `GroupKind`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.aws import schedules
from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.groups import GroupKind, Tending, View, groups, kind_of_cloud, kind_of_group

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

_ORDER = ("reserved", "block", "flex", "on_demand", "spot")
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
        """A group's instances that are not gone, oldest first; no region where the name carries the place."""
        return [
            one
            for one in self.instances().values()
            if one["group"] == name and region in ("", one["region"]) and one["state"] != "terminated"
        ]

    def terminate(self, id: str, why: str) -> bool:
        """End an instance, as a hardware failure or a person would; its group replaces it."""
        with self.store.change():
            instance = self.store.get("instance", id)
            if instance is None or instance["state"] == "terminated":
                return False
            instance |= {"state": "terminated", "ended": time.time(), "why": why}
            self.store.put("instance", id, instance)
            text = kind_of_cloud(_cloud(instance)).ended(id)
            self._activity(instance["region"], instance["group"], text, why, "Successful")
        if self.host:
            self.host.terminate(id)
        self.cloud.wake()
        return True

    def lose(self, id: str) -> bool:
        """End an instance as a hardware failure would; its group replaces it."""
        instance = self.store.get("instance", id)
        return instance is not None and self.terminate(id, kind_of_cloud(_cloud(instance)).lost())

    def reimage(self, id: str) -> None:
        """Give a machine a new disk: it boots as if for the first time, and stays who it was."""
        if self.host:
            self.host.terminate(id)
        instance = self.store.get("instance", id)
        if instance is not None:
            self._power_on(instance)

    def abandon(self, group: Resource) -> None:
        """The group is deleted: its instances go with it."""
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
        """A pool that has ended begins at 1 when it comes again, so nothing may be left that bears its names."""
        with self.store.change():
            self.store.reset(f"pool {cluster}/{pool}")
            for instance in self.instances().values():
                if (instance["cluster"], instance["pool"]) == (cluster, pool):
                    self.store.drop("instance", instance["id"])

    def has_capacity(self, group: Resource, wanted: int) -> bool:
        """Whether the cloud would give the group what it wants now."""
        return kind_of_group(group).shortage(self.cloud, group, 0, wanted) is None

    def activities(self, region: str, group: str) -> list[dict[str, Any]]:
        """What a group did, newest first."""
        found = [
            one
            for one in self.store.all("activity").values()
            if one["group"] == group and region in ("", one["region"])
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
                self.store.log("reconcile", "groups", "", "", repr(error))
                if self._stop.wait(_TICK_S):
                    return

    def reconcile(self) -> None:
        """One pass over all groups."""
        schedules.run_due(self.store)
        every = [(group, self._view(group)) for group in groups(self.store)]
        every.sort(key=lambda one: (_ORDER.index(one[1].kind), one[0].created, one[0].id))
        young = {(view.cluster, view.pool) for group, view in every if time.time() - group.created < _SETTLE_S}
        for listed, seen in every:
            # Read again: it may have changed while the groups before it were served.
            group = self.store.find(listed.type, listed.id, listed.region)
            if group is None or (seen.cluster, seen.pool) in young:
                continue
            self._serve(group)

    def _serve(self, group: Resource) -> None:
        """Bring one group nearer to what it wants."""
        kind, have = kind_of_group(group), self.of_group(group)
        view = kind.view(self.cloud, group, have)
        if isinstance(kind, Tending):
            kind.tend(self.cloud, group, have)
        if len(have) < view.wanted:
            if view.may_launch:
                self._scale_out(group, kind, view.wanted)
            return
        with self.store.change():
            # Nobody may change the group between the look and the verdict that nothing is outdated.
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

    def _scale_out(self, group: Resource, kind: GroupKind, wanted: int) -> None:
        key = f"{group.region}:{group.id}"
        if time.time() - self._failed_at.get(key, 0) < _RETRY_S:
            return
        cluster, pool = self._pool(group)
        have = self.of_group(group)
        while len(have) < wanted:
            if shortage := kind.shortage(self.cloud, group, len(have), len(have) + 1):
                self._failed_at[key] = time.time()
                text = kind.failed(shortage)
                self._activity(
                    group.region, group.id, text, kind.cause(wanted), "Failed", shortage.message, shortage.code
                )
                return
            with self.store.change():
                number = self.store.next(f"pool {cluster}/{pool}")
                instance = kind.make(self.cloud, group, f"{pool}-{number}", have)
                self.store.put("instance", instance["id"], instance)
                self._activity(group.region, group.id, kind.launched(instance), kind.cause(wanted), "Successful")
            self._power_on(instance)
            have.append(instance)

    def _power_on(self, instance: dict[str, Any]) -> None:
        if self.host is None:
            return
        from gpuinfra.rehearsal.nodes import Instance

        self.host.launch(
            Instance(
                id=instance["id"], machine=instance["machine"], os=instance["os"], prebuilt=instance["prebuilt"], name=instance["name"],
                pool=instance["pool"], cluster=instance["cluster"], cloud=_cloud(instance), region=instance["region"], zone=instance["zone_id"],
                faults=self.cloud.faults.of_node(instance["name"]),
            )
        )  # fmt: skip

    def _activity(
        self, region: str, group: str, description: str, cause: str, status: str, message: str = "", code: str = ""
    ) -> None:
        number = self.store.next("activity")
        now = time.time()
        self.store.put("activity", f"{number:010}", {
            "n": number, "id": ids.uuid(number), "region": region, "group": group, "description": description, "cause": cause,
            "status": status, "message": message, "code": code, "start": now, "end": now,
        })  # fmt: skip


def _cloud(instance: dict[str, Any]) -> str:
    """Whose instance it is; folders of the first release kept AWS's without saying so."""
    return instance.get("cloud", "aws")
