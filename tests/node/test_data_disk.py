"""`node.pyz data-disk`: with the real blkid, mkfs and resize2fs on a file in place of the device. Only mount and mountpoint are replaced."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuinfra.node import cloud, data_disk
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.console import OK, MissingPrerequisite

TOOLS = ("blkid", "mkfs.ext4", "resize2fs", "dumpe2fs", "mkswap")
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"
pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool, path=SBIN) for tool in TOOLS), reason="the programs of ext4 are not installed"
)
NAME, MIB = "vol-0a", 1 << 20


class Attached:
    """A cloud whose disk has a link, at once or after the request."""

    def __init__(self, link: Path, device: Path, refusal: str = "") -> None:
        self.link, self.device, self.refusal = link, device, refusal
        self.asked: list[str] = []

    def disk_links(self, disk: str) -> list[str]:
        return [f"{self.link}-missing", str(self.link)]

    def attach_disk(self, disk: str) -> None:
        self.asked.append(disk)
        if self.refusal:
            raise CloudError(self.refusal)
        self.link.symlink_to(self.device)


class Node:
    """A control node: its cloud, its mount point, and the commands that ran."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.mount, self.device = folder, folder / "mount", folder / "device"
        self.calls = folder / "calls"
        self.device.write_bytes(b"")
        os.truncate(self.device, 16 * MIB)
        self.cloud = Attached(folder / "link", self.device)
        tools = folder / "bin"
        tools.mkdir()
        for name, code in (("mount", 0), ("mountpoint", f"[ -e {folder}/mounted ] || exit 1; exit 0")):
            text = f'#!/bin/sh\necho {name} "$@" >>{self.calls}\n'
            text += f"touch {folder}/mounted\n" if name == "mount" else f"{code}\n"
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{SBIN}")
        monkeypatch.setattr(data_disk, "load", lambda *_: {"data_disk": NAME})
        monkeypatch.setattr(data_disk, "RUNTIME", str(folder / "run-%s"))
        monkeypatch.setattr(cloud, "of", lambda node: self.cloud)
        (folder / "run-prometheus").mkdir()

    def run(self, service: str | None = "prometheus") -> int:
        """Run the command."""
        return data_disk.data_disk(argparse.Namespace(service=service), self.mount, self.folder / "lock")

    def restart(self) -> None:
        """Boot, or continue with the same disk on another machine."""
        (self.folder / "mounted").unlink(missing_ok=True)
        self.cloud.link.unlink(missing_ok=True)

    def facts(self) -> dict[str, str]:
        """What the file system says about itself."""
        shown = subprocess.run(["dumpe2fs", "-h", str(self.device)], capture_output=True, text=True, check=True).stdout
        return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in shown.splitlines())}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node with an empty disk of 16 MiB that is not attached yet."""
    return Node(tmp_path, monkeypatch)


def test_a_new_disk_is_attached_formatted_and_mounted(node: Node) -> None:
    """The first control node creates the file system and the folder of the service, which only its user can read."""
    assert node.run() == OK
    assert node.cloud.asked == [NAME]
    assert node.facts()["Filesystem volume name"] == "gpuinfra-data"
    assert f"mount -t ext4 -o noatime {node.device} {node.mount}" in node.calls.read_text().splitlines()
    assert (node.mount / "prometheus").stat().st_mode & 0o777 == 0o700


def test_a_disk_with_data_is_mounted_as_it_is(node: Node) -> None:
    """The next machine attaches the disk and does not format it. A disk that is still attached after a reboot is not attached again."""
    node.run()
    first = node.facts()["Filesystem UUID"]
    node.restart()
    node.run()
    assert (node.facts()["Filesystem UUID"], node.cloud.asked) == (first, [NAME, NAME])
    (node.folder / "mounted").unlink()
    node.run()
    assert (node.facts()["Filesystem UUID"], node.cloud.asked) == (first, [NAME, NAME])


def test_a_mounted_disk_is_left_alone(node: Node) -> None:
    """The second service finds the disk mounted, and creates only its folder."""
    node.run()
    node.calls.unlink()
    (node.folder / "run-alertmanager").mkdir()
    node.run("alertmanager")
    assert node.calls.read_text().splitlines() == [f"mountpoint -q {node.mount}"]
    assert (node.mount / "alertmanager").is_dir()
    assert not (node.folder / "run-alertmanager" / "environment").exists()


def test_a_larger_disk_gets_a_larger_file_system(node: Node) -> None:
    """The file system grows to the size of the disk at the next boot."""
    node.run()
    before = int(node.facts()["Block count"])
    os.truncate(node.device, 32 * MIB)
    node.restart()
    node.run()
    assert int(node.facts()["Block count"]) == 2 * before


def test_the_data_may_use_two_thirds_of_the_disk(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of Prometheus follows from the mounted file system, so a plan for fewer nodes deletes no metrics from a disk that stays."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=42 << 18, f_frsize=4096))
    node.run()
    assert (node.folder / "run-prometheus" / "environment").read_text() == f"RETENTION_SIZE={28 * 1024}MB\n"


PARTITIONS = bytes(446) + bytes((0, 0, 2, 0, 0x83, 0, 3, 0, 1, 0, 0, 0, 100, 0, 0, 0)) + bytes(48) + b"\x55\xaa"
"""A master boot record with one Linux partition."""


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ("contains swap", b""),
        ("contains partitions", PARTITIONS),
        ("contains data without a signature", b"data" * 300_000),
    ],
    ids=["swap", "partitions", "no signature"],
)
def test_a_disk_with_anything_else_is_never_formatted(node: Node, found: str, start: bytes) -> None:
    """A disk with another signature, or with data that has none, is an error that names it, and no byte of the disk changes."""
    if start:
        with node.device.open("r+b") as stream:
            stream.write(start)
    else:
        subprocess.run(["mkswap", str(node.device)], capture_output=True, check=True)
    before = node.device.read_bytes()
    with pytest.raises(MissingPrerequisite, match=found):
        node.run()
    assert node.device.read_bytes() == before
    assert "mount -t" not in node.calls.read_text()


def test_a_disk_that_another_machine_has_is_tried_again(node: Node) -> None:
    """While the predecessor has the disk, the command fails with the answer of the cloud. It succeeds as soon as the disk is free."""
    node.cloud.refusal = "volume vol-0a: 400 VolumeInUse"
    with pytest.raises(MissingPrerequisite, match="cannot be attached yet: volume vol-0a: 400 VolumeInUse"):
        node.run()
    node.cloud.refusal = ""
    assert node.run() == OK


def test_a_disk_that_does_not_appear_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds can refuse a request after their answer. The error names the links that were expected."""
    monkeypatch.setattr(data_disk, "DEVICE_S", 0.0)
    monkeypatch.setattr(node.cloud, "attach_disk", lambda disk: None)
    with pytest.raises(MissingPrerequisite, match=rf"{NAME} did not appear as .*link-missing or .*link in 0 s"):
        node.run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_files_belong_to_the_user_of_the_unit(node: Node) -> None:
    """The number of this user can differ on the next machine, so its files get the new number."""
    node.run()
    folder = node.mount / "prometheus"
    (folder / "wal").mkdir()
    (folder / "wal" / "0").touch()
    (folder / "link").symlink_to(node.device)
    os.chown(node.folder / "run-prometheus", 61_234, 61_234)
    node.run()
    owners = {path.lstat().st_uid for path in (folder, folder / "wal", folder / "wal" / "0", folder / "link")}
    assert (owners, node.device.stat().st_uid) == ({61_234}, 0)
