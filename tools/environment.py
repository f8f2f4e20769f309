#!/usr/bin/env python3
"""Creates `.venv` from a hash-locked requirements file: `python3 tools/environment.py aws|azure|gcp|dev|bench|docs|pages|sbom`.

It uses only the standard library, because it runs before any package is installed.
`--for STACK` installs only the SDK for the cloud of that stack.
The clouds and `dev` share one environment: `dev` includes the packages of each cloud's file, in the same versions.
`bench`, `docs` and `sbom` each have their own environment with tools, such as `.venv-bench`, without gpuinfra.
A stamp file, written last, records the installed files. An interrupted run leaves no stamp and is repeated.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLOUDS = ("aws", "azure", "gcp")
PACKAGES = (".", "rehearsal")
"""The folders of the distributions in this checkout."""
TOOLS = ("bench", "docs", "pages", "sbom")
VENVS = {**dict.fromkeys((*CLOUDS, "dev"), ROOT / ".venv"), **{name: ROOT / f".venv-{name}" for name in TOOLS}}
WHAT = {
    "aws": "Pulumi with its AWS SDK (half a minute)",
    "azure": "Pulumi with its Azure SDK (a minute)",
    "gcp": "Pulumi with its Google Cloud SDK (half a minute)",
    "dev": "Pulumi with its AWS, Azure and Google Cloud SDKs, and the test tools (two minutes)",
    "bench": "the SSH tools that bench/ssh.py compares gpuinfra with",
    "docs": "Sphinx, which builds the documentation site",
    "pages": "axe-core and Playwright, which check the accessibility of the pages",
    "sbom": "CycloneDX, which writes the bill of materials",
}
INCLUDES = {**{cloud: (cloud, "dev") for cloud in CLOUDS}, **{name: (name,) for name in ("dev", *TOOLS)}}
"""Maps each target to the stamps that satisfy it."""
MINIMUM_PYTHON = (3, 11)
MISSING = 3
"""Exit code: missing prerequisite."""
QUIET_S = 20.0
"""Seconds between two lines of progress during an installation, because pip prints none."""


def main() -> int:
    """Install the target from the command line. Print nothing if it is already installed."""
    if sys.argv[1:2] == ["--for"] and len(sys.argv) == 3 and (wrong := unknown(sys.argv[2])):
        print(wrong, file=sys.stderr)
        return 2
    target = sys.argv[1] if len(sys.argv) == 2 else needed_by(sys.argv[2]) if sys.argv[1:2] == ["--for"] else ""
    if target not in WHAT:
        print(f"usage: {sys.argv[0]} {'|'.join(WHAT)} | --for STACK", file=sys.stderr)
        return 2
    if sys.version_info < MINIMUM_PYTHON:
        return missing(
            f"python3 is {sys.version.split()[0]}; gpuinfra requires Python 3.11 or later; run make ... PYTHON=python3.12"
        )
    if is_installed(target):
        return 0
    try:
        with exclusive():
            return 0 if is_installed(target) else install(target)
    except KeyboardInterrupt:
        progress("interrupted; run the command again to continue")
        return 130
    except OSError as error:
        return missing(f"cannot create .venv: {error}")


def install(target: str) -> int:
    """Create the environment, install the locked packages and this checkout, and write the stamp."""
    started = time.monotonic()
    venv = VENVS[target]
    python = venv / "bin" / "python"
    progress(f"installing into {venv.name}: {WHAT[target]}")
    if not works(python) or not (venv / ".base").exists():
        if venv.exists():
            shutil.rmtree(venv)
        made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, text=True)
        if made.returncode:
            output = (made.stdout + made.stderr).strip().splitlines() or [f"exit code {made.returncode}"]
            return missing(f"python3 -m venv failed; on Debian and Ubuntu, run apt install python3-venv ({output[-1]})")
        (venv / ".base").touch()
    # Remove the stamps until the installation is complete. Other targets in this environment stay valid, because all files pin the same versions.
    valid = [target, *(name for name in VENVS if VENVS[name] == venv and name != target and fits(name))]
    for stamp in venv.glob(".installed-*.json"):
        stamp.unlink()

    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
    lock = ROOT / "requirements" / f"{target}.txt"
    # uv first: it installs the large provider SDKs in seconds where pip takes minutes.
    uv = venv / "bin" / "uv"
    with_uv = run([*pip, "install", "--require-hashes", "-r", ROOT / "requirements" / "uv.txt"])
    # Progress bars on a terminal only.
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    # Compile now: importing a provider SDK from source takes seconds in every program.
    install = [uv, *quiet, "pip", "install", "--compile-bytecode", "--python", python]
    with_uv = with_uv and run([*install, "--require-hashes", "-r", lock])
    if not with_uv:
        # pip may be configured for a private index or proxy that uv is not configured for.
        progress("uv failed; installing with pip, which takes several minutes")
        if not run([*pip, "install", "--require-hashes", "-r", lock]):
            return missing(f"cannot install {lock.relative_to(ROOT)}; check that a Python package index is reachable")
    if target not in TOOLS and not run(
        [
            *pip,
            "install",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            *(f"--editable={ROOT / one}" for one in PACKAGES),
        ]
    ):
        return missing("cannot install this checkout into .venv; see the output above")

    for name in valid:
        write(venv / f".installed-{name}.json", fingerprint(name))
    progress(f"installed in {time.monotonic() - started:.0f} s")
    return 0


def is_installed(target: str) -> bool:
    """Return whether the target, or a target that includes it, was installed from the current files."""
    return any(fits(name) for name in INCLUDES[target])


def fits(target: str) -> bool:
    """Return whether the target's stamp matches the current files."""
    venv = VENVS[target]
    with contextlib.suppress(OSError, ValueError):
        stamp = json.loads((venv / f".installed-{target}.json").read_text())
        return stamp == fingerprint(target) and (venv / "bin" / "python").exists()
    return False


