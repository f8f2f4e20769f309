"""`python -m gpuinfra.engine [--build] [--folder]`: find, download or build the engine and print its path, or its folder for PATH."""

from __future__ import annotations

import os
import sys

from gpuinfra.engine.find import find_engine
from gpuinfra.errors import INTERRUPTED, GpuinfraError


def main() -> int:
    """Find, download or build the engine. Prints one line to stdout and progress messages to stderr. `--build` uses no release of Pulumi."""
    given = set(sys.argv[1:])
    if given - {"--folder", "--build"}:
        print("usage: python -m gpuinfra.engine [--build] [--folder]", file=sys.stderr)
        return 2
    try:
        engine = find_engine(lambda line: print(line, file=sys.stderr, flush=True), may_download="--build" not in given)
    except KeyboardInterrupt:
        print("engine: interrupted; the next run continues", file=sys.stderr)
        return INTERRUPTED
    except GpuinfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if "--folder" in given:
        print(os.pathsep.join(dict.fromkeys([str(engine.path.parent), str(engine.host_dir)])))
        return 0
    origin = {"path": "found on PATH", "kept": "from the cache", "downloaded": "downloaded now", "built": "built now"}[
        engine.source
    ]
    print(f"engine: Pulumi {engine.version}, {origin}: {engine.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
