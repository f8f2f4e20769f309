"""Measures the time of a completion and of `import gpuinfra` in a new process, also relative to the startup time of Python.

Usage: `python bench/completion.py`. The figures depend on the machine, so the script has no pass criteria.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 15
COMPLETE = [sys.executable, "-m", "gpuinfra"]
COMMANDS: dict[str, tuple[list[str], str]] = {
    "python": ([sys.executable, "-c", "pass"], ""),
    "import gpuinfra": ([sys.executable, "-c", "import gpuinfra"], ""),
    "completion of a command": (COMPLETE, "gpuinfra pla"),
    "completion of a stack": (COMPLETE, "gpuinfra plan aws-p4"),
    "completion of a machine type": (COMPLETE, "gpuinfra init --cloud aws --machine p4"),
    "completion of a field": (COMPLETE, "gpuinfra clone aws-p4d --set pools"),
    "completion of a region of the stack's cloud": (COMPLETE, "gpuinfra clone aws-p4d --region us"),
    "completion of what `explain` explains": (COMPLETE, "gpuinfra explain G"),
}


def seconds(command: list[str], line: str) -> float:
    """Return the wall-clock seconds of a new process. A line is completed as in bash."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if line:
        words = str(len(line.split()) - 1)
        environment |= {"_GPUINFRA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": words}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    taken = time.perf_counter() - start
    if line and not done.stdout:
        raise SystemExit(f"nothing completes {line!r}")
    return taken


def main() -> None:
    """Print the median of each command. The commands alternate, so that other load on the machine affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, (command, line) in COMMANDS.items():
            times[name].append(seconds(command, line))
    base = statistics.median(times["python"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name}: {median * 1000:.0f} ms, {median / base:.1f} x the start of Python")


main()
