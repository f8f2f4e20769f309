"""Finds the stack files of the current project and those that ship with gpuinfra. Reads only file names."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuinfra.base.shipped import shipped

SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of stack files."""


def stack_name(path: Path) -> str:
    """Return the stack name of a file: `aws-p4d` for `Pulumi.aws-p4d.yaml`. A path without one of the suffixes ends with the name itself.

    Names can contain dots (`ParseStackName` in sdk/go/common/tokens/stack_name.go of Pulumi v3.259.0).
    """
    suffix = next((one for one in SUFFIXES if path.name.endswith(one)), "")
    return path.name.removesuffix(suffix).removeprefix("Pulumi.") if suffix else path.name


def known_stacks() -> dict[str, Path]:
    """Return the stack files, keyed by stack name. A stack in the project overrides a shipped stack with the same name."""
    stacks: dict[str, Path] = {}
    for folder in _folders():
        for file in sorted(folder.glob("Pulumi.*.yaml")):
            stacks.setdefault(stack_name(file), file)
    return stacks


def stack_argument(path: Path) -> str:
    """Return how commands name a stack file, which need not exist yet: its stack name if they find it by name, otherwise its path."""
    name, place = stack_name(path), path.resolve()
    name_of_stack = known_stacks().get(name)
    there = name_of_stack or next((one / place.name for one in _folders() if one.resolve() == place.parent), None)
    by_name = place.name == f"Pulumi.{name}.yaml" and there is not None and there.resolve() == place
    return name if by_name else str(path)


def project_folder(folder: Path) -> Path | None:
    """Return the nearest folder with a `Pulumi.yaml`, in an absolute path or above it, as Pulumi does. None if there is none."""
    # The parents of `/a/b/../c` include `/a/b`, which is not above the folder.
    folder = folder.resolve() if ".." in folder.parts else folder
    return next((one for one in (folder, *folder.parents) if (one / "Pulumi.yaml").is_file()), None)


def _folders() -> list[Path]:
    project = project_folder(Path.cwd())
    folders = [project / "stacks", project] if project else []
    with contextlib.suppress(FileNotFoundError):
        folders.append(shipped("stacks"))
    return [folder for folder in folders if folder.is_dir()]
