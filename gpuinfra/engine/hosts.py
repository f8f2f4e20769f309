"""Finds or builds the language host of a runtime other than Python.

The engine starts a host that is next to it, so Pulumi's release needs nothing else. For an engine without the host, gpuinfra passes the
folder of the host in the project file (`plugins.languages`). The host is built only when a program needs it, and is cached like the engine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing, reason_of
from gpuinfra.base.heartbeat import heard
from gpuinfra.base.shipped import shipped
from gpuinfra.engine import go, keep
from gpuinfra.engine.build import build
from gpuinfra.engine.find import QUIET_S, STILL, Engine
from gpuinfra.engine.module import NODEJS, YAML, Module, read_module

Progress = Callable[[str], None]

PROGRAMS = {"nodejs": NODEJS, "yaml": YAML}
"""The Go package of each host."""
OWN_MODULES = ("yaml",)
"""Hosts with a Go module of their own, in the folder of `engine/` that is named after the runtime, because they require another version of Pulumi's SDK."""

NO_HOST = """no pulumi-language-{runtime} found, and it cannot be built: {reason}
provide one of the following, then run the command again:
  - Pulumi's release, in which pulumi-language-{runtime} is next to `pulumi` (https://www.pulumi.com/docs/install/)
  - Go {go} or later (https://go.dev/doc/install), which gpuinfra uses to build the host
  - network access to a Python package index, from which gpuinfra installs Go"""


def find_host(runtime: str, engine: Engine, progress: Progress = lambda line: None) -> Path | None:
    """Return the folder of the language host of a runtime, or None if the engine finds the host itself. A missing host is built.

    Raises `EnvironmentMissing` if the host cannot be built.
    """
    name = f"pulumi-language-{runtime}"
    if runtime not in PROGRAMS or os.access(engine.path.resolve().parent / name, os.X_OK):
        return None
    if on_path := shutil.which(name):
        return Path(on_path).parent
    cache, module, programs = keep.cache_folder(), module_of(runtime), (PROGRAMS[runtime],)
    if folder := keep.kept(cache, module, programs):
        return folder
    try:
        with heard(progress, STILL, QUIET_S) as progress, keep.lock(cache, module, programs, progress):
            if folder := keep.kept(cache, module, programs):  # Another run was faster.
                return folder
            toolchain = go.find_go(cache, module.go, progress)
            return build(cache, module, programs, toolchain, progress)
    except go.NoGo as error:
        raise EnvironmentMissing(NO_HOST.format(runtime=runtime, reason=error, go=module.go)) from error
    except OSError as error:
        raise EnvironmentMissing(
            f"{name} cannot be stored in {cache}: {reason_of(error)}; set GPUINFRA_CACHE to a writable folder"
        ) from error


def module_of(runtime: str) -> Module:
    """Return the Go module of a host."""
    return read_module(shipped("engine") / runtime if runtime in OWN_MODULES else None)
