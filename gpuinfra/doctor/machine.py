"""Questions about this machine: Python, engine, SDKs, provider plugins and disk space. These questions send no requests."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.clouds import install_hint, installed_version, requirements_of
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, ok, problem, skipped, warning
from gpuinfra.engine import find_engine, keep
from gpuinfra.engine.build import FREE_GB as BUILD_GB
from gpuinfra.engine.entries import LIMIT_VARIABLE, in_words, size_limit, size_of

BUILD = "python -m gpuinfra.engine"
FREE_GB = 1.0
"""Free space that rehearsals and a cached engine require, in GB."""


def questions(clouds: list[str], *, required: bool) -> Iterator[PreflightQuestion]:
    """Yield the questions. If `required`, a missing SDK is a problem."""
    yield PreflightQuestion(topic="python", where="Python", ask=python)
    yield PreflightQuestion(topic="engine", where="Pulumi", ask=engine)
    for cloud in clouds:
        yield PreflightQuestion(topic="sdk", where=cloud, ask=lambda cloud=cloud: sdk(cloud, required=required))
    fix = "export GPUINFRA_CACHE=FOLDER, with a folder on another disk"
    yield PreflightQuestion(
        topic="disk", where="cache", ask=lambda: space("cache", keep.cache_folder(), fix, build_gb())
    )


def python() -> Iterator[PreflightRow]:
    """Python is recent enough."""
    version, where = platform.python_version(), "Python"
    try:
        needed = importlib.metadata.metadata("gpuinfra")["Requires-Python"] or ""
    except importlib.metadata.PackageNotFoundError:
        yield warning(
            "python", where, f"{version}, but gpuinfra is not installed", "an installed package", "pip install -e ."
        )
        return
    if satisfies(version, needed):
        yield ok("python", where, version)
    else:
        yield problem("python", where, version, f"Python {needed}", "python3 tools/environment.py dev")


def engine() -> Iterator[PreflightRow]:
    """An engine is installed, and its files are unchanged since its build."""
    notes: list[str] = []
    where = "Pulumi"
    try:
        engine_found = find_engine(notes.append, may_build=False)
    except EnvironmentMissing as error:
        said = "; ".join([str(error), *(note.removeprefix("engine: ") for note in notes)])
        needed = "an engine; the first rehearsal downloads or builds one, and a build takes several minutes"
        yield warning("engine", where, said, needed, BUILD)
        return
    folders = dict.fromkeys((engine_found.path.parent, engine_found.host_dir))
    for folder in folders:
        if names := keep.altered(folder):
            what = f"{', '.join(names)} in {folder} differs from the checksum of its build"
            yield problem("engine", where, what, "the files from its build", f"rm -r {folder} && {BUILD}")
            return
    kept = [folder for folder in folders if (folder / keep.MARKER).is_file()]
    checked = "checksums correct" if len(kept) == len(folders) else "found in PATH, without a recorded checksum"
    yield ok("engine", where, f"{engine_found.version}, {checked}: {engine_found.path}")


def sdk(cloud: str, *, required: bool) -> Iterator[PreflightRow]:
    """The packages of a cloud and its provider plugin are installed in allowed versions."""
    wanted = requirements_of(cloud)
    versions = {name: installed_version(name) for name, _ in wanted}
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        what = f"{', '.join(absent)} not installed"
        if required:
            yield problem("sdk", cloud, what, "the SDK of the cloud", install_hint(cloud).removeprefix("run "))
        else:
            yield skipped("sdk", cloud, what, install_hint(cloud).removeprefix("run "))
        return
    wrong = [f"{name} {versions[name]}" for name, allowed in wanted if not satisfies(str(versions[name]), allowed)]
    if wrong:
        allowed = ", ".join(f"{name}{allowed}" for name, allowed in wanted)
        yield problem("sdk", cloud, f"{', '.join(wrong)} installed", allowed, install_hint(cloud).removeprefix("run "))
    else:
        yield ok("sdk", cloud, ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))
    for name, _ in wanted:
        if name.startswith("pulumi-"):
            yield from plugin(name.replace("-", "_"))


def plugin(package: str) -> Iterator[PreflightRow]:
    """The provider plugin of a Pulumi SDK is installed completely."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return
    about = json.loads((Path(spec.origin).parent / "pulumi-plugin.json").read_text(encoding="utf-8"))
    name, version = str(about["name"]), str(about["version"]).removeprefix("v")
    folder = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins" / f"resource-{name}-v{version}"
    install = as_run_here(f"pulumi plugin install resource {name} {version}")
    if folder.with_name(f"{folder.name}.partial").exists():
        remove = as_run_here(f"pulumi plugin rm resource {name} {version} --yes && {install}")
        yield problem("plugin", name, f"{folder} is incomplete", f"version {version}", remove)
    elif folder.is_dir():
        yield ok("plugin", name, f"{version}: {folder}")
    elif os.environ.get("PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION", "").lower() in ("1", "true"):
        what = "not installed, and PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION prevents the download"
        yield problem("plugin", name, what, f"version {version}", install)
    else:
        what = "not installed; the first `pulumi up` downloads it, which takes several minutes"
        yield warning("plugin", name, what, f"version {version}", install)


