"""A cluster on Google Cloud from single components. docs/guides/library.md explains each line."""

import pulumi

from gpuinfra import make_plan
from gpuinfra.clouds import gcp
from gpuinfra.stack import declared

plan = make_plan(declared())
scope = gcp.Services("train-services", gcp.ServicesArgs(scope=gcp.Scope.of(plan), apis=gcp.apis(plan))).scope
pool, lustre = plan.pools[0], plan.file_systems[0]

foundation = gcp.Foundation("train-foundation", gcp.FoundationArgs(scope=scope, plan=plan))
network = gcp.Network("train-network", gcp.NetworkArgs(scope=scope, plan=plan))
scratch = gcp.SharedFilesystem(
    "train-scratch",
    gcp.SharedFilesystemArgs(scope=scope, plan=lustre, network_id=network.network_id, key_id=foundation.data_key_id),
)
role = gcp.NodeRole(
    "train-node",
    gcp.NodeRoleArgs(scope=scope, plan=plan, bucket=foundation.evidence.bucket),
)
nodes = gcp.NodePool(
    "train-gpu",
    gcp.NodePoolArgs(
        scope=scope,
        plan=pool,
        subnet_ids=network.subnet_ids,
        service_account=role.email,
        bucket=foundation.evidence.bucket,
        key_id=foundation.data_key_id,
        file_systems=[scratch.mounted],
    ),
)
ready = gcp.NodesReady("train-ready", gcp.NodesReadyArgs(scope=scope, plan=plan.handover, pools=[nodes]))
pulumi.export("summary", ready.summary)
