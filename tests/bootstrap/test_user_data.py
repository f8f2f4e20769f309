"""The script that cloud-init runs at first boot."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
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
status=0
bash "$1/user-data.sh" || status=$?
bash "$1/user-data.sh" || status=$?
cp -a /opt "$1/opt.after"
exit "$status"
"""


def test_it_boots_a_node(tmp_path: Path) -> None:
    """In a private mount namespace: download, verify, unpack, enable and start; a second run changes nothing."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system does not allow namespaces: user and mount")
    data, sha256 = small_bundle()
    key = f"bootstrap/{sha256}.tar.gz"
    shutil.copytree(
        "/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True, copy_function=shutil.copyfile
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/systemctl.log\n', encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    bundle_of = {"bucket": "train-evidence", "key": key, "sha256": sha256}
    (tmp_path / "user-data.sh").write_text(bundle.user_data(config(bundle=bundle_of)), encoding="utf-8")
    with Cloud({f"train-evidence/{key}": data}) as cloud:
        answer = subprocess.run(
            ["unshare", "-rm", "bash", "-c", PRIVATE, "-", str(tmp_path)],
            env={"PATH": os.environ["PATH"], **cloud.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert cloud.served == [f"/train-evidence/{key}"], "the second run needs no second download"
    calls = (tmp_path / "systemctl.log").read_text(encoding="utf-8").splitlines()
    assert calls[:2] == [
        "daemon-reload",
        "enable gpuinfra-attest.timer gpuinfra-bootstrap.service",
    ]
    assert calls[2] == "start --no-block gpuinfra-attest.timer gpuinfra-bootstrap.service"
    assert len(calls) == 3, "the second run finds everything started"
    assert (tmp_path / "opt.after/gpuinfra/current").readlink() == Path(f"/opt/gpuinfra/{sha256}")
    assert sorted(p.name for p in (tmp_path / "opt.after/gpuinfra").iterdir()) == sorted([sha256, "current"])
    assert (tmp_path / "etc/systemd/system/gpuinfra-bootstrap.service").read_bytes() == BUNDLED[
        "units/gpuinfra-bootstrap.service"
    ]
    for secret in SECRETS:
        assert secret not in answer.stdout + answer.stderr
