"""The search order for the engine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing, reason_of
from gpuinfra.base.heartbeat import heard
from gpuinfra.engine import child, go, keep, release
from gpuinfra.engine.build import FREE_GB, build
from gpuinfra.engine.module import CLI, HOST, Module, read_module

Progress = Callable[[str], None]
"""Callback that prints one line of progress."""

STILL = "engine: still working"
QUIET_S = 15.0
"""Seconds without a line until `STILL` is printed. Go prints nothing while it links, and pip nothing while it downloads."""

NO_ENGINE = """no Pulumi engine found, and none can be downloaded or built: {reason}
provide one of the following, then run the command again:
  - Pulumi {minimum} or later, with `pulumi` and `pulumi-language-python` on PATH (https://www.pulumi.com/docs/install/)
  - Go {go} or later (https://go.dev/doc/install), which gpuinfra uses to build the engine
  - network access to a Python package index, from which gpuinfra installs Go"""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A Pulumi CLI and the folder of its Python language host."""

    path: Path
    """The `pulumi` executable."""
    version: str
    """The output of `pulumi version` without the leading v."""
    host_dir: Path
    """The folder of `pulumi-language-python` and `pulumi-language-python-exec`."""
    source: str
    """The origin of the engine: `path`, `kept` (from the cache), `downloaded` or `built`."""

    def environ(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a copy of `base` (default: this process's environment) with this CLI and this host first on PATH."""
        environment = dict(os.environ if base is None else base)
        folders = dict.fromkeys([str(self.path.parent), str(self.host_dir)])
        rest = [folder for folder in environment.get("PATH", os.defpath).split(os.pathsep) if folder not in folders]
        environment["PATH"] = os.pathsep.join([*folders, *rest])
        return environment


def find_engine(progress: Progress = lambda line: None, *, may_build: bool = True, may_download: bool = True) -> Engine:
    """Return the engine to use. If no engine is available, download Pulumi's release, or build the engine, which takes several minutes.

    `progress` prints the progress. With `may_download` false, a release is neither downloaded nor used. Raises `EnvironmentMissing` if
    no engine can be built, or if none is available and `may_build` is False.
    """
    module = read_module()
    cache = keep.cache_folder()
    on_path, version = _on_path(module, cache, progress)
    if on_path and (host_dir := _host_beside(on_path)):
        return Engine(path=on_path, version=version, host_dir=host_dir, source="path")
    if on_path:
        progress(f"engine: {on_path} has no pulumi-language-python; gpuinfra uses its own language host")
    programs = (HOST,) if on_path else (CLI, HOST)
    may_download = may_download and programs == release.PROGRAMS
    kept, source = _kept(cache, module, programs, may_download), "kept"
    if kept is None:
        if not may_build:
            missing = " and ".join(program.rsplit("/", 1)[-1] for program in programs)
            verb = "is" if len(programs) == 1 else "are"
            raise EnvironmentMissing(f"{missing} {module.version} {verb} neither on PATH nor in {cache}")
        try:
            kept, source = _make(cache, module, programs, progress, may_download)
        except OSError as error:
            raise EnvironmentMissing(
                f"the engine cannot be stored in {cache}: {reason_of(error)}; "
                f"set GPUINFRA_CACHE to a writable folder with {FREE_GB:g} GB of free space"
            ) from error
    if on_path:
        return Engine(path=on_path, version=version, host_dir=kept, source="path")
    return Engine(path=kept / "pulumi", version=module.version, host_dir=kept, source=source)


def _kept(cache: Path, module: Module, programs: tuple[str, ...], may_download: bool) -> Path | None:
    """Return the cached programs: built ones, or those of a release."""
    if (folder := keep.kept(cache, module, programs)) or not may_download:
        return folder
    return keep.kept(cache, release.module_of(module), programs)


def _make(
    cache: Path, module: Module, programs: tuple[str, ...], progress: Progress, may_download: bool
) -> tuple[Path, str]:
    """Download or build the missing programs, and return their folder and source. Concurrent runs share one result."""
    with heard(progress, STILL, QUIET_S) as progress, keep.lock(cache, module, programs, progress):
        if folder := _kept(cache, module, programs, may_download):  # Another run was faster.
            return folder, "kept"
        if may_download and (folder := release.download(cache, module, progress)):
            return folder, "downloaded"
        try:
            toolchain = go.find_go(cache, module.go, progress)
        except go.NoGo as error:
            raise EnvironmentMissing(NO_ENGINE.format(reason=error, minimum=module.version, go=module.go)) from error
        return build(cache, module, programs, toolchain, progress), "built"


def _on_path(module: Module, cache: Path, progress: Progress) -> tuple[Path | None, str]:
    """Return the first `pulumi` on PATH and its version, if it is recent enough."""
    program = shutil.which("pulumi")
    if not program:
        return None, ""
    path = Path(program)
    version = keep.remembered_version(cache, path)
    if version is None:
        settings = {"PULUMI_SKIP_UPDATE_CHECK": "1"}
        version = child.version([path, "version"], r"v?(\d+\.\d+\.\d+\S*)\s*", timeout_s=30, settings=settings)
        keep.remember_version(cache, path, version)
    if not version:
        progress(f"engine: {path} does not respond to `pulumi version`; looking for another engine")
        return None, ""
    if _as_numbers(version) < _as_numbers(module.version):
        progress(
            f"engine: {path} is version {version}, which is older than {module.version}; looking for another engine"
        )
        return None, ""
    return path, version


def _as_numbers(version: str) -> tuple[int, ...]:
    """Return (3, 259, 0) for `3.259.0` and for `3.259.0-alpha.1`: a prerelease is treated as its release."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("-")[0])[:3])


def _host_beside(cli: Path) -> Path | None:
    """Return the folder of the language host that this CLI starts: next to the real file, next to the link, or on PATH."""
    on_path = shutil.which("pulumi-language-python")
    folders = [cli.resolve().parent, cli.parent, *([Path(on_path).parent] if on_path else [])]
    for folder in folders:
        if os.access(folder / "pulumi-language-python", os.X_OK):
            return folder
    return None
