"""Azure rules for home directories on Azure Files and Azure NetApp Files."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.clouds.azure.names import is_netapp_volume, share_parts
from gpuinfra.clouds.azure.profile import netapp
from gpuinfra.clouds.azure.rules.fields import fields_of_other_clouds
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Home

SHARE_GIB = (100, 102_400)
"""Smallest and largest share of the provisioned v1 model in GiB. The shares of an account have at most the size of the largest share
(https://learn.microsoft.com/azure/storage/files/storage-files-scale-targets, retrieved 2026-11-26)."""


def share_size_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A share for home directories has 100 to 102400 GiB, and all shares of the cluster, which are in one storage account, have up to 102400 GiB."""
    least, most = SHARE_GIB
    homes = [(i, entry) for i, entry in _created(spec) if entry.service in (None, "files")]
    for i, entry in homes:
        if entry.capacity_gib < least:
            what = f"is {entry.capacity_gib}; allowed: {least} to {most}, in increments of 1 GiB"
            yield error(f"storage[{i}].capacity_gib", what, f"use {least}")
    if (total := sum(entry.capacity_gib for _, entry in homes)) > most:
        what = f"has home directories of {total} GiB; allowed: up to {most} GiB, the limit of their storage account"
        yield error("storage", what, "reduce capacity_gib, or use a second stack for some of the home directories")


def netapp_size_is_billed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The size of a volume of Azure NetApp Files is rounded up to a multiple of 1 TiB. The finding shows the billed size."""
    for i, entry in _created(spec):
        if entry.service == "netapp":
            yield from netapp(entry).rounded(f"storage[{i}].capacity_gib")


def _created(spec: ClusterSpec) -> Iterator[tuple[int, Home]]:
    return ((i, entry) for i, entry in enumerate(spec.storage) if isinstance(entry, Home) and not entry.existing)


def existing_share_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system for home directories on Azure Files has the resource ID of an NFS share of Azure Files.
    Its address and its path follow from the ID."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Home) or (existing := entry.existing) is None or entry.service == "netapp":
            continue
        path = f"storage[{i}].existing"
        share = share_parts(existing.id)
        if share is None and is_netapp_volume(existing.id):
            what = "is a volume of Azure NetApp Files, but service is not netapp; allowed: the ID of an NFS share of Azure Files"
            yield error(f"{path}.id", what, "set service: netapp")
        elif share is None:
            what = (
                f"is {shown(existing.id)}; allowed: the ID of an NFS share of Azure Files, "
                "/subscriptions/.../storageAccounts/NAME/fileServices/default/shares/NAME"
            )
            yield error(f"{path}.id", what, "run: az storage share-rm show --query id")
        else:
            for name, given, derived in (
                ("address", existing.address, share.address),
                ("mount_name", existing.mount_name, share.path),
            ):
                if given not in (None, derived):
                    what = f"is {shown(given)}; allowed: {derived}, which follows from the ID of the share"
                    yield error(f"{path}.{name}", what, "remove it")
        yield from fields_of_other_clouds(path, existing)


def existing_volume_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system for home directories on Azure NetApp Files has the resource ID of a volume,
    the IPv4 address of its mount target, and its file path."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Home) or (existing := entry.existing) is None or entry.service != "netapp":
            continue
        path = f"storage[{i}].existing"
        command = "run: az netappfiles volume show --query '{id: id, address: mountTargets[0].ipAddress, mount_name: creationToken}'"
        if not is_netapp_volume(existing.id):
            what = (
                f"is {shown(existing.id)}; allowed: the ID of a volume of Azure NetApp Files, "
                "/subscriptions/.../netAppAccounts/NAME/capacityPools/NAME/volumes/NAME"
            )
            yield error(f"{path}.id", what, command)
        if existing.address is None:
            yield error(f"{path}.address", "is required for Azure NetApp Files", command)
        elif not _is_ipv4(existing.address):
            what = f"is {shown(existing.address)}; allowed: an IPv4 address, because volumes have no DNS name"
            yield error(f"{path}.address", what, command)
        if existing.mount_name is None:
            yield error(f"{path}.mount_name", "is required for Azure NetApp Files", command)
        yield from fields_of_other_clouds(path, existing)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


RULES = rules_in(vars())
