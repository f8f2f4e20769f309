"""Measures the time of `gpuinfra size` in a new process against `gpuinfra plan`, the full search, and the errors of predictions against published runs.

Usage: `python bench/size.py`. The times depend on the machine, so the script has no pass criteria. The errors do not.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOBS = {
    "pre-training": ("--model", "llama-2-13b", "--tokens", "2T", "--days", "90"),
    "budget": ("--model", "llama-3.1-70b", "--tokens", "1T", "--usd", "3000000"),
    "QLoRA": ("--model", "llama-3.1-70b", "--goal", "qlora", "--examples", "50000", "--sequence", "1024"),
    "inference": ("--model", "llama-3.1-70b", "--goal", "inference", "--concurrency", "64"),
    "refusal": ("--model", "llama-3-70b", "--tokens", "15T", "--days", "12", "--gpu", "A100-80GB", "--gpus", "2"),
}


def cold(cache: str, *words: str, runs: int = 5) -> tuple[float, float]:
    """Return the median wall-clock seconds and processor seconds of a new process."""
    times, used = [], []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": cache}
    # Without compiled modules, each process would compile the whole package again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "gpuinfra", *words], capture_output=True, check=False, env=environment)
    for _ in range(runs):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "gpuinfra", *words], capture_output=True, check=False, env=environment)
        times.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times), statistics.median(used)


def search() -> list[tuple[str, float, int]]:
    """Return the seconds of a search in one process, over all machines, numbers of nodes and kinds, and the number of candidates."""
    from datetime import date

    from gpuinfra.sizing import SizingRequest, model_of, size

    rows = []
    for name in ("1B", "llama-2-13b", "llama-3.1-70b", "llama-3.1-405b"):
        request = SizingRequest(model=model_of(name), tokens=1e12, days=60)
        start = time.perf_counter()
        answer = size(request, date(2026, 11, 28))
        rows.append((name, time.perf_counter() - start, len(answer.candidates)))
    return rows


def errors() -> None:
    """Print the errors of the predictions, each without the rows of its source."""
    from gpuinfra.sizing.measured import MeasuredKind, measured_rows
    from gpuinfra.sizing.throughput import leave_out

    for kind in MeasuredKind:
        found = leave_out(row for row in measured_rows() if row.kind is kind)
        ratios = [one.ratio for one in found]
        off = [max(ratio, 1 / ratio) for ratio in ratios]
        shares = ", ".join(
            f"within {factor} {statistics.fmean(one <= factor for one in off):.0%}" for factor in (1.35, 1.5, 2.0)
        )
        print(f"{kind.value}: {len(off)} rows, median error {statistics.median(off):.2f}, {shares}")
        print(f"  median of predicted by true {statistics.median(ratios):.2f}; largest errors:")
        for one in sorted(found, key=lambda one: -max(one.ratio, 1 / one.ratio))[:5]:
            print(f"  {one.ratio:.2f} {one.row}")


def main() -> None:
    """Print the figures."""
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as cache:
        wall, used = cold(cache, "plan", str(ROOT / "stacks" / "Pulumi.aws-p4d.yaml"))
        print(f"gpuinfra plan: {wall:.3f} s, {used:.3f} s of processor time")
        for name, words in JOBS.items():
            wall, used = cold(cache, "size", *words)
            print(f"gpuinfra size, {name}: {wall:.3f} s, {used:.3f} s of processor time")
    for name, seconds, count in search():
        print(f"search for {name}: {seconds:.3f} s, {count} candidates")
    errors()


if __name__ == "__main__":
    main()
