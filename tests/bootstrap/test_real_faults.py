"""The real steps on real apt, dpkg, gpg and curl when vendors, disks, clocks, networks and power fail: a clear reason, and a run that continues."""

from __future__ import annotations

import json
import random
import re
import time

import pytest

from .private_root.bench import KERNEL, Bench, compare, pool_of
from .private_root.root import PrivateRoot


def test_repository_with_another_signature_is_not_used(bench: Bench) -> None:
    """apt refuses NVIDIA's repository, the step fails, and nothing of it is installed."""
    root = bench.machine(lustre=False, signer="stranger")
    code, output = root.steps()
    assert code == 1
    assert "30-driver failed" in output
    assert "nvidia-open" not in root.run("dpkg-query", "-W", "-f", "${Package}\\n")[1]


def test_keyring_with_another_checksum_is_not_installed(bench: Bench) -> None:
    """The package with NVIDIA's key is installed only with the right checksum."""
    root = bench.machine(lustre=False)
    bench.vendors._put(
        "developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb", b"evil"
    )
    code, output = root.steps()
    assert code == 1
    assert "but the lock requires" in output
    assert "cuda-keyring" not in root.run("dpkg-query", "-W", "-f", "${Package}\\n")[1]


def test_replaced_signing_key_is_refused(bench: Bench) -> None:
    """EFA's installer with another key and a matching signature is refused by the fingerprint and never run."""
    root = bench.machine(lustre=False)
    stranger = bench.vendors.keys["stranger"]
    version = bench.versions["EFA_INSTALLER_VERSION"]
    tarball = bench.folder / f"vendors/web/efa-installer.amazonaws.com/aws-efa-installer-{version}.tar.gz"
    stranger.sign("--detach-sign", source=tarball, target=tarball.with_name(tarball.name + ".sig"))
    bench.vendors._put("efa-installer.amazonaws.com/aws-efa-installer.key", stranger.public)
    code, output = root.steps()
    assert code == 1
    assert "50-efa failed" in output
    assert bench.versions["EFA_INSTALLER_KEY_FINGERPRINT"] in output
    assert root.run("test", "-e", "/opt/amazon")[0] != 0


@pytest.mark.long
def test_failing_servers_are_retried(bench: Bench) -> None:
    """Every third answer is 503, and the run still completes."""
    root = bench.machine(lustre=False)
    chance = random.Random(3)
    bench.vendors.troubles.append(lambda _: 503 if chance.random() < 0.15 else None)
    code, output = root.steps()
    assert code == 0, output


@pytest.mark.long
def test_missing_repository_is_reported_and_a_later_run_continues(bench: Bench) -> None:
    """A repository that always answers 503 fails the step with its name; once it is back, the next run continues there."""
    root = bench.machine(lustre=False)
    bench.vendors.troubles.append(lambda path: 503 if "cuda-toolkit" in path else None)
    code, output = root.steps()
    assert code == 1
    assert "40-cuda failed" in output
    assert "installing cuda-toolkit-13-0 failed" in output
    bench.vendors.troubles.clear()
    code, output = root.steps()
    assert code == 0, output
    assert "30-driver" not in output


@pytest.mark.long
def test_half_configured_packages_are_completed(bench: Bench) -> None:
    """dpkg is killed between unpacking and configuring; the next run completes what apt itself would refuse."""
    root = bench.machine(lustre=False)
    root.steps()
    root.run("bash", "-c", "cd /tmp && apt-get -qq download libnccl2 && dpkg --force-all --unpack *.deb", check=True)
    assert root.run("dpkg", "--audit")[1] != ""
    code, output = root.steps("--again")
    assert code == 0, output
    assert root.run("dpkg", "--audit")[1] == ""


