"""What the step for home directories mounts, and how, if the file systems of a node are on different services."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

SCRIPT = shipped("bootstrap") / "62-home.sh"
RUN = r"""
set -euo pipefail
eval "$(grep -vE '^(main|\.) ' "$SCRIPT")"
"$@"
"""
HOMES = "/home tls nfsvers=4.1,hard; /tools plain vers=3,hard; /work tls nfsvers=4.1,hard"
FILE_SYSTEMS = """\
lustre /scratch fs-9.example scratch
home /home fs-1.efs.example /
home /tools 10.0.0.4 /lab-tools
home /work fs-2.efs.example /
"""


def run(*words: str, homes: str = HOMES, file_systems: str = FILE_SYSTEMS) -> str:
    """The output of a function of the step."""
    environment = {
        "PATH": "/usr/bin:/bin", "SCRIPT": str(SCRIPT), "HOMES": homes, "HOME_TLS_PORT": "2049", "GPUINFRA_FILE_SYSTEMS": file_systems
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", RUN, "bash", *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_home_is_mounted_as_its_service_requires() -> None:
    """A home with TLS is mounted through its own local port, and another one from its server, each with its own options."""
    assert run("homes").splitlines() == [
        "/home 127.0.0.1:/ nfsvers=4.1,hard,port=20049",
        "/tools 10.0.0.4:/lab-tools vers=3,hard",
        "/work 127.0.0.1:/ nfsvers=4.1,hard,port=20050",
    ]


def test_tunnels_exist_for_homes_with_tls_only() -> None:
    """Each tunnel connects the port of a home to its server; a home without TLS has no tunnel."""
    lines = run("tls_config").splitlines()
    accept = [line.partition(" = ")[2] for line in lines if line.startswith("accept")]
    connect = [line.partition(" = ")[2] for line in lines if line.startswith("connect")]
    assert accept == ["127.0.0.1:20049", "127.0.0.1:20050"]
    assert connect == ["fs-1.efs.example:2049", "fs-2.efs.example:2049"]


@pytest.mark.parametrize(
    ("homes", "expected"),
    [("/home plain vers=3", ["10.0.0.4:/lab-tools vers=3", "fs-2.efs.example:/ vers=3"]),
     ("/home tls nfsvers=4.1", ["127.0.0.1:/lab-tools nfsvers=4.1,port=20050", "127.0.0.1:/ nfsvers=4.1,port=20051"])],
)  # fmt: skip
def test_homes_that_the_cluster_does_not_declare_are_mounted_like_the_first(homes: str, expected: list[str]) -> None:
    """The site of another stack can have more homes than the cluster declares. Without a setting in `node.json`, they are mounted like the first one."""
    found = [line.partition(" ")[2] for line in run("homes", homes=homes).splitlines()]
    assert found[1:] == expected


@pytest.mark.parametrize(
    ("homes", "setting", "expected", "tunnels"),
    [
        ("/home plain vers=3", "tls nfsvers=4.1,hard", ["127.0.0.1:/lab-tools nfsvers=4.1,hard,port=20049", "fs-2.efs.example:/ vers=3"], 1),
        ("/home tls nfsvers=4.1", "plain vers=3,hard", ["10.0.0.4:/lab-tools vers=3,hard", "127.0.0.1:/ nfsvers=4.1,port=20050"], 2),
    ],
)  # fmt: skip
def test_a_home_with_a_setting_in_node_json_is_mounted_as_the_setting_requires(
    homes: str, setting: str, expected: list[str], tunnels: int
) -> None:
    """A home of the site that the cluster does not declare has its own connection and options, and a tunnel only with TLS."""
    entries = FILE_SYSTEMS.replace("lab-tools", f"lab-tools {setting}")
    found = [line.partition(" ")[2] for line in run("homes", homes=homes, file_systems=entries).splitlines()]
    assert found[1:] == expected
    assert run("tls_config", homes=homes, file_systems=entries).count("accept = ") == tunnels


REPLICA = r"""
set -euo pipefail
. "${SCRIPT%/*}/lib-mounts.sh"
awk() { command awk "${@:1:$#-1}" "$FSTAB"; }
is_read_only_replica "$MOUNT"
"""


@pytest.mark.parametrize(
    ("option", "writable", "expected"),
    [("x-gpuinfra.replica", False, 0), ("x-gpuinfra.replica", True, 1), ("hard", False, 1)],
)
def test_only_a_replica_can_refuse_writes(tmp_path: Path, option: str, writable: bool, expected: int) -> None:
    """A home without the option of a replica must accept writes, and so must a replica after a failover."""
    fstab, mount = tmp_path / "fstab", tmp_path / "home"
    fstab.write_text(f"127.0.0.1:/ {mount} nfs nfsvers=4.1,{option},port=20049,_netdev 0 0\n")
    if writable:
        mount.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "SCRIPT": str(SCRIPT), "FSTAB": str(fstab), "MOUNT": str(mount)}
    done = subprocess.run(["bash", "-c", REPLICA], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == expected, done.stderr
    assert not writable or not list(mount.iterdir())
