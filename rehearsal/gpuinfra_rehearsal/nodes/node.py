"""One stand-in node: its files, its process and its status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuinfra_rehearsal.nodes.state import Instance


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """Status of one node."""

    id: str
    name: str
    pool: str
    stage: str
    """`pending`, `booting`, `cloud-init`, `step 30-driver`, `checks`, `reported`, `failed`, `suspended`."""
    detail: str
    boot_id: str
    boots: int


@dataclass
class StandInNode:
    """One node. `host.json` contains all data that must survive this process."""

    folder: Path
    instance: Instance
    power: str = "off"
    """`off`, `on`, `suspended` or `ended`: the last or the requested state."""
    boot_id: str = ""
    boots: int = 0
    process: subprocess.Popen[bytes] | None = None
    init_pid: int | None = None
    settled: bool = False
    ending: int | None = None
    """The exit code that the node's init announced. A reboot or power-off has begun."""
    slot_until: float = 0.0

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def save(self) -> None:
        record = {"instance": asdict(self.instance), "power": self.power, "boot_id": self.boot_id, "boots": self.boots}
        partial = self.folder / ".host.json"
        partial.write_text(json.dumps(record, indent=1), encoding="utf-8")
        partial.replace(self.folder / "host.json")


def hostname(instance: Instance) -> str:
    """The host name of the machine."""
    return f"{instance.cluster}-{instance.name}"[:60]


class NotRunning(RuntimeError):
    """The node is not running, so it cannot run a command now."""


def empty(folder: Path) -> None:
    """Remove the content of a folder. The folder contains no mounts, because a node's mounts end with the node."""
    if folder.is_dir():
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def write_environment(node_root: Path, environ: dict[str, str]) -> None:
    """Write /etc/environment, which contains these variables in a machine image."""
    variables = {name: value for name, value in environ.items() if name not in ("HOME",)}
    (node_root / "etc/environment").write_text(
        "".join(f'{name}="{value}"\n' for name, value in variables.items()), encoding="utf-8"
    )
