"""Building the engine with Go: what is compiled, how far it is, how long it took.

Go's own module and build caches keep every finished package, so a build that was interrupted goes on where it was.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuinfra.engine import child, keep
from gpuinfra.engine.module import CLI, HOST, Module
from gpuinfra.errors import EnvironmentMissing

Say = Callable[[str], None]

SDK = "github.com/pulumi/pulumi/sdk/v3"
"""The Go module whose folder also carries the Python scripts that the host starts."""
HOST_SCRIPTS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
"""The runner of programs, and the provider of dynamic resources."""
SPEAK_EVERY_S = 10.0
"""Seconds between lines of progress while packages are compiled."""
MANY = 200
"""Packages to compile above which people are told how long it takes."""


def build(cache: Path, module: Module, programs: tuple[str, ...], go: Path, say: Say) -> Path:
    """Build the programs and keep them. Needs the lock of `keep.lock`. Raises `EnvironmentMissing`."""
    started = time.monotonic()
    say(f"engine: building Pulumi {module.version} from source with {go}")
    with keep.workplace(cache, module, programs) as place:
        wanted = _fetch(module, programs, go, say)
        if wanted > MANY:
            say(f"engine: {wanted} packages to compile: about 4 minutes on two cores, once; needs 3 GB for Go's caches")
        _compile(module, programs, go, place, wanted, say)
        _copy_scripts(module, go, place)
        _prove(module, programs, place)
        folder = keep.keep(place, cache, module, programs)
    say(f"engine: Pulumi {module.version} is ready after {time.monotonic() - started:.0f} s, kept in {folder}")
    return folder


def _fetch(module: Module, programs: tuple[str, ...], go: Path, say: Say) -> int:
    """Download the modules that the programs need; returns how many packages have to be compiled."""
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
                if time.monotonic() - last >= SPEAK_EVERY_S:
                    last = time.monotonic()
                    say(f"engine: {modules} modules downloaded, {last - started:.0f} s")
        if process.returncode:
            raise _failed("cannot fetch the engine's modules", errors)
        listing.seek(0)
        wanted = sum(line.strip() == "1" for line in listing)
    if modules:
        say(f"engine: {modules} modules downloaded in {time.monotonic() - started:.0f} s")
    return wanted


def _compile(module: Module, programs: tuple[str, ...], go: Path, place: Path, wanted: int, say: Say) -> None:
    started = last = time.monotonic()
    done = 0
    errors: list[str] = []
    flags = f"-s -w -X {SDK}/go/common/version.Version=v{module.version}"
    command = [go, "build", "-v", "-ldflags", flags, "-o", f"{place}/", *programs]
    process = child.start(command, folder=module.folder, environment=_environment())
    assert process.stderr is not None
    with process, process.stderr as lines:
        for line in lines:
            # -v prints one import path a line; whatever else comes is a message.
            if " " in line.strip() or line.startswith("#"):
                if not line.startswith("go: downloading"):
                    errors.append(line)
                continue
            done += 1
            if time.monotonic() - last >= SPEAK_EVERY_S:
                last = time.monotonic()
                say(f"engine: {done} of {max(wanted, done)} packages compiled, {last - started:.0f} s")
    if process.returncode:
        raise _failed("the engine does not compile", errors)
    say(f"engine: {done} packages compiled and linked in {time.monotonic() - started:.0f} s")


def _copy_scripts(module: Module, go: Path, place: Path) -> None:
    answer = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", SDK],
        cwd=module.folder,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise _failed("cannot find the scripts of the language host", [answer.stderr])
    for script in HOST_SCRIPTS:
        source = Path(answer.stdout.strip(), script)
        target = place / source.name
        shutil.copyfile(source, target)  # without the mode: the module cache is read-only and not executable
        target.chmod(0o755)


def _prove(module: Module, programs: tuple[str, ...], place: Path) -> None:
    """Each program has to run and to name the version that it was built as."""
    commands = {CLI: [place / "pulumi", "version"], HOST: [place / "pulumi-language-python", "--version"]}
    for program in programs:
        answer = child.run([str(part) for part in commands[program]])
        if answer.returncode or answer.stdout.strip() != f"v{module.version}":
            said = (answer.stdout + answer.stderr).strip() or f"exit code {answer.returncode}"
            raise EnvironmentMissing(
                f"the engine was built but {commands[program][0].name} does not answer v{module.version}: {said[-500:]}"
            )


def _environment() -> dict[str, str]:
    """The person's environment, less what changes how a module is built."""
    environment = {name: value for name, value in os.environ.items() if name not in {"GOWORK", "GOFLAGS"}}
    return environment | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}


def _failed(what: str, lines: list[str]) -> EnvironmentMissing:
    said = "".join(lines).strip().splitlines()
    tail = "\n  ".join(line[:300] for line in said[-8:]) or "Go gave no reason"
    return EnvironmentMissing(
        f"{what}; Go said:\n  {tail}\n"
        "check that Go's module proxy can be reached (`go env GOPROXY`) and that there is disk space, "
        "then run it again: what was finished is kept"
    )
