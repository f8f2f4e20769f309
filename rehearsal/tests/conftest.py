"""Fixtures that run `gpuinfra rehearse` in a process and a folder of its own.

They need Pulumi's engine (`python -m gpuinfra.engine` builds it) and, for nodes, user namespaces.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 1700


@dataclass(frozen=True)
class Finished:
    """A finished command: exit code, output and the folder of its rehearsal."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report that it wrote."""
        return dict(json.loads((self.root / "report.json").read_text(encoding="utf-8")))

    @property
    def state(self) -> list[dict[str, Any]]:
        """The resources in Pulumi's state."""
        path = next(self.root.glob("state/.pulumi/stacks/*/*.json"))
        return list(json.loads(path.read_text(encoding="utf-8"))["checkpoint"]["latest"].get("resources") or [])


def command(*words: str) -> list[str]:
    """`gpuinfra WORDS` with the Python of the tests."""
    return [sys.executable, "-m", "gpuinfra", *words]


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of drills and journals of a test are not in the folder of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def run(words: Sequence[str], root: Path, env: dict[str, str] | None = None, cwd: Path = REPOSITORY) -> Finished:
    """Run a command to its end. PYTHONPATH selects the package under test."""
    given = {**(env if env is not None else os.environ), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        list(words),
        cwd=cwd,
        env=given,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Finished(done.returncode, done.stdout, done.stderr, root)


Rehearse = Callable[..., Finished]


@pytest.fixture
def rehearse(tmp_path: Path) -> Rehearse:
    """`rehearse("up", "aws-p4d", "--fault", ...)` in a folder of this test."""

    def call(action: str, stack: str, *options: str, **more: Any) -> Finished:
        # Nodes that start are verified sooner or later. The deadline of a rehearsal is too early on a busy machine.
        patience = () if {"--deadline", "--fault"} & set(options) else ("--deadline", "1200s")
        words = command("rehearse", action, stack, "--folder", str(tmp_path / "r"), *options, *patience)
        name = Path(stack).name.removeprefix("Pulumi.").removesuffix(".yaml")
        return run(words, tmp_path / "r" / name, **more)

    return call


def fewer_nodes(stack: str, folder: Path) -> str:
    """Write the shipped stack with two nodes in `folder`: its pools and kinds of capacity stay. Returns the path of the file."""
    text = (REPOSITORY / "stacks" / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    count = 2 // len(re.findall(r"count: \d+", text))
    path = folder / f"Pulumi.{stack}.yaml"
    path.write_text(re.sub(r"count: \d+", f"count: {count}", text), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def needs_nodes() -> None:
    """Skip on a system without the namespaces of stand-in nodes."""
    from gpuinfra_rehearsal.nodes import available

    able, why = available()
    if not able:
        pytest.skip(f"stand-in nodes cannot run here: {why}")


def cloud_resources(root: Path) -> list[tuple[str, str, str]]:
    """(type, id, URN) of each resource in the stand-in cloud, from its file."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(root / "cloud.sqlite")) as store:
        return [(str(a), str(b), str(c)) for a, b, c in store.execute("select type, id, urn from resources")]


def assert_lived(result: Finished) -> None:
    """Every step has its expected effect, and the operator and the nodes used every permission and no other."""
    assert result.code == 0, result.out[-6000:] + result.err
    steps = {s["step"]: s for s in result.report["life"]}
    assert all(s["ok"] for s in steps.values())
    assert "replace a node" in steps
    if (repaired := steps.get("repair a node")) and shutil.which("prometheus"):
        chain = [
            word
            for word in re.findall(r"[a-z]+", repaired["found"])
            if word in ("draining", "replacing", "verified", "limited")
        ]
        assert chain[:4] == ["draining", "replacing", "verified", "limited"]
    assert "no changes to resources or nodes" in steps["up again"]["found"]
    assert result.report["totals"]["nodes_verified"] == result.report["totals"]["nodes"] > 1
    under, rights = result.report["permissions"], result.report["rights"]
    assert (under["refused"], under["unused"]) == ([], [])
    assert (rights["refused"], rights["unused"]) == ([], [])
