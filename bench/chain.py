"""Prints how close the time of `up` is to the longest chain that cannot be avoided, for each shipped stack: `python bench/chain.py [STACK...]`.

The program of each stack registers its resources with Pulumi's mocks.
A simulation of the engine creates them with the durations in `gpuinfra/clouds/*/timing.py`.
Durations without a public figure count as 5 minutes, and resources without a duration as 5 seconds.
The longest chain contains only waits for values, and waits that
an API or a node requires (`tests/clouds/required.py`). The target is a ratio of at most 1.10.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpuinfra.base.day import VARIABLE  # noqa: E402
from gpuinfra.base.registry import CLOUDS  # noqa: E402
from gpuinfra.clouds.cloud import cloud_of  # noqa: E402
from gpuinfra.clouds.timing import ready_time  # noqa: E402
from tests.clouds.engine_time import both  # noqa: E402
from tests.clouds.stacks import TODAY, plan_of, shipped_stacks  # noqa: E402


def main() -> None:
    """Print the figures."""
    os.environ[VARIABLE] = TODAY.isoformat()
    asked = sys.argv[1:]
    print(f"{'stack':24}{'up, min':>9}{'chain, min':>12}{'ratio':>7}  plan")
    for cloud in CLOUDS:
        for stack in shipped_stacks(cloud):
            if asked and stack not in asked:
                continue
            total, required = both(cloud, stack)
            plan = plan_of(stack)
            time = ready_time(plan, cloud_of(plan.cloud).timing)
            words = time.in_words if time else "no known durations"
            print(f"{stack:24}{total / 60:9.1f}{required / 60:12.1f}{total / required:7.2f}  {words}", flush=True)


if __name__ == "__main__":
    main()
