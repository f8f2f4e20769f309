from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

import gpuinfra_rehearsal
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.gpus import V100
from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.software import SOFTWARE
from gpuinfra.plan.environment import environment
from gpuinfra.plan.facts import PoolFacts
from gpuinfra.plan.profile import profile_of
from gpuinfra.software import LockRequest, SoftwareLock, flavour, lock, tables
from gpuinfra.software.images import ImageRelease
from gpuinfra.software.version import at_least, key

FAMILIES = {name: (profile_of(name).software, profile_of(name).image_families) for name in CLOUDS}
P4D = MACHINES["p4d.24xlarge"]
B300 = MACHINES["p6-b300.48xlarge"]
VOLTA = replace(P4D, name="p3dn.24xlarge", gpu=V100, nvswitch=False)


def _lock(machine: MachineType = P4D, **requested: object) -> SoftwareLock:
    base = {"cloud": SOFTWARE, "os": "ubuntu-22.04", "prebuilt": True, "lustre": True}
    return lock(machine, LockRequest(**{**base, **requested}))  # type: ignore[arg-type]


def _environment(machine: MachineType, chosen: SoftwareLock, mirror_url: str | None = None) -> dict[str, str]:
    return environment(
        PoolFacts(cloud="aws", machine=machine, software=SOFTWARE, lock=chosen, fabric=True, mirror_url=mirror_url)
    )


def test_default_lock_has_no_conflict_and_a_reason_for_each_package() -> None:
    """The default versions are compatible for every machine type, and each choice has a reason."""
    for machine in MACHINES.values():
        if machine.gpu and machine.arch == "x86_64":
            chosen = _lock(machine, os="ubuntu-24.04")
            assert chosen.conflicts == (), machine.name
            assert all(choice.why for choice in chosen.choices)


def test_fabric_manager_has_the_driver_version() -> None:
    """The fabric manager has the driver's version, and any other version is a conflict."""
    chosen = _lock()
    driver, manager = chosen.choice("driver"), chosen.choice("fabric_manager")
    assert driver is not None
    assert manager is not None
    assert manager.version == driver.version
    assert "does not start with driver" in _lock(fabric_manager="580.173.02").conflicts[0].message
    assert _lock(MACHINES["g5.48xlarge"]).choice("fabric_manager") is None


@pytest.mark.parametrize(
    ("machine", "requested", "words"),
    [
        (P4D, {"driver": "570"}, "is out of support"),
        (P4D, {"driver": "610"}, "is out of support"),
        (P4D, {"driver": "630"}, "belongs to an unknown branch"),
        (VOLTA, {"driver": "620"}, "does not support V100"),
        (
            MACHINES["g5.48xlarge"],
            {"driver": "620", "prebuilt": False},
            "no proprietary kernel module, which g5.48xlarge requires",
        ),
        (P4D, {"driver": "570.211.01", "cuda": "13.0"}, "CUDA 13.0 requires driver 580"),
        (B300, {"driver": "580.65.06"}, "does not support B300"),
        (B300, {"cuda": "12.4"}, "not in the lock"),
        (VOLTA, {"driver": "595"}, "does not support V100"),
        (VOLTA, {"cuda": "13.0"}, "does not support V100"),
        (VOLTA, {"torch": "2.11.0"}, "does not support V100"),
        (P4D, {"torch": "2.11.0", "driver": "550.163.01"}, "requires driver 580"),
        (P4D, {"tensorflow": "1.0"}, "not in the lock"),
        (P4D, {"jax_cuda": 13, "driver": "570.211.01"}, "JAX for CUDA 13 requires driver 580"),
        (MACHINES["p6-b200.48xlarge"], {"torch": "2.6.0"}, "does not support B200"),
        (P4D, {"nccl": "2.19.3"}, "no known package of NCCL 2.19.3 for CUDA 13.0; allowed: 2.27.7, 2.28.3, 2.28.9"),
        (P4D, {"nccl": "2.30.7", "cuda": "13.2"}, "no known package of NCCL 2.30.7 for CUDA 13.2"),
        (P4D, {"kernel": "4.18.0-425.13.1.el8"}, "breaks the ABI of the Lustre module"),
        (P4D, {"kernel": "5.15.0-1065-gcp-tcpx"}, "is not in Ubuntu's archive"),
    ],
)
def test_incompatible_versions_are_rejected(machine: MachineType, requested: dict[str, object], words: str) -> None:
    """Combinations that are known not to work are conflicts with a reason."""
    assert any(words in conflict.message for conflict in _lock(machine, **requested).conflicts)


def test_compatible_versions_are_accepted() -> None:
    """Combinations that are known to work are no conflicts."""
    assert _lock(kernel="5.15.0-1065-gcp-tcpx", own_image=True).conflicts == ()
    assert _lock(driver="595").conflicts == ()
    assert _lock(driver="620", prebuilt=False).conflicts == ()
    assert (
        _lock(
            prebuilt=False, driver="580.173.02", cuda="12.8", torch="2.10.0", tensorflow="2.20.0", jax_cuda=12
        ).conflicts
        == ()
    )
    assert _lock(VOLTA, prebuilt=False).conflicts == ()


