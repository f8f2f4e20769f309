"""Azure Instance Metadata Service: machine metadata, identity tokens, and attested documents.

Paths, headers and errors from https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service, retrieved
2026-11-21.
"""

from __future__ import annotations

import re
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.azure import identity
from gpuinfra_rehearsal.cloud.azure.groups import ScaleSetGroups
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.azure.signer import LIFETIME, Signer
from gpuinfra_rehearsal.cloud.core import notices, wire
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

VERSION = re.compile(r"20(1[7-9]|2\d)-\d\d-\d\d")
_TIME = "%m/%d/%y %H:%M:%S -0000"


class Imds:
    """Serves `imds/<vmId or operator>/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.signer = Signer(cloud.folder)

    def __call__(self, request: Request, path: str) -> Response:
        _, who, *rest = path.split("/")
        place = "/".join(rest)
        if who == f"operator-{identity.operator_secret(self.cloud.store)}":
            instance = None
        else:
            instance = self.cloud.store.get("instance", who)
            if instance is None or instance.get("cloud") != "azure" or instance["state"] == "terminated":
                return _error(404, "Not found", "no such machine is running")
        if request.method != "GET":
            return _error(405, "Method not allowed", "")
        if place == "ovf-env.xml" and instance:
            return self._provisioning(instance)
        if "x-forwarded-for" in request.headers:
            return _error(400, "Bad request", "requests through a proxy are refused")
        if request.headers.get("metadata", "").lower() != "true":
            return _error(400, "Bad request", "Required metadata header not specified")
        if not VERSION.fullmatch(request.query.get("api-version", "")):
            return _error(400, "Bad request", "api-version was not specified in the request. For more information refer to aka.ms/azureimds")  # fmt: skip
        if place == "metadata/identity/oauth2/token":
            return self._token(instance, request.query)
        if instance and place in ("metadata/instance", "metadata/instance/compute"):
            whole = {"compute": self._compute(instance, request.query), "network": _network(instance)}
            return json_response(whole if place.endswith("instance") else whole["compute"])
        if instance and place == "metadata/scheduledevents":
            return self._events(instance)
        if instance and place == "metadata/attested/document":
            return self._attested(instance, request.query)
        return _error(404, "Not found", f"{place} is not supported in a rehearsal")

    def _provisioning(self, instance: dict[str, Any]) -> Response:
        """Return the provisioning disk of a machine, which cloud-init reads from a virtual drive on Azure."""
        if not instance["custom_data"]:
            return _error(404, "Not found", "no custom data")
        text = (
            '<?xml version="1.0" encoding="utf-8"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" '
            'xmlns:wa="http://schemas.microsoft.com/windowsazure"><wa:ProvisioningSection><LinuxProvisioningConfigurationSet '
            f'xmlns="http://schemas.microsoft.com/windowsazure"><HostName>{escape(instance["host_name"])}</HostName>'
            f"<CustomData>{escape(instance['custom_data'])}</CustomData></LinuxProvisioningConfigurationSet></wa:ProvisioningSection></Environment>"
        )
        return Response(200, text.encode(), "text/xml")

    def _events(self, instance: dict[str, Any]) -> Response:
        """Return the scheduled events of all machines of the scale set, as Azure does.

        https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events, retrieved 2026-11-28.
        """
        events = []
        for member in self.cloud.fleet.running():
            if member["group"] != instance["group"]:
                continue
            for fault, kind, notice_s in (
                (notices.SPOT, "Preempt", ScaleSetGroups.notice_s),
                (notices.MAINTENANCE, "Redeploy", notices.MAINTENANCE_S),
            ):
                if (began := notices.since(self.cloud, member, fault)) is not None:
                    begins = datetime.fromtimestamp(began + notice_s, UTC)
                    events.append(
                        {
                            "EventId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{member['id']} {fault}")).upper(),
                            "EventStatus": "Scheduled", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": [_name(member)],
                            "NotBefore": begins.strftime("%a, %d %b %Y %H:%M:%S GMT"), "Description": "", "EventSource": "Platform",
                            "DurationInSeconds": -1,
                        }
                    )  # fmt: skip
        return json_response({"DocumentIncarnation": len(events) + 1, "Events": events})

    def _compute(self, instance: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        parts = instance["group"].split("/")
        return {
            "azEnvironment": "AzurePublicCloud",
            "location": instance["region"],
            "name": _name(instance),
            "osType": "Linux",
            "priority": "Spot" if instance["kind"] == "spot" else "Regular",
            "provider": "Microsoft.Compute",
            "resourceGroupName": parts[4],
            "resourceId": f"{instance['group']}/virtualMachines/{instance['index']}",
            "subscriptionId": SUBSCRIPTION,
            "tags": ";".join(f"{key}:{value}" for key, value in sorted(instance["tags"].items())),
            "userData": instance["user_data"] if query.get("extended") == "true" else "",
            "vmId": instance["id"],
            "vmScaleSetName": parts[-1],
            "vmSize": instance["machine"],
            "zone": instance["zone"],
        }

    def _token(self, instance: dict[str, Any] | None, query: dict[str, str]) -> Response:
        audience = query.get("resource", "")
        if not audience.startswith("https://"):
            return json_response({"error": "invalid_request", "error_description": "Required query variable 'resource' is missing"}, 400)  # fmt: skip
        if instance is None:
            principal = identity.Principal(identity.OPERATOR, "operator", True)
            client = identity.OPERATOR
        else:
            held = identity.identities_of(self.cloud.store, instance)
            if wanted := query.get("client_id"):
                held = [one for one in held if str(wire.plain(one.outputs).get("clientId")) == wanted]
            if len(held) != 1:
                # With several identities, Azure requires client_id.
                return json_response(
                    {
                        "error": "invalid_request",
                        "error_description": "Identity not found"
                        if not held
                        else "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
                    },
                    400,
                )
            outputs = wire.plain(held[0].outputs)
            principal = identity.Principal(str(outputs["principalId"]), held[0].id.rsplit("/", 1)[-1])
            client = str(outputs["clientId"])
        token, expires = identity.issue(self.cloud.store, principal, audience)
        return json_response(
            {
                "access_token": token, "client_id": client, "expires_in": str(int(expires - time.time())), "expires_on": str(int(expires)),
                "ext_expires_in": "86399", "not_before": str(int(time.time()) - 300), "resource": audience, "token_type": "Bearer",
            },
        )  # fmt: skip

    def _attested(self, instance: dict[str, Any], query: dict[str, str]) -> Response:
        now = datetime.now(UTC)
        nonce = query.get("nonce", now.strftime("%Y%m%d%H"))
        if not re.fullmatch(r"[0-9A-Za-z]{1,32}", nonce):
            return _error(400, "Bad request", "nonce is an optional 10-digit string")
        document = {
            "licenseType": "",
            "nonce": nonce,
            "plan": {"name": "", "product": "", "publisher": ""},
            "sku": instance["os"],
            "subscriptionId": SUBSCRIPTION,
            "timeStamp": {"createdOn": now.strftime(_TIME), "expiresOn": (now + LIFETIME).strftime(_TIME)},
            # Azure writes the ID in upper case here and in lower case elsewhere.
            "vmId": instance["id"].upper(),
        }
        return json_response({"encoding": "pkcs7", "signature": self.signer.document(document)})


def _name(instance: dict[str, Any]) -> str:
    return f"{instance['group'].rsplit('/', 1)[-1]}_{instance['index']}"


def _network(instance: dict[str, Any]) -> dict[str, Any]:
    address = {"privateIpAddress": instance["address"], "publicIpAddress": ""}
    return {"interface": [{"ipv4": {"ipAddress": [address]}, "ipv6": {"ipAddress": []}}]}


def _error(status: int, error: str, text: str) -> Response:
    return json_response({"error": error, "newest-versions": ["2021-12-13"], "message": text}, status)
