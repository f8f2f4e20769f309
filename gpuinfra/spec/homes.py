"""The services for home directories: which settings each service has, and which values it accepts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class HomeService:
    """A service for home directories."""

    title: str
    least_gib: int = 1
    """Smallest size of a file system in GiB. `Home.capacity_gib` has the largest size. Rules of the clouds check further limits."""
    settings: Mapping[str, Collection[int | str] | None] = field(default_factory=dict)
    """Fields of `Home` that only this service or only some services have.
    Maps each field to its allowed values, or to None if the field's own limits are sufficient."""


SERVICE_SETTINGS: Mapping[str, HomeService] = {
    "efs": HomeService(title="Amazon EFS", settings={"replica": None}),
    "openzfs": HomeService(
        title="FSx for OpenZFS",
        least_gib=64,
        settings={
            "throughput_mb_s": (160, 320, 640, 1280, 2560, 3840, 5120, 7680, 10240),
            "backup_days": None,
            "restore_from": None,
        },
    ),
    "files": HomeService(title="Azure Files"),
    "netapp": HomeService(
        title="Azure NetApp Files",
        least_gib=50,
        settings={"service_level": ("standard", "premium", "ultra"), "snapshot_days": None},
    ),
    "filestore": HomeService(title="Filestore"),
}
"""Maps each service to its settings.

FSx for OpenZFS: throughput of a file system of the type SINGLE_AZ_2, from `CreateFileSystemOpenZFSConfiguration` in the API reference; capacity from
`aws.fsx.OpenZfsFileSystem` in pulumi-aws 7.51.1; both retrieved 2026-11-27. Azure NetApp Files: sizes of a regular volume, from "Resource limits for Azure
NetApp Files" (https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-resource-limits, page dated 2025-06-10); levels from "Service levels for
Azure NetApp Files" (https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-service-levels, retrieved 2026-11-27).
"""


def settings_of_services() -> frozenset[str]:
    """Return the fields of `Home` that only some services have."""
    return frozenset(name for service in SERVICE_SETTINGS.values() for name in service.settings)


def services_with(setting: str, services: Collection[str]) -> list[str]:
    """Return those of the services that have a setting, in the given order. Services that are not in the table have none."""
    return [name for name in services if name in SERVICE_SETTINGS and setting in SERVICE_SETTINGS[name].settings]
