"""Imports the public names of a package on first use, so that a plan does not import an SDK and a program imports only the SDK of one cloud."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Collection
from pathlib import Path


def lazy_exports(package: str, file: str, names: Collection[str]) -> Callable[[str], object]:
    """Return `__getattr__` for a package. Each of the names is imported as the package imports it for type checkers."""
    homes: dict[str, str] = {}

    def exported(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        homes.update(homes or homes_in(Path(file)))
        return getattr(importlib.import_module(homes[name]), name)

    return exported


def homes_in(file: Path) -> dict[str, str]:
    """Return the module of each name that a file imports under `if TYPE_CHECKING`."""
    blocks = [
        statement
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: line.module or "" for line in imports for alias in line.names}
