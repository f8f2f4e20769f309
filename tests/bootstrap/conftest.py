"""A small bundle of real bash steps in a separate folder, and ways to run and kill its runner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped

from .private_root.bench import Bench
from .private_root.root import base
from .private_root.vendors import Vendors

CHECKOUT = Path(__file__).resolve().parents[2]
HEADER = """set -euo pipefail
. "${BASH_SOURCE[0]%/*}/lib.sh"
"""
LAUNCH = "import sys; from gpuinfra.node import steps; sys.exit(steps.main(sys.argv[1:]))"
KILL_AT_WRITE = """
import os, signal, sys
from gpuinfra.node import journal, steps
number, moment = int(sys.argv.pop(1)), sys.argv.pop(1)
whole, calls = journal.write_whole, []
def write_whole(path, text):
    calls.append(path)
    if len(calls) == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    whole(path, text)
    if len(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
journal.write_whole = write_whole
sys.exit(steps.main(sys.argv[1:]))
"""


@dataclass
class Node:
    """One bundle and the root in which its steps work."""

    root: Path
    bundle: Path
    steps: list[dict[str, object]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def step(self, name: str, body: str, *, timeout_s: float = 300, retries: int = 0) -> None:
        """Add one step."""
        (self.bundle / "bootstrap" / f"{name}.sh").write_text(HEADER + body, encoding="utf-8")
        self.steps = [s for s in self.steps if s["id"] != name]
        self.steps.append({"id": name, "file": f"bootstrap/{name}.sh", "timeout_s": timeout_s, "retries": retries})
        content = {"schema": "gpuinfra.steps/1", "steps": self.steps}
        (self.bundle / "steps.json").write_text(json.dumps(content), encoding="utf-8")

    def start(self, *options: str, program: str = LAUNCH, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start the runner."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/root",
            "PYTHONPATH": str(CHECKOUT),
            "WORLD": str(self.root / "world"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.environment,
        }
        command = [
            sys.executable,
            "-c",
            program,
            *before,
            "--root",
            str(self.root),
            "--bundle",
            str(self.bundle),
            "--retry-pause-s",
            "0.01",
            *options,
        ]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(process)
        return process

    def run(self, *options: str, program: str = LAUNCH, before: tuple[str, ...] = ()) -> tuple[int, str]:
        """Run it to its end: exit code and output."""
        process = self.start(*options, program=program, before=before)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    @property
    def state(self) -> dict[str, Any]:
        """The journal."""
        return json.loads((self.root / "var/lib/gpuinfra/state.json").read_text(encoding="utf-8"))

    def status(self, name: str) -> dict[str, object]:
        """The journal entry of one step."""
        return next(entry for entry in self.state["steps"] if entry["id"] == name)

    @property
    def world(self) -> dict[str, str]:
        """The files that the steps wrote."""
        folder = self.root / "world"
        return {p.name: p.read_text(encoding="utf-8") for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node without steps. Runners that a failed test leaves are ended, so that they do not fail a later test."""
    made = Node(root=tmp_path / "root", bundle=tmp_path / "bundle")
    (made.bundle / "bootstrap").mkdir(parents=True)
    for part in shipped("bootstrap").glob("lib*.sh"):
        shutil.copy(part, made.bundle / "bootstrap" / part.name)
    (made.bundle / "versions.env").write_text("ANSWER=42\n", encoding="utf-8")
    (made.root / "etc/gpuinfra").mkdir(parents=True)
    (made.root / "world").mkdir()
    config = {
        "schema": "gpuinfra.node/1",
        "cloud": "aws",
        "cluster": "train",
        "pool": "gpu",
        "region": "us-east-1",
        "file_systems": [{"kind": "lustre", "mount": "/scratch", "dns_name": "fs-1.example", "mount_name": "abc"}],
    }
    (made.root / "etc/gpuinfra/node.json").write_text(json.dumps(config), encoding="utf-8")
    yield made
    (made.root / "world/go").touch()
    for process in made.started:
        with process:
            process.kill()


@pytest.fixture
def three(node: Node) -> Node:
    """A node with three steps, each of which writes one file in two parts."""
    for name in ("10-one", "20-two", "30-three"):
        node.step(
            name,
            f"""
load_versions
if ! [[ -f $WORLD/{name} ]]; then
  printf 'half' >"$WORLD/{name}.part"
  sleep 0.03
  printf '%s' "$ANSWER" >"$WORLD/{name}.part"
  mv "$WORLD/{name}.part" "$WORLD/{name}"
  changed "made {name}"
fi
[[ $(<"$WORLD/{name}") == 42 ]] || die "{name} is wrong"
record {name.partition("-")[2]} "$ANSWER"
proved "{name} is there"
""",
        )
    return node


def alive(pid: int) -> bool:
    """True if a process runs; zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The vendors' servers, without a machine."""
    base()
    with Vendors(tmp_path / "vendors") as vendors:
        yield Bench(tmp_path, vendors)
