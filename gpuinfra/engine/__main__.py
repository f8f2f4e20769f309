"""`python -m gpuinfra.engine [--folder]`: find or build the engine and print its path, or its folder for PATH."""

from __future__ import annotations

import os
import sys

from gpuinfra.engine.find import find_engine
from gpuinfra.errors import INTERRUPTED, GpuinfraError


def main() -> int:
    """Find or build the engine. Prints one line to stdout and progress messages to stderr."""
    only_folder = sys.argv[1:] == ["--folder"]
    if sys.argv[1:] and not only_folder:
        print("usage: python -m gpuinfra.engine [--folder]", file=sys.stderr)
        return 2
    try:
        engine = find_engine(lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("engine: interrupted; the next run continues the build", file=sys.stderr)
        return INTERRUPTED
    except GpuinfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if only_folder:
        print(os.pathsep.join(dict.fromkeys([str(engine.path.parent), str(engine.host_dir)])))
        return 0
    origin = {"path": "found on PATH", "kept": "from the cache", "built": "built now"}[engine.source]
    print(f"engine: Pulumi {engine.version}, {origin}: {engine.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