@pytest.mark.long
@pytest.mark.long
def test_package_without_its_dependency_is_completed(bench: Bench) -> None:
    """The package was unpacked without its dependency, so configuring is not enough: apt installs the dependency."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    cut = "dpkg --force-all --purge dkms && cd /tmp && apt-get -qq download nvidia-dkms-open && dpkg --unpack *.deb"
    root.run("bash", "-c", f"apt-mark unhold nvidia-dkms-open && {cut}", check=True)
    assert root.run("dpkg", "--configure", "-a")[0] != 0
    code, output = root.steps("--again")
    assert code == 0, output
    assert root.run("dpkg", "--audit")[1] == ""


@pytest.mark.long
def test_partly_unpacked_package_is_unpacked_again(bench: Bench) -> None:
    """dpkg is killed while unpacking: apt's own repair skips such a package, so it is installed again by name."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    torn = "/^Package: mdadm$/,/^$/s/^Status: .*/Status: install reinstreq half-installed/"
    root.run("sed", "-i", torn, "/var/lib/dpkg/status", check=True)
    assert "mdadm" in root.run("dpkg", "--audit")[1]
    code, output = root.steps("--again")
    assert code == 0, output
    assert root.run("dpkg", "--audit")[1] == ""


def test_driver_outside_the_range_is_refused(bench: Bench) -> None:
    """A machine with another driver is not rebuilt in place: the message lists version, range and alternatives."""
    root = bench.machine(lustre=False)
    root.write(f"usr/lib/modules/{KERNEL}/extra/nvidia.ko", f"version: 535.309.01\nvermagic: {KERNEL} SMP\n")
    code, output = root.steps()
    assert code == 1
    assert "driver 535.309.01 is installed, but the lock accepts" in output
    assert "image: plain" in output


@pytest.mark.long
def test_software_of_the_image_inside_the_range_is_kept(bench: Bench) -> None:
    """An older accepted driver is proven, recorded and held; nothing is downloaded and nothing reboots."""
    pool = pool_of("p4d.24xlarge", "ubuntu-22.04")
    older = {**pool.versions, "DRIVER_VERSION": "580.126.20", "NCCL_VERSION": "2.27.5-1+cuda12.9"}
    root = bench.machine(lock=older)
    assert root.steps()[0] == 0
    root.run("rm", "-rf", "/var/lib/gpuinfra", check=True)
    root.bundle(pool, {**bench.versions, "DRIVER_VERSION": "580.173.02", "NCCL_VERSION": pool.versions["NCCL_VERSION"]})
    bench.vendors.asked.clear()
    code, output = root.steps()
    assert code == 0, output
    assert "none made changes" in output
    assert bench.vendors.asked == []
    assert root.state["recorded"]["driver"] == "580.126.20"
    assert root.state["recorded"]["fabric_manager"] == "580.126.20"


@pytest.mark.long
def test_wrong_clock_is_reported(bench: Bench) -> None:
    """A clock that is a year behind is reported before certificates fail with misleading errors."""
    root = bench.machine(lustre=False)
    date_tool = '#!/bin/sh\ncase "$*" in "-u +%s") echo 1700000000 ;; *) exec /bin/date "$@" ;; esac\n'
    root.write("opt/standin/date", date_tool)
    (root.folder / "upper/opt/standin/date").chmod(0o755)
    code, output = root.steps()
    assert code == 1
    assert "the clock shows 2023-11-14, which is before the date of the software lock, " in output


@pytest.mark.long
def test_too_little_space_is_reported_before_any_download(bench: Bench) -> None:
    """A disk that is too small fails the first step, before any request to a vendor."""
    root = bench.machine(lustre=False)
    root.bundle(bench.pool, {**bench.versions, "ROOT_FREE_GIB": "900000"})
    code, output = root.steps()
    assert code == 1
    assert "driver and toolkit require 900000 GiB" in output
    assert bench.vendors.asked == []


