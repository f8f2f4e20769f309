"""Measures the time to judge the CSV and XML of 10,000 GPUs on one core, also relative to a plain XML parse.

Usage: `python bench/judge.py`. The figures depend on the machine, so the script has no pass criteria.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.parsers import expat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gpuinfra.node import nvsmi  # noqa: E402
from gpuinfra.node.judge import judge  # noqa: E402
from tests.node.healthy import JOURNAL, P4D, healthy  # noqa: E402

NODES = 1250
CSV = ("D2", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12")


def cpu(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of `times` calls."""
    start = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - start


def plain_parse(text: bytes) -> None:
    """Parse the document with expat, without handlers."""
    expat.ParserCreate().Parse(text, True)


def main() -> None:
    """Print the figures."""
    probes = healthy()
    text = probes["nvidia-smi-xml"]["stdout"]
    csv = {**P4D, "required": [name for name in CSV if name != "D2"], "skips": {}}
    all_checks = cpu(lambda: judge(probes, P4D, journal=JOURNAL), NODES // 5) * 5
    table = cpu(lambda: judge(probes, csv, journal=JOURNAL), NODES // 5) * 5
    ours = cpu(lambda: nvsmi.parse(text), NODES // 5) * 5
    plain = cpu(lambda: plain_parse(text.encode()), NODES // 5) * 5
    print(f"{NODES} nodes with 8 GPUs each, one core, CPU seconds (a fifth measured, times five)")
    print(f"CSV, {len(csv['required'])} checks   {table:6.2f} s  {table / NODES * 1000:.2f} ms per node")
    print(f"XML, read           {ours:6.2f} s  {ours / plain:.1f} times a plain parse ({plain:.2f} s)")
    print(f"all {len(P4D['required'])} checks       {all_checks:6.2f} s  {all_checks / NODES * 1000:.2f} ms per node")


if __name__ == "__main__":
    main()
