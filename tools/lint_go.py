"""Runs gofmt on the language hosts, and go vet on those in the module of the engine. Prints a message and skips both if no Go toolchain is on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parent.parent / "engine"


def main() -> int:
    """Return exit code 0 if the code is clean or the tools are skipped."""
    if not shutil.which("go") or not shutil.which("gofmt"):
        print("engine/: gofmt and go vet skipped: no Go toolchain on PATH")
        return 0
    unformatted = subprocess.run(["gofmt", "-l", "."], cwd=ENGINE, capture_output=True, text=True, check=True).stdout
    if unformatted:
        print(f"not formatted by gofmt, under engine/:\n{unformatted}", end="")
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    vetted = subprocess.run(["go", "vet", "./cmd/...", "./internal/..."], cwd=ENGINE, env=environment)
    return 1 if unformatted else vetted.returncode


if __name__ == "__main__":
    sys.exit(main())
