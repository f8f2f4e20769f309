"""The bundle of a pool (an archive with the bootstrap steps, the node program, and the expectation) and the user data that fetches it.

The checksum of a bundle depends only on the plan. User data contains the checksum, and a change to the user data
replaces nodes. The plan selects the steps from `bootstrap/`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.file_errors import naming
from gpuinfra.base.registry import folder_of
from gpuinfra.base.shipped import shipped
from gpuinfra.engine.entries import prune_bundles
from gpuinfra.engine.keep import cache_folder
from gpuinfra.plan.model import BootstrapStep, OwnStep, PoolPlan
from gpuinfra.plan.profile import profile_of

_CLOUD_UNITS = frozenset({"gpuinfra-health.service", "gpuinfra-health-network.service"})
"""Units that are installed only if the cloud's profile lists them."""
_UNITS_OF_STEP = {
    "gpuinfra-mig.service": "37-mig",
    "gpuinfra-metrics.service": "78-node-exporter",
    "gpuinfra-alertmanager.service": "94-monitoring",
    "gpuinfra-prometheus.service": "94-monitoring",
    "gpuinfra-repair.service": "94-monitoring",
}
"""Maps each unit to the step that enables it. The unit is installed only on nodes that run the step."""
_UNITS_OF_VERSION = {
    "gpuinfra-home-tls.service": "HOME_TLS_PORT",
    "gpuinfra-lnet.service": "LNET_EFA_DEVICES",
    "gpuinfra-logs.service": "LOG_FILES",
    "gpuinfra-metadata.service": "METADATA_GUARDED",
}
"""Maps each unit to a variable in `versions.env`. The unit is installed only if the variable is set."""
_FABRIC_UNIT = "gpuinfra-fabric.service"
"""Unit that is installed only on nodes that must pass the fabric test."""
_OWN_STEP = "bootstrap/own-step.sh"
"""Runs the scripts of declared steps."""
_NODE_PART = Path(__file__).with_name("node")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MAIN = "import sys\n\nfrom gpuinfra.node.__main__ import main\n\nsys.exit(main())\n"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A gzip archive and the checksum of its uncompressed content."""

    data: bytes = field(repr=False)
    sha256: str
    """SHA-256 of the uncompressed tar archive. The compressed bytes differ between zlib releases."""

    def key_of(self, cluster: str, pool: str) -> str:
        """Return the object key in the evidence bucket. Each pool has a unique key,
        so that clusters on the same foundation do not delete each other's bundles."""
        return f"bootstrap/{cluster}/{pool}/{self.sha256}.tar.gz"


def build(pool: PoolPlan) -> Bundle:
    """Build the bundle of a pool: the libraries and steps in `bootstrap/`, `versions.env`, the node program, the expectation,
    the declared files, and the units."""
    scripts = shipped("bootstrap")
    files = {
        **{f"bootstrap/{part.name}": part.read_bytes() for part in sorted(scripts.glob("lib*.sh"))},
        "expectation.json": _json(pool.expectation),
        "node.pyz": node_program(pool.expectation["cloud"]),
        "steps.json": _json(
            {
                "schema": "gpuinfra.steps/1",
                "steps": [_entry(step) for step in pool.steps],
            }
        ),
        "versions.env": versions_env(pool.versions).encode(),
    }
    for step in pool.steps:
        if isinstance(step, OwnStep):
            files[_OWN_STEP] = (scripts.parent / _OWN_STEP).read_bytes()
            if step.content is not None:
                files[_script_of(step)] = step.content.encode()
            continue
        source = scripts / f"{step.id}.sh"
        if not source.is_file():
            steps = ", ".join(sorted(path.stem for path in scripts.glob("[0-9]*.sh")))
            raise GpuinfraError(f"pool {pool.name} has the step {step.id!r}; allowed: {steps}")
        files[f"bootstrap/{step.id}.sh"] = source.read_bytes()
    for file in pool.files:
        files[f"files/{file.sha256}"] = file.content.encode()
    for unit in sorted((scripts / "units").glob("gpuinfra-*")):
        if unit.name in _CLOUD_UNITS and unit.name not in profile_of(pool.expectation["cloud"]).node_units:
            continue
        if unit.name in _UNITS_OF_STEP and _UNITS_OF_STEP[unit.name] not in {step.id for step in pool.steps}:
            continue
        if unit.name in _UNITS_OF_VERSION and not pool.versions.get(_UNITS_OF_VERSION[unit.name]):
            continue
        if unit.name == _FABRIC_UNIT and not pool.fabric_test:
            continue
        files[f"units/{unit.name}"] = unit.read_bytes()
    return pack(files)


