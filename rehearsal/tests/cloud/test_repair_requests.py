"""The requests of a control node that repairs nodes, with the policies of the components, through the node's own program."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.azure.components.grants import folder_condition
from gpuinfra.clouds.azure.components.roles import DISCOVERS as DISCOVERS_AZURE
from gpuinfra.clouds.azure.components.roles import REDEPLOYS
from gpuinfra.clouds.gcp.components.roles import DISCOVERS, REPLACES
from gpuinfra.node import cloud as node_cloud
from gpuinfra.node.cloud import CloudError, FaultyNode
from gpuinfra.node.repair_service import MachineRegister, NodeReplacer
from gpuinfra.plan.model import DataDisk, MonitoringPlan, RepairPlan
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import google, microsoft, stacks
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_gcp_http import SCOPE
from rehearsal.tests.cloud.test_http import BUCKET, server

__all__ = ["server"]

SCOPE_OF_TRAIN: Any = SimpleNamespace(
    region="us-east-1",
    cluster="train",
    arn=lambda service, resource: f"arn:aws:{service}:us-east-1:000000000000:{resource}",
)
DISK = DataDisk(size_gib=10, kind="gp3", zone="use1-az1")
MONITORING = MonitoringPlan(
    pool="monitoring", retention_days=30, disk=DISK, repair=RepairPlan(mode="replace", at_most=1)
)
ORDERS = naming.repair_orders("train")
PLANNED = naming.planned_work("train")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied request is repeated without a pause."""
    monkeypatch.setattr(node_cloud.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)


def writes_only_orders(control: node_cloud.NodeCloud, node: node_cloud.NodeCloud, bucket: str) -> None:
    """The control node writes and replaces its orders and nothing next to them, and each node reads them and cannot write them."""
    for text in (b'{"a": 1}', b'{"a": 2}'):
        control.put(bucket, ORDERS, text, once=False)
    assert node.get(bucket, ORDERS) == control.get(bucket, ORDERS) == b'{"a": 2}'
    for key in (PLANNED, "bootstrap/train/gpu/a.tar.gz", ORDERS.replace("train", "other")):
        with pytest.raises(CloudError, match="403"):
            control.put(bucket, key, b"{}", once=False)
    with pytest.raises(CloudError, match="403"):
        node.put(bucket, ORDERS, b"{}", once=False)


def replaces(
    cloud: Cloud,
    control: node_cloud.NodeCloud,
    node: node_cloud.NodeCloud,
    make: Callable[[dict[str, Any], str], FaultyNode],
    victim: dict[str, Any],
) -> None:
    """An ordinary node must not replace a node, nor the control node one of another cluster. The control node does it once."""
    assert isinstance(control, NodeReplacer)
    assert isinstance(node, NodeReplacer)
    with pytest.raises(CloudError):
        node.replace_node(make(victim, "train"))
    assert victim["id"] in cloud.fleet.instances()
    assert control.replace_node(make(victim, "train"))


