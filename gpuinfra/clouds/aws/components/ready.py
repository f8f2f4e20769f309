"""The component that waits for verified nodes on AWS. See `gpuinfra.clouds.nodes_ready`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.components.nodes import NodePool
from gpuinfra.clouds.aws.components.scope import Scope
from gpuinfra.clouds.nodes_ready import BaseNodesReady, BaseNodesReadyArgs


@dataclass(frozen=True, kw_only=True)
class NodesReadyArgs(BaseNodesReadyArgs):
    """Arguments for the wait."""

    scope: Scope
    pools: Sequence[NodePool]
    """Pools whose nodes must be verified. They use the same bucket and the same evidence folder."""
    profile: str | None = None
    """Named profile of the credentials that read the groups and the evidence. If unset, `aws:profile` and
    `aws:assumeRoles` are used, as for the resources, or the credentials of the environment."""
    role_arn: pulumi.Input[str] | None = None
    """IAM role that is assumed to read the groups and the evidence. If unset, no role is assumed."""


class NodesReady(BaseNodesReady[NodesReadyArgs]):
    """Waits until the nodes of the pools are verified. Otherwise, the deployment fails and lists the nodes, the findings and the actions to take.

    A node is verified when it has uploaded evidence that is signed with an identity that AWS confirms, and the evidence passes every check
    that the machine type requires. `GPUINFRA_DEADLINE` shortens the deadline of one run.
    """

    _cloud = "aws"

    def _credentials(self, args: NodesReadyArgs) -> dict[str, Any]:
        settings = {credentials.PROFILE: args.profile} if args.profile else credentials.of_running_program()
        return {
            "profile": settings.get(credentials.PROFILE),
            "assume_roles": settings.get(credentials.ROLES),
            "role_arn": args.role_arn,
        }