def _entry(step: BootstrapStep) -> dict[str, object]:
    """Return the entry of a step in `steps.json`."""
    common: dict[str, object] = {"id": step.id, "timeout_s": step.timeout_s, "retries": step.retries}
    if not isinstance(step, OwnStep):
        return {**common, "file": f"bootstrap/{step.id}.sh"}
    script = {"url": step.source} if step.content is None else {"script": _script_of(step)}
    return {**common, "file": _OWN_STEP, "own": {**script, "sha256": step.sha256, "reboot": step.reboot}}


def _script_of(step: OwnStep) -> str:
    return f"bootstrap/own/{step.id}"


def pack(files: Mapping[str, bytes]) -> Bundle:
    """Pack files into a bundle. The checksum depends on paths, contents, and modes, but not on time, owner, or order."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if name.startswith("bootstrap/") and name != "bootstrap/lib.sh" else 0o644
            target.addfile(entry, io.BytesIO(content))
    tar = archive.getvalue()
    return Bundle(data=gzip.compress(tar, mtime=0), sha256=hashlib.sha256(tar).hexdigest())


def on_disk(built: Bundle) -> Path:
    """Write the bundle to the cache and return its path. The engine reads binary content only from files."""
    folder = cache_folder() / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{built.sha256}.tar.gz"
    if path.exists() and path.read_bytes() == built.data:
        with contextlib.suppress(OSError):  # The time of the last use. A read-only cache is still usable.
            os.utime(path)
        return path
    half = path.with_suffix(f".{id(built)}.part")
    with naming(half):
        half.write_bytes(built.data)
    half.replace(path)
    prune_bundles(cache_folder())
    return path


def user_data(node_config: Mapping[str, object]) -> str:
    """Return the script that cloud-init runs at every boot. At first boot, the script writes `node_config` to `/etc/gpuinfra/node.json`.

    The script is plain text within the size limit of the cloud. It contains no secrets, because every process on a node can read user data.
    """
    cloud = str(node_config["cloud"])
    boot = shipped("bootstrap") / "boot"
    fetcher = boot / f"fetch-{cloud}.py"
    if not fetcher.is_file():
        fetcher = folder_of(cloud) / "fetch.py"
    if not fetcher.is_file():
        raise GpuinfraError(f"the cloud {cloud!r} has no fetch.py, which nodes require to fetch the bundle")
    text = (boot / "user-data.sh").read_text(encoding="utf-8")
    for mark, path in (
        ("@UNIT@", boot / "gpuinfra-boot.service"),
        ("@FETCH@", boot / "fetch.py"),
        ("@CLOUD@", fetcher),
    ):
        text = text.replace(mark, path.read_text(encoding="utf-8").rstrip("\n"))
    text = text.replace("@NODE_JSON@", json.dumps(node_config, sort_keys=True, indent=1))
    size = len(text.encode())
    profile = profile_of(cloud)
    if size >= profile.user_data_limit:
        raise GpuinfraError(
            f"user data of pool {node_config.get('pool')!r} has {size} bytes; {profile.title} accepts fewer than {profile.user_data_limit} bytes; "
            "use shorter names or fewer file systems"
        )
    return text


def versions_env(versions: Mapping[str, str]) -> str:
    """Format the software lock as shell variables, quoted for `source`."""
    lines = []
    for name, value in sorted(versions.items()):
        if not _VARIABLE.fullmatch(name):
            raise GpuinfraError(f"versions: {name!r} is not an upper-case shell variable")
        if any(ord(letter) < 32 for letter in value):
            raise GpuinfraError(f"versions: {name} contains a line break or control character")
        lines.append(f"{name}={shlex.quote(value)}\n")
    return "".join(lines)


def node_program(cloud: str = "") -> bytes:
    """Return `gpuinfra/node/` as a zip application, including the `node` module of the cloud if the cloud has one.

    The archive is not compressed, so that it starts faster and its bytes do not depend on the zlib version.
    """
    files = {"__main__.py": _MAIN.encode(), "gpuinfra/__init__.py": b""}
    for path in sorted(_NODE_PART.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            files[f"gpuinfra/node/{path.relative_to(_NODE_PART).as_posix()}"] = path.read_bytes()
    if cloud and (module := folder_of(cloud) / "node.py").is_file():
        files[f"gpuinfra/node/{cloud}.py"] = module.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=_LONG_AGO)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # Unix, regardless of the operating system
            target.writestr(entry, content)
    return b"#!/usr/bin/env python3\n" + archive.getvalue()


def _json(content: object) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()
