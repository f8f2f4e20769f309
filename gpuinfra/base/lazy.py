"""Imports the public names of a package on first use, so that a plan does not import an SDK and a program imports only the SDK of one cloud."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], object], list[str]]:
    """Return `__getattr__` and `__all__` for a package. The public names are those that the package imports for type checkers, as `import NAME as NAME`,
    which marks a name as public for them."""
    homes = homes_in(Path(file))

    def exported(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return exported, sorted(homes)


def homes_in(file: Path) -> dict[str, str]:
    """Return the module of each name that a file imports under `if TYPE_CHECKING`."""
    blocks = [
        statement
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: line.module or "" for line in imports for alias in line.names}
