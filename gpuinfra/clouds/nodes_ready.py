"""The last component of a deployment, which waits until the nodes are verified. The part that all clouds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pulumi

from gpuinfra.clouds.node_pool import BaseNodePool
from gpuinfra.clouds.scope import BaseScope
from gpuinfra.handover import NodesVerified, NodesVerifiedArgs
from gpuinfra.plan.model import HandoverPlan


@dataclass(frozen=True, kw_only=True)
class BaseNodesReadyArgs:
    """Arguments that all clouds share."""

    scope: BaseScope
    plan: HandoverPlan
    """How many nodes must be verified, and within which time (`plan.handover`)."""
    pools: Sequence[BaseNodePool[Any]]
    """Pools whose nodes must be verified. They use the same bucket and the same evidence folder."""
    triggers: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Values that cause `up` to evaluate the nodes again when they change."""


A = TypeVar("A", bound=BaseNodesReadyArgs)


class BaseNodesReady(pulumi.ComponentResource, Generic[A]):
    """Waits until the nodes of the pools are verified. Otherwise, the deployment fails and lists the nodes, the findings and the actions to take."""

    ready: pulumi.Output[bool]
    """True when the number of verified nodes is sufficient."""
    nodes_verified: pulumi.Output[int]
    """Number of verified nodes."""
    gpus_verified: pulumi.Output[int]
    """Number of GPUs in these nodes."""
    nodes: pulumi.Output[list[Any]]
    """One entry for each node: label, instance ID, pool, group, outcome, reason, evidence checksum, SSH host keys and other values."""
    summary: pulumi.Output[str]
    """The result in one line."""
    ended: pulumi.Output[str]
    """Why the wait ended, such as `ready`, `deadline` or `stock-out`."""
    shortages: pulumi.Output[list[Any]]
    """One entry for each group that lacks nodes: pool, group, kind, zone, number of missing nodes, cause, message of the cloud, and hint."""

    _cloud: ClassVar[str]

    def __init__(self, name: str, args: A, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"gpuinfra:{self._cloud}:NodesReady", name, None, opts)
        if len({pool.evidence_prefix for pool in args.pools}) != 1:
            raise pulumi.RunError(
                f"{name}: pools is empty, or its pools have different evidence folders; create one NodesReady for each folder"
            )
        first = args.pools[0]
        verified = NodesVerified(
            name,
            NodesVerifiedArgs(
                cloud=self._cloud,
                cluster=args.scope.cluster,
                region=args.scope.region,
                evidence_bucket=first.bucket,
                evidence_prefix=first.evidence_prefix,
                pools=[pool.ready() for pool in args.pools],
                wait=args.plan.wait,
                floor=args.plan.floor,
                deadline_s=args.plan.deadline_s,
                triggers=args.triggers,
                **self._credentials(args),
            ),
            pulumi.ResourceOptions(
                parent=self,
                # In version 0.2.0, the parent of the resource was that of this component.
                aliases=[pulumi.Alias(parent=opts.parent if opts else None)],
                depends_on=[one for pool in args.pools for group in pool.groups for one in group.resources],
            ),
        )
        self.ready, self.summary, self.nodes = verified.ready, verified.summary, verified.nodes
        self.nodes_verified, self.gpus_verified = verified.nodes_verified, verified.gpus_verified
        self.ended, self.shortages = verified.ended, verified.shortages
        self.outputs = {
            "ready": self.ready,
            "nodes": self.nodes,
            "nodes_verified": self.nodes_verified,
            "gpus_verified": self.gpus_verified,
            "summary": self.summary,
        }
        """The outputs that the component adds to its stack."""
        self.register_outputs(self.outputs)

    def _credentials(self, args: A) -> dict[str, Any]:
        """Return the arguments that select the credentials of the handover. By default, it uses those of the environment."""
        return {}
