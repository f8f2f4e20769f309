"""`node.pyz data-disk`: attaches and mounts the disk with the data of Prometheus and Alertmanager on the control node.

The disk is a resource of the stack and outlives the node. Its predecessor can still have it, so each start of a service tries again. The program creates a
file system only on a disk that was never used: its start is empty, and it has no signature.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Protocol, Sequence, runtime_checkable

from . import cloud
from .console import NODE, OK, MissingPrerequisite, load, print_message

MOUNT = Path("/var/lib/gpuinfra-monitoring")
LOCK = Path("/run/gpuinfra-data-disk.lock")
RUNTIME = "/run/gpuinfra-%s"
"""Runtime folder of a unit, which belongs to the user of the unit."""
FILE_SYSTEM, LABEL = "ext4", "gpuinfra-data"
LIMITED = "prometheus"
"""The service that deletes its oldest data at a limit."""
RESERVE = 1.5
"""Size of the disk for one byte of blocks: Prometheus also needs space for the write-ahead log and for the compaction of its oldest blocks."""
NOTHING_FOUND = 2
"""Exit code of `blkid --probe` for a device without a signature (blkid(8))."""
START = 1 << 20
"""Bytes at the start of a disk that are zero on a new one. A file system whose superblock has a wrong checksum has no signature for `blkid` of util-linux
2.39 or later, but it is not empty, and `e2fsck` can repair it."""
DEVICE_S = 60.0
"""Time between the answer of the cloud and the device."""


@runtime_checkable
class DiskAttacher(Protocol):
    """A cloud on which a node can attach a disk to itself."""

    def disk_links(self, disk: str) -> Sequence[str]:
        """Return the links to the device of an attached disk that udev can create."""
        ...

    def attach_disk(self, disk: str) -> None:
        """Request that a disk is attached to this machine. Makes one attempt, and raises `CloudError` if it fails."""
        ...


def data_disk(args: argparse.Namespace, mount: Path = MOUNT, lock: Path = LOCK) -> int:
    """Mount the disk, and create the folder of a service on it. Raises `MissingPrerequisite` with the reason if the disk is not available."""
    node = load(NODE, "the node's configuration", "user data writes it")
    name = cloud.field(node, "data_disk")
    with open(lock, "w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # both services start at the same time
        device = _attached(cloud.of(node), name)
        if _run("mountpoint", "-q", str(mount)).returncode:
            _format(device, name)
            mount.mkdir(parents=True, exist_ok=True)
            _checked("mount", "-t", FILE_SYSTEM, "-o", "noatime", device, str(mount), fix="run `e2fsck -f %s`" % device)
            print_message("the disk %s is mounted at %s" % (name, mount))
        _checked("resize2fs", device)  # does nothing, unless the disk has become larger
        if args.service:
            _own(mount / args.service, os.stat(RUNTIME % args.service))
        if args.service == LIMITED:
            with open(RUNTIME % args.service + "/environment", "w", encoding="ascii") as settings:
                settings.write("RETENTION_SIZE=%dMB\n" % (_size(mount) / RESERVE / 2**20))
    return OK


def _attached(connected: cloud.NodeCloud, name: str) -> str:
    """Return the device of the disk, which is attached if it is not yet."""
    if not isinstance(connected, DiskAttacher):
        raise MissingPrerequisite("nodes of this cloud cannot attach disks")
    links = connected.disk_links(name)
    if not any(map(os.path.exists, links)):
        try:
            connected.attach_disk(name)
        except cloud.CloudError as error:
            raise MissingPrerequisite("the disk cannot be attached yet: %s" % error) from None
    until = time.monotonic() + DEVICE_S
    while True:
        for link in links:
            if os.path.exists(link):
                return os.path.realpath(link)
        if time.monotonic() >= until:
            raise MissingPrerequisite("the disk %s did not appear as %s in %d s" % (name, " or ".join(links), DEVICE_S))
        time.sleep(0.5)


def _format(device: str, name: str) -> None:
    """Create a file system if the disk was never used. A disk with anything else is left as it is."""
    try:
        with open(device, "rb") as stream:
            start = stream.read(START)  # for blkid, a disk that cannot be read has no signature
    except OSError as error:
        raise MissingPrerequisite("the disk %s cannot be read: %s" % (name, error)) from None
    probed = _run("blkid", "--probe", "--output", "value", "--match-tag", "TYPE", device)
    if probed.returncode == NOTHING_FOUND:
        if any(start):
            fix = "for a damaged file system, run `e2fsck -f %s`, otherwise erase its first MiB" % device
            raise MissingPrerequisite(
                "the disk %s contains data without a signature, so it is not formatted; %s" % (name, fix)
            )
        _checked("mkfs.%s" % FILE_SYSTEM, "-q", "-L", LABEL, device)
    elif probed.returncode or probed.stdout.strip() != FILE_SYSTEM:
        what = probed.stdout.strip() or "partitions or several signatures"
        raise MissingPrerequisite("the disk %s contains %s and not %s, so it is not mounted and not formatted" % (name, what, FILE_SYSTEM))  # fmt: skip


def _size(mount: Path) -> int:
    """Return the bytes of the file system. The disk can be larger than the plan, because a disk never becomes smaller."""
    mounted = os.statvfs(mount)
    return mounted.f_blocks * mounted.f_frsize


def _own(folder: Path, owner: os.stat_result) -> None:
    """Give the folder of a service to the user of its unit. Another machine can have another number for this user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid == owner.st_uid:
        return
    for parent, folders, files in os.walk(str(folder), topdown=False):
        for entry in (*folders, *files):
            os.chown(os.path.join(parent, entry), owner.st_uid, owner.st_gid, follow_symlinks=False)
    os.chown(str(folder), owner.st_uid, owner.st_gid)  # last, so that an interrupted change is repeated


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _checked(*argv: str, fix: str = "") -> None:
    done = _run(*argv)
    if done.returncode:
        why = " ".join(done.stdout.split())[-300:]
        raise MissingPrerequisite("%s failed: %s%s" % (argv[0], why, fix and "; " + fix))
