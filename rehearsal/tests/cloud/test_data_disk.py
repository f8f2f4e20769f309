"""The request with which a control node attaches its data disk, with the permissions of the components, through the node's own program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.azure.components.roles import ATTACHES as ATTACHES_AZURE
from gpuinfra.clouds.azure.components.roles import USES_DISK
from gpuinfra.clouds.gcp.components.roles import ATTACHES, attach_condition
from gpuinfra.node import cloud as node_cloud
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.data_disk import DiskAttacher
from gpuinfra.plan.model import Group
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import google, microsoft, stacks
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_gcp_http import SCOPE
from rehearsal.tests.cloud.test_http import BUCKET, server
from rehearsal.tests.cloud.test_repair_requests import MONITORING, SCOPE_OF_TRAIN

__all__ = ["server"]

KEY = "arn:aws:kms:us-east-1:000000000000:key/k"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new group launches its machines at once."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)


def attacher(name: str, cloud: Cloud, instance_id: str, **record: str) -> DiskAttacher:
    """The cloud as a node sees it."""
    connected = node_cloud.of({"cloud": name, **record}, endpoints.of_node(name, cloud.endpoint, instance_id))
    assert isinstance(connected, DiskAttacher)
    return connected


def is_attached_once(
    cloud: Cloud, first: DiskAttacher, second: DiskAttacher, disk: str, instance_id: str, used: str
) -> None:
    """One control node gets the disk. Another one is refused until the first has ended."""
    first.attach_disk(disk)
    (held,) = cloud.fleet.instances()[instance_id]["disks"]
    assert held["link"] in first.disk_links(disk)
    with pytest.raises(CloudError, match=used):
        second.attach_disk(disk)
    cloud.fleet.terminate(instance_id, "a test")
    second.attach_disk(disk)
    assert cloud.fleet.holder(held["key"]) not in (None, instance_id)


def members(cloud: Cloud, group: str) -> list[str]:
    """The IDs of the machines of a group."""
    running = sorted(cloud.fleet.running(), key=lambda one: one["name"])
    return [one["id"] for one in running if str(one["group"]).rsplit("/", 1)[-1] == group]


def test_aws(cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role attaches its volume and no other, to instances of its pool and no other, and lets EBS use the key."""
    monkeypatch.setattr(policies.pulumi.Output, "concat", staticmethod(lambda *parts: "".join(parts)))
    stacks.bucket(aws)
    _, subnet = stacks.network(aws)
    zone = subnet.outputs["availabilityZone"]
    own, foreign = (
        aws.create(
            "aws:ebs/volume:Volume", {"availabilityZone": zone, "size": 10, "encrypted": True, "kmsKeyId": KEY}, name
        )
        for name in ("own", "foreign")
    )
    statements = [
        *policies.node(SCOPE_OF_TRAIN, f"arn:aws:s3:::{BUCKET}", "evidence/train", KEY),
        *policies.attach(SCOPE_OF_TRAIN, MONITORING, own.outputs["arn"], KEY),
    ]
    aws.create("aws:iam/role:Role", {"name": "control", "assumeRolePolicy": '{"Statement": []}'}, "control")
    policy = {"role": "control", "name": "own", "policy": json.dumps({"Statement": statements})}
    granted = aws.create("aws:iam/rolePolicy:RolePolicy", policy, "own")
    profile = aws.create("aws:iam/instanceProfile:InstanceProfile", {"name": "control", "role": "control"}, "control")
    for group, pool in (("control", "monitoring"), ("gpu", "gpu")):
        launch = stacks.template(aws, group, iamInstanceProfile={"arn": profile.outputs["arn"]}, metadataOptions={"httpTokens": "required"})  # fmt: skip
        tags = [{"key": f"gpuinfra:{key}", "value": value, "propagateAtLaunch": True} for key, value in (("cluster", "train"), ("pool", pool))]  # fmt: skip
        stacks.group(aws, launch, 2, subnet, group, tags=tags)
    cloud.fleet.reconcile()
    first, second = (attacher("aws", cloud, one, region="us-east-1") for one in members(cloud, "control"))
    for node, disk in (
        (first, foreign.id),
        (attacher("aws", cloud, members(cloud, "gpu")[0], region="us-east-1"), own.id),
    ):
        with pytest.raises(CloudError, match="403 UnauthorizedOperation"):
            node.attach_disk(disk)
    with pytest.raises(CloudError, match=r"InvalidVolume\.NotFound"):
        first.attach_disk("vol-0123")
    is_attached_once(cloud, first, second, own.id, members(cloud, "control")[0], "VolumeInUse")
    without_key = [one for one in statements if one["Sid"] != "LetEbsUseKey"]
    aws.update(granted, {**policy, "policy": json.dumps({"Statement": without_key})})
    cloud.fleet.reconcile()
    with pytest.raises(CloudError, match="403 UnauthorizedOperation"):
        second.attach_disk(own.id)


