"""Finds the Pulumi engine on this machine, or builds it.

The engine is always the real Pulumi CLI. `find_engine` uses, in this order: a `pulumi` on PATH that is recent enough; the engine in the
cache; an engine built from source with `engine/go.mod`, using the Go toolchain on PATH or from PyPI. Otherwise, the error lists what
to install. `rehearsal/gpuinfra_rehearsal/` runs the engine.
Read next: `find.py` for the search order, `keep.py` for the cache, and `build.py` for the build.
"""

from __future__ import annotations

from gpuinfra.engine.find import Engine, find_engine

__all__ = ["Engine", "find_engine"]
