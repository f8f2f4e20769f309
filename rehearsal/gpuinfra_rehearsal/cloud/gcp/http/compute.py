"""Compute Engine calls that the handover and preflight use: groups, their instances, their errors, serial ports.

Responses have the format that Google's own client parses (Compute API discovery document, retrieved 2026-11-21).
Other requests are refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import access, operator, outages, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid
from gpuinfra_rehearsal.cloud.gcp.groups import GROUP, REQUEST, recreate, resize, size_of, waiting
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, last, path_of
from gpuinfra_rehearsal.nodes.state import AttachedDisk

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

_ROOT = "https://www.googleapis.com/compute/v1/"
_ZONAL = re.compile(
    r"v1/projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)/(?P<collection>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<action>[^/]+)(?:/(?P<item>[^/]+)(?:/(?P<verb>[^/]+))?)?)?)?"
)
_FILTER = re.compile(r'\((?:labels\.([a-z0-9_-]+)|status) = "([^"]*)"\)')
DISK = "gcp:compute/disk:Disk"
_LIST, _DELETE = "compute.instances.list", "compute.instances.delete"
_PAGE = 500

Asked = dict[str, str]
_BODY = "$body"
"""Key of the request body among the query parameters."""


class Compute:
    """Serves `/.gcp/compute/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._answers: dict[tuple[str, str, str], Callable[[re.Match[str], Asked], dict[str, Any]]] = {
            ("GET", "instanceGroupManagers", ""): lambda at, _: self._group(self._find(at)),
            ("POST", "instanceGroupManagers", "listManagedInstances"): self._members,
            ("GET", "instanceGroupManagers", "listErrors"): self._errors,
            ("GET", "instanceGroupManagers", "resizeRequests"): self._requests,
            ("POST", "instanceGroupManagers", "resizeRequests/cancel"): self._cancel,
            ("DELETE", "instanceGroupManagers", "resizeRequests/-"): self._forget,
            ("POST", "instanceGroupManagers", "resize"): self._resize,
            ("POST", "instanceGroupManagers", "recreateInstances"): self._recreate,
            ("GET", "instances", ""): self._instances,
            ("GET", "instances", "serialPort"): self._serial,
            ("DELETE", "instances", ""): self._delete,
            ("POST", "instances", "attachDisk"): self._attach,
        }

    def __call__(self, request: Request, rest: str) -> Response:
        who = tokens.principal(self.cloud.store, request.headers.get("authorization", ""))
        at = _ZONAL.fullmatch(unquote(rest))
        action = "/".join(part for part in (at["action"], at["item"] and (at["verb"] or "-")) if part) if at else ""
        answer = self._answers.get((request.method, at["collection"], action)) if at else None
        if at is None or answer is None:
            raise GoogleError("notFound", f"{request.method} {rest[:160]} is not supported in a rehearsal", status=404)
        listed = request.method == "GET" and at["collection"] == "instances" and at["name"] is None
        may_list = listed and not who.is_operator and access.allowed_in_project(self.cloud, who.email, _LIST)
        changes = request.method != "GET" and at["collection"] == "instances" and not who.is_operator
        if changes:
            for permission, kind, place in _needed(action, rest.removeprefix("v1/"), request.body):
                if not access.allowed_on(self.cloud, who.email, permission, place, kind):
                    raise GoogleError("forbidden", f"Required '{permission}' permission for '{place}'", status=403)
        if not who.is_operator and not may_list and not changes:
            what = f"compute.{at['collection']}.{'list' if at['name'] is None else 'get'}"
            raise GoogleError("forbidden", f"Required '{what}' permission for '{rest.removeprefix('v1/')}'", status=403)
        if self.cloud.faults.throttles():
            # The text and its source are in clouds/gcp/handover/refusals.json.
            text = (
                "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute per region' of service "
                "'compute.googleapis.com' for consumer 'project_number:000000000000'."
            )
            raise GoogleError("rateLimitExceeded", text, status=403)
        outages.refuse(self.cloud.store, outages.region(at["zone"]), f"{at['collection']} in {at['zone']}")
        asked = {**request.query, _BODY: request.body.decode("utf-8", "replace")}
        if may_list or changes:
            return json_response(answer(at, asked))
        asks = operator.compute(at["collection"], at["name"], action, rest.removeprefix("v1/"))
        self.cloud.operator.check(operator, asks)
        return json_response(answer(at, asked))

    # Groups

    def _find(self, at: re.Match[str]) -> Resource:
        path = f"projects/{at['project']}/zones/{at['zone']}/instanceGroupManagers/{at['name']}"
        group = self.cloud.store.find(GROUP, path)
        if group is None:
            raise GoogleError("notFound", f"The resource '{path}' was not found", status=404)
        return group

    def _group(self, group: Resource) -> dict[str, Any]:
        inputs, have = group.plain, self.cloud.fleet.of_group(group)
        size = size_of(self.cloud.store, group)
        return {
            "kind": "compute#instanceGroupManager", "name": last(group.id), "selfLink": _ROOT + group.id, "targetSize": size,
            "baseInstanceName": inputs.get("baseInstanceName"), "status": {"isStable": len(have) == size},
            "versions": [{"instanceTemplate": one.get("instanceTemplate"), "name": one.get("name")} for one in inputs.get("versions") or []],
            "currentActions": {"none": len(have), "creating": max(0, size - len(have)), "deleting": 0, "recreating": 0},
        }  # fmt: skip

    def _members(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        group = self._find(at)
        members = [
            {
                "instance": f"{_ROOT}{_path(one)}", "id": one["id"], "name": one["vm"], "instanceStatus": "RUNNING", "currentAction": "NONE",
                "version": {"instanceTemplate": _ROOT + path_of(one["template"])},
            }
            for one in self.cloud.fleet.of_group(group)
        ]  # fmt: skip
        lacking = size_of(self.cloud.store, group) - len(members)
        base = group.plain.get("baseInstanceName") or last(group.id)
        # A machine that does not yet exist is listed without an ID.
        members += [
            {
                "instance": f"{_ROOT}projects/{at['project']}/zones/{at['zone']}/instances/{base}-new{n}",
                "currentAction": "CREATING",
            }
            for n in range(lacking)
        ]
        return _paged(members, asked, "managedInstances")

    def _errors(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        group = self._find(at)
        asking = waiting(self.cloud.store, group)
        errors = [
            {
                "error": {"code": one["code"], "message": one["message"]},
                "instanceActionDetails": {"action": "CREATING", "instance": f"{_ROOT}projects/{at['project']}/zones/{at['zone']}/instances/none"},
                "timestamp": _moment(one["start"]),
            }
            for one in self._activities(group)
            if one["status"] == "Failed" and not asking
        ]  # fmt: skip
        return _paged(errors, asked, "items")

    def _activities(self, group: Resource) -> list[dict[str, Any]]:
        """Return the activities of a group, without those of an earlier group that had its name."""
        return [one for one in self.cloud.fleet.activities("", group.id) if one["start"] >= group.created]

    def _requests(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        group = self._find(at)
        failed = next((one for one in self._activities(group) if one["status"] == "Failed"), None)
        requests = []
        for resource in self.cloud.store.list(REQUEST):
            if not resource.id.startswith(f"{group.id}/"):
                continue
            stored = self.cloud.store.get("gcp-request", resource.id) or {}
            item: dict[str, Any] = {
                "name": last(resource.id),
                "resizeBy": stored.get("by"),
                "state": stored.get("state"),
            }
            if stored.get("state") == "ACCEPTED" and failed:
                cause = {"code": failed["code"], "message": failed["message"]}
                item["status"] = {"lastAttempt": {"error": {"errors": [cause]}}}
                item["creationTimestamp"] = _moment(resource.created)
            requests.append(item)
        return _paged(requests, asked, "items")

    def _resize(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Set the target size of a group. The group creates or deletes instances afterward."""
        group = self._find(at)
        if not asked.get("size", "").isdigit():
            raise invalid(f"Invalid value for field 'size': '{asked.get('size')}'.")
        resize(self.cloud.store, group, int(asked["size"]))
        self.cloud.store.log("resize", GROUP, group.id, "")
        self.cloud.wake()
        return self._done(at, "compute.instanceGroupManagers.resize", group.id)

    def _cancel(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Cancel a resize request that waits for capacity."""
        id = f"{self._find(at).id}/resizeRequests/{at['item']}"
        stored = self.cloud.store.get("gcp-request", id)
        if stored is None:
            raise GoogleError("notFound", f"The resource '{id}' was not found", status=404)
        if stored["state"] != "ACCEPTED":
            raise invalid(f"Resize request '{at['item']}' is {stored['state']} and cannot be cancelled.")
        self.cloud.store.put("gcp-request", id, {**stored, "state": "CANCELLED"})
        self.cloud.wake()
        return self._done(at, "compute.instanceGroupManagerResizeRequests.cancel", id)

    def _forget(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Delete a resize request that no longer waits for capacity."""
        id = f"{self._find(at).id}/resizeRequests/{at['item']}"
        resource, stored = self.cloud.store.find(REQUEST, id), self.cloud.store.get("gcp-request", id) or {}
        if resource is None:
            raise GoogleError("notFound", f"The resource '{id}' was not found", status=404)
        if stored.get("state") == "ACCEPTED":
            raise invalid(f"Resize request '{at['item']}' is ACCEPTED and cannot be deleted.")
        self.cloud.store.remove(resource)
        self.cloud.store.drop("gcp-request", id)
        return self._done(at, "compute.instanceGroupManagerResizeRequests.delete", id)

    def _recreate(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Recreate instances. The new instances have the same names and different numbers."""
        group = self._find(at)
        try:
            wanted = [last(str(one)) for one in json.loads(asked[_BODY])["instances"]]
        except (ValueError, KeyError, TypeError):
            raise invalid("Invalid value for field 'instances'") from None
        have = {one["vm"]: one for one in self.cloud.fleet.of_group(group)}
        if missing := [name for name in wanted if name not in have]:
            raise invalid(
                f"Invalid value for field 'instances': '{missing[0]}'. Instance is not a member of the group."
            )
        for name in wanted:
            recreate(self.cloud.store, group, name)
            self.cloud.fleet.terminate(
                have[name]["id"], "compute.instances.repair.recreateInstance: requested by a user"
            )
        self.cloud.store.log("recreateInstances", GROUP, group.id, "")
        return self._done(at, "compute.instanceGroupManagers.recreateInstances", group.id)

    def _done(self, at: re.Match[str], what: str, target: str) -> dict[str, Any]:
        zone = f"{_ROOT}projects/{at['project']}/zones/{at['zone']}"
        return {
            "kind": "compute#operation", "name": f"operation-{self.cloud.store.next('gcp-operation')}", "zone": zone, "status": "DONE", "progress": 100,
            "operationType": what, "targetLink": _ROOT + target,
        }  # fmt: skip

    # Instances

    def _instances(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        here = [
            one
            for one in self.cloud.fleet.instances().values()
            if one.get("cloud") == "gcp" and one["zone"] == at["zone"] and one["state"] != "terminated"
        ]
        if at["name"] is None:
            return _paged(
                [one for one in map(_described, here) if _matches(one, asked.get("filter", ""))], asked, "items"
            )
        return _described(self._instance(at, here))

    def _instance(self, at: re.Match[str], here: Sequence[dict[str, Any]]) -> dict[str, Any]:
        for instance in here:
            if at["name"] in (instance["vm"], instance["id"]):
                return instance
        path = f"projects/{at['project']}/zones/{at['zone']}/instances/{at['name']}"
        raise GoogleError("notFound", f"The resource '{path}' was not found", status=404)

    def _delete(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Delete an instance. Its group did not delete it, so the group creates it again with the same name
        (https://cloud.google.com/compute/docs/instance-groups/about-repair, retrieved 2026-11-29)."""
        here = [
            one
            for one in self.cloud.fleet.instances().values()
            if one.get("cloud") == "gcp" and one["zone"] == at["zone"]
        ]
        instance = self._instance(at, here)
        group = self.cloud.store.find(GROUP, str(instance["group"]))
        policy = (group.plain.get("instanceLifecyclePolicy") or {}) if group else {}
        if group is None or policy.get("defaultActionOnFailure", "REPAIR") != "REPAIR":
            raise invalid("Deleting an instance that its group does not create again is not supported in a rehearsal.")
        recreate(self.cloud.store, group, instance["vm"])
        self.cloud.fleet.terminate(instance["id"], "compute.instances.delete: requested by a service account")
        self.cloud.store.log("delete", "compute.instances", _path(instance), "")
        return self._done(at, "compute.instances.delete", _path(instance))

    def _attach(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        """Attach a disk of the zone to an instance, unless an instance has it."""
        body = json.loads(asked[_BODY])
        path = path_of(str(body.get("source")))
        disk = self.cloud.store.find(DISK, path)
        if disk is None:
            raise GoogleError("notFound", f"The resource '{path}' was not found", status=404)
        here = [one for one in self.cloud.fleet.running() if one.get("cloud") == "gcp" and one["zone"] == at["zone"]]
        instance = self._instance(at, here)
        if disk.plain.get("zone") != at["zone"]:
            raise invalid(
                f"Invalid value for field 'resource.source': '{path}'. Disk must be in the same zone as the instance."
            )
        key = f"{last(path)}-{disk.created:.6f}"
        if holder := self.cloud.fleet.holder(key):
            text = (
                f"The disk resource '{path}' is already being used by '{_path(self.cloud.fleet.instances()[holder])}'"
            )
            raise GoogleError("resourceInUseByAnotherResource", text, status=400)
        link = f"/dev/disk/by-id/google-{body.get('deviceName')}"
        self.cloud.fleet.attach_disk(instance["id"], AttachedDisk(key=key, device="/dev/sdb", link=link))
        self.cloud.store.log("attachDisk", "compute.instances", _path(instance), "")
        return self._done(at, "compute.instances.attachDisk", _path(instance))

    def _serial(self, at: re.Match[str], asked: Asked) -> dict[str, Any]:
        fleet = self.cloud.fleet
        here = [one for one in fleet.instances().values() if one.get("cloud") == "gcp" and one["zone"] == at["zone"]]
        instance = self._instance(at, here)
        data = fleet.console(instance["id"]).encode()[-(1 << 20) :]
        try:
            start = int(asked.get("start") or 0)
        except ValueError:
            raise invalid(f"Invalid value '{asked['start']}' for start") from None
        start = max(0, len(data) + start) if start < 0 else min(start, len(data))
        return {
            "kind": "compute#serialPortOutput", "contents": data[start:].decode(errors="replace"), "start": str(start), "next": str(len(data)),
            "selfLink": f"{_ROOT}{_path(instance)}/serialPort",
        }  # fmt: skip


def _needed(action: str, place: str, body: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the permissions of a change of an instance, each with the kind and the name of the resource that it is checked on."""
    if action == "attachDisk":
        yield "compute.instances.attachDisk", "Instance", place.removesuffix("/attachDisk")
        yield "compute.disks.use", "Disk", path_of(str(json.loads(body or b"{}").get("source")))
    else:
        yield _DELETE, "Instance", place


def _path(instance: dict[str, Any]) -> str:
    return f"projects/{PROJECT}/zones/{instance['zone']}/instances/{instance['vm']}"


def _described(instance: dict[str, Any]) -> dict[str, Any]:
    zone = f"{_ROOT}projects/{PROJECT}/zones/{instance['zone']}"
    return {
        "kind": "compute#instance", "id": instance["id"], "name": instance["vm"], "selfLink": _ROOT + _path(instance), "zone": zone, "status": "RUNNING",
        "creationTimestamp": _moment(instance["launched"]), "machineType": f"{zone}/machineTypes/{instance['machine']}", "labels": instance["tags"],
        "networkInterfaces": [{"name": f"nic{number}", **({"networkIP": instance["address"]} if number == 0 else {})} for number,
            _ in enumerate(instance["interfaces"] or [{}])],
    }  # fmt: skip


def _matches(instance: dict[str, Any], wanted: str) -> bool:
    """Return whether an instance matches a filter of expressions such as `(labels.KEY = "VALUE") (status = "RUNNING")`."""
    expressions = _FILTER.findall(wanted)
    if _FILTER.sub("", wanted).strip():
        raise invalid(f"Invalid value for field 'filter': '{wanted}'.")
    return all((instance["labels"].get(key) if key else instance["status"]) == value for key, value in expressions)


def _paged(items: list[dict[str, Any]], asked: Asked, name: str) -> dict[str, Any]:
    size = min(int(asked["maxResults"]) if asked.get("maxResults", "").isdigit() else _PAGE, _PAGE) or _PAGE
    start = int(asked["pageToken"]) if asked.get("pageToken", "").isdigit() else 0
    more = {"nextPageToken": str(start + size)} if start + size < len(items) else {}
    return {name: items[start : start + size], **more}


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}+00:00"
