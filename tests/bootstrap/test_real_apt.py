"""The real steps on real apt, dpkg, gpg and curl, in a private root (see `private_root/__init__.py`)."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.plan import make_plan
from gpuinfra.plan.model import PoolPlan, Step
from gpuinfra.spec import parse_spec

from .private_root.clouds import publish_clouds
from .private_root.root import PrivateRoot, base
from .private_root.vendors import Vendors

TODAY = date(2026, 11, 21)
KERNEL = "6.8.0-1040-aws"
GOLDEN = Path(__file__).parent / "golden"


PLACES = {
    "aws": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "azure": {"cloud": "azure", "region": "eastus"},
    "gcp": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"},
}


def pool_of(machine: str, os_name: str, *, lustre: bool = True, cloud: str = "aws") -> PoolPlan:
    """One pool on plain Ubuntu, where every step installs."""
    software = {"image": "plain", "os": os_name}
    if cloud == "gcp":
        software["registry"] = "us-central1-docker.pkg.dev/my-project/gpudirect"
    declared = {
        "name": "train",
        "where": PLACES[cloud],
        "software": software,
        "pools": [{"name": "gpu", "machine": machine, "capacity": [{"kind": "spot", "count": 1}]}],
    }
    if lustre:
        tier = {"aws": 250, "azure": 250, "gcp": 500}[cloud]
        storage = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 36000, "throughput_mb_s_per_tib": tier}
        declared["storage"] = [storage]
    return make_plan(parse_spec(declared), TODAY).pools[0]


class Bench:
    """Vendors and one machine."""

    def __init__(self, folder: Path, vendors: Vendors) -> None:
        self.folder = folder
        self.vendors = vendors
        self.base = base()

    def machine(
        self,
        machine: str = "p4d.24xlarge",
        os_name: str = "ubuntu-22.04",
        *,
        kernel: str = KERNEL,
        kernels: tuple[str, ...] = (KERNEL,),
        lustre: bool = True,
        cloud: str = "aws",
        lock: dict[str, str] | None = None,
        **published: object,
    ) -> PrivateRoot:
        """A freshly booted machine."""
        self.pool = pool_of(machine, os_name, lustre=lustre, cloud=cloud)
        self.versions = self.vendors.publish(lock or self.pool.versions, kernels, **published)  # type: ignore[arg-type]
        root = PrivateRoot(self.folder / "machine", self.base, self.vendors.url.partition("://")[2])
        root.prepare(self.pool, self.versions, kernel=kernel, ubuntu_ring=self.vendors.keys["ubuntu"].ring)
        self.vendors.asked.clear()
        return root


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Vendors' servers, and no machine yet."""
    base()
    with Vendors(tmp_path / "vendors") as vendors:
        yield Bench(tmp_path, vendors)


