"""The units of vendors' packages on stand-in nodes, and what the steps make of them for every later boot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra_rehearsal.nodes import NodeHost
from gpuinfra_rehearsal.tools.unitfile import TYPES
from rehearsal.tests.nodes.machines import NAME, Machine, host, metadata, pool_of
from tests.plan.pools import with_steps

__all__ = ["host", "metadata"]

BOOTSTRAP = shipped("bootstrap")
UNITS = json.loads(
    (Path(__file__).parents[3] / "rehearsal/gpuinfra_rehearsal/tools/units.json").read_text(encoding="utf-8")
)
OURS = {
    *(path.name for path in (BOOTSTRAP / "units").iterdir()),
    "gpuinfra-boot.service",
}  # user data writes the last one
FILES = sorted(
    path.relative_to(BOOTSTRAP).as_posix() for path in [*BOOTSTRAP.rglob("*.sh"), *BOOTSTRAP.glob("units/*")]
)
UBUNTU = {
    "apt-daily.timer": "apt", "apt-daily-upgrade.timer": "apt", "cloud-config.service": "cloud-init", "nftables.service": "nftables",
    "nfs-client.target": "nfs-common", "ssh.service": "openssh-server",
}  # fmt: skip
"""Units of Ubuntu's packages that the steps name and the stand-in's base image does not model."""
KINDS = "|".join(re.escape(kind) for kind in TYPES if kind != ".mount")
NAMED = re.compile(rf"(?<![%.\w-])[A-Za-z][\w@-]*(?:{KINDS})\b")
SPECIAL = re.compile(r"^(basic|sysinit|shutdown|multi-user|timers|network-online|remote-fs|remote-fs-pre)\.target$")


def node_of(host: NodeHost, cloud: str, machine: str, image: str, *steps: str) -> Machine:
    """A machine that has run some of its pool's steps."""
    node = Machine(host, pool_of(cloud, machine, "ubuntu-24.04", image))
    node.pool = with_steps(node.pool, *steps)
    assert len(node.pool.steps) == len(steps)
    node.launch(cloud)
    code, said, _ = node.through()
    assert code == 0, said
    return node


@pytest.mark.parametrize("file", FILES)
def test_every_unit_that_a_step_names_is_shipped(file: str) -> None:
    """A unit in a step or in a unit of ours is ours, systemd's own, or one that a vendor publishes, with its source."""
    text = (BOOTSTRAP / file).read_text(encoding="utf-8")
    for name in set(NAMED.findall(text)) - OURS - set(UBUNTU):
        if not SPECIAL.match(name):
            assert name in UNITS["units"], f"{file} names {name}, which no package ships"
            assert name in UNITS["base"] or name in UNITS["sources"], f"{name} has no source"


@pytest.mark.parametrize(
    ("cloud", "machine", "image"),
    [
        ("aws", "p5.48xlarge", "default"),
        pytest.param("azure", "Standard_ND96isr_H200_v5", "default", marks=pytest.mark.long),
        pytest.param("gcp", "a3-megagpu-8g", "default", marks=pytest.mark.long),
        pytest.param("gcp", "a2-highgpu-1g", "plain", marks=pytest.mark.long),
    ],
)
def test_persistence_mode_is_on_at_every_boot(host: NodeHost, cloud: str, machine: str, image: str) -> None:
    """Ubuntu's unit is static and starts the daemon without persistence mode; after the step each GPU keeps it on."""
    ask = ("nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader")
    node = node_of(host, cloud, machine, image, "20-kernel", "30-driver")
    assert set(node.run(*ask)[1].split()) == {"Enabled"}
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said
    node.reboot()
    assert set(node.run(*ask)[1].split()) == {"Enabled"}


def test_a_daemon_with_its_former_command_is_restarted(host: NodeHost) -> None:
    """A run that ends between writing the drop-in and restarting the daemon is completed by the next one."""
    node = node_of(host, "aws", "g6.xlarge", "default", "30-driver")
    standin = host._nodes[NAME].folder / "standin.json"
    state = json.loads(standin.read_text(encoding="utf-8"))
    standin.write_text(json.dumps({**state, "persistenced": False}), encoding="utf-8")
    code, said = node.steps("--again")
    assert code == 0, said
    assert "1 made changes" in said, said
    assert node.run("nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader")[1] == "Enabled\n"


def test_fabric_manager_starts_the_subnet_manager(host: NodeHost) -> None:
    """On a machine with fourth-generation NVSwitch `nvlsm` is a process of fabric manager's unit, at every boot."""
    steps = ("20-kernel", "30-driver", "33-nvlink-subnet-manager", "35-fabric-manager")
    node = node_of(host, "aws", "p6-b200.48xlarge", "default", *steps)
    for _ in range(2):
        assert node.run("pgrep", "-x", "nvlsm")[0] == 0
        assert node.run("systemctl", "is-active", "nvidia-fabricmanager.service")[1] == "active\n"
        assert node.run("systemctl", "is-enabled", "nvlsm.service")[0] != 0
        node.reboot()


