"""Instance metadata service, version 2. Clients get a session token before they read metadata.

Paths and responses from the EC2 user guide (instance metadata categories, retrieved 2026-11-21). Version 1, without a token,
is refused unless the instance's template allows it.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import credentials
from gpuinfra_rehearsal.cloud.aws.groups import AutoScaling
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core import notices
from gpuinfra_rehearsal.cloud.core.http import Request, Response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

VERSIONS = (
    "1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01", "2009-04-04", "2016-09-02",
    "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2021-03-23", "latest",
)  # fmt: skip
"""Versions that the service lists at `/`. Clients choose one of them. EC2 lists more versions. Sources, retrieved 2026-11-22: the versions that
cloud-init requests (canonical/cloud-init:cloudinit/sources/DataSourceEc2.py), chef/ohai pull request 1457, and the list up to 2009-04-04
in https://docs.openstack.org/nova/stein/user/metadata-service.html."""
_NOT_FOUND = Response(404, b"not found: no such metadata\n")
_UNAUTHORIZED = Response(401, b"unauthorized: a session token is required\n")


class MetadataService:
    """Serves `/.imds/<instance>/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._tokens: dict[str, tuple[str, float]] = {}

    def __call__(self, request: Request) -> Response:
        _, _, instance_id, *rest = request.path.split("/")
        instance = self.cloud.store.get("instance", instance_id)
        if instance is None or instance["state"] == "terminated":
            return Response(404, b"not found: no such running instance\n")
        if instance["metadata"].get("httpEndpoint") == "disabled":
            return Response(403, b"forbidden: the metadata service is turned off for this instance\n")
        path = "/".join(rest).rstrip("/")
        if request.method == "PUT" and path == "latest/api/token":
            return self._token(request, instance_id)
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"method not allowed\n")
        if not self._authorized(request, instance):
            return _UNAUTHORIZED
        return self._find(instance, path)

    def _token(self, request: Request, instance_id: str) -> Response:
        seconds = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return Response(400, b"bad request: X-aws-ec2-metadata-token-ttl-seconds must be 1 to 21600\n")
        if "x-forwarded-for" in request.headers:
            return Response(403, b"forbidden: a token is not given through a proxy\n")
        token = secrets.token_urlsafe(40)
        self._tokens[token] = (instance_id, time.time() + int(seconds))
        return Response(200, token.encode(), headers={"X-aws-ec2-metadata-token-ttl-seconds": seconds})

    def _authorized(self, request: Request, instance: dict[str, Any]) -> bool:
        token = request.headers.get("x-aws-ec2-metadata-token")
        if token is None:
            return instance["metadata"].get("httpTokens") == "optional"
        owner, until = self._tokens.get(token, ("", 0.0))
        return owner == instance["id"] and time.time() < until

    def _find(self, instance: dict[str, Any], path: str) -> Response:
        if not path:
            return Response(200, "\n".join(VERSIONS).encode())
        version, _, rest = path.partition("/")
        if version not in VERSIONS:
            return _NOT_FOUND
        if rest == "user-data":
            template = (
                self.cloud.store.get("template-version", f"{instance['template']}:{instance['template_version']}") or {}
            )
            data = base64.b64decode(template.get("userData") or "")
            return Response(200, data, "application/octet-stream") if data else _NOT_FOUND
        if rest == "dynamic/instance-identity/document":
            return Response(200, json.dumps(self._document(instance), indent=2).encode())
        tree = self._tree(instance)
        node: Any = tree
        for part in [part for part in rest.split("/") if part]:
            if not isinstance(node, dict) or part not in node:
                return _NOT_FOUND
            node = node[part]
        if isinstance(node, dict):
            listing = "\n".join(key + ("/" if isinstance(value, dict) else "") for key, value in node.items())
            return Response(200, listing.encode())
        return Response(200, str(node).encode())

    def _tree(self, instance: dict[str, Any]) -> dict[str, Any]:
        hostname = f"ip-{instance['address'].replace('.', '-')}.{instance['region']}.compute.internal"
        serial = int(instance["id"].removeprefix("i-"), 16)
        mac = "02:" + ":".join(f"{serial:010x}"[at : at + 2] for at in range(0, 10, 2))
        data: dict[str, Any] = {
            "ami-id": instance["image_id"],
            "hostname": hostname,
            "iam": self._iam(instance),
            "instance-action": "none",
            "instance-id": instance["id"],
            "instance-life-cycle": "spot" if instance["kind"] == "spot" else "on-demand",
            "instance-type": instance["machine"],
            "local-hostname": hostname,
            "local-ipv4": instance["address"],
            "mac": mac,
            "network": {
                "interfaces": {
                    "macs": {
                        mac: {"device-number": "0", "local-ipv4s": instance["address"], "subnet-id": instance["subnet"]}
                    }
                }
            },
            "placement": {
                "availability-zone": instance["zone"],
                "availability-zone-id": instance["zone_id"],
                "region": instance["region"],
            },
            "reservation-id": "r-" + instance["id"].removeprefix("i-"),
            "security-groups": "",
            "services": {"domain": "amazonaws.com", "partition": "aws"},
        }
        if instance["metadata"].get("instanceMetadataTags") == "enabled":
            data["tags"] = {"instance": dict(instance["tags"])}
        if not data["iam"]:
            del data["iam"]
        data |= self._notices(instance)
        return {"meta-data": data, "dynamic": {"instance-identity": {"document": ""}}, "user-data": ""}

    def _notices(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return the interruption, the rebalance recommendation that precedes it, and the scheduled events. Missing values have no path."""
        spot = notices.since(self.cloud, instance, notices.SPOT)
        maintenance = notices.since(self.cloud, instance, notices.MAINTENANCE)
        tree: dict[str, Any] = {"events": {"maintenance": {"history": "[]", "scheduled": "[]"}}}
        if spot is not None:
            action = {"action": "terminate", "time": _moment(spot + AutoScaling.notice_s)}
            tree["spot"] = {"instance-action": json.dumps(action), "termination-time": action["time"]}
            tree["events"]["recommendations"] = {"rebalance": json.dumps({"noticeTime": _moment(spot)})}
        if maintenance is not None:
            begin = maintenance + notices.MAINTENANCE_S
            event = {
                "NotBefore": _english(begin), "Code": "system-reboot", "Description": "scheduled reboot",
                "EventId": f"instance-event-{instance['id'].removeprefix('i-')}", "NotAfter": _english(begin + 7200), "State": "active",
            }  # fmt: skip
            tree["events"]["maintenance"]["scheduled"] = json.dumps([event])
        return tree

    def _iam(self, instance: dict[str, Any]) -> dict[str, Any]:
        issued = credentials.of_instance(self.cloud.store, instance)
        if issued is None:
            return {}
        key, session = issued
        secret = {
            "Code": "Success",
            "LastUpdated": _moment(session["issued"]),
            "Type": "AWS-HMAC",
            "AccessKeyId": key.id,
            "SecretAccessKey": key.secret,
            "Token": key.principal.token,
            "Expiration": _moment(session["expires"]),
        }
        info = {
            "Code": "Success",
            "LastUpdated": _moment(session["issued"]),
            "InstanceProfileArn": instance["profile"].get("arn", ""),
        }
        return {"info": json.dumps(info), "security-credentials": {session["role"]: json.dumps(secret, indent=2)}}

    @staticmethod
    def _document(instance: dict[str, Any]) -> dict[str, Any]:
        return {
            "accountId": ACCOUNT, "architecture": "x86_64", "availabilityZone": instance["zone"], "imageId": instance["image_id"],
            "instanceId": instance["id"], "instanceType": instance["machine"], "pendingTime": _moment(instance["launched"]),
            "privateIp": instance["address"], "region": instance["region"], "version": "2017-09-30",
        }  # fmt: skip


def _english(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %Y %H:%M:%S GMT")


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
