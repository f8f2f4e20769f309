"""The metadata server of an instance: machine metadata and the tokens of its service account.

Paths and responses from https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys, retrieved 2026-11-21.
A request without `Metadata-Flavor: Google` or through a proxy is refused.
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import notices
from gpuinfra_rehearsal.cloud.core.http import Request, Response
from gpuinfra_rehearsal.cloud.gcp import tokens
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER, last

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_SERVER = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_ROOT = "computeMetadata/v1"


class MetadataService:
    """Serves `/.gcp/imds/<instance>/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request, rest: str) -> Response:
        number, _, path = rest.partition("/")
        instance = self.cloud.store.get("instance", number)
        if instance is None or instance["state"] == "terminated" or instance.get("cloud") != "gcp":
            return _text(404, "no such running instance")
        if request.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in request.headers:
            return _text(403, "Missing Metadata-Flavor:Google header, or a proxy on the way.")
        if request.method != "GET":
            return _text(405, "method not allowed")
        if path.rstrip("/") in ("", "computeMetadata"):
            return _text(200, f"{_ROOT}/" if not path else "v1/")
        if not path.startswith(_ROOT):
            return _text(404, "there is no such metadata")
        return self._find(request, instance, path.removeprefix(_ROOT).strip("/"))

    def _find(self, request: Request, instance: dict[str, Any], path: str) -> Response:
        account = path.removeprefix("instance/service-accounts/").partition("/")
        if path.startswith("instance/service-accounts/") and account[2] in ("token", "identity"):
            return self._signed(request, instance, account[0], account[2])
        node: Any = self._tree(instance)
        for part in [part for part in path.split("/") if part]:
            if not isinstance(node, dict) or part not in node:
                return _text(404, "there is no such metadata")
            node = node[part]
        if request.query.get("recursive", "").lower() == "true" or request.query.get("alt") == "json":
            return Response(200, json.dumps(node).encode(), "application/json", _SERVER)
        if isinstance(node, dict):
            listing = "".join(f"{key}/\n" if isinstance(value, dict) else f"{key}\n" for key, value in node.items())
            return _text(200, listing)
        return _text(200, str(node))

    def _signed(self, request: Request, instance: dict[str, Any], account: str, what: str) -> Response:
        if not instance["account"] or account not in ("default", instance["account"]):
            return _text(404, "this instance has no such service account")
        if what == "token":
            token, seconds = tokens.issue(
                self.cloud.store, instance["account"], instance["id"], tuple(instance["scopes"])
            )
            value = {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}
            return Response(200, json.dumps(value).encode(), "application/json", _SERVER)
        audience = request.query.get("audience", "")
        if not audience:
            return _text(400, "non-empty audience parameter required")
        full = request.query.get("format", "standard") == "full"
        return _text(200, tokens.identity_token(self.cloud.store, instance, audience, full=full))

    def _tree(self, instance: dict[str, Any]) -> dict[str, Any]:
        preempted = instance.get("preempted") or notices.since(self.cloud, instance, notices.SPOT) is not None
        maintenance = notices.since(self.cloud, instance, notices.MAINTENANCE)
        project = f"projects/{PROJECT_NUMBER}"
        account = {"aliases": "default", "email": instance["account"], "scopes": "\n".join(instance["scopes"])}
        accounts = {"default": account, instance["account"]: account} if instance["account"] else {}
        attributes = dict(instance["attributes"])
        if instance["startup"]:
            attributes["startup-script"] = instance["startup"]
        interfaces = {}
        for number, interface in enumerate(instance["interfaces"]):
            address = instance["address"] if number == 0 else f"10.{64 + number}.{instance['address'].split('.', 2)[2]}"
            network = last(str(interface.get("network") or interface.get("subnetwork") or ""))
            interfaces[str(number)] = {
                "ip": address,
                "mac": f"42:01:{':'.join(f'{int(part):02x}' for part in address.split('.'))}",
                "mtu": "1460",
                "network": f"{project}/networks/{network}",
            }
        return {
            "instance": {
                "attributes": attributes,
                "cpu-platform": "Intel Sapphire Rapids",
                "description": "",
                "disks": {"0": {"device-name": "boot", "index": 0, "mode": "READ_WRITE", "type": "PERSISTENT"}},
                "hostname": f"{instance['vm']}.{instance['zone']}.c.{PROJECT}.internal",
                "id": instance["id"],
                "image": instance["image_id"],
                "machine-type": f"{project}/machineTypes/{instance['machine']}",
                "maintenance-event": "NONE",
                "name": instance["vm"],
                "network-interfaces": interfaces,
                "preempted": "TRUE" if preempted else "FALSE",
                "scheduling": {
                    "automatic-restart": "FALSE" if instance["kind"] in ("spot", "flex") else "TRUE",
                    "on-host-maintenance": "TERMINATE",
                    "preemptible": "TRUE" if instance["kind"] == "spot" else "FALSE",
                },
                "service-accounts": accounts,
                "tags": "[]",
                "upcoming-maintenance": _upcoming(maintenance),
                "zone": f"{project}/zones/{instance['zone']}",
            },
            "project": {
                "attributes": {},
                "numeric-project-id": PROJECT_NUMBER,
                "project-id": PROJECT,
            },
            "universe": {"universe-domain": "googleapis.com"},
        }


def _upcoming(began: float | None) -> dict[str, Any]:
    """Return the planned maintenance: https://cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event, retrieved 2026-11-28."""
    if began is None:
        return {}
    begin = datetime.fromtimestamp(began + notices.MAINTENANCE_S, UTC)
    return {
        "can_reschedule": "false",
        "latest_window_start_time": begin.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "maintenance_reasons": ["PLANNED_UPDATE"],
        "maintenance_status": "PENDING",
        "type": "SCHEDULED",
        "window_end_time": (begin + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window_start_time": begin.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _text(status: int, text: str) -> Response:
    return Response(status, text.encode(), "application/text", {**_SERVER, "ETag": secrets.token_hex(8)})
