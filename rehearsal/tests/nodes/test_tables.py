"""The data tables of the stand-in commands: complete, and consistent with each other and with the lock."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinfra.clouds.aws.software import LUSTRE_KEY_FINGERPRINT
from gpuinfra.plan.profile import profile_of
from gpuinfra.software import tables
from gpuinfra_rehearsal import tools
from gpuinfra_rehearsal.nodes.state import Instance, first_state, hardware_of
from gpuinfra_rehearsal.tools import dispatch
from gpuinfra_rehearsal.tools.state import dumps, loads
from gpuinfra_rehearsal.tools.unitfile import seconds
from gpuinfra_rehearsal.tools.universe import Universe, newer, table, upstream

SYSTEMS = ("ubuntu-22.04", "ubuntu-24.04")
_FOLDER = Path(tools.__file__).parent
_DEVICE_TOOLS = {
    "nvidia-smi",
    "nvidia-debugdump",
    "lspci",
    "dmesg",
    "fi_info",
    "fi_pingpong",
    "rdma",
    "ibv_devinfo",
    "ibv_devices",
    "ibstat",
    "nvbandwidth",
    "nproc",
    "free",
}
_NOT_PLAYED = {
    "nvidia-debugdump",
    "fi_pingpong",
    "nvidia-container-cli",
    "nvidia-cdi-hook",
    "nvidia-container-runtime",
    "apt-key",
    "ib_write_bw",
}
"""Commands that packages bring and no step calls."""


CLOUDS = ("aws", "azure", "gcp")


def universe(system: str, prebuilt: bool = False, cloud: str = "aws") -> Universe:
    """The packages of an operating system on a cloud."""
    return Universe(first_state(Instance(id="i-0", machine="p4d.24xlarge", os=system, prebuilt=prebuilt, cloud=cloud)))


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_dependency_of_every_package_exists(system: str, cloud: str) -> None:
    """Each dependency of each package can be installed."""
    world = universe(system, cloud=cloud)
    for name in world.names():
        entry = world.get(name)
        assert entry is not None, name
        assert entry["versions"], name
        for need in entry.get("depends", []):
            other = world.fill(entry, entry["versions"][-1], need).partition(" ")[0]
            assert world.get(other) is not None, f"{name} needs {other}"


def test_every_unit_and_command_of_a_package_exists() -> None:
    """Each unit and command of a package has a stand-in."""
    data, units = table("universe.json"), table("units.json")["units"]
    for name, entry in data["packages"].items():
        assert entry["repo"] in {*data["repositories"], "file"}, name
        assert set(entry.get("units", [])) <= set(units), name
        for path in entry.get("commands", []):
            command = path.rpartition("/")[2]
            played = command in dispatch.COMMANDS or command.startswith(("mkfs.", "nvcc"))
            assert played or command in _DEVICE_TOOLS | _NOT_PLAYED, f"{name} brings {command}"
    for path in table("commands.json")["always"]:
        command = path.rpartition("/")[2]
        assert command in dispatch.COMMANDS or command.startswith("mkfs.") or command in _DEVICE_TOOLS | _NOT_PLAYED, (
            command
        )


def test_every_command_has_its_function() -> None:
    """The dispatch table names existing functions."""
    for module, function in dispatch.COMMANDS.values():
        loaded = __import__(f"gpuinfra_rehearsal.tools.{module}", fromlist=[function])
        assert callable(getattr(loaded, function))


@pytest.mark.parametrize("image", sorted(table("images.json")["images"]))
def test_an_image_has_existing_packages(image: str) -> None:
    """Packages of an image exist at their versions, for a kernel of its system, with a source."""
    row = table("images.json")["images"][image]
    cloud, system, kind = image.split("/")
    world = universe(system, kind == "prebuilt", cloud)
    assert row["kernel"] in world.kernels
    assert row["source"]
    for name, version in {**table("images.json")["common"], **row["packages"]}.items():
        entry = world.get(name)
        assert entry is not None, name
        assert not version or version in entry["versions"], name


@pytest.mark.parametrize("system", SYSTEMS)
def test_locked_versions_can_be_installed(system: str) -> None:
    """Driver, CUDA, NCCL, EFA installer and container toolkit exist at the versions of the lock."""
    world = universe(system)
    for branch in tables.BRANCHES.values():
        if branch.pin:
            entry = world.get("nvidia-open")
            assert entry is not None
            assert branch.pin in {upstream(version) for version in entry["versions"]}
    for cuda in tables.CUDA.values():
        nccl = world.get("libnccl2")
        assert world.get(cuda.package) is not None
        assert nccl is not None
        assert cuda.nccl in nccl["versions"]
    assert tables.EFA_INSTALLER.version in world.data["efa"]
    toolkit = world.get("nvidia-container-toolkit")
    assert toolkit is not None
    assert f"{tables.CONTAINER_TOOLKIT_PIN}-1" in toolkit["versions"]
    distribution = tables.DISTRIBUTIONS[system]
    keyring = next(row for row in world.data["downloads"] if row["kind"] == "deb")
    assert keyring["sha256"][distribution.repository] == distribution.keyring_sha256


def test_repositories_are_signed_with_the_keys_of_the_lock() -> None:
    """The keys of the repositories are those of the lock."""
    data = table("universe.json")
    assert data["repositories"]["fsx"]["key"] == LUSTRE_KEY_FINGERPRINT
    assert data["repositories"]["toolkit"]["key"] == tables.CONTAINER_TOOLKIT_KEY_FINGERPRINT
    assert data["keys"]["aws-efa-installer.key"][0] == tables.EFA_KEY_FINGERPRINT


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_every_machine_of_a_catalog_can_be_a_node(cloud: str) -> None:
    """GPUs, fabric devices, switches and disks are found for each machine type."""
    machines = profile_of(cloud).machines
    for name, machine in machines.items():
        hardware = hardware_of(cloud, name)
        assert hardware["gpus"] == machine.gpus, name
        assert bool(hardware["nvswitches"]) == machine.nvswitch, name
        assert hardware["nvme"] == machine.local_disks, name


def test_hardware_of_a_p4d() -> None:
    """Eight A100 with 40 GB, four EFA devices, six switches, eight disks of 1 TB, 96 vCPUs and 1,152 GiB."""
    assert hardware_of("aws", "p4d.24xlarge") == {
        "gpus": 8, "gpu": "NVIDIA A100-SXM4-40GB", "efa": 4, "fabric": "efa", "fabric_devices": 4, "fabric_gbps": 100, "nvswitches": 6,
        "nvme": 8, "nvme_gb": 1000,
        "nvme_model": "Amazon EC2 NVMe Instance Storage", "memory_gib": 1152, "vcpus": 96,
    }  # fmt: skip


def test_tables_describe_themselves() -> None:
    """Each table has its description."""
    for path in sorted(_FOLDER.glob("*.json")):
        assert json.loads(path.read_text(encoding="utf-8"))["about"], path.name


_VERSIONS = st.from_regex(r"\A([0-9]:)?[0-9][0-9a-z.+~]{0,8}(-[0-9a-z.+~]{1,5})?\Z")


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@settings(max_examples=120, deadline=None)
@given(_VERSIONS, _VERSIONS)
def test_versions_are_ordered_as_dpkg_orders_them(left: str, right: str) -> None:
    """The order is compared with the real dpkg."""
    relation = {-1: "lt", 0: "eq", 1: "gt"}[newer(left, right)]
    done = subprocess.run(["dpkg", "--compare-versions", left, relation, right], check=False, capture_output=True)
    assert done.returncode == 0, f"{left} {relation} {right}"


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_JSON)
def test_the_json_reader_and_writer_agree_with_the_library(value: object) -> None:
    """Each reads what the other writes."""
    assert json.loads(dumps(value)) == value
    assert loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("10min", 600), ("1h 30s", 3630), ("500ms", 0.5), ("2d", 172800), ("infinity", 1e9), ("0", 0)],
)
def test_time_spans_are_read_as_systemd_reads_them(text: str, expected: float) -> None:
    """As in systemd.time(7)."""
    assert seconds(text) == pytest.approx(expected)
