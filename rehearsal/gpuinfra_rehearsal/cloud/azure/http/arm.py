"""Azure Resource Manager calls that the handover, preflight, `adopt` and `ready` use: scale sets, machines, addresses, consoles,
activities, metrics of replication policies, and resources by ID.

Response formats from the REST reference (compute 2024-11-01, Insights 2015-04-01 and 2024-02-01, storage 2024-01-01), retrieved
2026-11-23. Other requests are refused.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpuinfra.clouds.azure.region.readiness import VAULT
from gpuinfra.clouds.azure.region.recovery import BUCKETS, PENDING
from gpuinfra_rehearsal.cloud.azure import groups, identity, ids, model, operator, places, replication, stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.azure.http import changes, dns, offers
from gpuinfra_rehearsal.cloud.core import outage, wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.nodes.state import AttachedDisk

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

AUDIENCES = ("https://management.azure.com", "https://management.core.windows.net")
_SET = re.compile(
    r"(?P<set>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachineScaleSets/[^/]+)(?P<rest>/.*)?",
    re.I,
)
_MACHINE = re.compile(_SET.pattern.partition("(?P<rest>")[0] + r"/virtualMachines/(?P<index>\d+)", re.I)
_DISCOVERY = re.compile(
    r"(?P<within>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/(?:(?P<alone>virtualMachines)|virtualMachineScaleSets))"
    r"(?(alone)|(?:/(?P<set>[^/]+)/virtualMachines(?:/(?P<index>\d+)/networkInterfaces/nic-0)?)?)",
    re.I,
)
_CONTROL = re.compile(_MACHINE.pattern + r"(?:/(?P<action>redeploy|attachDetachDataDisks))?", re.I)
_DISK = "azure-native:compute:Disk"
_TUNNEL = re.compile(r"(?P<bastion>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/bastionHosts/[^/]+)/tunnel", re.I)  # fmt: skip
_LOG = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.Insights/eventtypes/management/values", re.I)
_ACCOUNTS = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.Storage/storageAccounts", re.I)
_VAULTS = re.compile(r"/subscriptions/[^/]+/providers/Microsoft\.KeyVault/vaults", re.I)
_METRICS = re.compile(
    r"(?P<policy>/subscriptions/.+/objectReplicationPolicies/[^/]+)/providers/Microsoft\.Insights/metrics", re.I
)
_IMAGES = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.Compute/locations/[^/]+/publishers/(?P<publisher>[^/]+)"
    r"/artifacttypes/vmimage/offers/(?P<offer>[^/]+)/skus/(?P<sku>[^/]+)/versions",
    re.I,
)
_OFFERED = (
    ("microsoft-dsvm", "ubuntu-hpc"),
    ("canonical", "ubuntu-24_04-lts"),
    ("canonical", "0001-com-ubuntu-server-jammy"),
)
"""Publisher and offer of the marketplace images that exist in the stand-in. Each image has one clearly synthetic version."""
_PAGE = 100


class ResourceManager:
    """Serves `arm/subscriptions/...`, and the consoles at signed URLs."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._signed: dict[str, tuple[str, float]] = {}

    def __call__(self, request: Request, path: str) -> Response:
        place = path
        try:
            who = identity.of_token(self.cloud.store, request.headers.get("authorization", ""), AUDIENCES)
            if "api-version" not in request.query:
                raise AzureError("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")  # fmt: skip
            discovery = _DISCOVERY.fullmatch(place) if request.method == "GET" else None
            if discovery and not who.operator and identity.may_manage(self.cloud, who, _read_action(discovery), place):
                return json_response(self._discovered(request, discovery))
            machine = None if who.operator else _CONTROL.fullmatch(place)
            if machine and (action := _machine_action(request.method, machine)) and identity.may_manage(self.cloud, who, action, place):  # fmt: skip
                return json_response(self._control(request, machine, who))
            if not who.operator:
                text = (
                    f"The client '{who.object_id}' with object id '{who.object_id}' does not have authorization to perform action on "
                    f"'{place}' or the scope is invalid."
                )
                raise AzureError("AuthorizationFailed", text, status=403)
            if self.cloud.faults.throttles():
                # The text and its source are in clouds/azure/handover/refusals.json.
                text = "The server rejected the request because too many requests have been received for this subscription."
                raise AzureError("OperationNotAllowed", text, status=429)
            self.cloud.operator.check(operator, operator.http(place, request.method))
            if outage.active(self.cloud.store):
                places.refuse(self.cloud.store, place, change=request.method not in ("GET", "POST"))
            return json_response(self._answer(request, place))
        except ApiRejected as error:
            self.cloud.store.log(request.method, "azure-arm", path[:500], "", error.code)
            # https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling, retrieved 2026-11-27
            headers = {"Retry-After": "1"} if error.status == 429 else None
            return json_response({"error": {"code": error.code, "message": error.message}}, error.status, headers)

    def console(self, request: Request, path: str) -> Response:
        """Return the log of a serial console. The signed URL grants access for a few minutes."""
        id, until = self._signed.get(request.query.get("sig", ""), ("", 0.0))
        if request.method != "GET" or not id or path.strip("/") != id or time.time() > until:
            return Response(403, b"AuthenticationFailed: Server failed to authenticate the request.")
        return Response(200, self.cloud.fleet.console(id).encode())

    def _discovered(self, request: Request, at: re.Match[str]) -> Any:
        """Handle a request with which Prometheus finds machines: machines without a scale set (there are none), scale sets, their machines, an interface."""
        if at["alone"]:
            return {"value": []}
        if at["set"] is None:
            sets = self.cloud.store.list(model.GROUP)
            return {
                "value": [self._model(one) for one in sets if one.id.lower().startswith(f"{at['within']}/".lower())]
            }
        group = self._group(f"{at['within']}/{at['set']}")
        if at["index"] is None:
            return self._page(request, [self._machine(group, one) for one in self._members(group)])
        member = next((one for one in self._members(group) if one["index"] == int(at["index"])), None)
        if member is None:
            raise AzureError("NotFound", f"The entity was not found: instance {at['index']}.", status=404)
        return _interface(member)

    def _control(self, request: Request, at: re.Match[str], who: identity.Principal) -> Any:
        """Handle a request of a control node about one machine: its description, its redeployment, and the attachment of a disk."""
        group = self._group(at["set"])
        if request.method == "POST" and str(at["action"]).lower() == "redeploy":
            return self._act(group, f"virtualMachines/{at['index']}/redeploy")
        for member in self._members(group):
            if member["index"] == int(at["index"]):
                return self._attach(request, member, who) if request.method == "POST" else self._machine(group, member)
        raise AzureError("NotFound", f"The entity was not found: instance {at['index']}.", status=404)

    def _attach(self, request: Request, member: dict[str, Any], who: identity.Principal) -> dict[str, Any]:
        """Attach a disk to a machine. Azure also checks the permissions on the disk
        (virtual-machine-scale-set-vms/attach-detach-data-disks in the REST reference, retrieved 2026-11-30)."""
        (asked,) = json.loads(request.body)["dataDisksToAttach"]
        disk = self._found(str(asked["diskId"]))
        for action in ("Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"):
            if disk.type != _DISK or not identity.may_manage(self.cloud, who, action, disk.id):
                text = f"The client '{who.object_id}' does not have permission to perform action(s) '{action}' on the linked scope(s) '{disk.id}'."
                raise AzureError("LinkedAuthorizationFailed", text, status=403)
        if disk.plain.get("zones") not in (None, [], [member["zone_id"]]):
            raise AzureError("BadRequest", f"Disk {disk.id} is in another zone than the machine.", status=400)
        key = f"{disk.id.rsplit('/', 1)[-1]}-{disk.created:.6f}"
        if holder := self.cloud.fleet.holder(key):
            text = f"Disk '{disk.id}' cannot be attached as the disk is already owned by VM '{holder}'."
            raise AzureError("ConflictingUserInput", text, status=409)
        link = f"/dev/disk/azure/scsi1/lun{int(asked['lun'])}"
        self.cloud.fleet.attach_disk(member["id"], AttachedDisk(key=key, device="/dev/sdc", link=link))
        self.cloud.store.log("attachDetachDataDisks", _DISK, disk.id, "")
        return {}

    def _answer(self, request: Request, place: str) -> Any:
        if (image := _IMAGES.fullmatch(place)) and request.method == "GET":
            is_offered = (image["publisher"].lower(), image["offer"].lower()) in _OFFERED
            digits = re.search(r"(\d\d)_?(\d\d)", image["sku"])
            version = f"{digits[1]}.{digits[2]}.2026010100" if digits else "1.0.2026010100"
            return (
                [{"name": version, "id": f"{place}/{version}", "location": place.split("/")[6]}] if is_offered else []
            )
        if request.method == "GET" and (offered := offers.answer(self.cloud, place, request.query)) is not None:
            return offered
        if request.method == "POST" and (named := offers.availability(self.cloud, place, request.body)) is not None:
            return named
        if _LOG.fullmatch(place) and request.method == "GET":
            return {"value": self._activities(request.query.get("$filter", ""))}
        if place == "/subscriptions" and request.method == "GET":
            return {"value": [{"id": f"/subscriptions/{ids.SUBSCRIPTION}", "subscriptionId": ids.SUBSCRIPTION}]}
        if _ACCOUNTS.fullmatch(place) and request.method == "GET":
            return {"value": [self._read(one.id) for one in self.cloud.store.list(stores.ACCOUNT)]}
        if _VAULTS.fullmatch(place) and request.method == "GET":
            return {"value": [self._read(one.id) for one in self.cloud.store.list(VAULT)]}
        if (metrics := _METRICS.fullmatch(place)) and request.method == "GET":
            return self._metrics(metrics["policy"], request.query)
        if (bastion := _TUNNEL.fullmatch(place)) and request.method == "GET":
            return {"port": self._tunnel(bastion["bastion"], request.query)}
        if (answer := dns.answer(self.cloud, request, place)) is not None:
            return answer
        if (answer := changes.answer(self.cloud, request, place)) is not None:
            return answer
        match = _SET.fullmatch(place)
        if match is None and request.method == "GET":
            return self._read(place)
        if match is None:
            raise _unsupported(place)
        group = self._group(match["set"])
        rest = (match["rest"] or "").strip("/")
        if request.method == "POST":
            return self._act(group, rest)
        if rest == "":
            return self._model(group)
        if rest == "instanceView":
            return self._view(group)
        if rest == "virtualMachines":
            return self._page(request, [self._machine(group, one) for one in self._members(group)])
        if rest == "networkInterfaces":
            return self._page(request, [_interface(one) for one in self._members(group)])
        raise _unsupported(f"{rest} of a scale set")

    def _tunnel(self, bastion: str, asked: dict[str, str]) -> int:
        """Return the loopback port of a machine behind a Bastion host."""
        host = self._read(bastion)["properties"]
        machine = _MACHINE.fullmatch(asked.get("target", ""))
        if not host.get("enableTunneling") or (host.get("sku") or {}).get("name") not in ("Standard", "Premium"):
            raise AzureError(
                "BadRequest", "Bastion Host SKU must be Standard or Premium and Native Client must be enabled."
            )
        group = self._group(machine["set"]) if machine else None
        members = self._members(group) if group else []
        member = next((one for one in members if machine and one["index"] == int(machine["index"])), None)
        port = self.cloud.fleet.ssh_port(member["id"]) if member and asked.get("port") == "22" else None
        if port is None:
            raise AzureError("BadRequest", "the target of the tunnel cannot be reached")
        return port

    def _metrics(self, policy: str, asked: dict[str, str]) -> dict[str, Any]:
        """Return the number of pending operations of a replication policy by age. Without pending operations, there are no values."""
        policy_record = self._found(policy)
        limits = [*(minutes * 60 for _, minutes in BUCKETS), math.inf]
        names_of = [*(name for name, _ in BUCKETS), "24+ hrs"]
        counts = Counter(
            names_of[next(i for i, most in enumerate(limits) if age < most)]
            for age in replication.pending(self.cloud.store, policy_record.id.rsplit("/", 1)[-1])
        )
        series = [
            {"metadatavalues": [{"name": {"value": PENDING.dimension.lower(), "localizedValue": PENDING.dimension}, "value": bucket}],
             "data": [{"timeStamp": _iso(time.time()), "maximum": float(count)}]}
            for bucket, count in counts.items()
        ]  # fmt: skip
        names = [{"value": name, "localizedValue": name} for name in asked.get("metricnames", "").split(",")]
        return {
            "timespan": asked.get("timespan"),
            "interval": asked.get("interval"),
            "namespace": asked.get("metricnamespace"),
            "value": [
                {"id": f"{policy_record.id}/providers/Microsoft.Insights/metrics/{name['value']}", "type": "Microsoft.Insights/metrics", "name": name,
                 "unit": "Count", "timeseries": series if name["value"] == PENDING.name else [], "errorCode": "Success"}
                for name in names
            ],
        }  # fmt: skip

    def _read(self, place: str) -> dict[str, Any]:
        """Read any resource by its ID, as `gpuinfra adopt` and `gpuinfra ready` do."""
        resource = self._found(place)
        self.cloud.operator.check(
            operator, operator.required(self.cloud.store, "read", resource.type, {}, resource.region, resource)
        )
        outputs = wire.plain(resource.outputs)
        where = {key: outputs[key] for key in ("location", "tags") if outputs.get(key)}
        properties = _account(outputs) if resource.type == stores.ACCOUNT else outputs
        return {"id": resource.id, "name": resource.id.rsplit("/", 1)[-1], **where, "properties": properties}

    def _found(self, place: str) -> Resource:
        resource = next((one for one in self.cloud.store.list() if one.id.lower() == place.lower()), None)
        if resource is None:
            raise AzureError("ResourceNotFound", f"The Resource '{place}' was not found.", status=404)
        return resource

    def _group(self, id: str) -> Resource:
        group = next((one for one in self.cloud.store.list(model.GROUP) if one.id.lower() == id.lower()), None)
        if group is None:
            parts = id.split("/")
            text = f"The Resource 'Microsoft.Compute/virtualMachineScaleSets/{parts[-1]}' under resource group '{parts[4]}' was not found."
            raise AzureError("ResourceNotFound", text, status=404)
        return group

    def _members(self, group: Resource) -> list[dict[str, Any]]:
        return sorted(self.cloud.fleet.of_group(group), key=lambda one: one["index"])

    def _page(self, request: Request, values: list[dict[str, Any]]) -> dict[str, Any]:
        start = int(request.query.get("$skiptoken") or 0)
        answer: dict[str, Any] = {"value": values[start : start + _PAGE]}
        if start + _PAGE < len(values):
            query = "&".join(
                f"{quote(k)}={quote(v)}" for k, v in {**request.query, "$skiptoken": str(start + _PAGE)}.items()
            )
            answer["nextLink"] = f"{self.cloud.endpoint}{request.raw_path}?{query}"
        return answer

    def _act(self, group: Resource, rest: str) -> dict[str, Any]:
        match = re.fullmatch(
            r"virtualMachines/(\d+)/(retrieveBootDiagnosticsData|simulateEviction|redeploy)", rest, re.I
        )
        if match is None:
            raise _unsupported(f"{rest} of a scale set")
        member = next((one for one in self._members(group) if one["index"] == int(match[1])), None)
        if member is None:
            raise AzureError(
                "NotFound", f"The entity was not found in this Azure location: instance {match[1]}.", status=404
            )
        if match[2].lower() == "simulateeviction":
            if member["kind"] != "spot":
                raise AzureError(
                    "OperationNotAllowed",
                    "SimulateEviction is only supported on Azure Spot Virtual Machines.",
                    status=409,
                )
            self.cloud.fleet.terminate(member["id"], "the Spot machine was evicted")
            return {}
        if match[2].lower() == "redeploy":
            self.cloud.fleet.redeploy(member["id"])
            self.cloud.store.log("redeploy", group.type, f"{group.id}/virtualMachines/{member['index']}", "")
            return {}
        if not member["console"]:
            raise AzureError(
                "OperationNotAllowed", "Boot diagnostics are not enabled on this virtual machine.", status=409
            )
        mark = secrets.token_urlsafe(24)
        self._signed[mark] = (member["id"], time.time() + 900)
        return {
            "serialConsoleLogBlobUri": f"{self.cloud.endpoint}/.azure/console/{member['id']}?sv=2018-03-28&sr=b&sig={quote(mark)}"
        }

    def _model(self, group: Resource) -> dict[str, Any]:
        inputs = group.plain
        return {
            "id": group.id,
            "name": group.id.rsplit("/", 1)[-1],
            "type": "Microsoft.Compute/virtualMachineScaleSets",
            "location": inputs.get("location"),
            "tags": inputs.get("tags") or {},
            "sku": inputs.get("sku"),
            "zones": inputs.get("zones") or [],
            "properties": {
                "provisioningState": "Failed" if groups.problems(self.cloud, group) else "Succeeded",
                "orchestrationMode": inputs.get("orchestrationMode", "Uniform"),
                "singlePlacementGroup": inputs.get("singlePlacementGroup", True),
                "upgradePolicy": inputs.get("upgradePolicy") or {},
            },
        }

    def _view(self, group: Resource) -> dict[str, Any]:
        statuses = [
            {"code": f"ProvisioningState/failed/{code}", "level": "Error", "displayStatus": "Provisioning failed", "message": text, "time": _iso(at)}
            for code, text, at in groups.problems(self.cloud, group)
        ]  # fmt: skip
        done = {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"}
        count = {"code": "ProvisioningState/succeeded", "count": len(self._members(group))}
        return {"virtualMachine": {"statusesSummary": [count]}, "statuses": statuses or [done]}

    def _machine(self, group: Resource, instance: dict[str, Any]) -> dict[str, Any]:
        state = {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"}
        return {
            "id": f"{group.id}/virtualMachines/{instance['index']}",
            "name": f"{group.id.rsplit('/', 1)[-1]}_{instance['index']}",
            "instanceId": str(instance["index"]),
            "location": instance["region"],
            "sku": {"name": instance["machine"], "tier": "Standard"},
            "zones": [instance["zone"]] if instance["zone"] else [],
            "tags": instance["tags"],
            "properties": {
                "vmId": instance["id"],
                "latestModelApplied": instance["model"] == model.model_hash(group.plain),
                "provisioningState": "Succeeded",
                "timeCreated": _iso(instance["launched"]),
                "networkProfile": {"networkInterfaces": [{"id": _interface(instance)["id"]}]},
                "instanceView": {
                    "statuses": [{"code": "ProvisioningState/succeeded", "level": "Info"}, state],
                    "vmHealth": {
                        "status": {"code": f"HealthState/{instance.get('health', 'unknown').lower()}", "level": "Info"}
                    },
                },
            },
        }

    def _activities(self, wanted: str) -> list[dict[str, Any]]:
        uri = re.search(r"resourceUri eq '([^']+)'", wanted)
        if uri is None:
            raise AzureError("BadRequest", "The activity log needs a filter on one resource: resourceUri eq '...'")
        activities = self.cloud.fleet.activities("", self._group(uri[1]).id)
        return [
            {
                "eventTimestamp": _iso(one["end"]), "resourceId": uri[1], "operationName": {"value": "Microsoft.Compute/virtualMachineScaleSets/write"},
                "status": {"value": "Succeeded" if one["status"] == "Successful" else "Failed"},
                "properties": {"statusMessage": json.dumps({"error": {"code": one.get("code"), "message": one["message"]}})} if one["message"] else {},
            }
            for one in activities[:50]
        ]  # fmt: skip


def _machine_action(method: str, at: re.Match[str]) -> str:
    """Return the action of a request about one machine, or an empty text."""
    base = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
    action = at["action"]
    actions = {("GET", False): f"{base}/read", ("POST", True): f"{base}/{action}/action"}
    return actions.get((method, bool(action)), "")


def _read_action(at: re.Match[str]) -> str:
    """Return the action of a discovery request: the types in its path."""
    types = "virtualMachines" if at["alone"] else "virtualMachineScaleSets"
    types += "/virtualMachines" if at["set"] else ""
    return f"Microsoft.Compute/{types}{'/networkInterfaces' if at['index'] else ''}/read"


def _unsupported(what: str) -> AzureError:
    return AzureError("InvalidResourceType", f"{what} is not supported in a rehearsal", status=404)


def _account(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a storage account. The REST API writes the key in lower case, and the provider renames it."""
    encryption = dict(outputs.get("encryption") or {})
    key = encryption.pop("keyVaultProperties", None)
    if key:
        names = {"keyName": "keyname", "keyVaultUri": "keyvaulturi", "keyVersion": "keyversion"}
        encryption["keyvaultproperties"] = {names.get(name, name): value for name, value in key.items()}
    return {**outputs, "encryption": encryption}


def _interface(instance: dict[str, Any]) -> dict[str, Any]:
    machine = f"{instance['group']}/virtualMachines/{instance['index']}"
    address = {"privateIPAddress": instance["address"], "privateIPAllocationMethod": "Dynamic", "primary": True}
    return {
        "id": f"{machine}/networkInterfaces/nic-0",
        "properties": {
            "primary": True,
            "virtualMachine": {"id": machine},
            "ipConfigurations": [{"name": "ip-0", "properties": address}],
        },
    }


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 10_000_000):07d}+00:00"
