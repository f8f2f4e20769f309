"""What a node is allowed to do: fetch its bundle, write its own evidence, be reached by Session Manager. Nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import after
from gpuinfra.clouds.resource_group import Part


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """What the nodes of a cluster work with."""

    scope: Scope
    bucket_arn: pulumi.Input[str]
    """ARN of the evidence bucket, which holds the bundles too."""
    evidence_prefix: str
    """Where the cluster's nodes write."""
    key_arn: pulumi.Input[str]
    """Key of the evidence bucket."""
    permissions_boundary: str | None = None
    """ARN of a policy that no role may exceed, where an organisation demands one; left out, none is set."""


class NodeRole(Part):
    """The identity of nodes, and the profile that gives it to them."""

    role_name: pulumi.Output[str]
    """Name of the role: what evidence must be signed by."""
    unique_id: pulumi.Output[str]
    """The role's unique id, first half of a node's evidence folder."""
    profile_arn: pulumi.Output[str]
    """ARN of the instance profile, once its role may do what it must."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:NodeRole", name, opts)
        scope = args.scope
        logical = naming.logical(name, "role")
        role = aws.iam.Role(
            logical,
            assume_role_policy=policies.trust("ec2.amazonaws.com"),
            description=f"Nodes of {scope.cluster}",
            permissions_boundary=args.permissions_boundary,
            tags=scope.tagged(logical),
            opts=child(self),
        )
        own = aws.iam.RolePolicy(
            naming.logical(name, "own"),
            role=role.id,
            policy=policies.document(policies.node(args.bucket_arn, args.evidence_prefix, args.key_arn, scope.region)),
            opts=child(self),
        )
        # Session Manager is how people reach a node: no port 22, no bastion, every session in the audit trail.
        sessions = aws.iam.RolePolicyAttachment(
            naming.logical(name, "sessions"),
            role=role.name,
            policy_arn=f"arn:{scope.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore",
            opts=child(self),
        )
        profile = aws.iam.InstanceProfile(
            naming.logical(name, "profile"),
            role=role.name,
            tags=scope.tagged(naming.logical(name, "profile")),
            opts=child(self),
        )
        self.role_name, self.unique_id = role.name, role.unique_id
        self.profile_arn = after(profile.arn, [own, sessions])
