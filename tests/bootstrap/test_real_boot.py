"""One real boot for the user data of each cloud: real systemd, cloud-init, dpkg and reboot, in a container of systemd-nspawn.

The machine is Debian, from debootstrap. Its cloud-init reads the user data from a NoCloud seed and has the bundle on its disk already:
`test_fetch.py` covers the download. The steps are those of a pool without GPUs. The vendors' units are real but for their commands,
which only take time.

Not shown here: steps that need a GPU, a fabric, a local disk, a file system or a vendor's repository (`test_real_apt.py` runs them
with real apt); a kernel of its own, because a container shares the host's, so 20-kernel finds packages that the test built and no
module is loaded; Ubuntu's image; the network, the metadata service and the identity of a cloud.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra import bundle
from tests.bootstrap.private_root.debs import Deb
from tests.bootstrap.private_root.root import PRETTY
from tests.bootstrap.test_boot_mounts import options
from tests.plan.pools import planned

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

MACHINES = {"aws": "m7i.xlarge", "azure": "Standard_D4s_v5", "gcp": "n2-standard-4"}
PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,cloud-init,python3,python3-cffi-backend,ca-certificates,curl,gnupg,kmod,pciutils,iproute2,"
    "apt-utils,nftables"
)
MIRROR = "http://deb.debian.org/debian"
SLOW_S = 6
"""Time that the vendors' services take at each boot, longer than the steps of a second boot."""
RESULT = "var/lib/boot-test"
REPORT = f"""#!/bin/bash
# Runs once the checks have ended, at each boot: the first one reboots, the second one powers off.
boot=/{RESULT}/$(ls /{RESULT} | grep -c '^boot')
mkdir -p /{RESULT}/boot-$(basename $boot)
cd /{RESULT}/boot-$(basename $boot)
for unit in gpuinfra-verify gpuinfra-bootstrap nvidia-cdi-refresh docker cloud-final; do
  systemctl show $unit.service -p Result,ExecMainStatus,ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic >$unit
done
systemctl show home.mount -p ActiveState,ActiveEnterTimestampMonotonic >home
systemctl --failed --no-legend --plain >failed
systemctl is-active gpuinfra-attest.timer >attest || true
cloud-init status --format json >cloud-init || true
journalctl -b --no-pager -o cat >journal
sync
if [[ $boot == */0 ]]; then systemctl reboot; else systemctl poweroff; fi
"""
REPORT_UNIT = """[Unit]
DefaultDependencies=no
After=gpuinfra-verify.service gpuinfra-attest.timer cloud-final.service
Conflicts=shutdown.target
[Service]
ExecStart=/bin/bash -c 'until systemctl show gpuinfra-verify.service -p ExecMainExitTimestampMonotonic | grep -q [1-9]; do sleep 1; done; exec /root/report'
[Install]
WantedBy=multi-user.target
"""
UNITS = json.loads(
    (Path(__file__).parents[2] / "rehearsal/gpuinfra_rehearsal/tools/units.json").read_text(encoding="utf-8")
)["units"]


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian that was never booted."""
    if os.geteuid() != 0:
        pytest.skip("systemd-nspawn needs root")
    for tool in ("systemd-nspawn", "debootstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    root = tmp_path_factory.mktemp("debian") / "root"
    words = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root), MIRROR]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0 and re.search(r"(?i)retrieving InRelease|couldn't download|failed getting", done.stdout):
        pytest.skip(f"debootstrap reaches no mirror: {done.stdout[-300:]}")
    assert done.returncode == 0, done.stdout[-2000:]
    yield root
    shutil.rmtree(root, ignore_errors=True)


def prepared(debian: Path, root: Path, cloud: str) -> None:
    """A disk with the user data of a pool, its bundle, a kernel package and the units of vendors."""
    subprocess.run(["cp", "-a", "--reflink=auto", str(debian), str(root)], check=True)
    pool = planned(cloud, MACHINES[cloud], "plain")
    # 10-prepare compares the image with the declared operating system.
    (root / "usr/lib/os-release").write_text(PRETTY[pool.image.os], encoding="utf-8")
    pool = replace(pool, steps=tuple(step for step in pool.steps if step.id != "80-scratch"))
    made = bundle.build(pool)
    folder = root / "opt/gpuinfra" / made.sha256
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(made.data)) as archive:
        archive.extractall(folder, filter="data")
    node = {
        "schema": "gpuinfra.node/1", "cloud": cloud, "cluster": "train", "pool": "gpu", "region": "r", "file_systems": [],
        "bundle": {"bucket": "b", "key": "k", "sha256": made.sha256},
    }  # fmt: skip
    seed = root / "var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True)
    (seed / "user-data").write_text(bundle.user_data(node), encoding="utf-8")
    (seed / "meta-data").write_text("instance-id: i-1\nlocal-hostname: gpu-1\n", encoding="utf-8")
    (root / "etc/cloud/cloud.cfg.d/99-test.cfg").write_text(
        "datasource_list: [NoCloud, None]\nnetwork: {config: disabled}\nlocale: false\n", encoding="utf-8"
    )
    kernel, family = os.uname().release, pool.versions["KERNEL_FLAVOUR"]
    debs = (
        Deb(f"linux-image-{kernel}", "1", files={f"/boot/vmlinuz-{kernel}": ""}),
        Deb(f"linux-headers-{kernel}", "1", files={f"/lib/modules/{kernel}/build/Makefile": ""}),
        Deb(f"linux-image-{family}", "1", f"linux-image-{kernel}"),
    )
    for deb in debs:
        deb.build(root / "root")
    _inside(root, "sh", "-c", "dpkg -i /root/*.deb")
    for name in ("nvidia-cdi-refresh.service", "docker.service", "containerd.service", "docker.socket"):
        text = "\n".join(UNITS[name])
        text = re.sub(r"(?m)^(Condition|TimeoutStart).*\n", "", text)
        if name.endswith(".service"):
            text = re.sub(r"(?m)^Type=.*$", "Type=oneshot\nRemainAfterExit=yes", text)
            text = re.sub(r"(?m)^(Restart|RestartSec)=.*\n", "", text)
            seconds = SLOW_S if name.startswith(("nvidia", "docker")) else 0
            text = re.sub(r"(?m)^ExecStart=.*$", f"ExecStart=/bin/sleep {seconds}", text)
        (root / "etc/systemd/system" / name).write_text(text + "\n", encoding="utf-8")
        _inside(root, "systemctl", "enable", name)
    # A file system in memory takes the place of the share; the options, and so the order, are those of home directories.
    (root / "etc/fstab").write_text(f"share /home tmpfs {options('nfs', '/home')} 0 0\n", encoding="utf-8")
    (root / "root/report").write_text(REPORT, encoding="utf-8")
    (root / "root/report").chmod(0o755)
    (root / "etc/systemd/system/report.service").write_text(REPORT_UNIT, encoding="utf-8")
    (root / RESULT).mkdir(parents=True)
    _inside(root, "systemctl", "enable", "report.service")


def _inside(root: Path, *words: str) -> None:
    done = subprocess.run(["chroot", str(root), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def shown(folder: Path, unit: str) -> dict[str, str]:
    """The properties of a unit at the end of a boot."""
    return dict(line.split("=", 1) for line in (folder / unit).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("cloud", MACHINES)
def test_a_real_boot_runs_the_user_data_and_all_steps(debian: Path, tmp_path: Path, cloud: str) -> None:
    """Two boots: the steps run once, after the homes are mounted, the checks follow every service, the reboot is no failure, and no unit fails."""
    root = tmp_path / "root"
    prepared(debian, root, cloud)
    words = ["systemd-nspawn", "-q", "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--boot"]
    said = ""
    for _ in range(2):  # with --keep-unit, systemd-nspawn ends with 133 when the machine reboots
        done = subprocess.run(
            [*words, f"--directory={root}"], capture_output=True, text=True, errors="replace", timeout=900, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said += done.stdout[-3000:] + done.stderr
    first, second = root / RESULT / "boot-0", root / RESULT / "boot-1"
    assert second.is_dir(), said
    state: dict[str, Any] = json.loads((root / "var/lib/gpuinfra/state.json").read_text(encoding="utf-8"))
    assert {step["status"] for step in state["steps"]} == {"done"}, state
    for folder in (first, second):
        journal = (folder / "journal").read_text(encoding="utf-8", errors="replace")
        assert "ordering cycle" not in journal
        assert "terminated by signal" not in journal
        verify = shown(folder, "gpuinfra-verify")
        started = int(verify["ExecMainStartTimestampMonotonic"])
        for unit in ("gpuinfra-bootstrap", "nvidia-cdi-refresh", "docker"):
            ended = int(shown(folder, unit)["ExecMainExitTimestampMonotonic"])
            assert 0 < ended <= started, (folder.name, unit)
        assert shown(folder, "gpuinfra-bootstrap")["Result"] == "success"
        home, begun = shown(folder, "home"), shown(folder, "gpuinfra-bootstrap")["ExecMainStartTimestampMonotonic"]
        assert home["ActiveState"] == "active"
        assert 0 < int(home["ActiveEnterTimestampMonotonic"]) <= int(begun)
        assert not any("home.automount" in line for line in journal.splitlines())
        assert (folder / "attest").read_text(encoding="utf-8") == "active\n"
        failed = {line.split()[0] for line in (folder / "failed").read_text(encoding="utf-8").splitlines()}
        # No metadata service answers here, so the checks end with this code: they have no identity.
        assert failed == {"gpuinfra-verify.service"}
        assert verify["ExecMainStatus"] == "3"
