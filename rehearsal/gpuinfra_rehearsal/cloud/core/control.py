"""The control interface of the rehearsal: reads nodes, resources and calls, and injects incidents.

Every request must include the token that the process prints at startup. Responses are JSON.

| request | effect |
| --- | --- |
| GET `nodes` | lists the instances as nodes: label, stage, last lines of the console |
| GET `ssh` | returns whether the nodes have an SSH server, and the reason if they do not |
| GET `instances` | lists the instances as the cloud sees them, including terminated ones |
| GET `resources` | lists all resources, each with the operation and the URN that created it |
| GET `calls?since=N` | returns the log of calls after number N |
| GET `activities?group=NAME` | lists a group's activities, newest first |
| GET `permissions` | lists the calls that were checked against the operator's policies |
| GET `rights` | lists the rights that nodes used, did not use or were denied |
| POST `operation` `{"operation"}` | sets the operation under which later changes are recorded |
| POST `drift` `{"type", "id", "set", "unset"}` | changes a resource by hand |
| POST `hold` `{"points"}` | holds the requests with this `verb`, `type`, `moment` (before or after it is performed) and `number` until the caller is killed |
| GET `held` | returns the requests that are or were held, and the number of performed requests by verb and type |
| POST `vanish` `{"type", "id"}` | removes a resource, even if others depend on it |
| POST `terminate` `{"instance_id"}` | terminates an instance, as a hardware failure does |
| POST `reboot` `{"instance_id"}` | reboots an instance |
| POST `faults` `{"faults"}` | replaces the faults of the cloud, and starts their counts again. Running nodes keep their faults |
| POST `outage` `{"region"}` | starts the outage of a region; null ends all outages |
| POST `existing` `{"type", "id", "inputs", "region"}` | adds a resource that predates the rehearsal, with its known fields |
| POST `clock` `{"at"}` | sets the time of object changes and of the replication; null resets it to the current time |
| POST `replication` `{"lag_s"}` | sets the age at which objects are replicated |
| POST `external` `{"id", ...}` | describes an existing resource, for example a reservation with 2 instances: `{"id": "cr-...", "count": 2}` |

Some clouds add their own requests (`StandIn.control_actions`).
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinfra.base.errors import UsageError
from gpuinfra_rehearsal.cloud.core import ids, outage, receiver, registry, replication, store, wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.holds import HoldMoment, HoldPoint
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.core.stand_in import Action

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.cloud import Cloud
    from gpuinfra_rehearsal.cloud.core.fleet import Fleet
    from gpuinfra_rehearsal.cloud.core.store import Resource


PREFIX = "/.control/"
_SHOWN = ("cluster", "pool", "group", "group_name", "kind", "machine", "state", "launched")
"""Instance fields that `nodes` returns unchanged."""


class Control:
    """Serves `/.control/...`."""

    def __init__(self, cloud: Cloud, token: str) -> None:
        self.cloud, self._token = cloud, token
        self._actions: dict[tuple[str, str], Action] = {
            ("GET", "nodes"): self._nodes,
            ("GET", "ssh"): self._ssh,
            ("GET", "instances"): lambda _: {"instances": list(self.cloud.fleet.instances().values())},
            ("GET", "resources"): self._resources,
            ("GET", "calls"): lambda asked: {"calls": self.cloud.store.calls(int(asked.get("since") or 0))},
            ("GET", "activities"): self._activities,
            ("GET", "permissions"): lambda _: self.cloud.operator.summary(),
            ("GET", "faults"): lambda _: {"without_effect": self.cloud.faults.without_effect()},
            ("GET", "alerts"): lambda _: {"alerts": receiver.received(self.cloud)},
            ("GET", "held"): lambda _: self._held(),
            ("GET", "rights"): lambda _: self.cloud.rights.summary(self.cloud.fleet.running()),
            ("POST", "operation"): self._operation,
            ("POST", "drift"): self._drift,
            ("POST", "hold"): self._hold,
            ("POST", "vanish"): self._vanish,
            ("POST", "terminate"): self._terminate,
            ("POST", "reboot"): self._reboot,
            ("POST", "break"): self._break,
            ("POST", "external"): self._external,
            ("POST", "clock"): self._clock,
            ("POST", "replication"): self._replication,
            ("POST", "outage"): self._outage,
            ("POST", "faults"): self._faults,
            ("POST", "existing"): self._existing,
        }
        for stand_in in registry.installed():
            self._actions |= {("POST", name): action for name, action in stand_in.control_actions(cloud).items()}

    def __call__(self, request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("x-gpuinfra-control", ""), self._token):
            return json_response({"error": "X-Gpuinfra-Control must contain the token of this rehearsal"}, 403)
        action = self._actions.get((request.method, request.path.removeprefix(PREFIX).strip("/")))
        if action is None:
            return json_response({"error": f"unknown request: {request.method} {request.path}"}, 404)
        try:
            asked = json.loads(request.body) if request.body else request.query
            return json_response(action(asked))
        except ApiRejected as error:
            return json_response({"error": error.reported("the cloud refused")}, 409)
        except (KeyError, TypeError, ValueError) as error:
            return json_response({"error": f"{type(error).__name__}: {error}"}, 400)

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
                    "zone": instance["zone_id"],
                    **{key: instance[key] for key in _SHOWN},
                    "stage": node.get("stage") or _stage(instance, fleet),
                    "detail": node.get("detail", ""),
                    "boot_id": node.get("boot_id", ""),
                    "boots": node.get("boots", 0),
                    "faults": list(self.cloud.faults.of_node(instance["name"])),
                }
            )
        return {"available": fleet.host is not None, "reason": fleet.unavailable or None, "nodes": nodes}

    def _ssh(self, _: dict[str, Any]) -> dict[str, Any]:
        host = self.cloud.fleet.host
        if host is None or host.ssh_ports.problem:
            return {"available": False, "reason": host.ssh_ports.problem if host else self.cloud.fleet.unavailable}
        return {"available": True, "reason": None}

    def _resources(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "resources": [
                {
                    "package": ids.package(one.type), "type": one.type, "region": one.region, "id": one.id, "urn": one.urn,
                    "name": one.urn.rsplit("::", 1)[-1], "inputs": one.plain, "outputs": wire.plain(one.outputs),
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
        resource = self._find(asked)
        inputs, outputs = dict(resource.inputs), dict(resource.outputs)
        declared = self.cloud.type(resource.type)
        for name, value in (asked.get("set") or {}).items():
            if name not in declared.outputs and name not in declared.inputs:
                raise ValueError(f"{resource.type} has no property {name}")
            outputs[name] = value
            if name in declared.inputs:
                inputs[name] = value
        for name in asked.get("unset") or []:
            inputs.pop(name, None)
            outputs.pop(name, None)
        self.cloud.store.update(replace(resource, inputs=inputs, outputs=outputs))
        self.cloud.store.log("drift", resource.type, resource.id, "")
        self.cloud.wake()
        return {"id": resource.id}

    def _hold(self, asked: dict[str, Any]) -> dict[str, Any]:
        points = [
            HoldPoint(
                verb=str(one["verb"]), type=str(one["type"]), moment=HoldMoment(one["moment"]), number=int(one.get("number", 1))
            )
            for one in asked.get("points") or ()
        ]  # fmt: skip
        self.cloud.holds.set(points)
        return {"points": len(points)}

    def _held(self) -> dict[str, Any]:
        performed = self.cloud.holds.performed
        return {
            "held": [dataclasses.asdict(point) for point in self.cloud.holds.held],
            "performed": [{"verb": verb, "type": kind, "count": count} for (verb, kind), count in performed.items()],
        }

    def _vanish(self, asked: dict[str, Any]) -> dict[str, Any]:
        resource = self._find(asked)
        self.cloud.store.remove(resource)
        self.cloud.store.log("vanish", resource.type, resource.id, "")
        self.cloud.wake()
        return {"id": resource.id}

    def _find(self, asked: dict[str, Any]) -> Resource:
        resource = self.cloud.store.find(asked["type"], asked["id"], asked.get("region"))
        if resource is None:
            raise ValueError(f"the cloud does not contain {asked['type']} {asked['id']}")
        return resource

    def _terminate(self, asked: dict[str, Any]) -> dict[str, Any]:
        id = str(asked["instance_id"])
        if not self.cloud.fleet.lose(id):
            raise ValueError(f"no running instance {id}")
        return {"instance_id": id}

    def _reboot(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.cloud.fleet.host is None:
            raise ValueError(f"no node runs here: {self.cloud.fleet.unavailable}")
        self.cloud.fleet.host.reboot(str(asked["instance_id"]))
        return {"instance_id": asked["instance_id"]}

    def _break(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.cloud.fleet.host is None:
            raise ValueError(f"no node runs here: {self.cloud.fleet.unavailable}")
        self.cloud.fleet.host.break_hardware(str(asked["instance_id"]), [str(one) for one in asked["faults"]])
        return {"instance_id": asked["instance_id"]}

    def _external(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.store.put("external", str(asked["id"]), {key: value for key, value in asked.items() if key != "id"})
        self.cloud.wake()
        return {"id": asked["id"]}

    def _clock(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.store.put(store.CLOCK, store.CLOCK, {"at": asked["at"]})
        return {"at": asked["at"]}

    def _replication(self, asked: dict[str, Any]) -> dict[str, Any]:
        replication.set_lag(self.cloud.store, float(asked["lag_s"]))
        return {"lag_s": asked["lag_s"]}

    def _faults(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            faults = Faults([str(one) for one in asked["faults"]], self.cloud.store)
        except UsageError as error:
            raise ValueError(str(error)) from None
        faults.forget()
        self.cloud.faults = faults
        self.cloud.wake()
        return {"faults": list(faults.ordered)}

    def _outage(self, asked: dict[str, Any]) -> dict[str, Any]:
        region = asked["region"]
        if region is None:
            outage.end(self.cloud.store)
            return {"region": region}
        for stand_in in registry.installed():
            if region in stand_in.regions():
                stand_in.replicate(self.cloud.store)  # The replication that is due is complete before the outage.
                outage.begin(self.cloud.store, region)
                return {"region": region}
        allowed = ", ".join(one for stand_in in registry.installed() for one in stand_in.regions())
        raise ValueError(f"{region} is not a region; allowed: {allowed}")

    def _existing(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.cloud.existing(
            str(asked["type"]), str(asked["id"]), dict(asked.get("inputs") or {}), str(asked.get("region") or "")
        )
        return {"id": asked["id"]}


def _stage(instance: dict[str, Any], fleet: Fleet) -> str:
    """Return the stage of an instance that the node host does not run."""
    if instance["state"] == "terminated":
        return "terminated"
    return "pending" if fleet.host else "never boots here"
