"""Rehearsal folders for tests."""

from __future__ import annotations

from pathlib import Path

from gpuinfra_rehearsal.folder import Folder


def folder_in(path: Path, stack: str = "try") -> Folder:
    """A created folder of a stack."""
    folder = Folder(root=path / "rehearsal" / stack, stack=stack)
    folder.make()
    return folder
