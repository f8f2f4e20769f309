"""`python -m gpuinfra.engine [--build] [--folder] [--host=RUNTIME]`: find, download or build the engine and print its path, or its folders for PATH."""

from __future__ import annotations

import os
import sys

from gpuinfra.base.errors import INTERRUPTED, GpuinfraError
from gpuinfra.engine.find import find_engine
from gpuinfra.engine.hosts import PROGRAMS, find_host


def main() -> int:
    """Find, download or build the engine. Prints one line to stdout and progress messages to stderr.

    `--build` uses no release of Pulumi. `--host=RUNTIME` also finds or builds the language host of another runtime.
    """
    given = set(sys.argv[1:])
    if given - {"--folder", "--build", *(f"--host={runtime}" for runtime in PROGRAMS)}:
        runtimes = "|".join(PROGRAMS)
        print(f"usage: python -m gpuinfra.engine [--build] [--folder] [--host={runtimes}]", file=sys.stderr)
        return 2

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        engine = find_engine(progress, may_download="--build" not in given)
        hosts = [find_host(runtime, engine, progress) for runtime in PROGRAMS if f"--host={runtime}" in given]
    except KeyboardInterrupt:
        print("engine: interrupted; the next run continues", file=sys.stderr)
        return INTERRUPTED
    except GpuinfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if "--folder" in given:
        folders = [engine.path.parent, engine.host_dir, *(folder for folder in hosts if folder)]
        print(os.pathsep.join(dict.fromkeys(map(str, folders))))
        return 0
    origin = {"path": "found on PATH", "kept": "from the cache", "downloaded": "downloaded now", "built": "built now"}[
        engine.source
    ]
    print(f"engine: Pulumi {engine.version}, {origin}: {engine.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
