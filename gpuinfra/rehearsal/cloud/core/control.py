"""What a rehearsal asks of its cloud: who is there, what was made by which operation, and accidents on purpose.

Every request carries the token that the process printed when it was ready. Answers are JSON.

| request | does |
| --- | --- |
| GET `nodes` | the instances as nodes: label, stage, end of the console |
| GET `ssh` | where the nodes answer SSH on this computer, and with which key one gets in |
| GET `instances` | the instances as the cloud knows them, the terminated ones too |
| GET `resources` | everything the cloud holds, with the operation and the URN that created it |
| GET `calls?since=N` | the log of calls after number N |
| GET `activities?group=NAME` | what a group did, newest first |
| GET `permissions` | what the operator's credentials were asked for, and refused |
| GET `rights` | what nodes used of their rights, did not use, and were refused |
| POST `operation` `{"operation"}` | names the operation that following creations belong to |
| POST `drift` `{"type", "id", "set", "unset"}` | changes a resource by hand |
| POST `delete` `{"type", "id"}` | deletes a resource by hand, as the cloud allows |
| POST `vanish` `{"type", "id"}` | makes a resource disappear, whatever depends on it |
| POST `terminate` `{"instance_id"}` | ends an instance, as a hardware failure would |
| POST `preempt` `{"instance_id"}` | tells a spot machine of Google's that it is preempted; it ends 30 s later |
| POST `reboot` `{"instance_id"}` | reboots an instance |
| POST `existing` `{"type", "id", "inputs", "region"}` | puts in place what the account had before, with what is known of it |
| POST `schedule` `{"name"}` | runs a group's scheduled action now, whenever it is due |
| POST `external` `{"id", ...}` | says what the account had before: a reservation of 2 is `{"id": "cr-...", "count": 2}` |
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.aws import schedules
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.server import Request, Response
from gpuinfra.rehearsal.cloud.gcp import groups as gcp_groups

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.fleet import Fleet
    from gpuinfra.rehearsal.cloud.core.store import Resource


class Control:
    """Serves `/.control/...`."""

    def __init__(self, cloud: Cloud, token: str) -> None:
        self.cloud, self._token = cloud, token
        self._actions: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("GET", "nodes"): self._nodes,
            ("GET", "ssh"): self._ssh,
            ("GET", "instances"): lambda _: {"instances": list(self.cloud.fleet.instances().values())},
            ("GET", "resources"): self._resources,
            ("GET", "calls"): lambda asked: {"calls": self.cloud.store.calls(int(asked.get("since") or 0))},
            ("GET", "activities"): self._activities,
            ("GET", "permissions"): lambda _: self.cloud.operator.seen(),
            ("GET", "rights"): lambda _: self.cloud.rights.seen(),
            ("POST", "operation"): self._operation,
            ("POST", "drift"): self._drift,
            ("POST", "delete"): self._delete,
            ("POST", "vanish"): self._vanish,
            ("POST", "terminate"): self._terminate,
            ("POST", "preempt"): self._preempt,
            ("POST", "reboot"): self._reboot,
            ("POST", "schedule"): self._schedule,
            ("POST", "external"): self._external,
            ("POST", "existing"): self._existing,
        }

    def __call__(self, request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("x-gpuinfra-control", ""), self._token):
            return _json(403, {"error": "X-Gpuinfra-Control must carry the token of this rehearsal"})
        action = self._actions.get((request.method, request.path.removeprefix("/.control/").strip("/")))
        if action is None:
            return _json(404, {"error": f"no such request: {request.method} {request.path}"})
        try:
            asked = json.loads(request.body) if request.body else request.query
            return _json(200, action(asked))
        except CloudError as error:
            return _json(409, {"error": error.told("the cloud refused")})
        except (KeyError, TypeError, ValueError) as error:
            return _json(400, {"error": f"{type(error).__name__}: {error}"})

    def _nodes(self, _: dict[str, Any]) -> dict[str, Any]:
        fleet = self.cloud.fleet
        status = {one.id: dataclasses.asdict(one) for one in fleet.host.status()} if fleet.host else {}
        nodes = []
        for instance in fleet.instances().values():
            node = status.get(instance["id"], {})
            nodes.append(
                {
                    "label": instance["name"],
                    "instance_id": instance["id"],
                    "cluster": instance["cluster"],
                    "pool": instance["pool"],
                    "group": instance["group"],
                    "group_name": instance["group_name"],
                    "kind": instance["kind"],
                    "machine": instance["machine"],
                    "zone": instance["zone_id"],
                    "state": instance["state"],
                    "launched": instance["launched"],
                    "stage": node.get("stage") or _stage(instance, fleet),
                    "detail": node.get("detail", ""),
                    "boot_id": node.get("boot_id", ""),
                    "boots": node.get("boots", 0),
                    "console_tail": list(node.get("console_tail", ())),
                    "faults": list(self.cloud.faults.of_node(instance["name"])),
                }
            )
        return {"available": fleet.host is not None, "reason": fleet.unavailable or None, "nodes": nodes}

    def _ssh(self, _: dict[str, Any]) -> dict[str, Any]:
        host = self.cloud.fleet.host
        if host is None or host.ssh_ports.problem:
            return {"available": False, "reason": host.ssh_ports.problem if host else self.cloud.fleet.unavailable}
        from gpuinfra.rehearsal.nodes.ssh_ports import login_name

        return {
            "available": True, "reason": None, "address": "127.0.0.1", "user": login_name(),
            "identity": str(host.ssh_ports.key), "ports": host.ssh_ports.numbers(),
        }  # fmt: skip

    def _resources(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "resources": [
                {
                    "package": one.type.split(":", 1)[0], "type": one.type, "region": one.region, "id": one.id, "urn": one.urn,
                    "name": one.urn.rsplit("::", 1)[-1], "inputs": wire.plain(one.inputs), "outputs": wire.plain(one.outputs),
                    "operation": one.operation, "created": one.created,
                }
                for one in self.cloud.store.list()
            ]
        }  # fmt: skip

    def _activities(self, asked: dict[str, Any]) -> dict[str, Any]:
        every = sorted(self.cloud.store.all("activity").values(), key=lambda one: one["n"], reverse=True)
        return {"activities": [one for one in every if asked.get("group") in (None, one["group"])]}

    def _operation(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.store.operation = str(asked["operation"])
        return {"operation": self.cloud.store.operation}

    def _drift(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = self._find(asked)
        inputs, outputs = dict(found.inputs), dict(found.outputs)
        declared = self.cloud.type(found.type)
        for name, value in (asked.get("set") or {}).items():
            if name not in declared.outputs and name not in declared.inputs:
                raise ValueError(f"{found.type} has no property {name}")
            outputs[name] = value
            if name in declared.inputs:
                inputs[name] = value
        for name in asked.get("unset") or []:
            inputs.pop(name, None)
            outputs.pop(name, None)
        self.cloud.store.update(replace(found, inputs=inputs, outputs=outputs))
        self.cloud.store.log("drift", found.type, found.id, "")
        self.cloud.wake()
        return {"id": found.id}

    def _delete(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = self._find(asked)
        self.cloud.delete(found)
        return {"id": found.id}

    def _vanish(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = self._find(asked)
        self.cloud.store.remove(found)
        self.cloud.store.log("vanish", found.type, found.id, "")
        self.cloud.wake()
        return {"id": found.id}

    def _find(self, asked: dict[str, Any]) -> Resource:
        found = self.cloud.store.find(asked["type"], asked["id"], asked.get("region"))
        if found is None:
            raise ValueError(f"the cloud holds no {asked['type']} {asked['id']}")
        return found

    def _terminate(self, asked: dict[str, Any]) -> dict[str, Any]:
        id = str(asked["instance_id"])
        if not self.cloud.fleet.lose(id):
            raise ValueError(f"no running instance {id}")
        return {"instance_id": id}

    def _preempt(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not gcp_groups.preempt(self.cloud, str(asked["instance_id"])):
            raise ValueError(f"{asked['instance_id']} is no running spot machine of Google's")
        return {"instance_id": asked["instance_id"]}

    def _reboot(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.cloud.fleet.host is None:
            raise ValueError(f"there are no nodes here: {self.cloud.fleet.unavailable}")
        self.cloud.fleet.host.reboot(str(asked["instance_id"]))
        return {"instance_id": asked["instance_id"]}

    def _external(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.store.put("external", str(asked["id"]), {key: value for key, value in asked.items() if key != "id"})
        self.cloud.wake()
        return {"id": asked["id"]}

    def _schedule(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not schedules.run(self.cloud.store, str(asked["name"])):
            raise ValueError(f"no group has a scheduled action {asked['name']}")
        self.cloud.wake()
        return {"name": asked["name"]}

    def _existing(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.existing(
            str(asked["type"]), str(asked["id"]), dict(asked.get("inputs") or {}), str(asked.get("region") or "")
        )
        return {"id": asked["id"]}


def _stage(instance: dict[str, Any], fleet: Fleet) -> str:
    """What is said of an instance that the node host does not know."""
    if instance["state"] == "terminated":
        return "terminated"
    return "pending" if fleet.host else "never boots here"


def _json(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode(), "application/json")
