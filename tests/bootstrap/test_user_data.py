"""The script that cloud-init runs at first boot."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuinfra import bundle
from gpuinfra.base.errors import GpuinfraError

from .standin_s3 import SECRETS, Cloud

GOLDEN = Path(__file__).parent / "golden" / "user-data-aws.sh"
SHA256 = "5" * 64


def config(**more: object) -> dict[str, object]:
    """The node.json of one node."""
    return {
        "schema": "gpuinfra.node/1",
        "cloud": "aws",
        "cluster": "train",
        "pool": "gpu",
        "region": "us-east-1",
        "evidence": {"bucket": "train-evidence", "prefix": "evidence/train", "owner": "AROA00000000000000001"},
        "bundle": {"bucket": "train-evidence", "key": f"bootstrap/{SHA256}.tar.gz", "sha256": SHA256},
        "file_systems": [
            {"kind": "lustre", "mount": "/scratch", "dns_name": "fs-1.fsx.us-east-1.amazonaws.com", "mount_name": "abc"}
        ],
        **more,
    }


def test_user_data_is_unchanged() -> None:
    """Every byte is golden, because other user data makes another launch template and replaces nodes.

    After an intended change: GPUINFRA_WRITE_GOLDEN=1 pytest tests/bootstrap/test_user_data.py
    """
    text = bundle.user_data(config())
    if os.environ.get("GPUINFRA_WRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_long_names_and_eight_file_systems_fit() -> None:
    """The longest names that clouds allow stay below EC2's limit."""
    long = "x" * 63
    systems = [
        {
            "kind": "lustre",
            "mount": f"/{long}/{n}",
            "dns_name": f"{long}.fsx.ap-southeast-5.amazonaws.com",
            "mount_name": "a" * 8,
        }
        for n in range(8)
    ]
    text = bundle.user_data(config(cluster=long, pool=long, file_systems=systems))
    assert len(text.encode()) < 16 * 1024


def test_too_large_user_data_is_refused() -> None:
    """Above the limit there is one message instead of a node that never boots."""
    with pytest.raises(GpuinfraError, match="AWS accepts fewer than 16384"):
        bundle.user_data(config(cluster="x" * 16000))


def test_unknown_cloud_is_refused() -> None:
    """A cloud without download code is named."""
    with pytest.raises(GpuinfraError, match="'oracle'; allowed: aws, azure"):
        bundle.user_data(config(cloud="oracle"))