def compare(name: str, text: str, url: str) -> None:
    """With a golden file; GPUINFRA_WRITE_GOLDEN=1 writes it."""
    text = text.replace(url, "http://MIRROR")
    path = GOLDEN / name
    if os.environ.get("GPUINFRA_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


LONG = pytest.mark.long
MATRIX = [
    ("p4d.24xlarge", "ubuntu-22.04", True),
    pytest.param("p4d.24xlarge", "ubuntu-24.04", True, marks=LONG),
    pytest.param("p5.48xlarge", "ubuntu-22.04", True, marks=LONG),
    pytest.param("p5.48xlarge", "ubuntu-24.04", False, marks=LONG),
    pytest.param("p5en.48xlarge", "ubuntu-24.04", True, marks=LONG),
    pytest.param("p5.4xlarge", "ubuntu-22.04", False, marks=LONG),
]


@pytest.mark.parametrize(("machine", "os_name", "lustre"), MATRIX)
def test_a_plain_machine_becomes_what_the_plan_says(bench: Bench, machine: str, os_name: str, lustre: bool) -> None:
    """All steps on plain Ubuntu end in the golden state; apt then has nothing to upgrade; a second run changes nothing."""
    root = bench.machine(machine, os_name, lustre=lustre)
    code, said = root.steps()
    assert code == 0, said + root.read("var/log/gpuinfra/bootstrap.log")
    final = root.final()
    compare(f"final-{machine}-{os_name}{'' if lustre else '-no-lustre'}.txt", final, bench.vendors.url)
    code, said = root.run("apt-get", "-s", "dist-upgrade")
    assert "0 upgraded, 0 newly installed, 0 to remove" in said, said
    code, said = root.steps("--again")
    assert code == 0, said
    assert "none of them changed something" in said
    assert root.final() == final
    root.reboot()
    code, said = root.steps("--again")
    assert "none of them changed something" in said, said


AZURE = {
    "ubuntu-22.04": (
        "6.8.0-1034-azure",
        ("6.8.0-1034-azure", "5.15.0-1096-azure", "5.15.0-1098-azure", "6.8.0-1036-azure"),
    ),
    "ubuntu-24.04": ("6.14.0-1012-azure", ("6.14.0-1012-azure",)),
}
GOOGLE = {
    "ubuntu-22.04": ("6.8.0-1046-gcp", ("6.8.0-1046-gcp",)),
    "ubuntu-24.04": ("6.14.0-1021-gcp", ("6.14.0-1021-gcp",)),
}
"""Release -> the kernel that runs at first, and those that its archive has."""
CLOUDS = [
    ("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04"),
    pytest.param("azure", "Standard_ND96isr_H200_v5", "ubuntu-24.04", marks=LONG),
    pytest.param("azure", "Standard_ND96asr_v4", "ubuntu-22.04", marks=LONG),
    ("gcp", "a3-megagpu-8g", "ubuntu-24.04"),
    pytest.param("gcp", "a3-highgpu-8g", "ubuntu-22.04", marks=LONG),
    pytest.param("gcp", "a3-ultragpu-8g", "ubuntu-22.04", marks=LONG),
    pytest.param("gcp", "a4-highgpu-8g", "ubuntu-24.04", marks=LONG),
]


@pytest.mark.parametrize(("cloud", "machine", "os_name"), CLOUDS)
def test_a_plain_machine_of_another_cloud_becomes_what_the_plan_says(
    bench: Bench, cloud: str, machine: str, os_name: str
) -> None:
    """Kernel line, InfiniBand, TCPXO, gIB, subnet manager and Lustre client end in the golden state, whatever has to reboot first."""
    kernel, kernels = (AZURE if cloud == "azure" else GOOGLE)[os_name]
    root = bench.machine(machine, os_name, kernel=kernel, kernels=kernels, cloud=cloud)
    code, said = root.steps()
    while code == 194:
        root.reboot()
        code, said = root.steps()
    assert code == 0, said + root.read("var/log/gpuinfra/bootstrap.log")
    final = root.final()
    compare(f"final-{machine}-{os_name}.txt", final, bench.vendors.url)
    code, said = root.run("apt-get", "-s", "dist-upgrade")
    assert "0 upgraded, 0 newly installed, 0 to remove" in said, said
    root.reboot()
    code, said = root.steps("--again")
    assert code == 0, said
    assert "none of them changed something" in said, said
    assert root.final() == final


def test_gdrcopy_is_taken_by_checksum_where_the_lock_names_its_packages(bench: Bench) -> None:
    """Installed at its pin from files that are in no repository, recorded, and left alone by a second run."""
    root = bench.machine(lustre=False)
    pin = {"GDRCOPY_VERSION": "2.5.1", "GDRCOPY_RANGE_MIN": "2.4", "GDRCOPY_RANGE_MAX": "3"}
    pin |= publish_clouds(bench.vendors, {**bench.versions, **pin}, (KERNEL,))
    order = ["10-prepare", "20-kernel", "55-gdrcopy"]
    pool = replace(bench.pool, steps=tuple(Step(id=name, timeout_s=60, retries=0, why="") for name in order))
    root.bundle(pool, {**bench.versions, **pin})
    code, said = root.steps()
    assert code == 0, said + root.read("var/log/gpuinfra/bootstrap.log")
    assert root.state["recorded"]["gdrcopy"] == "2.5.1"
    code, said = root.steps("--again")
    assert "none of them changed something" in said, said


@pytest.mark.long
def test_azure_without_a_lustre_client_for_the_kernel_names_those_that_have_one(bench: Bench) -> None:
    """Where one name holds all clients by version, the message names the kernels all the same."""
    kernels = ("5.15.0-1096-azure", "5.15.0-1098-azure", "6.8.0-1034-azure")
    root = bench.machine("Standard_NC24ads_A100_v4", kernel=kernels[0], kernels=kernels, cloud="azure")
    name = bench.versions["LUSTRE_PACKAGES"].partition("=")[0]
    publish_clouds(bench.vendors, bench.versions, kernels[1:])
    code, said = root.steps()
    assert code == 1, said
    assert f"no Lustre client for kernel {kernels[0]}; it has {kernels[1]}" in said
    assert name not in root.run("dpkg-query", "-W")[1]


def test_a_kernel_that_left_the_mirror_is_replaced(bench: Bench) -> None:
    """Without headers for the running kernel the newest one is installed, with its headers, before anything is built."""
    old = "6.8.0-1031-aws"
    root = bench.machine(kernel=old, kernels=(old, KERNEL), headers=(KERNEL,), lustre=False)
    code, said = root.steps()
    assert code == 194, said
    assert f"no repository has headers for kernel {old} any more" in said
    root.reboot(kernel=KERNEL)
    code, said = root.steps()
    assert code == 0, said
    assert root.state["recorded"]["kernel"] == KERNEL
    assert f"nvidia/{bench.versions['DRIVER_VERSION']}, {KERNEL}, x86_64: installed" in root.read("var/lib/dkms/status")


def test_a_kernel_without_lustre_is_refused_with_the_known_ones(bench: Bench) -> None:
    """The vendor has no client for the running kernel: one message names the kernels that it has, without a retry."""
    root = bench.machine(with_lustre=("6.8.0-1036-aws", "6.8.0-1039-aws"))
    code, said = root.steps()
    assert code == 1
    assert f"no Lustre client for kernel {KERNEL}; it has 6.8.0-1036-aws 6.8.0-1039-aws" in said
    assert "again in" not in said


def test_a_repository_signed_by_a_stranger_is_not_used(bench: Bench) -> None:
    """NVIDIA's repository with another signature: apt refuses, the step fails, nothing of it is installed."""
    root = bench.machine(lustre=False, signer="stranger")
    code, said = root.steps()
    assert code == 1
    assert "30-driver failed" in said
    assert "nvidia-open" not in root.run("dpkg-query", "-W", "-f", "${Package}\\n")[1]


def test_a_keyring_with_another_checksum_is_not_installed(bench: Bench) -> None:
    """The package that brings NVIDIA's key is taken by checksum or not at all."""
    root = bench.machine(lustre=False)
    bench.vendors._put(
        "developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb", b"evil"
    )
    code, said = root.steps()
    assert code == 1
    assert "but the lock says" in said
    assert "cuda-keyring" not in root.run("dpkg-query", "-W", "-f", "${Package}\\n")[1]


def test_a_swapped_signing_key_is_refused(bench: Bench) -> None:
    """EFA's installer with another key and a signature that fits it: refused by the fingerprint, never run."""
    root = bench.machine(lustre=False)
    stranger = bench.vendors.keys["stranger"]
    version = bench.versions["EFA_INSTALLER_VERSION"]
    tarball = bench.folder / f"vendors/web/efa-installer.amazonaws.com/aws-efa-installer-{version}.tar.gz"
    stranger.sign("--detach-sign", source=tarball, target=tarball.with_name(tarball.name + ".sig"))
    bench.vendors._put("efa-installer.amazonaws.com/aws-efa-installer.key", stranger.public)
    code, said = root.steps()
    assert code == 1
    assert "50-efa failed" in said
    assert bench.versions["EFA_INSTALLER_KEY_FINGERPRINT"] in said
    assert root.run("test", "-e", "/opt/amazon")[0] != 0


@pytest.mark.long
def test_servers_in_trouble_are_waited_for(bench: Bench) -> None:
    """Every third answer is 503, and the run completes all the same."""
    root = bench.machine(lustre=False)
    chance = random.Random(3)
    bench.vendors.troubles.append(lambda _: 503 if chance.random() < 0.15 else None)
    code, said = root.steps()
    assert code == 0, said


@pytest.mark.long
def test_without_a_network_the_reason_is_clear_and_a_later_run_goes_on(bench: Bench) -> None:
    """A repository that answers 503 for good fails the step with its name; when it is back the next run goes on there."""
    root = bench.machine(lustre=False)
    bench.vendors.troubles.append(lambda path: 503 if "cuda-toolkit" in path else None)
    code, said = root.steps()
    assert code == 1
    assert "40-cuda failed" in said
    assert "installing cuda-toolkit-13-0 failed" in said
    bench.vendors.troubles.clear()
    code, said = root.steps()
    assert code == 0, said
    assert "30-driver" not in said


@pytest.mark.long
def test_half_configured_packages_are_finished(bench: Bench) -> None:
    """dpkg killed between unpacking and configuring: the next run finishes what apt itself would refuse to build on."""
    root = bench.machine(lustre=False)
    root.steps()
    root.run("bash", "-c", "cd /tmp && apt-get -qq download libnccl2 && dpkg --force-all --unpack *.deb", check=True)
    assert root.run("dpkg", "--audit")[1] != ""
    code, said = root.steps("--again")
    assert code == 0, said
    assert root.run("dpkg", "--audit")[1] == ""


def test_a_package_cut_off_from_what_it_needs_is_finished(bench: Bench) -> None:
    """Unpacked without its dependency, which configuring alone cannot mend: apt brings what is missing."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    cut = "dpkg --force-all --purge dkms && cd /tmp && apt-get -qq download nvidia-dkms-open && dpkg --unpack *.deb"
    root.run("bash", "-c", f"apt-mark unhold nvidia-dkms-open && {cut}", check=True)
    assert root.run("dpkg", "--configure", "-a")[0] != 0
    code, said = root.steps("--again")
    assert code == 0, said
    assert root.run("dpkg", "--audit")[1] == ""


def test_a_package_that_was_unpacked_in_part_is_unpacked_again(bench: Bench) -> None:
    """dpkg killed while it unpacked: apt's own repair leaves such a package, so it is named and installed anew."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    torn = "/^Package: mdadm$/,/^$/s/^Status: .*/Status: install reinstreq half-installed/"
    root.run("sed", "-i", torn, "/var/lib/dpkg/status", check=True)
    assert "mdadm" in root.run("dpkg", "--audit")[1]
    code, said = root.steps("--again")
    assert code == 0, said
    assert root.run("dpkg", "--audit")[1] == ""


def test_a_driver_outside_the_range_is_refused(bench: Bench) -> None:
    """A machine that brings another driver is not rebuilt in place: the message names version, range and ways out."""
    root = bench.machine(lustre=False)
    root.write(f"usr/lib/modules/{KERNEL}/extra/nvidia.ko", f"version: 535.309.01\nvermagic: {KERNEL} SMP\n")
    code, said = root.steps()
    assert code == 1
    assert "driver 535.309.01 is installed, the lock accepts" in said
    assert "image: plain" in said


@pytest.mark.long
def test_what_an_image_brings_inside_the_range_is_kept(bench: Bench) -> None:
    """A machine with an older accepted driver: proven, recorded, held; nothing is downloaded and nothing reboots."""
    pool = pool_of("p4d.24xlarge", "ubuntu-22.04")
    older = {**pool.versions, "DRIVER_VERSION": "580.126.20", "NCCL_VERSION": "2.27.5-1+cuda12.9"}
    root = bench.machine(lock=older)
    assert root.steps()[0] == 0
    root.run("rm", "-rf", "/var/lib/gpuinfra", check=True)
    root.bundle(pool, {**bench.versions, "DRIVER_VERSION": "580.173.02", "NCCL_VERSION": pool.versions["NCCL_VERSION"]})
    bench.vendors.asked.clear()
    code, said = root.steps()
    assert code == 0, said
    assert "none of them changed something" in said
    assert bench.vendors.asked == []
    assert root.state["recorded"]["driver"] == "580.126.20"
    assert root.state["recorded"]["fabric_manager"] == "580.126.20"


@pytest.mark.long
def test_a_wrong_clock_is_named(bench: Bench) -> None:
    """A clock a year behind is named as what it is, before certificates fail in odd words."""
    root = bench.machine(lustre=False)
    date_tool = '#!/bin/sh\ncase "$*" in "-u +%s") echo 1700000000 ;; *) exec /bin/date "$@" ;; esac\n'
    root.write("opt/standin/date", date_tool)
    (root.folder / "upper/opt/standin/date").chmod(0o755)
    code, said = root.steps()
    assert code == 1
    assert "the clock says 2023-11-14, before the software lock of" in said


@pytest.mark.long
def test_too_little_room_is_named_before_anything_is_fetched(bench: Bench) -> None:
    """A disk that is too small fails the first step, and no vendor was asked."""
    root = bench.machine(lustre=False)
    root.bundle(bench.pool, {**bench.versions, "ROOT_FREE_GIB": "900000"})
    code, said = root.steps()
    assert code == 1
    assert "driver and toolkit need 900000 GiB" in said
    assert bench.vendors.asked == []


@pytest.mark.long
def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    """A dry run on a plain machine names what every step would do, and leaves packages and files as they are."""
    root = bench.machine()
    before = root.run("bash", "-c", "dpkg-query -W; find /etc /opt /usr -newer /etc/standin/kernel -type f")[1]
    code, said = root.steps("--dry-run")
    assert code == 0, said
    for text in (
        "30-driver: would install nvidia-open",
        "50-efa: would run EFA installer",
        "60-lustre: would mount /scratch",
    ):
        assert text in said
    assert root.run("bash", "-c", "dpkg-query -W; find /etc /opt /usr -newer /etc/standin/kernel -type f")[1] == before


def cut_power(root: PrivateRoot, seed: int) -> None:
    """Kill everything inside at random moments, then run to the end."""
    chance = random.Random(seed)
    for _ in range(3):
        process = root.start(
            "python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot", "--retry-pause-s", "0.1"
        )
        time.sleep(chance.uniform(0.3, 5.0))
        process.kill()
        process.communicate()
    code, said = root.steps()
    assert code == 0, said + root.read("var/log/gpuinfra/bootstrap.log")


@pytest.mark.long
def test_a_power_cut_in_the_middle_of_apt_is_survived(bench: Bench) -> None:
    """Killed at random moments, also inside dpkg, the next run ends in the same golden state."""
    root = bench.machine()
    cut_power(root, 1)
    compare("final-p4d.24xlarge-ubuntu-22.04.txt", root.final(), bench.vendors.url)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_fifty_power_cuts(bench: Bench, seed: int) -> None:
    """The same from fifty more seeds."""
    root = bench.machine()
    cut_power(root, seed + 100)
    compare("final-p4d.24xlarge-ubuntu-22.04.txt", root.final(), bench.vendors.url)


@pytest.mark.long
def test_a_disk_that_fills_up_during_apt_is_named_and_mended(bench: Bench) -> None:
    """No room for the packages: the step fails with apt's reason, the journal stays whole, and with room the run completes."""
    root = bench.machine(lustre=False)
    fill = (
        'mount -t tmpfs -o size=4k tmpfs /var/cache/apt/archives && mkdir /var/cache/apt/archives/partial && exec "$@"'
    )
    steps = ("python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot", "--retry-pause-s", "0.1")
    code, said = root.run("/usr/bin/bash", "-c", fill.replace("mount ", "/usr/bin/mount "), "-", *steps)
    assert code == 1
    assert re.search(r"failed: installing .* free space in /var/cache/apt/archives/", said), said
    assert {entry["status"] for entry in root.state["steps"]} <= {"done", "failed", "pending"}
    code, said = root.steps()
    assert code == 0, said
    assert "cuda-toolkit-13-0" in root.run("apt-mark", "showhold")[1]
