"""systemd's own generator reads the lines that the steps write to /etc/fstab."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

from .test_units import ANALYZE, OURS, verified

GENERATOR = Path("/usr/lib/systemd/system-generators/systemd-fstab-generator")
LIBRARY = shipped("bootstrap") / "lib-mounts.sh"
EARLY = [
    ("nfs", "/home"), ("nfs", "/tools"), ("nfs", "/data/homes"), ("lustre", "/home"), ("lustre", "/home/shared"), ("lustre", "/srv/data"),
]  # fmt: skip
pytestmark = pytest.mark.skipif(not GENERATOR.exists(), reason="systemd-fstab-generator is not installed")


def options(kind: str, mount: str) -> str:
    """The options that `boot_options` prints."""
    words = ["bash", "-c", f'. "{LIBRARY}"; boot_options "$@"', "-", kind, mount]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def generated(folder: Path, kind: str, mount: str, more: str = "") -> dict[str, str]:
    """The units that systemd generates for a line of fstab, by name."""
    fstab, units = folder / "fstab", folder / "units"
    fstab.write_text(f"server:/x {mount} {kind} {options(kind, mount)}{more} 0 0\n", encoding="utf-8")
    for name in ("units", "early", "late"):
        (folder / name).mkdir()
    words = [str(GENERATOR), str(units), str(folder / "early"), str(folder / "late")]
    subprocess.run(words, check=True, env={"SYSTEMD_FSTAB": str(fstab), "PATH": "/usr/bin:/bin"})
    return {path.name: path.read_text(encoding="utf-8") for path in units.iterdir() if path.is_file()}


def unit_name(mount: str, kind: str) -> str:
    """`/home/x` as `home-x.mount`."""
    return f"{mount.strip('/').replace('/', '-')}.{kind}"


@pytest.mark.parametrize(("kind", "mount"), EARLY)
def test_nothing_blocks_early_boot(tmp_path: Path, kind: str, mount: str) -> None:
    """Home directories, and Lustre at paths that early services access, have no automount;
    they are mounted after the network and before logins, steps and checks."""
    units = generated(tmp_path, kind, mount)
    assert list(units) == [unit_name(mount, "mount")]
    text = units[unit_name(mount, "mount")]
    before = set(re.findall(r"[\w-]+\.\w+", " ".join(re.findall(r"(?m)^Before=(.*)$", text))))
    assert before == {"remote-fs.target", "gpuinfra-bootstrap.service", "gpuinfra-verify.service"}
    assert "\nAfter=network-online.target\nRequires=network-online.target\n" in text


def test_lustre_elsewhere_is_mounted_on_first_access(tmp_path: Path) -> None:
    """The path of a Lustre file system that no early service accesses has an automount, as the clouds document it."""
    assert sorted(generated(tmp_path, "lustre", "/scratch")) == ["scratch.automount", "scratch.mount"]


@pytest.mark.parametrize(("kind", "mount"), [*EARLY, ("lustre", "/scratch")])
def test_only_nfs_has_nofail(kind: str, mount: str) -> None:
    """mount.lustre passes nofail to the kernel, which refuses unknown options; a mount of NFS must not stop the boot."""
    assert ("nofail" in options(kind, mount).split(",")) == (kind == "nfs")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_mounts_make_no_ordering_cycle(tmp_path: Path) -> None:
    """With the units of nodes and vendors, systemd finds no cycle around the mount of homes through the TLS proxy."""
    units = generated(tmp_path, "nfs", "/home", ",x-systemd.after=gpuinfra-home-tls.service")
    assert "After=gpuinfra-home-tls.service\n" in units["home.mount"]
    assert "Requires=gpuinfra-home-tls.service" not in units["home.mount"]
    folder = tmp_path / "all"
    shutil.copytree(tmp_path / "units", folder, symlinks=True)
    # A cycle shows only among units that start together, as they do at boot.
    together = ["home.mount", "remote-fs.target", *(name for name in OURS if name.endswith(".service"))]
    (folder / "boot.target").write_text(f"[Unit]\nRequires={' '.join(together)}\n", encoding="utf-8")

    def cycles() -> list[str]:
        lines, _ = verified(folder, ["boot.target", "home.mount"], "yes")
        return [line for line in lines if "ordering cycle" in line]

    assert cycles() == []
    text = units["home.mount"].replace("[Unit]", "[Unit]\nAfter=gpuinfra-verify.service", 1)
    (folder / "home.mount").write_text(text, encoding="utf-8")
    assert cycles()