def test_aws(cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role of the control node terminates instances in groups with the tag of its cluster, and in no other group."""
    monkeypatch.setattr(policies.pulumi.Output, "concat", staticmethod(lambda *parts: "".join(parts)))
    stacks.bucket(aws)
    arn = f"arn:aws:s3:::{BUCKET}"
    key = "arn:aws:kms:us-east-1:000000000000:key/k"
    tags = {"gpuinfra:cluster": "train"}
    _, subnet = stacks.network(aws)
    profiles = {}
    for name, more in (("node", {}), ("control", {policies.ROLE_TAG: policies.CONTROL})):
        aws.create("aws:iam/role:Role", {"name": name, "assumeRolePolicy": '{"Statement": []}', "tags": {**tags, **more}}, name)  # fmt: skip
        own = [*policies.node(SCOPE_OF_TRAIN, arn, "evidence/train", key)]
        own += policies.control(SCOPE_OF_TRAIN, MONITORING, arn) if more else []
        aws.create("aws:iam/rolePolicy:RolePolicy", {"role": name, "name": name, "policy": json.dumps({"Statement": own})}, name)  # fmt: skip
        profiles[name] = aws.create("aws:iam/instanceProfile:InstanceProfile", {"name": name, "role": name}, name)
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": BUCKET, "policy": json.dumps({"Statement": policies.own_evidence_only(arn)})})  # fmt: skip
    for group, profile in (("gpu", "node"), ("control", "control"), ("foreign", "node")):
        role = {"arn": profiles[profile].outputs["arn"]}
        launch = stacks.template(aws, group, iamInstanceProfile=role, metadataOptions={"httpTokens": "required"})
        foreign = [{"key": "gpuinfra:cluster", "value": "other", "propagateAtLaunch": True}]
        stacks.group(aws, launch, 2 if group == "gpu" else 1, subnet, group, **({"tags": foreign} if group == "foreign" else {}))  # fmt: skip
    cloud.fleet.reconcile()
    by_group: dict[str, list[dict[str, Any]]] = {}
    for one in cloud.fleet.instances().values():
        by_group.setdefault(one["group"], []).append(one)
    record = {"cloud": "aws", "region": "us-east-1"}
    node, control = (
        node_cloud.of(record, endpoints.of_node("aws", cloud.endpoint, by_group[group][0]["id"]))
        for group in ("gpu", "control")
    )
    writes_only_orders(control, node, BUCKET)
    victim, foreign_node = by_group["gpu"][1], by_group["foreign"][0]

    def faulty(instance: dict[str, Any], cluster: str) -> FaultyNode:
        return FaultyNode(instance["id"], instance["id"], cluster, ())

    replaces(cloud, control, node, faulty, victim)
    cloud.fleet.reconcile()
    assert isinstance(control, NodeReplacer)
    assert not control.replace_node(faulty(victim, "train"))
    with pytest.raises(CloudError, match="403 AccessDenied"):
        control.replace_node(faulty(foreign_node, "train"))
    assert foreign_node["id"] in cloud.fleet.instances()


def test_gcp(cloud: Cloud, gcp: Client, server: Server) -> None:
    """The account of the control node deletes instances with the names of a group, and a repeated request does not delete the new instance."""
    bucket = google.bucket(gcp)
    objects = f"projects/_/buckets/{bucket.id}/objects"
    accounts = {name: google.account(gcp, f"{name}-1") for name in ("node", "control")}
    for account in accounts.values():
        google.grant(gcp, bucket, account, "roles/storage.objectViewer", f'resource.name.startsWith("{objects}/bootstrap/train/")')  # fmt: skip
    folder = naming.repair_folder("train")
    google.grant(gcp, bucket, accounts["control"], "roles/storage.objectUser", f'resource.name.startsWith("{objects}/{folder}/")')  # fmt: skip
    instances = f"projects/{ids.PROJECT}/zones/{google.ZONE}/instances/gpu-"
    condition = f'resource.type == "compute.googleapis.com/Instance" && resource.name.startsWith("{instances}")'
    for name, permissions, expression in (("discovery", DISCOVERS, ""), ("repair", REPLACES, condition)):
        inputs = {"roleId": name, "title": name, "permissions": list(permissions)}
        role = gcp.create("gcp:projects/iAMCustomRole:IAMCustomRole", inputs, name)
        given = {
            "project": ids.PROJECT,
            "role": role.id,
            "member": f"serviceAccount:{accounts['control'].outputs['email']}",
        }
        when = {"condition": {"title": name, "expression": expression}} if expression else {}
        gcp.create("gcp:projects/iAMMember:IAMMember", {**given, **when}, name)
    for name, account, count in (("gpu", "node", 2), ("control", "control", 1)):
        identity = {"email": accounts[account].outputs["email"], "scopes": [SCOPE]}
        google.group(gcp, google.template(gcp, name=f"{name}-v1", serviceAccount=identity), count, name=name)
    cloud.fleet.reconcile()
    first, second = _of(cloud, "gpu-")
    (third,) = _of(cloud, "control-")
    node, control = (node_cloud.of({"cloud": "gcp"}, endpoints.of_node("gcp", cloud.endpoint, one["id"])) for one in (first, third))  # fmt: skip
    writes_only_orders(control, node, bucket.id)

    def faulty(instance: dict[str, Any], cluster: str) -> FaultyNode:
        return FaultyNode(instance["id"], instance["id"], cluster, (google.ZONE,))

    replaces(cloud, control, node, faulty, second)
    cloud.fleet.reconcile()
    assert isinstance(control, NodeReplacer)
    assert not control.replace_node(faulty(second, "train"))
    assert [one["vm"] for one in _of(cloud, "gpu-")] == [first["vm"], second["vm"]]
    assert second["id"] not in [one["id"] for one in _of(cloud, "gpu-")]
    with pytest.raises(CloudError, match="403"):
        control.replace_node(faulty(third, "train"))


def _of(cloud: Cloud, start: str) -> list[dict[str, Any]]:
    """The instances whose names begin with a text."""
    every = [one for one in cloud.fleet.instances().values() if one["state"] != "terminated"]
    return sorted((one for one in every if one["vm"].startswith(start)), key=lambda one: str(one["vm"]))


def test_azure(cloud: Cloud, azure: Client, server: Server) -> None:
    """The identity of the control node redeploys a machine of its cluster, which keeps its ID, and no machine of another cluster."""
    microsoft.group(azure)
    microsoft.account(azure)
    container = microsoft.container(azure)
    identities = {name: microsoft.identity(azure, name) for name in ("node", "control")}
    condition = folder_condition(reads=("bootstrap/train", "evidence/train"), writes=("evidence/train",))
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    group = "/".join(container.id.split("/")[:5])

    def role(number: int, actions: Sequence[str], data_actions: Sequence[str]) -> str:
        guid = f"00000000-0000-4e00-8000-{number:012x}"
        permissions = [{"actions": list(actions), "dataActions": list(data_actions)}]
        inputs = {"roleDefinitionId": guid, "roleName": f"role {number}", "scope": group, "assignableScopes": [group], "permissions": permissions}  # fmt: skip
        azure.create("azure-native:authorization:RoleDefinition", inputs, f"role-{number}")
        return guid

    shared, orders = role(1, (), (f"{blobs}/read", f"{blobs}/add/action")), role(2, (), (f"{blobs}/write",))
    manages = role(3, (*DISCOVERS_AZURE, *REDEPLOYS), ())
    place = SimpleNamespace(id=group)
    principals = {name: str(one.outputs["principalId"]) for name, one in identities.items()}
    microsoft.grant(azure, container, principals["node"], shared, condition=condition, number=1)
    microsoft.grant(azure, container, principals["control"], shared, condition=condition, number=2)
    writes = folder_condition(reads=(), writes=(naming.repair_folder("train"),))
    microsoft.grant(azure, container, principals["control"], orders, condition=writes, number=3)
    microsoft.grant(azure, place, principals["control"], manages, number=4)  # type: ignore[arg-type]
    model = microsoft.profile(microsoft.subnet(azure))
    microsoft.scale_set(azure, model, identity=identities["node"])
    for name, cluster in (("control", "train"), ("foreign", "other")):
        inputs = {
            **microsoft.WHERE, "vmScaleSetName": name, "orchestrationMode": "Uniform", "singlePlacementGroup": True,
            "sku": {"name": microsoft.MACHINE, "tier": "Standard", "capacity": 1}, "virtualMachineProfile": model,
            "upgradePolicy": {"mode": "Manual"}, "tags": {"gpuinfra:cluster": cluster, "gpuinfra:group": name},
            "identity": {"type": "UserAssigned", "userAssignedIdentities": [identities["control"].id]},
        }  # fmt: skip
        azure.create(microsoft.SET, inputs, name)
    cloud.fleet.reconcile()
    by_set: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(cloud.fleet.instances().values(), key=lambda one: int(one["index"])):
        by_set.setdefault(str(one["group"]).rsplit("/", 1)[-1], []).append(one)
    record = {"cloud": "azure"}
    node, control = (node_cloud.of(record, endpoints.of_node("azure", cloud.endpoint, by_set[name][0]["id"])) for name in ("gpu", "control"))  # fmt: skip
    writes_only_orders(control, node, microsoft.URL)

    def faulty(instance: dict[str, Any], cluster: str) -> FaultyNode:
        name = str(instance["group"]).rsplit("/", 1)[-1]
        return FaultyNode(f"{name}_{instance['index']}", instance["id"], cluster, ())

    victim = by_set["gpu"][1]
    assert isinstance(control, MachineRegister)
    assert control.has_id("gpu_1", victim["id"])
    stated = (("gpu_0", victim["id"]), ("gpu_1", "another"), ("gpu_7", victim["id"]), ("gpu", victim["id"]))
    assert not any(control.has_id(name, id_) for name, id_ in stated)
    replaces(cloud, control, node, faulty, victim)
    assert victim["id"] in cloud.fleet.instances()
    assert isinstance(control, NodeReplacer)
    assert not control.replace_node(FaultyNode("gpu_1", "another", "train", ()))
    assert not control.replace_node(FaultyNode("gpu_7", victim["id"], "train", ()))
    with pytest.raises(CloudError, match="does not belong to the cluster"):
        control.replace_node(faulty(by_set["foreign"][0], "train"))
