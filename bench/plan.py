"""Measures the time and memory of `gpuinfra plan` in a new process, and how the time grows with the number of nodes.

Usage: `python bench/plan.py`. The figures depend on the machine, so the script has no pass criteria.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
TODAY = date(2026, 11, 21)
THREE_POOLS = """
name: train
where: {cloud: aws, region: us-east-1, zone: use1-az4}
pools:
  - {name: login, machine: m7i.xlarge, capacity: {kind: on_demand, count: 1}}
  - {name: gpu, machine: p4d.24xlarge, capacity: {kind: spot, count: %d}}
  - {name: big, machine: p5.48xlarge, capacity: {kind: on_demand, count: 2}}
storage:
  - {kind: lustre, mount: /scratch, capacity_gib: 4800, throughput_mb_s_per_tib: 250, bucket: auto}
"""


def cold(path: Path, runs: int = 7) -> tuple[float, float]:
    """Return the median wall-clock seconds and the peak MiB of a new process."""
    times = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "gpuinfra", "plan", str(path)], capture_output=True, check=True, env=environment
        )
        times.append(time.perf_counter() - start)
    return statistics.median(times), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def warm(nodes: tuple[int, ...], runs: int = 200) -> list[tuple[float, int]]:
    """Return, for each size, the median seconds to check, plan and price in one process, and the number of resources."""
    sys.path.insert(0, str(ROOT))
    from gpuinfra.cost import price
    from gpuinfra.plan.make import build_plan
    from gpuinfra.rules import check
    from gpuinfra.spec import parse_spec
    from gpuinfra.spec.document import parse

    # Alternate between sizes, so that other load on the machine affects all of them.
    values = [parse(THREE_POOLS % count, "bench").value for count in nodes]
    times: list[list[float]] = [[] for _ in nodes]
    resources = [0 for _ in nodes]
    for _ in range(runs):
        for index, value in enumerate(values):
            start = time.perf_counter()
            spec = parse_spec(value)
            check(spec, TODAY)
            plan = build_plan(spec, TODAY)
            price(plan, TODAY)
            times[index].append(time.perf_counter() - start)
            resources[index] = sum(plan.resources.values())
    return [(statistics.median(row), count) for row, count in zip(times, resources, strict=True)]


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Pulumi.bench.yaml"
        path.write_text(THREE_POOLS % 4)
        seconds, memory = cold(path)
    print(f"cold gpuinfra plan, three pools: {seconds:.3f} s, {memory:.0f} MiB peak")
    (few, few_resources), (many, many_resources) = warm((4, 4000))
    print(
        f"check, plan and price: 4 nodes {few * 1000:.2f} ms, 4000 nodes {many * 1000:.2f} ms, ratio {many / few:.2f}"
    )
    print(f"resources: {few_resources} and {many_resources}")


if __name__ == "__main__":
    main()