def test_the_driver_of_the_bridges_is_installed_for_the_running_kernel(host: NodeHost) -> None:
    """On AWS `mlx5_ib` is in linux-modules-extra, which the step installs and holds; the module is loaded at every boot."""
    node = node_of(host, "aws", "p6-b200.48xlarge", "default", "20-kernel", "30-driver", "33-nvlink-subnet-manager")
    package = f"linux-modules-extra-{node.run('uname', '-r')[1].strip()}"
    assert package in node.run("apt-mark", "showhold")[1].split()
    for _ in range(2):
        assert "mlx5_ib" in node.run("lsmod")[1].split()
        node.reboot()
    code, said = node.steps("--again")
    assert code == 0, said
    assert "none made changes" in said, said


def test_a_kernel_without_the_driver_of_the_bridges_is_named(host: NodeHost) -> None:
    """Without a package of the missing module, the step ends at once with the module, the package and the field to set."""
    assert host._library is not None
    universe = next(host._library.folder.rglob("universe.json"))
    data = json.loads(universe.read_text(encoding="utf-8"))
    del data["packages"]["linux-modules-extra-{kernel}"]
    universe.unlink()
    universe.write_text(json.dumps(data), encoding="utf-8")
    node = Machine(host, pool_of("aws", "p6-b200.48xlarge", "ubuntu-24.04", "default"))
    node.launch("aws")
    code, said, _ = node.through()
    assert code == 1, said
    entry = next(one for one in node.state["steps"] if one["id"] == "33-nvlink-subnet-manager")
    assert entry["status"] == "failed"
    for words in ("has no module mlx5_ib", "no repository has linux-modules-extra-", "software.kernel"):
        assert words in entry["reason"]
    assert "35-fabric-manager" not in {one["id"] for one in node.state["steps"] if one["status"] != "pending"}


def test_the_cdi_specification_is_written_at_every_boot(host: NodeHost) -> None:
    """The vendor's service writes it to a file system in memory, and its package enables nothing during a boot."""
    node = node_of(host, "aws", "g6.xlarge", "default", "30-driver", "70-container-toolkit")
    for _ in range(2):
        assert "nvidia.com/gpu=all" in node.run("nvidia-ctk", "cdi", "list")[1].split()
        node.reboot()


def test_checks_run_after_every_service_of_the_steps() -> None:
    """gpuinfra-verify.service is ordered after each service that a step enables, so that no check reads a half-booted node."""
    enabled = set()
    for path in BOOTSTRAP.glob("*.sh"):
        text = path.read_text(encoding="utf-8")
        constants = dict(re.findall(r"^readonly (\w+)=(\S+)", text, re.MULTILINE))
        for word in re.findall(r"(?:service_on|at_boot) \"?\$?(\w[\w.@-]*)", text):
            enabled.add(constants.get(word, word))
    services = {name for name in enabled if name.endswith(".service")}
    assert {"nvidia-persistenced.service", "nvidia-cdi-refresh.service", "gpuinfra-lnet.service"} <= services
    text = (BOOTSTRAP / "units/gpuinfra-verify.service").read_text(encoding="utf-8")
    after = " ".join(re.findall(r"^After=(.*)$", text, re.MULTILINE)).split()
    assert services <= set(after), services - set(after)
    assert {"docker.service", "containerd.service", "cloud-final.service"} <= set(after)


@pytest.mark.parametrize(
    ("cloud", "machine", "version"),
    [("aws", "g6.xlarge", "1:4.7.0-1"), ("azure", "Standard_NC24ads_A100_v4", "1:4.6.0-1")],
)
def test_dcgm_has_its_diagnostic_plugins(host: NodeHost, cloud: str, machine: str, version: str) -> None:
    """All four packages are installed at one version: the image's if it is accepted, else the pin; a removed one comes back."""
    node = node_of(host, cloud, machine, "default", "30-driver", "75-dcgm")
    name = "datacenter-gpu-manager-4-"
    wanted = dict.fromkeys([name + part for part in ("core", "cuda13", "proprietary", "proprietary-cuda13")], version)

    def installed() -> dict[str, str]:
        lines = node.run("dpkg-query", "-W", "-f=${Package} ${Version}\n", f"{name}*")[1].splitlines()
        return dict(line.split() for line in lines)

    assert installed() == wanted
    node.run("apt-get", "-y", "remove", name + "proprietary-cuda13")
    assert installed() != wanted
    code, said = node.steps("--again")
    assert code == 0, said
    assert installed() == wanted