def test_gcp(cloud: Cloud, gcp: Client, server: Server) -> None:
    """The account attaches its disk and no other, to instances with the names of its group and no other."""
    own, foreign = (
        gcp.create(
            "gcp:compute/disk:Disk", {"name": name, "zone": google.ZONE, "size": 10, "type": "pd-balanced"}, name
        )
        for name in ("own", "foreign")
    )
    account = google.account(gcp, "control-1")
    group = Group(name="monitoring", pool="monitoring", kind="on_demand", count=2, max_count=2, zone=google.ZONE)
    inputs = {"roleId": "attach", "title": "attach", "permissions": list(ATTACHES)}
    role = gcp.create("gcp:projects/iAMCustomRole:IAMCustomRole", inputs, "attach")
    condition = {"title": "attach", "expression": attach_condition("train", ids.PROJECT, group, own.id)}
    member = f"serviceAccount:{account.outputs['email']}"
    gcp.create("gcp:projects/iAMMember:IAMMember", {"project": ids.PROJECT, "role": role.id, "member": member, "condition": condition}, "attach")  # fmt: skip
    for name in ("train-monitoring", "train-gpu"):
        identity = {"email": account.outputs["email"], "scopes": [SCOPE]}
        google.group(
            gcp, google.template(gcp, name=f"{name}-v1", serviceAccount=identity), 2, name=name, baseInstanceName=name
        )
    cloud.fleet.reconcile()
    first, second = (attacher("gcp", cloud, one) for one in members(cloud, "train-monitoring"))
    for node, disk in ((first, foreign.id), (attacher("gcp", cloud, members(cloud, "train-gpu")[0]), own.id)):
        with pytest.raises(CloudError, match="403 Required 'compute"):
            node.attach_disk(disk)
    is_attached_once(cloud, first, second, own.id, members(cloud, "train-monitoring")[0], "already being used")


def test_azure(cloud: Cloud, azure: Client, server: Server) -> None:
    """The identity attaches its disk and no other, because Azure also checks its permissions on the disk."""
    microsoft.group(azure)
    group = f"/subscriptions/{microsoft.identity(azure, 'other').id.split('/')[2]}/resourceGroups/rg"
    control = microsoft.identity(azure, "control")
    empty = {**microsoft.WHERE, "diskSizeGB": 10, "creationData": {"createOption": "Empty"}}
    own, foreign = (azure.create("azure-native:compute:Disk", {**empty, "diskName": name}, name) for name in ("own", "foreign"))  # fmt: skip
    for number, (actions, at) in enumerate(((ATTACHES_AZURE, group), (USES_DISK, own.id)), 1):
        guid = f"00000000-0000-4e00-8000-{number:012x}"
        permissions = [{"actions": list(actions), "dataActions": []}]
        inputs = {"roleDefinitionId": guid, "roleName": f"role {number}", "scope": group, "assignableScopes": [group], "permissions": permissions}  # fmt: skip
        azure.create("azure-native:authorization:RoleDefinition", inputs, f"role-{number}")
        place: Any = type("Place", (), {"id": at})
        microsoft.grant(azure, place, str(control.outputs["principalId"]), guid, number=number)
    microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)), identity=control)
    cloud.fleet.reconcile()
    machines = sorted(cloud.fleet.running(), key=lambda one: int(one["index"]))
    first, second = (attacher("azure", cloud, one["id"]) for one in machines)
    with pytest.raises(CloudError, match="403 LinkedAuthorizationFailed"):
        first.attach_disk(foreign.id)
    is_attached_once(cloud, first, second, own.id, machines[0]["id"], "409 ConflictingUserInput")
