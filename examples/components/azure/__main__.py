"""A cluster on Azure from single components. docs/guides/library.md explains each line."""

import pulumi
from pulumi_azure_native.resources import ResourceGroup

from gpuinfra import make_plan
from gpuinfra.clouds import azure
from gpuinfra.stack import declared

plan = make_plan(declared())
account = azure.Scope.of(plan)
group = ResourceGroup("train-group", resource_group_name="train", location=plan.region)
scope = account.within(group.name)
pool, lustre = plan.pools[0], plan.file_systems[0]

foundation = azure.Foundation(
    "train-foundation",
    azure.FoundationArgs(scope=account, plan=plan),
)
security = azure.SecurityGroups("train-security", azure.SecurityGroupsArgs(scope=scope, plan=plan))
network = azure.Network("train-network", azure.NetworkArgs(scope=scope, plan=plan, group_ids=security.group_ids))
endpoints = azure.Endpoints(
    "train-endpoints",
    azure.EndpointsArgs(
        scope=scope,
        network_id=network.network_id,
        subnet_id=network.subnet_ids["endpoints-0"],
        services={"blob": foundation.evidence.account_id, "vault": foundation.vault_id},
    ),
)
scratch = azure.SharedFilesystem(
    "train-scratch",
    azure.SharedFilesystemArgs(
        scope=scope, plan=lustre, subnet_id=network.subnet_ids[lustre.subnet], key=foundation.data_key
    ),
)
role = azure.NodeRole(
    "train-node",
    azure.NodeRoleArgs(scope=scope, plan=plan, evidence_account_id=foundation.evidence.account_id),
)
nodes = azure.NodePool(
    "train-gpu",
    azure.NodePoolArgs(
        scope=scope,
        plan=pool,
        subnet_id=endpoints.after(network.subnet_ids[pool.subnet]),
        security_group_id=security.nodes_group_id,
        identity_id=role.identity_id,
        client_id=role.client_id,
        bucket=foundation.evidence.bucket,
        disk_encryption_set_id=foundation.disk_encryption_set_id,
        file_systems=[scratch.mounted],
    ),
)
ready = azure.NodesReady("train-ready", azure.NodesReadyArgs(scope=scope, plan=plan.handover, pools=[nodes]))
pulumi.export("summary", ready.summary)
