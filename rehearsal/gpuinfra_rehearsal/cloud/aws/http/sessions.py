"""Logins to instances: EC2 Instance Connect and the sessions of Systems Manager.

Limits and errors from the API models in botocore and from
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/connect-linux-inst-eic.html, retrieved 2026-11-22.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import access, credentials, operator
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

KEY_LIFETIME_S = 60
SENT = "sent ssh key"
USER = "ubuntu"
"""The user of Ubuntu's images, which contain the package `ec2-instance-connect`."""
_HEARTBEAT = "ssm:UpdateInstanceInformation"
_CHANNELS = ("ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel",
          "ssmmessages:OpenDataChannel")  # fmt: skip


def send_ssh_public_key(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Keep a public key for 60 seconds."""
    instance = cloud.store.get("instance", str(asked.get("InstanceId")))
    if instance is None or instance["state"] == "terminated" or instance["region"] != region:
        raise ApiRejected("EC2InstanceNotFoundException", "Specified EC2 instance is not found")
    user = {"ec2:osuser": str(asked["InstanceOSUser"])}
    cloud.operator.check(operator, [operator.on_instance("ec2-instance-connect:SendSSHPublicKey", instance, **user)])
    sent = cloud.store.get(SENT, instance["id"]) or {"keys": []}
    now = time.time()
    new = {
        "user": str(asked["InstanceOSUser"]),
        "key": str(asked["SSHPublicKey"]).strip(),
        "until": now + KEY_LIFETIME_S,
    }
    cloud.store.put(SENT, instance["id"], {"keys": [*(one for one in sent["keys"] if one["until"] > now), new]})
    return {"RequestId": ids.uuid(0), "Success": True}


def start_session(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Open a session to the SSH port. The instance's agent connects with the permissions of the instance's role. The CLI plugin opens the data
    channel with the caller's permissions."""
    session = operator.own_session(ids.uuid(0)[:17])
    instance = cloud.store.get("instance", str(asked.get("Target")))
    if instance is not None:
        document = operator.http(
            "ssm:StartSession", f"arn:aws:ssm:{region}::document/{asked.get('DocumentName')}", region
        )
        channel = operator.on_own_session("ssmmessages:OpenDataChannel", session, region)
        cloud.operator.check(operator, [operator.on_instance("ssm:StartSession", instance), *document, channel])
    port = cloud.fleet.ssh_port(instance["id"]) if instance and instance["region"] == region else None
    role = credentials.role_of(cloud.store, instance) if instance else None
    if instance is None or port is None or role is None or not _connected(cloud, role.id, instance):
        raise ApiRejected("TargetNotConnected", f"{asked.get('Target')} is not connected.")
    if asked.get("DocumentName") != "AWS-StartSSHSession" or (asked.get("Parameters") or {}).get("portNumber") != [
        "22"
    ]:
        raise ApiRejected("InvalidDocument", "a rehearsal supports only AWS-StartSSHSession to port 22")
    url = f"ws://127.0.0.1:{port}/v1/data-channel/{instance['id']}"
    return {"SessionId": session, "TokenValue": "token", "StreamUrl": url}


def logins(cloud: Cloud, instance: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the keys that the metadata service currently provides to sshd."""
    keys = (cloud.store.get(SENT, instance["id"]) or {"keys": []})["keys"]
    return {USER: [one["key"] for one in keys if one["user"] == USER and one["until"] > time.time()]}


def _connected(cloud: Cloud, role: str, instance: Mapping[str, Any]) -> bool:
    """Return whether the role's policies allow all of the agent's requests. Records the rights that it uses."""
    arn = f"arn:aws:ec2:{instance['region']}:{ACCOUNT}:instance/{instance['id']}"
    registered = access.role_allows(cloud, role, _HEARTBEAT, arn)
    return registered and all(access.role_allows(cloud, role, action) for action in _CHANNELS)