def unknown(stack: str) -> str:
    """Return the error for a stack that does not exist, before anything is installed for it."""
    if any(path.is_file() for path in (ROOT / "stacks" / f"Pulumi.{stack}.yaml", Path(stack))):
        return ""
    names = sorted(path.name[len("Pulumi.") : -len(".yaml")] for path in (ROOT / "stacks").glob("Pulumi.*.yaml"))
    near = difflib.get_close_matches(stack, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(names)}"
    return f"STACK is {stack!r}, which is neither a file nor a stack in stacks/; {hint}"


def needed_by(stack: str) -> str:
    """Return the target for a stack: its cloud, or `dev` if the file does not name exactly one.

    Errors in the file are reported later, by gpuinfra.
    """
    candidates = [ROOT / "stacks" / f"Pulumi.{stack}.yaml", Path(stack)]
    text = next((path.read_text(errors="replace") for path in candidates if path.is_file()), "")
    named = set(re.findall(r"""^[^#\n]*\bcloud:\s*["']?(\w+)""", text, re.MULTILINE))
    return named.pop() if len(named) == 1 and named <= set(CLOUDS) else "dev"


def fingerprint(target: str) -> dict[str, str]:
    """Return the inputs of the environment: file hashes, checkout path and Python version."""
    names = [f"requirements/{target}.txt", "requirements/uv.txt", *(f"{one}/pyproject.toml" for one in PACKAGES)]
    files = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in names}
    # A moved checkout or a different Python requires a new environment.
    return files | {"root": str(ROOT), "python": f"{sysconfig.get_platform()} {sys.version_info[:2]}"}


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Lock this checkout. The lock file is outside .venv, because .venv may be removed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("GPUINFRA_CACHE") or base / "gpuinfra") / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
    with (folder / f"environment-{name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            progress(f"waiting for process {file.read().strip()}, which installs into the same .venv")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def run(command: list[str | Path]) -> bool:
    """Run a command with its output on stderr, and print a line every `QUIET_S` seconds. Return whether it succeeded."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(QUIET_S) == 0
                progress(f"still installing, {time.monotonic() - started:.0f} s")
        except BaseException:
            process.kill()
            raise


def works(python: Path) -> bool:
    """Return whether this is a working Python of the current version. A system upgrade can break an environment."""
    question = "import sys, pip; print(sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == str(sys.version_info[:2])


def write(path: Path, content: dict[str, str]) -> None:
    """Write a file atomically."""
    half = path.with_suffix(".part")
    half.write_text(json.dumps(content, indent=1))
    half.replace(path)


def progress(line: str) -> None:
    """Print one line of progress."""
    print(f"environment: {line}", file=sys.stderr, flush=True)


def missing(line: str) -> int:
    """Print the missing prerequisite and return its exit code."""
    progress(line)
    return MISSING


if __name__ == "__main__":
    sys.exit(main())
