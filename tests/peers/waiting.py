"""What a peer's definition also has and gpuinfra does not yet: row -> the parts that it waits for."""

from __future__ import annotations

SCHEDULER = "a Slurm scheduler"
KUBERNETES = "Kubernetes"
BATCH = "AWS Batch"
MONITORING = "monitoring"
OTHER_OS = "images other than Ubuntu"

WAITING = {
    2: SCHEDULER,
    4: SCHEDULER,
    6: SCHEDULER,
    7: SCHEDULER,
    9: SCHEDULER,
    10: SCHEDULER,
    11: SCHEDULER,
    13: KUBERNETES,
    14: KUBERNETES,
    16: BATCH,
    20: MONITORING,
    22: KUBERNETES,
    27: KUBERNETES,
    29: SCHEDULER,
    30: SCHEDULER,
    32: SCHEDULER,
    36: KUBERNETES,
    37: KUBERNETES,
    38: KUBERNETES,
    40: KUBERNETES,
    42: SCHEDULER,
    47: SCHEDULER,
    48: SCHEDULER,
    49: OTHER_OS,
    51: KUBERNETES,
    52: SCHEDULER,
    56: SCHEDULER,
    57: KUBERNETES,
    59: KUBERNETES,
}
