from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuinfra.node import mounts
from gpuinfra.node.console import MissingPrerequisite


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `findmnt` that prints a file and records its arguments."""
    tool = tmp_path / "bin/findmnt"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$*" >>"{tmp_path}/asked"\ncat "{tmp_path}/list"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return tmp_path / "list"


def test_network_mounts_are_listed_with_their_problem(listed: Path, tmp_path: Path) -> None:
    """Local mounts are skipped; a mount that cannot be opened has the reason."""
    there = tmp_path / "data of all"
    there.mkdir()
    spelled = str(there).replace(" ", "\\x20")
    listed.write_text(
        f"/ ext4 /dev/root\n{spelled} lustre 10.0.0.1@tcp:/abc\n{tmp_path}/gone nfs4 10.0.0.9:/home\n/proc proc proc\n"
    )
    found = mounts.mounts()
    assert found["schema"] == "gpuinfra.mounts/1"
    assert [(one["mount"], one["kind"], one["source"]) for one in found["mounts"]] == [
        (str(there), "lustre", "10.0.0.1@tcp:/abc"),
        (f"{tmp_path}/gone", "nfs4", "10.0.0.9:/home"),
    ]
    assert found["mounts"][0]["problem"] is None
    assert "No such file" in found["mounts"][1]["problem"]


SHOWN = {"gcs": "fuse.gcsfuse corpus", "s3": "fuse mountpoint-s3", "blob": "fuse blobfuse2"}
"""Type and source of a mounted bucket (for S3 and Azure, public outputs of `mount`; for Azure, docs of kubernetes-sigs/blob-csi-driver)."""


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_bucket_is_looked_up_and_written(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, shown: str
) -> None:
    """A writable bucket accepts, returns and deletes an object; a read-only one only answers a lookup. No bucket is listed."""
    refuse = "import sys\ndef hook(event, _):\n    if event in ('os.listdir', 'os.scandir'): raise OSError('listed')\n"
    monkeypatch.setattr(mounts, "_ASK_BUCKET", refuse + "sys.addaudithook(hook)\n" + mounts._ASK_BUCKET)
    (tmp_path / "bucket").mkdir()
    listed.write_text(f"{tmp_path}/bucket {shown} {mode},nosuid,nodev\n")
    before = (tmp_path / "bucket").stat().st_mtime_ns
    (found,) = mounts.mounts()["mounts"]
    assert (f"{found['kind']} {found['source']}", found["read_only"], found["problem"]) == (shown, mode == "ro", None)
    assert not list((tmp_path / "bucket").iterdir())
    assert ((tmp_path / "bucket").stat().st_mtime_ns != before) == (mode == "rw")


def test_a_file_system_of_a_user_is_not_a_bucket(listed: Path, tmp_path: Path) -> None:
    """Other programs also have the type `fuse`. The test does not write to them."""
    listed.write_text(f"{tmp_path} fuse my-program rw,nosuid,nodev\n")
    assert mounts.mounts()["mounts"] == []


def test_a_bucket_that_refuses_a_lookup_is_reported(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error other than a missing name, as Cloud Storage FUSE returns it for a denied request, is the problem of the mount."""
    (tmp_path / "bucket").mkdir()
    listed.write_text(f"{tmp_path}/bucket fuse.gcsfuse corpus ro\n")
    denied = (
        "import os\nreal = os.stat\ndef stat(path):\n    if '.gpuinfra' in path: "
        "raise PermissionError(13, 'Permission denied')\n    return real(path)\nos.stat = stat\n"
    )
    monkeypatch.setattr(mounts, "_ASK_BUCKET", denied + mounts._ASK_BUCKET)
    (found,) = mounts.mounts()["mounts"]
    assert "Permission denied" in found["problem"]


def test_a_bucket_that_is_gone_or_cannot_be_written_is_reported(listed: Path, tmp_path: Path) -> None:
    """The reason of the file system is the problem of the mount."""
    listed.write_text(f"{tmp_path}/gone fuse.gcsfuse corpus ro\n/proc/self fuse.gcsfuse corpus rw\n")
    problems = [one["problem"] for one in mounts.mounts()["mounts"]]
    assert "No such file" in problems[0]
    assert problems[1] is not None


def test_automount_is_accessed_first(listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reboot systemd mounts an automount only on first access."""
    (tmp_path / "scratch").mkdir()
    listed.write_text(f"{tmp_path}/scratch autofs systemd-1\n/proc/sys/fs/binfmt_misc autofs systemd-1\n")
    # On a node this access makes systemd mount the file system.
    mounting = f"import sys; assert sys.argv[1] == '{tmp_path}/scratch' or 'lustre' in open('{listed}').read()"
    mounting += f"; open('{listed}', 'a').write('{tmp_path}/scratch lustre 10.0.0.1@tcp:/abc\\n')"
    monkeypatch.setattr(mounts, "_ASK", mounting)
    found = mounts.mounts()["mounts"]
    assert [(one["mount"], one["kind"], one["problem"]) for one in found] == [(f"{tmp_path}/scratch", "lustre", None)]


def test_silent_server_is_reported_within_the_limit(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All mounts are tested in parallel, each with a time limit."""
    listed.write_text("/a lustre 1@tcp:/a\n/b nfs 2:/b\n")
    monkeypatch.setattr(mounts, "_ASK", "import time; time.sleep(60)")
    monkeypatch.setenv("GPUINFRA_MOUNT_ANSWER_S", "0.5")
    assert [one["problem"] for one in mounts.mounts()["mounts"]] == ["does not respond"] * 2


def test_missing_list_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If findmnt fails, no mounts are reported."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPrerequisite, match="findmnt"):
        mounts.mounts()
