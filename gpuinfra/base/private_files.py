"""Files and folders that only their owner can read."""

from __future__ import annotations

import os
from pathlib import Path

from gpuinfra.base.file_errors import naming


def private_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700. The mode of existing folders does not change."""
    for parent in [*reversed(folder.parents), folder]:
        parent.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600. The mode of an existing file does not change."""
    with (
        naming(path),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file,
    ):
        file.write(text)
