"""What a peer's definition also has and gpuinfra does not yet: row -> the parts that it waits for."""

from __future__ import annotations

SCHEDULER = "a Slurm scheduler"
KUBERNETES = "Kubernetes"
BATCH = "AWS Batch"
MONITORING = "monitoring"
OTHER_OS = "images other than Ubuntu"
HOMES = "shared homes"
"""Made on AWS and Google Cloud; waited for on Azure."""

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
    48: f"{SCHEDULER}, {HOMES}",
    49: OTHER_OS,
    51: KUBERNETES,
    52: f"{SCHEDULER}, {HOMES}",
    56: f"{SCHEDULER}, {HOMES}",
    57: KUBERNETES,
    59: KUBERNETES,
}

STORAGE = {HOMES: "home"}
"""Kinds of storage that are declared and refused until their part is there."""
