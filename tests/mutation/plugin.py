"""A pytest plugin that loads one mutant instead of its module: `GPUINFRA_MUTANT=MODULE|NAME`. The source file is not changed."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from tests.mutation.mutants import mutant, source_of

VARIABLE = "GPUINFRA_MUTANT"
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


_FINDER = Finder(*os.environ[VARIABLE].split("|", 1)) if os.environ.get(VARIABLE) else None
if _FINDER is not None:
    sys.meta_path.insert(0, _FINDER)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Tests that never imported the mutant prove nothing."""
    if _FINDER is not None and not _FINDER.loaded:
        session.exitstatus = NOT_LOADED
