"""Repairs the files of a state backend in a local folder (`file://`) after all processes of a run were killed.

Such a backend writes a state by renaming a complete file, and its attributes (`.attrs`) in place. A kill can truncate the attributes, and
the engine then rejects the state: `failed to load checkpoint: EOF`. A missing attribute file means the defaults (gocloud.dev/blob/fileblob). Before each
write, the engine copies the state to `.bak` (`backupTarget` in pkg/backend/diy/state.go of Pulumi v3.259.0). Backends in object stores write whole objects.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpuinfra.base.errors import DeploymentError
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import NO_STACK, quick

WRITE_S = 1.0
"""How long to wait for a run that is writing the state at this moment."""


def make_readable(
    engine: Engine, stack: str, project: Path, backend: Callable[[], str], say: Callable[[str], None]
) -> None:
    """Repair the state of a stack in a local folder if the engine cannot read it. Other problems are reported by the next operation.

    `backend` returns the URL of the state backend, and `say` prints one line for each repair.
    """
    for wait in (WRITE_S, 0.0):
        done = quick(engine, project, "stack", "export", "--stack", stack)
        if done.returncode == 0 or NO_STACK in done.stderr:
            return
        time.sleep(wait)
    folder = folder_of(backend())
    if folder is None:
        return
    if number := drop_truncated_attributes(folder):
        say(f"a killed run truncated {number} attribute files of the state backend; removed them")
    for checkpoint in sorted(folder.glob(f".pulumi/stacks/*/{stack}.json")):
        if restore_state(checkpoint):
            say(f"a killed run truncated {checkpoint.name}; restored it from its backup")


def folder_of(backend: str) -> Path | None:
    """Return the folder of a state backend, or None for another backend."""
    url = urlsplit(backend)
    return Path(unquote(url.path)) if url.scheme == "file" and url.path else None


def restore_state(checkpoint: Path) -> bool:
    """Replace a truncated state file with its backup. Return whether the file was replaced. Raises `DeploymentError` if both are truncated."""
    if _is_complete(checkpoint):
        return False
    backup = checkpoint.with_name(checkpoint.name + ".bak")
    if not _is_complete(backup):
        raise DeploymentError(
            f"{checkpoint} and its backup are both truncated; restore a file of `.pulumi/backups` with `pulumi stack import`"
        )
    partial = checkpoint.with_name(checkpoint.name + ".partial")
    shutil.copyfile(backup, partial)
    partial.replace(checkpoint)
    return True


def drop_truncated_attributes(state: Path) -> int:
    """Remove truncated attribute files (`*.attrs`) of a backend, and return their number."""
    truncated = [path for path in state.rglob("*.attrs") if not _is_complete(path)]
    for path in truncated:
        path.unlink(missing_ok=True)
    return len(truncated)


def _is_complete(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False
