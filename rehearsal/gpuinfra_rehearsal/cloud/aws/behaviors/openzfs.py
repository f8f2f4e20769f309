"""FSx for OpenZFS file systems. The wording of the errors of FSx is not verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws.behaviors.network import OPENZFS, SECURITY, SUBNET
from gpuinfra_rehearsal.cloud.aws.behaviors.storage import backup_of, refuse_smaller
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, hexa
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud

_OPENZFS_MB_S = {
    **dict.fromkeys(
        ("SINGLE_AZ_2", "SINGLE_AZ_HA_2", "MULTI_AZ_1"), (160, 320, 640, 1280, 2560, 3840, 5120, 7680, 10240)
    ),
    **dict.fromkeys(("SINGLE_AZ_1", "SINGLE_AZ_HA_1"), (64, 128, 256, 512, 1024, 2048, 3072, 4096)),
}
"""Maps a deployment type to its throughputs. API_CreateFileSystemOpenZFSConfiguration.html, retrieved 2026-11-27."""


@behaves
class OpenZfsFileSystem(Behavior):
    """An FSx for OpenZFS file system. FSx does not return its security groups (`resourceOpenZFSFileSystemRead` in terraform-provider-aws)."""

    types = (OPENZFS,)
    not_returned = ("securityGroupIds",)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        """Yield what the provider rejects: sizes outside 64 to 524288 GiB, and a throughput that no type has."""
        size, throughput = call.plain.get("storageCapacity"), call.plain.get("throughputCapacity")
        if isinstance(size, int) and not 64 <= size <= 512 * 1024:
            yield RejectedInput(
                "storageCapacity", f"expected storage_capacity to be in the range (64 - 524288), got {size}"
            )
        if isinstance(throughput, int) and not any(throughput in known for known in _OPENZFS_MB_S.values()):
            yield RejectedInput("throughputCapacity", f"got {throughput}, which no deployment type has")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain, action = call.plain, "FSx: CreateFileSystem"
        if plain.get("backupId"):
            kind = backup_of(cloud, str(plain["backupId"])).get("FileSystemType")
            if kind not in (None, "OPENZFS"):
                text = f"The backup is a backup of a file system of the type {kind}."
                raise ApiRejected("BadRequest", text, "FSx: CreateFileSystemFromBackup", status=400)
        if plain.get("throughputCapacity") not in _OPENZFS_MB_S.get(str(plain.get("deploymentType")), ()):
            text = (
                f"{plain.get('throughputCapacity')} MB/s is not a throughput capacity of {plain.get('deploymentType')}."
            )
            raise ApiRejected("BadRequest", text, action, status=400)
        for subnet in plain.get("subnetIds") or []:
            if cloud.store.find(SUBNET, str(subnet)) is None and cloud.external(str(subnet)) is None:
                raise ApiRejected("InvalidNetworkSettings", f"The subnet {subnet} does not exist.", action, status=400)
        for group in plain.get("securityGroupIds") or []:
            if cloud.store.find(SECURITY, str(group)) is None and cloud.external(str(group)) is None:
                text = f"The security group {group} does not exist."
                raise ApiRejected("InvalidNetworkSettings", text, action, status=400)

    def created(self, cloud: Cloud, call: Call) -> None:
        backup = cloud.external(str(call.plain["backupId"])) if call.plain.get("backupId") else None
        if size := (backup or {}).get("StorageCapacity"):
            # The provider does not send the capacity with a backup, and FSx uses the capacity of the backup.
            call.outputs["storageCapacity"] = size
        subnet = cloud.store.find(SUBNET, str((call.plain.get("subnetIds") or [""])[0]))
        call.outputs |= {
            "dnsName": f"{call.id}.fsx.{call.region}.amazonaws.com",
            "networkInterfaceIds": [f"eni-{hexa(cloud.store.next('eni'), 17)}"],
            "ownerId": ACCOUNT,
            "rootVolumeId": f"fsvol-{hexa(cloud.store.next('fsvol'), 17)}",
        }
        if subnet:
            call.outputs["vpcId"] = subnet.plain["vpcId"]

    def before_update(self, cloud: Cloud, call: Call) -> None:
        refuse_smaller(call)
