"""The steps that mount buckets and the unit that they write, at a file system in user space whose process ended."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

MOUNT = """\
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
source, kind = os.environ["SHOWN"].encode().split()
if libc.mount(source, sys.argv[1].encode(), kind, 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
os.close(device)  # the kernel ends the connection, as when the process ends
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
HARNESS = """\
dry_run() { false; }
would() { false; }
put_file() { false; }
at_boot() { :; }
changed() { echo "changed: $*"; }
die() { echo "died: $*"; exit 1; }
systemctl() { echo "systemctl $*"; }
ls() { echo listed; exit 9; }
"""


SHOWN = {
    "85-gcsfuse": "corpus fuse.gcsfuse",
    "85-mountpoint-s3": "mountpoint-s3 fuse",
    "85-blobfuse2": "blobfuse2 fuse",
}
"""Step -> source and type in the list of mounts."""


@pytest.fixture(params=SHOWN)
def script(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The step with its libraries, to be sourced: it does not run, and functions replace what changes the machine."""
    for name in ("lib.sh", "lib-mounts.sh", "lib-buckets.sh", "lib-downloads.sh", "lib-packages.sh", "lib-images.sh"):
        shutil.copy(shipped("bootstrap") / name, tmp_path / name)
    monkeypatch.setenv("SHOWN", SHOWN[request.param])
    text = (shipped("bootstrap") / f"{request.param}.sh").read_text(encoding="utf-8")
    assert text.endswith('main "$@"\n')
    path = tmp_path / "step.sh"
    path.write_text(text.removesuffix('main "$@"\n') + HARNESS + '"$@"\n', encoding="utf-8")
    return path


def at_dead_mount(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command at a mount whose process ended, in namespaces of its own."""
    folder.mkdir(exist_ok=True)
    words = ["unshare", "-rm", sys.executable, "-c", MOUNT, str(folder)]
    probe = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this machine mounts no file system in user space: {probe.stderr.strip()}")
    return subprocess.run([*words, *command], capture_output=True, text=True, check=False)


def test_a_dead_mount_is_what_users_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount of these tests has the error of Cloud Storage FUSE whose process ended, and mkdir fails on it."""
    monkeypatch.setenv("SHOWN", SHOWN["85-gcsfuse"])
    said = at_dead_mount(tmp_path / "data", "mkdir", "-p", str(tmp_path / "data"))
    assert said.returncode != 0
    assert "Transport endpoint is not connected" in said.stderr


def test_the_step_unmounts_a_dead_mount_and_mounts_again(tmp_path: Path, script: Path) -> None:
    """With `--again`, the step replaces the mount instead of failing at mkdir."""
    data = tmp_path / "data"
    run = 'bash "$0" mount_bucket data-0 "$1" ro 0 corpus && ! findmnt "$1" && stat "$1"'
    said = at_dead_mount(data, "bash", "-c", run, str(script), str(data))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "systemctl start gpuinfra-bucket-data-0.service\n" in said.stdout
    assert f"changed: mounted the bucket corpus at {data}\n" in said.stdout


def test_the_unit_unmounts_a_dead_mount_before_it_mounts(tmp_path: Path, script: Path) -> None:
    """ExecStartPre= and ExecStop= free a mount point that a process uses and whose file system is dead; the unit survives a shortage of memory."""
    data = tmp_path / "data"
    made = subprocess.run(
        ["bash", str(script), "unit_text", str(data), "ro", "0", "corpus", "", "/etc/one.yaml"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\nOOMScoreAdjust=-500\n" in made.stdout
    assert "\nRestart=on-failure\n" in made.stdout
    for key in ("ExecStartPre", "ExecStop"):
        (command,) = re.findall(rf"(?m)^{key}=-(.*)$", made.stdout)
        said = at_dead_mount(data, "bash", "-c", f"{command} && stat {data}")
        assert said.returncode == 0, said.stderr
        # The namespace ends with the command, so this mount is busy but not dead.
        busy = f"mount -t tmpfs none {data}; exec 3>{data}/held; ! umount {data} && {command} && ! mountpoint -q {data}"
        said = subprocess.run(["unshare", "-rm", "bash", "-c", busy], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(("place", "reason"), [("bucket", ""), ("file", "Not a directory")])
def test_the_step_looks_up_a_name_and_does_not_list_the_bucket(tmp_path: Path, script: Path, place: str, reason: str) -> None:  # fmt: skip
    """A missing name is an answer of the bucket; another error fails the step with its reason."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "file").touch()
    fakes = 'shows_bucket() { true; }\nfindmnt() { echo ro,nosuid; }\n"$@"\n'
    script.write_text(script.read_text(encoding="utf-8").removesuffix('"$@"\n') + fakes, encoding="utf-8")
    words = ["bash", str(script), "prove_bucket", "data-0", str(tmp_path / place), "ro", "corpus"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    expected = f"died: a name in {tmp_path / place} cannot be looked up: {reason}\n" if reason else ""
    assert (said.stdout, said.returncode) == (expected, 1 if reason else 0), said.stderr


CONFIGURATION = """\
read-only: {read_only}
allow-other: true
default-working-dir: /run/gpuinfra-blobfuse2
logging:
  type: syslog
  level: log_warning
components:
  - libfuse
  - {cache}
  - attr_cache
  - azstorage
libfuse:
  attribute-expiration-sec: 30
  entry-expiration-sec: 30
  negative-entry-expiration-sec: 5
{settings}attr_cache:
  timeout-sec: 30
azstorage:
  account-name: corpora
  container: text
  endpoint: https://corpora.blob.core.windows.net
  mode: msi
  max-retries: 3
  appid: 00000000-0000-4c00-8000-000000000001
"""
ON_DISK = """\
file_cache:
  path: /mnt/nvme/gpuinfra-buckets/data-0
  max-size-mb: 102400
  timeout-sec: 86400
  refresh-sec: 30
  cleanup-on-start: true
"""
IN_MEMORY = """\
block_cache:
  block-size-mb: 16
  mem-size-mb: 2048
  prefetch: 12
"""


@pytest.mark.parametrize("script", ["85-blobfuse2"], indirect=True)
@pytest.mark.parametrize(
    ("mode", "cache", "folder"), [("ro", "100", "/mnt/nvme/gpuinfra-buckets/data-0"), ("rw", "0", "")]
)
def test_blobfuse_has_a_configuration_without_secrets(script: Path, mode: str, cache: str, folder: str) -> None:
    """The configuration has the account, the container, the identity of the nodes, the mode, and a cache on the local disks or in memory."""
    node = {
        **os.environ,
        "GPUINFRA_FILE_SYSTEMS": "lustre /scratch a b\nobject /data corpora.blob.core.windows.net text",
        "GPUINFRA_CLIENT_ID": "00000000-0000-4c00-8000-000000000001",
    }
    words = ["bash", str(script), "client_config", "/data", mode, cache, "text", folder]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=node)
    assert said.stdout == CONFIGURATION.format(
        read_only="true" if mode == "ro" else "false",
        cache="file_cache" if folder else "block_cache",
        settings=ON_DISK if folder else IN_MEMORY,
    )


@pytest.mark.parametrize("script", ["85-blobfuse2"], indirect=True)
def test_the_cause_of_blobfuse_is_its_last_error(script: Path) -> None:
    """The journal also has lines of the log, which are not the cause (output of Azure/azure-storage-fuse issue 2244)."""
    error = "failed to initialize new pipeline [failed to authenticate azstorage credentials with error [BlockBlob::TestPipeline : [AuthorizationFailure]]]"
    journal = f"LOG_ERR [azstorage.go (161)]: AzStorage::configureAndTest : Failed\nError: {error}\nStopped.\n"
    said = subprocess.run(
        ["bash", str(script), "mount_cause"], input=journal, capture_output=True, text=True, check=True
    )
    assert said.stdout == error + "\n"
