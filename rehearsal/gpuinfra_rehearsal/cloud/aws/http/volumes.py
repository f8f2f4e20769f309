"""Attachment of EBS volumes, as the control node requests it.

Request, response and errors: API_AttachVolume and errors-overview in the EC2 API reference, retrieved 2026-11-30.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.nodes.state import AttachedDisk

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

VOLUME = "aws:ebs/volume:Volume"


def attachment(cloud: Cloud, asked: Mapping[str, str], region: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the ARNs of the volume and of the instance, with their tags, for which EC2 checks the action."""
    volume, instance = _volume(cloud, asked, region), _instance(cloud, asked, region)
    where = f"arn:aws:ec2:{region}:{ACCOUNT}"
    yield f"{where}:volume/{volume.id}", {key: str(value) for key, value in (volume.plain.get("tags") or {}).items()}
    yield f"{where}:instance/{instance['id']}", instance["tags"]


def key_of(cloud: Cloud, asked: Mapping[str, str], region: str) -> str:
    """Return the ARN of the key of the volume, or an empty text."""
    return str(_volume(cloud, asked, region).plain.get("kmsKeyId") or "")


def attach(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Attach a volume to an instance in its zone."""
    volume, instance = _volume(cloud, asked, region), _instance(cloud, asked, region)
    if holder := cloud.fleet.holder(volume.id):
        raise ApiRejected("VolumeInUse", f"{volume.id} is already attached to an instance: {holder}", status=400)
    if volume.plain["availabilityZone"] != instance["zone"]:
        text = f"The volume '{volume.id}' is not in the same availability zone as instance '{instance['id']}'"
        raise ApiRejected("InvalidVolume.ZoneMismatch", text, status=400)
    link = f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{volume.id.replace('-', '')}"
    cloud.fleet.attach_disk(instance["id"], AttachedDisk(key=volume.id, device="/dev/nvme9n1", link=link))
    cloud.store.log("AttachVolume", VOLUME, volume.id, "")
    return {
        "volumeId": volume.id,
        "instanceId": instance["id"],
        "device": asked.get("Device"),
        "status": "attaching",
        "attachTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "deleteOnTermination": False,
    }


def _volume(cloud: Cloud, asked: Mapping[str, str], region: str) -> Resource:
    name = asked.get("VolumeId", "")
    volume = cloud.store.find(VOLUME, name, region)
    if volume is None:
        raise ApiRejected("InvalidVolume.NotFound", f"The volume '{name}' does not exist.", status=400)
    return volume


def _instance(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    name = asked.get("InstanceId", "")
    instance = cloud.store.get("instance", name)
    if instance is None or instance["region"] != region or instance["state"] == "terminated":
        raise ApiRejected("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist", status=400)
    return instance
