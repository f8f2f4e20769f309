"""What users plant in folders in which they can write: no file of theirs decides what root writes, reads or runs."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.node import pair
from gpuinfra.node.console import MissingPrerequisite

ROOT = Path(__file__).parents[2]
STEPS = shipped("bootstrap")
LIBRARY = r"""
set -euo pipefail
die() { printf '%s\n' "$*" >&2; exit 1; }
dry_run() { return 1; }
would() { return 1; }
changed() { :; }
. "$STEPS/lib-mounts.sh"
"""


def bash(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run functions of the steps."""
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "STEPS": str(STEPS)}
    command = ["bash", "-c", LIBRARY + script, "bash", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that only root should change."""
    path = tmp_path / "victim"
    path.write_text("precious\n")
    return path


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "file"])
def test_proof_of_a_mount_writes_only_a_new_file(tmp_path: Path, victim: Path, kind: str) -> None:
    """Even a user who knows the name of the file cannot redirect the write. The step fails, and does not say that the mount is proved."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    planted = folder / ".gpuinfra-known"
    {"link": lambda: planted.symlink_to(victim), "hard link": lambda: os.link(victim, planted),
     "pipe": lambda: os.mkfifo(planted), "file": lambda: planted.write_text("theirs\n")}[kind]()  # fmt: skip
    done = bash('new_word() { printf known; }; source_of() { printf server; }; prove_mount lustre "$1" server', folder)
    assert (done.returncode, victim.read_text()) == (1, "precious\n")
    assert "does not accept a write" in done.stderr


def test_proof_of_a_mount_has_a_name_that_nobody_can_guess(tmp_path: Path) -> None:
    """A mount that accepts a write is proved, no file remains, and each run uses another name."""
    names = set()
    for _ in range(2):
        done = bash('rm() { printf "%s\\n" "$3"; command rm "$@"; }; prove_write "$1"', tmp_path)
        assert done.returncode == 0, done.stderr
        names.add(done.stdout)
    assert len(names) == 2
    assert all(re.fullmatch(r".*/\.gpuinfra-[0-9a-f]{32}\n", name) for name in names)
    assert list(tmp_path.iterdir()) == []


def test_proof_of_a_mount_does_not_read_through_a_link(tmp_path: Path, victim: Path) -> None:
    """A user who replaces the file between the write and the read gains nothing."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    swap = (
        'dd() { command dd "$@" && { [[ $1 != of=* ]] || ln -sf "$victim" "${1#of=}"; }; }; victim=$2; prove_write "$1"'
    )
    done = bash(swap, folder, victim)
    assert done.returncode == 1
    assert "differs from the written data" in done.stderr
    assert "precious" not in done.stdout + done.stderr


def test_home_is_not_copied_through_a_link(tmp_path: Path) -> None:
    """A user who replaces the new folder by a link to a folder of root changes nothing in it."""
    source, homes, precious = (tmp_path / name for name in ("source", "homes", "precious"))
    for folder in (source, homes, precious):
        folder.mkdir()
    (source / "profile").write_text("text")
    (precious / "keys").write_text("precious")
    done = bash('mktemp() { command ln -s "$precious" "$homes/.x"; '
                'printf "%s\\n" "$homes/.x"; }; homes=$2 precious=$3; copy_folder "$1" "$2/alice"', source, homes, precious)  # fmt: skip
    assert done.returncode == 1
    assert "another program replaced" in done.stderr
    assert [path.name for path in precious.iterdir()] == ["keys"]


def test_home_is_copied_with_its_mode(tmp_path: Path) -> None:
    """Without a planted link, the folder is copied, and no draft remains."""
    source, homes = tmp_path / "source", tmp_path / "homes"
    source.mkdir(mode=0o711)
    homes.mkdir()
    (source / "profile").write_text("text")
    done = bash('copy_folder "$1" "$2/alice"', source, homes)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in homes.iterdir()] == ["alice"]
    assert (homes / "alice").stat().st_mode & 0o777 == 0o711
    assert (homes / "alice" / "profile").read_text() == "text"


def test_home_of_a_user_is_closed_to_others(tmp_path: Path) -> None:
    """With an owner, the copy belongs to the owner, and other users cannot read it."""
    source, homes = tmp_path / "source", tmp_path / "homes"
    source.mkdir(mode=0o755)
    homes.mkdir()
    owner = pwd.getpwuid(os.getuid()).pw_name
    done = bash('copy_folder "$1" "$2/alice" "$3"', source, homes, owner)
    assert done.returncode == 0, done.stderr
    assert (homes / "alice").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("planted", ["", "parent", "folder"])
def test_cache_of_a_bucket_is_in_a_folder_of_root(tmp_path: Path, planted: str) -> None:
    """The unit of a bucket does not use a folder that a user prepared on the local disks."""
    text = (STEPS / "lib-buckets.sh").read_text()
    (line,) = re.findall(r'cache="ExecStartPre=(.*)"\n', text)
    parent = tmp_path / "gpuinfra-buckets"
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    other.chmod(0o755)
    if planted == "parent":
        parent.symlink_to(other)
    elif planted == "folder":
        parent.mkdir(0o700)
        (parent / "data-0").symlink_to(other)
    command = (
        line.replace("\\$", "$").replace("${5%/*}", str(parent)).replace('$(client_folders "$5")', f"{parent}/data-0")
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode == 0) == (not planted), done.stderr
    assert (list(other.iterdir()), other.stat().st_mode & 0o777) == ([], 0o755)
    if planted:
        assert "is not a folder of root" in done.stderr
    else:
        assert (parent / "data-0").stat().st_mode & 0o777 == 0o700


def test_shared_scratch_gets_the_sticky_bit(tmp_path: Path) -> None:
    """In a folder that every user can write, users cannot replace the folders of root."""
    body = (STEPS / "80-scratch.sh").read_text()
    (function,) = re.findall(r"^keep_folders\(\) \{.*?^\}", body, re.MULTILINE | re.DOTALL)
    for mode, expected in ((0o777, 0o1777), (0o755, 0o755), (0o1777, 0o1777)):
        tmp_path.chmod(mode)
        assert bash(function + '\nkeep_folders "$1"', tmp_path).returncode == 0
        assert tmp_path.stat().st_mode & 0o7777 == expected


@pytest.mark.parametrize("planted", ["store", "owner", "file"])
def test_rendezvous_of_a_pair_follows_no_link(tmp_path: Path, victim: Path, planted: str) -> None:
    """Root exchanges the rendezvous of `gpuinfra pairs` in a shared folder. A link in it is not followed when it writes or reads."""
    store, elsewhere = tmp_path / "shared" / ".gpuinfra-pairs", tmp_path / "elsewhere"
    store.parent.mkdir()
    (elsewhere / "vm-0").mkdir(parents=True)
    folder = pair.RendezvousFolder(store)
    if planted == "store":
        store.symlink_to(elsewhere)
    elif planted == "owner":
        store.mkdir()
        (store / "vm-0").symlink_to(elsewhere)
    else:
        (store / "vm-0").mkdir(parents=True)
        (store / "vm-0" / "r-0.json").symlink_to(victim)
        with pytest.raises(OSError, match="symbolic links"):
            folder.get("vm-0", "r-0.json")
        folder.put("vm-0", "r-0.json", b"ours")
        assert (victim.read_text(), folder.get("vm-0", "r-0.json")) == ("precious\n", b"ours")
        return
    with pytest.raises(MissingPrerequisite, match="is not a folder of this program"):
        folder.put("vm-0", "r-0.json", b"ours")
    assert [*elsewhere.rglob("*.json"), *elsewhere.glob(".r-*")] == []


OF_ROOT = {
    "$draft": "a file of mktemp in a folder that only root can change (rule file_path_is_free)",
    "$path.gpuinfra-new": "files below /etc",
    "$GPUINFRA_REPORT": "the runner's file below /run",
    "$GPUINFRA_UNFINISHED": "the runner's file below /var/lib/gpuinfra",
    "$OWN_FINISHED.new": "the runner's file below /var/lib/gpuinfra",
    "$CREATED": "a file below /var/lib/gpuinfra",
    "$mark": "a file below /opt/gpuinfra-monitoring",
    "$LIBRARIES/.gpuinfra": "a file below /usr/local or /var/lib",
    "$LIBRARIES/nccl-env-profile.sh": "a file below /usr/local or /var/lib",
}
"""Each variable path that a step writes with a redirection, and why no user can write in its folder."""


def test_every_redirection_of_a_step_is_into_a_folder_of_root() -> None:
    """A step that writes elsewhere uses `prove_write` or `copy_folder`, which follow no link."""
    found = set()
    for script in sorted(STEPS.glob("*.sh")):
        found |= set(re.findall(r'>{1,2} ?"(\$[^"]+)"', script.read_text()))
    assert found == set(OF_ROOT)
