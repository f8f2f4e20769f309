"""AWS-specific rules for interface layouts, capacity, nodes and FSx for Lustre."""

from __future__ import annotations

from gpuinfra.clouds.aws.rules import capacity, layout, logs, nodes, storage

RULES = (*layout.RULES, *capacity.RULES, *nodes.RULES, *storage.RULES, *logs.RULES)
