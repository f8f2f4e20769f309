"""The end of every cloud's cluster: its nodes are not there until the handover says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from gpuinfra import naming
from gpuinfra.handover import NodesReady, NodesReadyArgs, PoolReady
from gpuinfra.plan.model import Plan


def hand_over(
    parent: pulumi.Resource,
    plan: Plan,
    pools: Sequence[PoolReady],
    *,
    evidence_bucket: pulumi.Input[str],
    evidence_prefix: str,
    after: Sequence[pulumi.Resource],
) -> dict[str, Any]:
    """Wait for the nodes of a cluster, once `after` is made; answers what the handover adds to the cluster's outputs."""
    ready = NodesReady(
        naming.logical(plan.name, "ready"),
        NodesReadyArgs(
            cloud=plan.cloud,
            cluster=plan.name,
            region=plan.region,
            evidence_bucket=evidence_bucket,
            evidence_prefix=evidence_prefix,
            pools=list(pools),
            wait=plan.handover.wait,
            floor=plan.handover.floor,
            deadline_s=plan.handover.deadline_s,
        ),
        pulumi.ResourceOptions(parent=parent, depends_on=list(after)),
    )
    return {
        "ready": ready.ready,
        "nodes": ready.nodes,
        "nodes_verified": ready.nodes_verified,
        "gpus_verified": ready.gpus_verified,
        "summary": ready.summary,
    }
