"""Where stack files are: in the current project, and those that ship with gpuinfra. Reads file names only."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuinfra.shipped import shipped


def stack_name(path: Path) -> str:
    """Return the stack name of a file: `aws-p4d` for `Pulumi.aws-p4d.yaml`."""
    stem = path.name.rsplit(".", 1)[0]
    return stem.removeprefix("Pulumi.")


def known_stacks() -> dict[str, Path]:
    """Return the stack files by the name of their stack. A stack of the project hides a shipped one of the same name."""
    known: dict[str, Path] = {}
    for folder in _folders():
        for file in sorted(folder.glob("Pulumi.*.yaml")):
            known.setdefault(stack_name(file), file)
    return known


def _folders() -> list[Path]:
    folders: list[Path] = []
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "Pulumi.yaml").is_file():
            folders += [folder / "stacks", folder]
            break
    with contextlib.suppress(FileNotFoundError):
        folders.append(shipped("stacks"))
    return [folder for folder in folders if folder.is_dir()]
