"""Names of file systems, the number of EFA devices that Lustre uses per node, and the cache of mounted buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.model import ExistingFileSystemPlan, FileSystemPlan, Lifetime
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount


def named(storage: Iterable[Lustre | Home | ObjectMount]) -> Iterator[tuple[str, Lustre | Home | ObjectMount]]:
    """Yield the name and declaration of each file system. Names are derived from mounts, such as `scratch-0`."""
    names: dict[str, int] = {}
    for entry in sorted(storage, key=lambda entry: entry.mount):
        stem = re.sub(r"[^a-z0-9]+", "-", entry.mount.lower()).strip("-") or entry.kind
        index = names.get(stem, 0)
        names[stem] = index + 1
        yield f"{stem}-{index}", entry


def existing_of(entry: Lustre | Home | ObjectMount) -> ExistingFileSystem | None:
    """Return the existing file system of an entry, or None if the stack creates the file system."""
    return None if isinstance(entry, ObjectMount) else entry.existing


def created(storage: Iterable[Lustre | Home | ObjectMount]) -> Iterator[tuple[str, Lustre | Home | ObjectMount]]:
    """Yield the name and declaration of each entry that is not an existing file system."""
    return ((name, entry) for name, entry in named(storage) if existing_of(entry) is None)


def mounted_bucket(
    entry: ObjectMount, name: str, program: str, subnet: str, *, word: str = "bucket", zone: str | None = None
) -> FileSystemPlan:
    """Return the plan of a bucket that nodes mount with a program. `word` is what the cloud calls a bucket."""
    own = entry.bucket == "auto"
    return FileSystemPlan(
        name=name,
        kind=entry.kind,
        mount=entry.mount,
        capacity_gib=0,
        deployment=program,
        subnet=subnet,
        zone=zone,
        bucket=entry.bucket,
        key_arn=entry.key_arn,
        private_endpoint=entry.private_endpoint,
        read_only=entry.read_only,
        cache_gib=entry.cache_gib,
        lifetime=Lifetime.KEPT if own else Lifetime.ENDS,
        lifetime_reason="contains the only copy of its data" if own else f"the {word} exists outside the stack",
    )


def object_cache_gib(entry: FileSystemPlan | ObjectMount, machine: MachineType) -> int:
    """Return the cache size of a mounted bucket on a machine: the declared size, or a tenth of the local disks. 0 without local disks."""
    if not machine.local_disk_gb:
        return 0
    return local_disk_gib(machine) // 10 if entry.cache_gib is None else entry.cache_gib


def local_disk_gib(machine: MachineType) -> int:
    """Return the size of all local disks of a machine in GiB. The catalog specifies it in GB (10^9 bytes)."""
    return machine.local_disk_gb * 10**9 // 2**30


def lnet_efa_devices(
    file_systems: Iterable[FileSystemPlan | ExistingFileSystemPlan], machine: MachineType, *, fabric: bool
) -> int:
    """Return the number of EFA devices that Lustre uses on a machine: 8 of 32, at most 2 on other machines, 0 over TCP.

    https://docs.aws.amazon.com/fsx/latest/LustreGuide/configure-efa-clients.html, retrieved 2026-11-21.
    """
    if not fabric or machine.fabric is None or machine.fabric.provider != "efa":
        return 0
    if not any(entry.efa for entry in file_systems):
        return 0
    return 8 if machine.fabric.devices == 32 else min(2, machine.fabric.devices)
