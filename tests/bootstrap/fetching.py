"""Runs the download of user data as `gpuinfra-boot.service` does, but without pauses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gpuinfra.base.shipped import shipped

BOOT = shipped("bootstrap") / "boot"
QUICK = (
    "import runpy, sys, time; time.sleep = lambda s: None; sys.argv.pop(0); sys.path.insert(0, sys.argv[0].rpartition('/')[0]); "
    "import fetch; fetch.ATTEMPT_S = {attempt_s}; runpy.run_path(sys.argv[0], run_name='__main__')"
)


def start(
    cloud: str, words: tuple[str, ...], target: Path, environment: dict[str, str], *, attempt_s: int = 60
) -> subprocess.Popen[str]:
    """Start the download."""
    folder = target.with_suffix(".boot")
    folder.mkdir()
    (folder / "node.json").write_text("{}", encoding="utf-8")
    for name in ("fetch.py", f"fetch-{cloud}.py"):
        text = (BOOT / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("/etc/gpuinfra/node.json", str(folder / "node.json")), encoding="utf-8")
    command = [
        sys.executable,
        "-I",
        "-c",
        QUICK.format(attempt_s=attempt_s),
        str(folder / f"fetch-{cloud}.py"),
        *words,
        str(target),
    ]
    env = {"PATH": os.environ["PATH"], **environment}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def complete(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and messages of a download that ends."""
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def first_trouble(process: subprocess.Popen[str]) -> str:
    """The first message of a download that goes on for as long as its fault lasts; the download is ended after its third message."""
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(3)]
    assert process.poll() is None, lines
    process.kill()
    process.communicate()
    return lines[0]
