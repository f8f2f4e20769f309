"""Rules about the repair of nodes by the control node."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in


def repair_has_a_control_node(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes are repaired by the control node, which reads their metrics."""
    if spec.repair.mode != "off" and spec.monitoring is None:
        what = f"is {spec.repair.mode}, but the stack has no control node"
        yield error("repair.mode", what, "add `monitoring: {}`, or set it to off")


def repair_is_limited(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The limit applies only if nodes are taken out of use, and leaves nodes in use."""
    mode, limit = spec.repair.mode, spec.repair.at_most
    if mode in ("off", "report"):
        if "at_most" in spec.repair.model_fields_set:
            what = f"is {limit}, but repair.mode is {mode}, which takes no node out of use"
            yield warn("repair.at_most", what, "remove it, or set repair.mode to hold or replace")
    elif 1 < spec.nodes <= limit:
        what = (
            f"is {limit}, but the cluster has {spec.nodes} nodes, so all of them can be taken out of use within a day"
        )
        yield warn("repair.at_most", what, f"lower it to {max(1, spec.nodes // 4)}")


RULES = rules_in(vars())