def test_it_is_bash_and_contains_its_configuration(tmp_path: Path) -> None:
    """Bash parses it; node.json is unchanged, with quotes, dollars and backticks in it."""
    nasty = config(cluster="a'b\"c$(id)`id`\\n")
    script = tmp_path / "user-data.sh"
    script.write_text(bundle.user_data(nasty), encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)
    function = script.read_text(encoding="utf-8").replace('\nmain "$@"\n', "\nnode_json\n")
    answer = subprocess.run(["bash", "-c", function], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == nasty


def test_it_contains_no_secret() -> None:
    """It contains no key, token or password."""
    text = bundle.user_data(config()).lower()
    for word in ("akia", "asia", "password", "private key", "begin "):
        assert word not in text


BUNDLED = {
    "node.pyz": b"hello",
    "units/gpuinfra-attest.service": b"[Unit]\n",
    "units/gpuinfra-attest.timer": b"[Install]\n",
    "units/gpuinfra-bootstrap.service": b"hello\n[Install]\n",
}


def small_bundle() -> tuple[bytes, str]:
    """A minimal bundle that boots, and its checksum."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as target:
        for name, content in BUNDLED.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))
    tar = archive.getvalue()
    return gzip.compress(tar), hashlib.sha256(tar).hexdigest()


PRIVATE = """
set -eu
mount --rbind "$1/etc" /etc
for folder in /opt /var/lib /run; do mount -t tmpfs tmpfs "$folder"; done
export PATH="$1/bin:$PATH"
. "$1/life.sh"
cp -a /opt "$1/opt.after"
cp -a /var/lib/gpuinfra "$1/lib.after"
"""
BOOT = """
boot() {
  bash "$1/user-data.sh"
  [[ ! -e /etc/systemd/system/multi-user.target.wants/gpuinfra-boot.service ]] || bash /opt/gpuinfra/boot/user-data start
}
"""
"""One boot: cloud-init runs the hook, and systemd runs the unit that the hook installed."""
SYSTEMCTL = """#!/bin/bash
echo "$*" >>FOLDER/systemctl.log
[[ $1 != enable ]] || for unit in "${@:2}"; do ln -sf "/etc/systemd/system/$unit" /etc/systemd/system/multi-user.target.wants/; done
"""
ENABLED = ["gpuinfra-attest.timer", "gpuinfra-bootstrap.service"]


@dataclass
class Private:
    """A machine in a private mount namespace that boots with user data; only systemctl is a stand-in."""

    folder: Path
    cloud: Cloud

    def live(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run the boots in the script."""
        (self.folder / "life.sh").write_text(
            f"{BOOT}\n[[ ${{2:-}} == only-functions ]] && return\n{script}", encoding="utf-8"
        )
        return subprocess.run(
            ["unshare", "-rm", "bash", "-c", PRIVATE, "-", str(self.folder)],
            env={"PATH": os.environ["PATH"], **self.cloud.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )

    @property
    def calls(self) -> list[str]:
        """The calls of systemctl."""
        return (self.folder / "systemctl.log").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Private]:
    """A machine that was never booted, and the bucket with its bundle."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system does not allow namespaces: user and mount")
    data, sha256 = small_bundle()
    key = f"bootstrap/{sha256}.tar.gz"
    shutil.copytree(
        "/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True, copy_function=shutil.copyfile
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(SYSTEMCTL.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    # Not a launcher in bash, whose commands would be cut too.
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    bundle_of = {"bucket": "train-evidence", "key": key, "sha256": sha256}
    (tmp_path / "user-data.sh").write_text(bundle.user_data(config(bundle=bundle_of)), encoding="utf-8")
    with Cloud({f"train-evidence/{key}": data}) as cloud:
        yield Private(tmp_path, cloud)


def test_it_boots_a_node(private: Private) -> None:
    """Download, verify, unpack, enable and start; at the second boot, there is nothing to do."""
    answer = private.live('boot "$1"; boot "$1"')
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert len(private.cloud.served) == 1, "the second boot needs no second download"
    assert private.calls == [
        "daemon-reload",
        "restart --no-block gpuinfra-boot.service",
        "daemon-reload",
        f"enable {' '.join(ENABLED)}",
        f"start --no-block {' '.join(ENABLED)}",
    ]
    sha256 = small_bundle()[1]
    opt = private.folder / "opt.after/gpuinfra"
    assert (opt / "current").readlink() == Path(f"/opt/gpuinfra/{sha256}")
    assert sorted(p.name for p in opt.iterdir()) == sorted([sha256, "boot", "current"])
    system = private.folder / "etc/systemd/system"
    assert (system / "gpuinfra-bootstrap.service").read_bytes() == BUNDLED["units/gpuinfra-bootstrap.service"]
    for secret in SECRETS:
        assert secret not in answer.stdout + answer.stderr


def test_a_renewed_configuration_survives_a_boot(private: Private) -> None:
    """cloud-init runs the first user data at every boot; a configuration that was renewed on the running node stays."""
    renewed = (private.folder / "user-data.sh").read_text(encoding="utf-8").replace('"pool": "gpu"', '"pool": "new"')
    (private.folder / "renewed.sh").write_text(renewed, encoding="utf-8")
    answer = private.live('boot "$1"; bash "$1/renewed.sh" renew; boot "$1"; boot "$1"')
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert json.loads((private.folder / "lib.after/started.json").read_text(encoding="utf-8"))["pool"] == "new"
    assert private.calls.count("restart --no-block gpuinfra-boot.service") == 2


CUT = """
cat >"$1/cut" <<'END'
set -T
trap '{ read -r left <"$CUT/left"; echo $((left - 1)) >"$CUT/left"; ((left > 0)) || kill -9 0; } 2>/dev/null' DEBUG
END
for moment in MOMENTS; do
  rm -rf /opt/* /var/lib/* /etc/gpuinfra /etc/systemd/system/gpuinfra-* /etc/systemd/system/multi-user.target.wants
  echo "$moment" >"$1/left"
  # The session ends as a whole, as a machine does.
  CUT=$1 BASH_ENV=$1/cut setsid -w bash -c 'set -- "$1" only-functions; . "$1/life.sh"; boot "$1"' - "$1" >/dev/null 2>&1 && echo "no cut at $moment"
  boot "$1" >/dev/null
  cmp /etc/gpuinfra/node.json /var/lib/gpuinfra/started.json
  [[ $(readlink /opt/gpuinfra/current) == /opt/gpuinfra/* && -s /opt/gpuinfra/current/node.pyz ]]
  for unit in ENABLED; do [[ -s /etc/systemd/system/$unit && -L /etc/systemd/system/multi-user.target.wants/$unit ]]; done
done
"""


@pytest.mark.parametrize(
    "moments",
    ["3 13 20 40 60", pytest.param("{0..124}", marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_a_power_cut_before_any_command_is_resumed_at_the_next_boot(private: Private, moments: str) -> None:
    """Killed before each command of user data, in the hook or in the unit, the next boot installs and starts everything."""
    answer = private.live(CUT.replace("MOMENTS", moments).replace("ENABLED", " ".join(ENABLED)))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    uncut = [int(line.rpartition(" ")[2]) for line in answer.stdout.splitlines()]
    assert not uncut or min(uncut) > 60, answer.stdout
    assert moments[0] != "{" or uncut, "the commands after the last moment were not cut"
