"""A cluster on AWS from single components. docs/guides/library.md explains each line."""

import pulumi

from gpuinfra import make_plan
from gpuinfra.clouds import aws
from gpuinfra.stack import declared

plan = make_plan(declared())
scope = aws.Scope.of(plan)
pool, lustre = plan.pools[0], plan.file_systems[0]

foundation = aws.Foundation("train-foundation", aws.FoundationArgs(scope=scope, plan=plan))
network = aws.Network("train-network", aws.NetworkArgs(scope=scope, plan=plan))
security = aws.SecurityGroups("train-security", aws.SecurityGroupsArgs(scope=scope, plan=plan, vpc_id=network.vpc_id))
assert security.storage_group_id is not None  # The plan has a Lustre file system.
scratch = aws.SharedFilesystem(
    "train-scratch",
    aws.SharedFilesystemArgs(
        scope=scope,
        plan=lustre,
        subnet_id=network.file_system_subnet_ids[lustre.subnet],
        security_group_id=security.storage_group_id,
        key_arn=foundation.data_key_arn,
    ),
)
role = aws.NodeRole(
    "train-node",
    aws.NodeRoleArgs(scope=scope, plan=plan, bucket_arn=foundation.evidence.arn, key_arn=foundation.data_key_arn),
)
nodes = aws.NodePool(
    "train-gpu",
    aws.NodePoolArgs(
        scope=scope,
        plan=pool,
        subnet_id=network.subnet_ids[pool.subnet],
        security_group_id=security.nodes_group_id,
        profile_arn=role.profile_arn,
        node_role=role.role_name,
        evidence_owner=role.unique_id,
        bucket=foundation.evidence.bucket,
        key_arn=foundation.data_key_arn,
        file_systems=[scratch.mounted],
    ),
)
ready = aws.NodesReady("train-ready", aws.NodesReadyArgs(scope=scope, plan=plan.handover, pools=[nodes]))
pulumi.export("summary", ready.summary)
