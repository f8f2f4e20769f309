"""Paths of the files that ship with gpuinfra and are not Python modules.

In a checkout they are next to the package; a wheel contains copies in `gpuinfra/_shipped/`. Other modules get these paths from here.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_NAMES = frozenset({"bootstrap", "engine", "plugin", "stacks"})


def shipped(name: str) -> Path:
    """The folder `bootstrap`, `engine`, `plugin` or `stacks`, as an absolute path.

    Raises `FileNotFoundError` if the folder is missing, and `ValueError` for another name.
    """
    if name not in _NAMES:
        raise ValueError(f"{name!r} does not ship with gpuinfra; allowed: {', '.join(sorted(_NAMES))}")
    for folder in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the folder {name!r} of gpuinfra is missing; reinstall the package")
