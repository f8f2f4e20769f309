"""Exports of rehearsed stacks, one folder for each released version, that later versions must upgrade without a replacement.

`python -m tests.upgrade.states` rehearses the stacks with the present program and writes the folder of the present version. Run it once for
each release, and never again for a version that is released.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gpuinfra_rehearsal.events import RunProgress
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, open_session

STACKS = ("aws-p4d", "azure-ndv4", "gcp-a3high")
"""One stack of each cloud."""
DAY = date(2026, 11, 22)
"""The day that the rehearsals use: windows and budgets depend on it."""
FOLDER = Path(__file__).parent
EXPORTS = sorted(FOLDER.glob("*/*.json"))
ENGINE = "v3.259.0"
NOT_KEPT = ("created", "modified", "sourcePosition", "stackTrace")
"""Fields of a resource that differ on each machine and each run, and that no upgrade depends on."""


def preview(export: Path, folder: Path) -> RunProgress:
    """Import an export into a new backend and preview the present program against it."""
    rows = [_complete(row) for row in json.loads(export.read_text(encoding="utf-8"))]
    with open_session(Options(stack=export.stem, folder=folder, on=DAY), view_for(sys.stderr)) as session:
        salt = YAML(typ="safe").load(session.folder.stack_file.read_text(encoding="utf-8"))["encryptionsalt"]
        # The engine writes this hash into each export and refuses a file that was edited by hand.
        manifest = {
            "time": f"{DAY}T00:00:00Z",
            "magic": hashlib.sha256(ENGINE.encode()).hexdigest(),
            "version": ENGINE,
        }
        keys = {"type": "passphrase", "state": {"salt": salt}}
        deployment = {"manifest": manifest, "secrets_providers": keys, "resources": rows}
        file = folder / "import.json"
        file.write_text(json.dumps({"version": 3, "deployment": deployment}), encoding="utf-8")
        session.pulumi.quick("stack", "import", "--file", str(file), "--stack", export.stem)
        done = session.operate("preview", title=f"preview of the upgrade of {export.parent.name}")
    assert done.ok, done.output[-4000:]
    return done.progress


def write(stack: str, folder: Path) -> Path:
    """Rehearse a stack and write its export. Raises AssertionError if the rehearsal fails."""
    with open_session(Options(stack=stack, folder=folder, on=DAY), view_for(sys.stderr)) as session:
        done = session.operate("up", "--yes", "--skip-preview", title=f"deployment of {stack}")
        assert done.ok, done.output[-4000:]
        text = session.pulumi.quick("stack", "export", "--show-secrets", "--stack", stack)
    rows = [_portable(row) for row in json.loads(text)["deployment"]["resources"]]
    target = FOLDER / _version() / f"{stack}.json"
    target.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return target


def _portable(row: dict[str, Any]) -> dict[str, Any]:
    """A resource without the fields that name the machine or the time of the run, and without outputs that repeat an input."""
    row = {key: value for key, value in row.items() if key not in NOT_KEPT}
    inputs = (row.get("inputs") or {}) if row.get("custom") else {}
    row["outputs"] = {k: v for k, v in (row.get("outputs") or {}).items() if k not in inputs or inputs[k] != v}
    return json.loads(json.dumps(row), object_hook=_without_path)


def _complete(row: dict[str, Any]) -> dict[str, Any]:
    """A resource with all of its outputs again."""
    inputs = {key: value for key, value in (row.get("inputs") or {}).items() if key != "__defaults"}
    return {**row, "outputs": {**inputs, **(row.get("outputs") or {})}} if row.get("custom") else row


def _without_path(value: dict[str, Any]) -> dict[str, Any]:
    """An asset without the path of its file; its hash identifies the content."""
    return {**value, "path": Path(value["path"]).name} if {"path", "hash"} <= value.keys() else value


def _version() -> str:
    return tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


if __name__ == "__main__":
    for name in STACKS:
        with tempfile.TemporaryDirectory() as place:
            print(write(name, Path(place)))