@pytest.mark.parametrize("cloud", sorted(FAMILIES))
def test_the_driver_of_an_image_is_known_before_it_is_bought(cloud: str) -> None:
    """The cloud's image brings its own branch; another one is a conflict, except on a plain image and on an unknown image."""
    software, families = FAMILIES[cloud]
    for family in families:
        branch = family.branch_of(family.newest)
        assert branch is not None, family.name
        known = {"cloud": software, "os": family.os, "release": family.newest, "branch": branch}
        chosen = _lock(**known)
        driver = chosen.choice("driver")
        assert driver is not None
        assert chosen.conflicts == ()
        assert key(driver.version)[0] == branch
        # Images are replaced every few weeks, so a node accepts each branch that the lock supports.
        assert at_least("580.95.05", driver.low)
        assert not at_least("595.91.07", driver.high)
        other = {580: "595", 595: "580"}[branch]
        assert "is not in the GPU image" in _lock(**{**known, "driver": other}).conflicts[0].message
        for more in ({"prebuilt": False}, {"release": None, "branch": None}):
            assert _lock(**{**known, "driver": other, **more}).conflicts == ()


@pytest.mark.parametrize(
    ("contents", "requested", "words"),
    [
        ({"driver": "570.133.20"}, {"branch": 570}, "driver branch 570 is out of support"),
        ({"driver": "560.35.03"}, {"branch": 560}, "driver 560 belongs to an unknown branch"),
        ({"driver": "580.65.06"}, {"branch": 580}, "contains driver 580.65.06; allowed: 580.95 to below 596"),
        ({"driver": "580.126.16"}, {"branch": 580, "driver": "580.173.02"}, "contains driver 580.126.16; allowed: 580.173.02 to below 581"),
        ({"dcgm": "4.4.0"}, {}, "contains DCGM 4.4.0; allowed: 4.4.1 to below 5"),
        ({"efa_installer": "1.20.0"}, {}, "contains EFA 1.20.0; allowed: 1.29 to below 2"),
        ({"kernel": "6.8.0-1066-aws"}, {"kernel": "6.8.0-1041-aws"}, "contains kernel 6.8.0-1066-aws, not 6.8.0-1041-aws"),
    ],
)  # fmt: skip
def test_recorded_contents_outside_the_accepted_range_are_a_conflict(
    contents: dict[str, str], requested: dict[str, object], words: str
) -> None:
    """What a bootstrap step would reject on a bought node is a conflict in the plan; a plain image has no contents."""
    release = ImageRelease(date=date(2026, 9, 1), contents=contents, source="test", read=date(2026, 9, 2))
    known: dict[str, object] = {"release": release, "pinned": True, **requested}
    found = _lock(P4D, **known).conflicts
    assert words in found[0].message
    plain = _lock(P4D, **{**known, "prebuilt": False, "branch": None}).conflicts
    assert not any("contains" in conflict.message for conflict in plain)


def test_the_kernel_of_the_newest_release_is_not_final() -> None:
    """A declared kernel is compared with a pinned release only, because the newest release can have another kernel."""
    release = ImageRelease(
        date=date(2026, 9, 1), contents={"kernel": "6.8.0-1066-aws"}, source="test", read=date(2026, 9, 2)
    )
    assert _lock(release=release, kernel="6.8.0-1070-aws").conflicts == ()
    assert _lock(release=release, kernel="6.8.0-1066-aws", pinned=True).conflicts == ()


def test_kernel_module_matches_the_gpu() -> None:
    """The open module is the default; Volta and g5 use the proprietary one."""
    assert flavour(P4D) == "open"
    assert flavour(VOLTA) == "proprietary"
    assert flavour(MACHINES["g5.xlarge"]) == "proprietary"
    assert flavour(MACHINES["g5.xlarge"], prebuilt=True) == "open"
    assert flavour(VOLTA, prebuilt=True) == "proprietary"
    assert (
        _environment(MACHINES["g5.xlarge"], _lock(MACHINES["g5.xlarge"], prebuilt=False))["DRIVER_PACKAGE"]
        == "cuda-drivers"
    )


def test_environment_is_safe_for_a_shell() -> None:
    """Values of `versions.env` are single lines without shell characters, and each version is in its accepted range."""
    values = _environment(P4D, _lock(), mirror_url="https://mirror.example.com")
    for name, value in values.items():
        assert name.replace("_", "").isalnum()
        assert name.isupper()
        assert not set(value) & set("'\"\n$`\\")
    for name in ("DRIVER", "EFA_INSTALLER", "NCCL"):
        assert at_least(values[f"{name}_VERSION"], values[f"{name}_RANGE_MIN"])
        assert not at_least(values[f"{name}_VERSION"], values[f"{name}_RANGE_MAX"])
    assert len(values["CUDA_KEYRING_SHA256"]) == 64
    assert all(len(values[name]) == 40 for name in values if name.endswith("FINGERPRINT"))