@pytest.mark.long
def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    """A dry run on a plain machine lists what every step would do, and changes neither packages nor files."""
    root = bench.machine()
    before = root.run("bash", "-c", "dpkg-query -W; find /etc /opt /usr -newer /etc/standin/kernel -type f")[1]
    code, output = root.steps("--dry-run")
    assert code == 0, output
    for text in (
        "30-driver: would install nvidia-open",
        "50-efa: would run EFA installer",
        "60-lustre: would mount /scratch",
    ):
        assert text in output
    assert root.run("bash", "-c", "dpkg-query -W; find /etc /opt /usr -newer /etc/standin/kernel -type f")[1] == before


def cut_power(root: PrivateRoot, seed: int) -> None:
    """Kill everything inside at random times, then run to the end."""
    chance = random.Random(seed)
    for _ in range(3):
        process = root.start(
            "python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot", "--retry-pause-s", "0.1"
        )
        time.sleep(chance.uniform(0.3, 5.0))
        process.kill()
        process.communicate()
    code, output = root.steps()
    assert code == 0, output + root.read("var/log/gpuinfra/bootstrap.log")


@pytest.mark.long
def test_power_loss_during_apt(bench: Bench) -> None:
    """Killed at random times, also inside dpkg, the next run ends in the same golden state."""
    root = bench.machine()
    cut_power(root, 1)
    compare("final-p4d.24xlarge-ubuntu-22.04.txt", root.final(), bench.vendors.url)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_more_power_losses(bench: Bench, seed: int) -> None:
    """The same on other machines with three power losses each."""
    root = bench.machine()
    cut_power(root, seed + 100)
    compare("final-p4d.24xlarge-ubuntu-22.04.txt", root.final(), bench.vendors.url)


@pytest.mark.long
def test_full_disk_during_apt_is_reported(bench: Bench) -> None:
    """Without space for the packages the step fails with apt's reason, the journal stays intact, and with space the run completes."""
    root = bench.machine(lustre=False)
    fill = (
        'mount -t tmpfs -o size=4k tmpfs /var/cache/apt/archives && mkdir /var/cache/apt/archives/partial && exec "$@"'
    )
    steps = ("python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot", "--retry-pause-s", "0.1")
    code, output = root.run("/usr/bin/bash", "-c", fill.replace("mount ", "/usr/bin/mount "), "-", *steps)
    assert code == 1
    assert re.search(r"failed: installing .* free space in /var/cache/apt/archives/", output), output
    assert {entry["status"] for entry in root.state["steps"]} <= {"done", "failed", "pending"}
    code, output = root.steps()
    assert code == 0, output
    assert "cuda-toolkit-13-0" in root.run("apt-mark", "showhold")[1]


def test_missing_network_is_reported_and_a_later_run_continues(bench: Bench) -> None:
    """Without any interface the step reports what it could not read from where; with a network the next run continues there."""
    root = bench.machine(lustre=False)
    alone = (
        "unshare",
        "--net",
        "python3",
        "/opt/gpuinfra/current/node.pyz",
        "steps",
        "--no-reboot",
        "--retry-pause-s",
        "0",
    )
    code, output = root.run(*alone)
    assert code == 1
    reason = root.state["steps"][0]["reason"]
    assert "reading the package lists failed" in reason
    assert "archive.ubuntu.com" in reason
    assert {entry["status"] for entry in root.state["steps"][1:]} == {"pending"}
    code, output = root.steps()
    assert code == 0, output


