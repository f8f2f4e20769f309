"""The last step of a deployment: waits until the nodes are verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from gpuinfra.base import naming
from gpuinfra.handover import NodesReady, NodesReadyArgs, PoolReady
from gpuinfra.plan.model import Plan


def wait_for_nodes(
    plan: Plan,
    pools: Sequence[PoolReady],
    *,
    evidence_bucket: pulumi.Input[str],
    depends_on: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> dict[str, Any]:
    """Create `NodesReady` after the resources in `depends_on`, and return the outputs that it adds to the cluster."""
    ready = NodesReady(
        naming.logical(plan.name, "ready"),
        NodesReadyArgs(
            cloud=plan.cloud,
            cluster=plan.name,
            region=plan.region,
            evidence_bucket=evidence_bucket,
            evidence_prefix=naming.evidence_prefix(plan.name),
            pools=list(pools),
            wait=plan.handover.wait,
            floor=plan.handover.floor,
            deadline_s=plan.handover.deadline_s,
        ),
        pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=list(depends_on))),
    )
    return {
        "ready": ready.ready,
        "nodes": ready.nodes,
        "nodes_verified": ready.nodes_verified,
        "gpus_verified": ready.gpus_verified,
        "summary": ready.summary,
    }
