"""Azure rules for home directories on Azure Files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds.azure.names import share_parts
from gpuinfra.clouds.azure.rules.fields import fields_of_other_clouds
from gpuinfra.clouds.profile import rules_in
from gpuinfra.findings import Finding, error
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Home

SHARE_GIB = (100, 102_400)
"""Smallest and largest share of the provisioned v1 model in GiB. The shares of an account have at most the size of the largest share
(https://learn.microsoft.com/azure/storage/files/storage-files-scale-targets, retrieved 2026-11-26)."""
_NETAPP = re.compile(r".+/providers/Microsoft\.NetApp/.+", re.IGNORECASE)


def share_size_is_offered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A share for home directories has 100 to 102400 GiB, and all shares of the cluster, which are in one storage account, have up to 102400 GiB."""
    least, most = SHARE_GIB
    homes = [(i, entry) for i, entry in enumerate(spec.storage) if isinstance(entry, Home) and not entry.existing]
    for i, entry in homes:
        if entry.capacity_gib < least:
            what = f"is {entry.capacity_gib}; allowed: {least} to {most}, in increments of 1 GiB"
            yield error(f"storage[{i}].capacity_gib", what, f"use {least}")
    if (total := sum(entry.capacity_gib for _, entry in homes)) > most:
        what = f"has home directories of {total} GiB; allowed: up to {most} GiB, the limit of their storage account"
        yield error("storage", what, "reduce capacity_gib, or use a second stack for some of the home directories")


def existing_share_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system for home directories has the resource ID of an NFS share of Azure Files. Its address and its path follow from the ID."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Home) or (existing := entry.existing) is None:
            continue
        path = f"storage[{i}].existing"
        share = share_parts(existing.id)
        if share is None and _NETAPP.fullmatch(existing.id):
            what = "is a volume of Azure NetApp Files, which gpuinfra does not support; allowed: the ID of an NFS share of Azure Files"
            yield error(f"{path}.id", what, "copy the files to a share of Azure Files, to which nodes connect with TLS")
        elif share is None:
            what = f"is {shown(existing.id)}; allowed: the ID of an NFS share of Azure Files, /subscriptions/.../storageAccounts/NAME/fileServices/default/shares/NAME"
            yield error(f"{path}.id", what, "run: az storage share-rm show --query id")
        else:
            for name, found, known in (
                ("address", existing.address, share.address),
                ("mount_name", existing.mount_name, share.path),
            ):
                if found not in (None, known):
                    what = f"is {shown(found)}; allowed: {known}, which follows from the ID of the share"
                    yield error(f"{path}.{name}", what, "remove it")
        yield from fields_of_other_clouds(path, existing)


RULES = rules_in(vars())
