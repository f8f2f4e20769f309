"""Where the files are that ship with gpuinfra but are not Python modules.

In a checkout they lie beside the package; a wheel carries copies in `gpuinfra/_shipped/`.
Nobody else computes such a path.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_NAMES = frozenset({"bootstrap", "engine", "plugin", "stacks"})


def shipped(name: str) -> Path:
    """The folder `bootstrap`, `engine`, `plugin` or `stacks`, as an absolute path.

    Raises `FileNotFoundError` when the installation lacks it, and `ValueError` for a name that never ships.
    """
    if name not in _NAMES:
        raise ValueError(f"{name!r} does not ship with gpuinfra; known are {', '.join(sorted(_NAMES))}")
    for folder in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"this installation of gpuinfra lacks its folder {name!r}; install the package again")