def test_an_image_with_another_operating_system_is_refused(bench: Bench) -> None:
    """The first step names the operating system of the image and the declared one, and installs nothing."""
    root = bench.machine(lustre=False)
    root.write("etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n')
    code, output = root.steps()
    assert code == 1, output
    reason = str(root.state["steps"][0]["reason"])
    assert "the image has ubuntu-24.04, but the declaration requires ubuntu-22.04" in reason, reason
    assert {entry["status"] for entry in root.state["steps"][1:]} == {"pending"}


@pytest.mark.long
@pytest.mark.parametrize("off_by_s", [31_536_000, -400])
def test_clock_difference_to_the_cloud_is_reported(bench: Bench, off_by_s: int) -> None:
    """A clock a year ahead or some minutes behind is compared with the metadata service's date, before signatures fail."""
    root = bench.machine(lustre=False)
    tool = f'#!/bin/sh\ncase "$*" in "-u +%s") echo $(($(/bin/date -u +%s) + {off_by_s})) ;; *) exec /bin/date "$@" ;; esac\n'
    root.write("opt/standin/date", tool)
    (root.folder / "upper/opt/standin/date").chmod(0o755)
    steps = ("python3", "/opt/gpuinfra/current/node.pyz", "steps", "--no-reboot")
    with_metadata = ("env", f"AWS_EC2_METADATA_SERVICE_ENDPOINT={bench.vendors.url}", *steps)
    code, output = root.run(*with_metadata)
    assert code == 1
    found = re.search(r"the clock differs by (-?\d+) s from the metadata service", output)
    assert found, output
    assert abs(int(found[1]) - off_by_s) <= 3
    (root.folder / "upper/opt/standin/date").unlink()
    code, output = root.run(*with_metadata)
    assert code == 0, output


@pytest.mark.long
def test_step_killed_between_packages_is_completed(bench: Bench) -> None:
    """Killed after one package of a set, the next run installs the others, although the first one already works."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    gone = ("nvidia-container-toolkit", "libnccl-dev", "nvidia-open nvidia-utils")
    for step, name in zip(("70-container-toolkit", "45-nccl", "30-driver"), gone, strict=True):
        root.run("bash", "-c", f"apt-mark unhold {name}; dpkg --force-all --purge {name}", check=True)
        root.write(f"var/lib/gpuinfra/unfinished-{step}", "")
    # Also before the repository of the vendor's key package was redirected to the mirror.
    mirror = f"s|{bench.versions['MIRROR_URL'].rstrip('/')}/|https://|"
    root.run("bash", "-c", f"sed -i '{mirror}' /etc/apt/sources.list.d/cuda-*.list", check=True)
    assert (
        "https://developer.download.nvidia.com" in root.run("bash", "-c", "cat /etc/apt/sources.list.d/cuda-*.list")[1]
    )
    code, output = root.steps("--again")
    assert code == 0, output
    listed = root.run("dpkg-query", "-W")[1]
    assert all(f"{name}\t" in listed for name in " ".join(gone).split())
    assert root.run("bash", "-c", "ls /var/lib/gpuinfra | grep -c unfinished")[0] == 1


@pytest.mark.long
def test_partly_unpacked_package_returns_at_its_version(bench: Bench) -> None:
    """Killed inside dpkg's unpacking: the package is installed again at the lock's version, although its vendor offers a newer one."""
    root = bench.machine(lustre=False)
    assert root.steps()[0] == 0
    before = root.run("dpkg-query", "-W")[1]
    torn = "nvidia-container-toolkit"
    offered = root.run("apt-cache", "madison", torn)[1]
    assert len(offered.splitlines()) > 1, offered
    (lock,) = re.findall(rf"^{torn}\t(\S+)$", before, re.M)
    # The second one comes from an image and is in no repository; it is partly replaced by the lock's version.
    for version, options in ((lock, ["--again"]), ("1.0.0-1", [])):
        edit = f"/^Package: {torn}$/,/^$/ {{s/^Status: .*/Status: install reinstreq half-installed/;s/^Version: .*/Version: {version}/}}"
        root.run("sed", "-i", edit, "/var/lib/dpkg/status", check=True)
        assert torn in root.run("dpkg", "--audit")[1]
        state = root.state
        next(one for one in state["steps"] if one["id"] == "70-container-toolkit")["status"] = "pending"
        root.write("var/lib/gpuinfra/state.json", json.dumps(state))
        root.write("var/lib/gpuinfra/unfinished-70-container-toolkit", "")
        code, output = root.steps(*options)
        assert code == 0, output
        assert root.run("dpkg-query", "-W")[1] == before
        assert root.run("dpkg", "--audit")[1] == ""
