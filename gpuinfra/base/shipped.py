"""Paths of the non-Python files that ship with gpuinfra.

In a checkout, the files are next to the package. A wheel contains copies in `gpuinfra/_shipped/`. Other modules get the paths from this module.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_NAMES = frozenset({"bootstrap", "engine", "plugin", "stacks"})


def shipped(name: str) -> Path:
    """Return the absolute path of the folder `bootstrap`, `engine`, `plugin`, or `stacks`.

    Raises `FileNotFoundError` if the folder is missing, and `ValueError` for any other name.
    """
    if name not in _NAMES:
        raise ValueError(f"{name!r} does not ship with gpuinfra; allowed: {', '.join(sorted(_NAMES))}")
    for folder in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name!r} of gpuinfra is missing; reinstall the package")
