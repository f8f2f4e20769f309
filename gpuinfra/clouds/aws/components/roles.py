"""The IAM roles of the nodes and of the control node. A role allows a node to download its bundle, write its own evidence, read or write the buckets
that it mounts, and accept Session Manager sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import MonitoringPlan, Plan


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """Arguments for the node role."""

    scope: Scope
    plan: Plan
    """Plan of the nodes. It contains additional managed policies, and determines whether the nodes have access to the folder of the fabric test."""
    bucket_arn: pulumi.Input[str]
    """ARN of the evidence bucket, which also holds the bundles."""
    evidence_prefix: str = ""
    """Evidence folder of the cluster. If unset, `evidence/<cluster>`."""
    key_arn: pulumi.Input[str]
    """KMS key that encrypts the evidence bucket."""
    log_group_arn: pulumi.Input[str] | None = None
    """ARN of the log group of the nodes, if they send logs."""
    mounts: Sequence[policies.MountedBucket] = ()
    """Buckets that the nodes mount."""
    monitoring: MonitoringPlan | None = None
    """Set for the role of the control node, which finds the nodes and reads the secrets of the receivers of alerts. It has no managed policies."""
    data_disk_arn: pulumi.Input[str] = ""
    """Disk that the control node attaches."""
    workspace_arn: pulumi.Input[str] | None = None
    """ARN of the workspace to which the control node writes metrics."""
    topic_arns: Sequence[pulumi.Input[str]] = ()
    """ARNs of the topics to which the control node publishes alerts."""


class NodeRole(pulumi.ComponentResource):
    """The IAM role of the nodes, and its instance profile."""

    role_name: pulumi.Output[str]
    """Name of the role. Evidence is accepted only from this role."""
    unique_id: pulumi.Output[str]
    """Unique ID of the role. It is the first part of the name of each node's evidence folder."""
    profile_arn: pulumi.Output[str]
    """ARN of the instance profile. Resolves after the policies are attached to the role."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:NodeRole", name, None, args.scope.options(opts))
        scope = args.scope
        folder = args.evidence_prefix or naming.evidence_prefix(scope.cluster)
        control = args.monitoring
        role = aws.iam.Role(
            rows.NODE_ROLE.logical(name),
            assume_role_policy=policies.trust("ec2.amazonaws.com"),
            description=f"{'Control node' if control else 'Nodes'} of {scope.cluster}",
            tags={policies.ROLE_TAG: policies.CONTROL} if control else None,
            opts=child(self, rows.NODE_ROLE),
        )
        own = aws.iam.RolePolicy(
            rows.NODE_POLICY.logical(name),
            role=role.id,
            policy=policies.document(
                [
                    *policies.node(scope, args.bucket_arn, folder, args.key_arn),
                    *policies.mounts(args.mounts),
                    *(policies.write_log_group(args.log_group_arn) if args.log_group_arn is not None else ()),
                    *(
                        policies.control(scope, control, args.bucket_arn, args.workspace_arn, args.topic_arns)
                        if control
                        else ()
                    ),
                    *(policies.attach(scope, control, args.data_disk_arn, args.key_arn) if control else ()),
                ]
            ),
            opts=child(self, rows.NODE_POLICY),
        )
        attached = [
            aws.iam.RolePolicyAttachment(
                rows.NODE_ATTACHED.logical(name, token=naming.text_token(arn)),
                role=role.name,
                policy_arn=arn,
                opts=child(self, rows.NODE_ATTACHED),
            )
            for arn in (() if control else args.plan.roles.node_policies)
        ]
        profile = aws.iam.InstanceProfile(
            rows.NODE_PROFILE.logical(name),
            role=role.name,
            opts=child(self, rows.NODE_PROFILE),
        )
        self.role_name, self.unique_id = role.name, role.unique_id
        self.profile_arn = ready_after(profile.arn, [own, *attached])
        self.register_outputs(
            {"role_name": self.role_name, "unique_id": self.unique_id, "profile_arn": self.profile_arn}
        )
