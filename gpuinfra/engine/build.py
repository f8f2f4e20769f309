"""Builds the engine with Go and reports progress.

Go's module and build caches keep every finished package, so an interrupted build resumes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.engine import child, keep
from gpuinfra.engine.module import CLI, HOST, Module

Progress = Callable[[str], None]

SDK = "github.com/pulumi/pulumi/sdk/v3"
"""The Go module that also contains the Python scripts that the host starts."""
HOST_SCRIPTS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
"""The program runner and the provider of dynamic resources."""
FREE_GB = 3.0
"""Free space that a build needs, in GB: 1.4 for downloaded modules and 1.7 for compiled packages of Pulumi 3.259. The engine itself needs 0.2."""
PROGRESS_EVERY_S = 10.0
"""Seconds between progress lines during the build."""
MANY = 200
"""If more packages than this number must be compiled, the expected duration is printed."""


def build(cache: Path, module: Module, programs: tuple[str, ...], go: Path, progress: Progress) -> Path:
    """Build the programs and add them to the cache. The caller holds `keep.lock`. Raises `EnvironmentMissing`."""
    started = time.monotonic()
    what = "Pulumi" if CLI in programs else programs[0].rpartition("/")[2] + " for Pulumi"
    progress(f"engine: building {what} {module.version} from source with {go}")
    with keep.workplace(cache, module, programs) as place:
        package_count = _fetch(module, programs, go, progress)
        if package_count > MANY:
            progress(
                f"engine: {package_count} packages to compile; this takes about 4 minutes on two cores and is required only once; Go caches need {FREE_GB:g} GB"
            )
        _compile(module, programs, go, place, package_count, progress)
        if HOST in programs:
            _copy_scripts(module, go, place)
        _check_versions(module, programs, place)
        folder = keep.keep(place, cache, module, programs)
    progress(f"engine: {what} {module.version} is ready after {time.monotonic() - started:.0f} s: {folder}")
    return folder


def _fetch(module: Module, programs: tuple[str, ...], go: Path, progress: Progress) -> int:
    """Download the modules of the programs. Returns the number of packages to compile."""
    started = last = time.monotonic()
    modules = 0
    errors: list[str] = []
    with tempfile.TemporaryFile("w+") as listing:
        command = [go, "list", "-deps", "-f", "{{if .Stale}}1{{end}}", *programs]
        process = child.start(command, folder=module.folder, environment=_environment(), output=listing)
        assert process.stderr is not None
        with process, process.stderr as lines:
            for line in lines:
                if not line.startswith("go: downloading"):
                    errors.append(line)
                    continue
                modules += 1
                if time.monotonic() - last >= PROGRESS_EVERY_S:
                    last = time.monotonic()
                    progress(f"engine: {modules} modules downloaded, {last - started:.0f} s")
        if process.returncode:
            raise _failed("the Go modules of the engine cannot be downloaded", errors)
        listing.seek(0)
        package_count = sum(line.strip() == "1" for line in listing)
    if modules:
        progress(f"engine: {modules} modules downloaded in {time.monotonic() - started:.0f} s")
    return package_count


def _compile(
    module: Module, programs: tuple[str, ...], go: Path, place: Path, package_count: int, progress: Progress
) -> None:
    started = last = time.monotonic()
    done = 0
    errors: list[str] = []
    flags = f"-s -w -X {SDK}/go/common/version.Version=v{module.version}"
    command = [go, "build", "-v", "-ldflags", flags, "-o", f"{place}/", *programs]
    process = child.start(command, folder=module.folder, environment=_environment())
    assert process.stderr is not None
    with process, process.stderr as lines:
        for line in lines:
            # -v prints one import path per line; other lines are messages.
            if " " in line.strip() or line.startswith("#"):
                if not line.startswith("go: downloading"):
                    errors.append(line)
                continue
            done += 1
            if time.monotonic() - last >= PROGRESS_EVERY_S:
                last = time.monotonic()
                progress(f"engine: {done} of {max(package_count, done)} packages compiled, {last - started:.0f} s")
    if process.returncode:
        raise _failed("the engine cannot be compiled", errors)
    progress(f"engine: {done} packages compiled and linked in {time.monotonic() - started:.0f} s")


def _copy_scripts(module: Module, go: Path, place: Path) -> None:
    answer = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", SDK],
        cwd=module.folder,
        env=_environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if answer.returncode:
        raise _failed("the scripts of the language host cannot be found", [answer.stderr])
    for script in HOST_SCRIPTS:
        source = Path(answer.stdout.strip(), script)
        target = place / source.name
        shutil.copyfile(
            source, target
        )  # Do not copy the mode, because files in the module cache are read-only and not executable.
        target.chmod(0o755)


def _check_versions(module: Module, programs: tuple[str, ...], place: Path) -> None:
    """Check that each program runs and prints the version with which it was built."""
    for program in programs:
        path = place / program.rpartition("/")[2]
        answer = child.run([str(path), "version" if program == CLI else "--version"])
        if answer.returncode or answer.stdout.strip() != f"v{module.version}":
            output = (answer.stdout + answer.stderr).strip() or f"exit code {answer.returncode}"
            raise EnvironmentMissing(f"{path.name} was built as v{module.version} but printed: {output[-500:]}")


def _environment() -> dict[str, str]:
    """Return the environment without variables that change how modules are built."""
    environment = {name: value for name, value in os.environ.items() if name not in {"GOWORK", "GOFLAGS"}}
    return environment | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}


def _failed(what: str, lines: list[str]) -> EnvironmentMissing:
    output = "".join(lines).strip().splitlines()
    tail = "\n  ".join(line[:300] for line in output[-8:]) or "no output"
    return EnvironmentMissing(
        f"{what}; output of Go:\n  {tail}\n"
        "check that the Go module proxy can be reached (`go env GOPROXY`) and that the disk has free space, "
        "then run the command again; finished packages are kept"
    )
