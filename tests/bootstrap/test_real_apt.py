"""The real steps on real apt, dpkg, gpg and curl, in a private root (see `private_root/__init__.py`): their final states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinfra.plan.model import BootstrapStep
from tests.plan.pools import with_steps

from .private_root.bench import KERNEL, Bench, compare
from .private_root.clouds import publish_clouds

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
def test_plain_machine_reaches_the_planned_state(bench: Bench, machine: str, os_name: str, lustre: bool) -> None:
    """All steps on plain Ubuntu end in the golden state; apt then has nothing to upgrade, and a second run changes nothing."""
    root = bench.machine(machine, os_name, lustre=lustre)
    code, output = root.steps()
    assert code == 0, output + root.read("var/log/gpuinfra/bootstrap.log")
    final = root.final()
    compare(f"final-{machine}-{os_name}{'' if lustre else '-no-lustre'}.txt", final, bench.vendors.url)
    code, output = root.run("apt-get", "-s", "dist-upgrade")
    assert "0 upgraded, 0 newly installed, 0 to remove" in output, output
    code, output = root.steps("--again")
    assert code == 0, output
    assert "none made changes" in output
    assert root.final() == final
    root.reboot()
    code, output = root.steps("--again")
    assert "none made changes" in output, output


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
"""Release -> the first running kernel, and the kernels in its archive."""
CLOUDS = [
    ("azure", "Standard_ND96isr_H100_v5", "ubuntu-22.04"),
    ("azure", "Standard_ND96isr_H200_v5", "ubuntu-24.04"),
    ("azure", "Standard_ND96asr_v4", "ubuntu-22.04"),
    ("gcp", "a3-megagpu-8g", "ubuntu-24.04"),
    ("gcp", "a3-highgpu-8g", "ubuntu-22.04"),
    ("gcp", "a3-ultragpu-8g", "ubuntu-22.04"),
    ("gcp", "a4-highgpu-8g", "ubuntu-24.04"),
]


@LONG
@pytest.mark.parametrize(("cloud", "machine", "os_name"), CLOUDS)
def test_plain_machine_of_another_cloud_reaches_the_planned_state(
    bench: Bench, cloud: str, machine: str, os_name: str
) -> None:
    """Kernel line, InfiniBand, TCPXO, gIB, subnet manager and Lustre client end in the golden state, with all reboots."""
    kernel, kernels = (AZURE if cloud == "azure" else GOOGLE)[os_name]
    root = bench.machine(machine, os_name, kernel=kernel, kernels=kernels, cloud=cloud)
    code, output = root.steps()
    while code == 194:
        root.reboot()
        code, output = root.steps()
    assert code == 0, output + root.read("var/log/gpuinfra/bootstrap.log")
    final = root.final()
    compare(f"final-{machine}-{os_name}.txt", final, bench.vendors.url)
    code, output = root.run("apt-get", "-s", "dist-upgrade")
    assert "0 upgraded, 0 newly installed, 0 to remove" in output, output
    root.reboot()
    code, output = root.steps("--again")
    assert code == 0, output
    assert "none made changes" in output, output
    assert root.final() == final


def test_gdrcopy_is_installed_from_pinned_files(bench: Bench) -> None:
    """The pinned files from no repository are verified, installed and recorded; a second run does not change them."""
    root = bench.machine(lustre=False)
    pin = {"GDRCOPY_VERSION": "2.5.1", "GDRCOPY_RANGE_MIN": "2.4", "GDRCOPY_RANGE_MAX": "3"}
    pin |= publish_clouds(bench.vendors, {**bench.versions, **pin}, (KERNEL,))
    order = ["10-prepare", "20-kernel", "55-gdrcopy"]
    pool = replace(bench.pool, steps=tuple(BootstrapStep(id=name, timeout_s=60, retries=0, why="") for name in order))
    root.bundle(pool, {**bench.versions, **pin})
    code, output = root.steps()
    assert code == 0, output + root.read("var/log/gpuinfra/bootstrap.log")
    assert root.state["recorded"]["gdrcopy"] == "2.5.1"
    code, output = root.steps("--again")
    assert "none made changes" in output, output


def test_docker_and_enroot_are_installed_at_their_pins(bench: Bench) -> None:
    """Docker comes from its signed repository and enroot from verified files, at the pins although newer versions exist; a second run changes nothing."""
    root = bench.machine(lustre=False, containers=("docker", "enroot"))
    order = ("10-prepare", "48-docker", "71-enroot")
    root.bundle(with_steps(bench.pool, *order), bench.versions)
    code, output = root.steps()
    assert code == 0, output + root.read("var/log/gpuinfra/bootstrap.log")
    assert root.state["recorded"] == {"docker": "29.8.1", "enroot": "4.2.1"}
    assert (
        "docker-ce 5:29.8.1-1~ubuntu.22.04~jammy" in root.run("dpkg-query", "-W", "-f", "${Package} ${Version}\\n")[1]
    )
    code, output = root.steps("--again")
    assert "none made changes" in output, output


@pytest.mark.long
@pytest.mark.long
def test_azure_lists_kernels_with_a_lustre_client(bench: Bench) -> None:
    """If one package name has all clients by version, the message still lists their kernels."""
    kernels = ("5.15.0-1096-azure", "5.15.0-1098-azure", "6.8.0-1034-azure")
    root = bench.machine("Standard_NC24ads_A100_v4", kernel=kernels[0], kernels=kernels, cloud="azure")
    name = bench.versions["LUSTRE_PACKAGES"].partition("=")[0]
    publish_clouds(bench.vendors, bench.versions, kernels[1:])
    code, output = root.steps()
    assert code == 1, output
    assert f"no Lustre client for kernel {kernels[0]}; available: {kernels[1]}" in output
    assert name not in root.run("dpkg-query", "-W")[1]


@pytest.mark.long
def test_kernel_missing_in_the_mirror_is_replaced(bench: Bench) -> None:
    """Without headers for the running kernel the newest kernel is installed, with its headers, before anything is built."""
    old = "6.8.0-1031-aws"
    root = bench.machine(kernel=old, kernels=(old, KERNEL), headers=(KERNEL,), lustre=False)
    code, output = root.steps()
    assert code == 194, output
    assert f"no repository has headers for kernel {old}" in output
    root.reboot(kernel=KERNEL)
    code, output = root.steps()
    assert code == 0, output
    assert root.state["recorded"]["kernel"] == KERNEL
    assert f"nvidia/{bench.versions['DRIVER_VERSION']}, {KERNEL}, x86_64: installed" in root.read("var/lib/dkms/status")


def test_kernel_without_lustre_client_is_refused(bench: Bench) -> None:
    """One message lists the kernels with a client, without a retry."""
    root = bench.machine(with_lustre=("6.8.0-1036-aws", "6.8.0-1039-aws"))
    code, output = root.steps()
    assert code == 1
    assert f"no Lustre client for kernel {KERNEL}; available: 6.8.0-1036-aws 6.8.0-1039-aws" in output
    assert "again in" not in output
