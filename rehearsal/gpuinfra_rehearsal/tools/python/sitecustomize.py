"""Python imports this module at startup on a stand-in node. ctypes then loads the stand-in NCCL, CUDA runtime and NVML.

The libraries of vendors' packages are text files on a stand-in node, which the dynamic loader cannot load.
"""

from __future__ import annotations

import sys


class _WhenCtypesIsImported:
    """A finder that patches `ctypes` only when a program imports it, because most programs do not."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "ctypes":
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(name, None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: object) -> None:
            execute(module)  # type: ignore[arg-type]
            sys.path.insert(0, "/run/standin/lib")
            from standin.tools import nccl  # type: ignore[import-not-found]

            sys.path.remove("/run/standin/lib")
            nccl.serve(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _WhenCtypesIsImported())  # type: ignore[arg-type]