def test_tables_are_consistent() -> None:
    """Pinned versions belong to their branch and lie between its lowest and newest version; NCCL packages name their CUDA major version."""
    for branch in tables.BRANCHES.values():
        if branch.pin:
            assert key(branch.pin)[0] == branch.branch
            assert at_least(branch.newest, branch.pin)
            assert at_least(branch.pin, branch.floor)
    for cuda in tables.CUDA.values():
        assert f"+cuda{cuda.version.split('.')[0]}." in cuda.nccl
        assert cuda.package == f"cuda-toolkit-{cuda.version.replace('.', '-')}"
    assert at_least(tables.EFA_INSTALLER.version, tables.EFA_FLOOR)


@pytest.mark.parametrize(
    ("version", "floor", "answer"),
    [
        ("580.95.05", "580.95", True),
        ("580.9", "580.95", False),
        ("580", "580.0.0", True),
        ("2.28.9-1+cuda13.0", "2.28.9", True),
    ],
)
def test_versions_are_compared_by_number(version: str, floor: str, answer: bool) -> None:
    """Versions are compared part by part as numbers."""
    assert at_least(version, floor) is answer


def test_container_runtimes_are_chosen_only_if_declared() -> None:
    """Docker and enroot have a pin, a range and holds if they are declared; enroot on arm64 is a conflict."""
    request = LockRequest(cloud=SOFTWARE, os="ubuntu-24.04", prebuilt=False, lustre=False)
    assert lock(P4D, request).choice("docker") is None
    chosen = lock(P4D, replace(request, containers=("docker", "enroot")))
    docker, enroot = chosen.choice("docker"), chosen.choice("enroot")
    assert docker is not None
    assert enroot is not None
    assert (docker.version, docker.low, enroot.version) == ("29.8.1", "26.1", "4.2.1")
    assert {"docker*", "enroot*"} <= set(chosen.holds)
    assert not chosen.conflicts
    arm = lock(replace(P4D, arch="arm64"), replace(request, containers=("enroot",)))
    assert "enroot" in {conflict.name for conflict in arm.conflicts}


def test_exporter_is_chosen_only_if_declared_and_only_for_gpus() -> None:
    """The DCGM exporter has a pin, a range and a hold if it is declared for a machine with GPUs."""
    request = LockRequest(cloud=SOFTWARE, os="ubuntu-24.04", prebuilt=False, lustre=False)
    assert lock(P4D, request).choice("dcgm_exporter") is None
    declared = replace(request, gpu_metrics="dcgm_exporter")
    chosen = lock(P4D, declared)
    exporter = chosen.choice("dcgm_exporter")
    assert exporter is not None
    assert exporter.version == "4.8.2-1"
    assert "datacenter-gpu-manager-exporter" in chosen.holds
    assert lock(MACHINES["m7i.xlarge"], declared).choice("dcgm_exporter") is None


@pytest.mark.parametrize(
    ("requested", "package"),
    [
        ({"nccl": "2.27.7"}, "2.27.7-1+cuda13.0"),
        ({"nccl": "2.28"}, "2.28.9-1+cuda13.0"),
        ({"nccl": "2.30.4", "cuda": "13.2"}, "2.30.4-1+cuda13.2"),
        ({"nccl": "2.29.7", "cuda": "12.8"}, "2.29.7-1+cuda12.9"),
    ],
)
def test_a_requested_nccl_is_exact(requested: dict[str, object], package: str) -> None:
    """A requested NCCL is the newest published package for the CUDA version, and no other version of an image is accepted."""
    chosen = _lock(P4D, **requested)
    assert chosen.conflicts == ()
    found = chosen.choice("nccl")
    assert found is not None
    assert (found.version, found.low, found.high) == (package, "", "")


def test_each_default_nccl_is_a_published_package() -> None:
    """The table of packages contains the default of each CUDA version, and the stand-in repository has all packages."""
    assert {row.nccl for row in tables.CUDA.values()} <= set(tables.NCCL_PACKAGES)
    universe = json.loads((Path(gpuinfra_rehearsal.__file__).parent / "tools/universe.json").read_text())
    for name in ("libnccl2", "libnccl-dev"):
        assert set(tables.NCCL_PACKAGES) <= set(universe["packages"][name]["versions"])


def test_the_page_copies_the_images_that_nodes_pull() -> None:
    """The commands on the page of Google Cloud copy each image in the version of the lock."""
    page = (Path(__file__).parents[2] / "docs/reference/gcp.md").read_text()
    for row in (tables.TCPX, tables.TCPXO):
        assert row.folder in page
        assert f"{tables.PLUGIN_IMAGE}:{row.plugin}" in page
        assert f"{tables.MANAGER_IMAGE}:{row.manager}" in page