_PULUMI = re.compile(r"(?<![/\w])pulumi(?= (?:login|plugin|stack)\b)")


def as_run_here(fix: str) -> str:
    """Return a fix with the command that starts Pulumi on this machine: `pulumi` on PATH, the engine in the cache, or one to build.

    A fix with several such commands first adds the folder of the engine to PATH.
    """
    try:
        engine_found = find_engine(may_build=False)
    except EnvironmentMissing:
        folder = f"$({BUILD} --folder)"
        command = f'PATH="{folder}:$PATH" pulumi'
    else:
        if engine_found.source == "path":
            return fix
        folder, command = str(engine_found.path.parent), quote(str(engine_found.path))
    if len(_PULUMI.findall(fix)) > 1:
        return f'run `export PATH="{folder}:$PATH"`, then {fix}'
    return _PULUMI.sub(lambda _: command, fix)


def build_gb() -> float:
    """Return the free space that building an engine requires, in GB, or 0 if there is an engine."""
    try:
        find_engine(may_build=False)
    except EnvironmentMissing:
        return BUILD_GB
    return 0.0


def space(what: str, folder: Path, fix: str, build_gb: float = 0.0) -> Iterator[PreflightRow]:
    """A folder is writable and has free space. Less than `build_gb` is a warning,
    because an engine is built only if it cannot be downloaded. A folder that does not exist counts as its closest parent."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    free = shutil.disk_usage(there).free / 1e9
    if not os.access(there, os.W_OK):
        yield problem("disk", what, f"{there} is not writable", "a writable folder", fix)
    elif free < FREE_GB:
        yield problem("disk", what, f"{free:.1f} GB free in {there}", f"{FREE_GB:g} GB", fix)
    elif free < build_gb:
        needed = f"{build_gb:g} GB, if the engine must be built from source"
        yield warning("disk", what, f"{free:.1f} GB free in {there}", needed, fix)
    else:
        yield ok("disk", what, f"{free:.0f} GB free in {there}")


def size(cache: Path, folder: Path, stored: int) -> Iterator[PreflightRow]:
    """The cache and the `stored` bytes in a folder are not larger than the limit. Raises `UsageError` if the limit is not valid."""
    limit, cached = size_limit(), size_of(cache)
    if cached + stored > limit:
        text = f"{in_words(cached)} in {cache} and {in_words(stored)} in {folder} exceed the limit of {in_words(limit)}"
        fix = f"run `gpuinfra cache clean`, or `gpuinfra cache clean --rehearsals`, or set {LIMIT_VARIABLE} to a larger size"
        yield warning("disk", "size", text, f"at most {in_words(limit)}", fix)


def satisfies(version: str, allowed: str) -> bool:
    """Return True if a version is in a range such as `<8,>=7.51`. Only the operators of `pyproject.toml` are supported: >= and <."""
    for bound in filter(None, (part.strip() for part in allowed.split(","))):
        match = re.fullmatch(r"(>=|<)\s*([\d.]+)", bound)
        if match is None:
            raise ValueError(f"the version range {allowed!r} has an operator other than >= and <")
        least = _numbers(version) >= _numbers(match[2])
        if least != (match[1] == ">="):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
