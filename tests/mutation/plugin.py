"""A pytest plugin that loads one mutant instead of its module. The source file is not changed.

Of a script, which has its path instead of a module name, the tests get a copy of its folder with the mutant.
"""

from __future__ import annotations

import ast
import atexit
import importlib.abc
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation import shell
from tests.mutation.mutants import mutant, source_of

ROOT = Path(__file__).parents[2]

NOT_LOADED = 9
"""Exit code if no test imported the mutant."""


class Finder(importlib.abc.MetaPathFinder):
    """Loads the mutant when its module is imported."""

    def __init__(self, module: str, name: str) -> None:
        self._path = source_of(module)
        self._module, self._tree = module, mutant(self._path.read_text(encoding="utf-8"), name)
        self.loaded = False
        assert module not in sys.modules, f"{module} was imported before its mutant"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        self.loaded = True
        return importlib.util.spec_from_file_location(fullname, self._path, loader=_Loader(self._tree, str(self._path)))


class _Loader(importlib.abc.Loader):
    def __init__(self, tree: object, path: str) -> None:
        self._tree, self._path = tree, path

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._tree, self._path, "exec"), module.__dict__)  # type: ignore[call-overload]


class Script:
    """Replaces the folder with the scripts that `gpuinfra.base.shipped` returns."""

    def __init__(self, path: str, name: str) -> None:
        from gpuinfra.base import shipped as module

        source = source_of(path)
        text = source.read_text(encoding="utf-8")
        folder = Path(tempfile.mkdtemp(prefix="mutant-")) / "bootstrap"
        atexit.register(shutil.rmtree, folder.parent)
        shutil.copytree(ROOT / "bootstrap", folder)
        changed = ast.unparse(mutant(text, name)) + "\n" if source.suffix == ".py" else shell.mutant(text, name)
        (folder / source.relative_to(ROOT / "bootstrap")).write_text(changed, encoding="utf-8")
        own, self.loaded = module.shipped, False

        def shipped(name: str) -> Path:
            self.loaded = self.loaded or name == "bootstrap"
            return folder if name == "bootstrap" else own(name)

        module.shipped = shipped


_INSTALLED: list[Finder | Script] = []


def install(module: str, name: str) -> None:
    """Let this process load a mutant instead of its module or script."""
    if "/" in module:
        _INSTALLED.append(Script(module, name))
        return
    finder = Finder(module, name)
    sys.meta_path.insert(0, finder)
    _INSTALLED.append(finder)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Tests that never imported the mutant prove nothing."""
    if not all(one.loaded for one in _INSTALLED):
        session.exitstatus = NOT_LOADED
