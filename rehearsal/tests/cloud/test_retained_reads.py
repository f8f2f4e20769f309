"""The read calls of `gpuinfra adopt` and `gpuinfra up --resume` against the stand-in cloud."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import boto3
import grpc
import pytest
from botocore.exceptions import ClientError

from gpuinfra.clouds.aws import file_systems
from gpuinfra.clouds.aws.pending import PendingAccount
from gpuinfra.clouds.aws.region.dns import AwsDns
from gpuinfra.clouds.pending import StackIdentity
from gpuinfra.engine.pending import PendingCreate
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.aws import credentials
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids, tokens
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Server]:
    """The HTTP services of the cloud."""
    server = Server(cloud, "control-token")
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def session(cloud: Cloud, server: Server, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    """AWS's SDK with the operator's environment."""
    key = credentials.operator(cloud.store)
    known = {"aws": {"access_key_id": key.id, "secret_access_key": key.secret}}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", "us-east-1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return boto3.Session(region_name="us-east-1")


def test_keys_and_log_groups_are_found_by_name(session: Any, aws: Client) -> None:
    """A key is found by its alias and a log group by its prefix; a missing key is NotFoundException."""
    key = aws.create("aws:kms/key:Key", {"description": "data"})
    aws.create("aws:kms/alias:Alias", {"name": "alias/gpuinfra/train-data", "targetKeyId": key.id})
    aws.create("aws:cloudwatch/logGroup:LogGroup", {"name": "/gpuinfra/train-trail"})
    kms, logs = session.client("kms"), session.client("logs")
    assert kms.describe_key(KeyId="alias/gpuinfra/train-data")["KeyMetadata"]["KeyId"] == key.id
    with pytest.raises(ClientError) as caught:
        kms.describe_key(KeyId="alias/gpuinfra/train-other")
    assert caught.value.response.get("Error", {}).get("Code") == "NotFoundException"
    found = logs.describe_log_groups(logGroupNamePrefix="/gpuinfra/train")["logGroups"]
    assert [group["logGroupName"] for group in found] == ["/gpuinfra/train-trail"]
    assert logs.describe_log_groups(logGroupNamePrefix="/other")["logGroups"] == []


def test_networks_and_file_systems_are_found_by_filters_and_tags(session: Any, aws: Client) -> None:
    """A security group is found by its name, a subnet by VPC and tag; a file system has its tags."""
    vpc, _ = stacks.network(aws)
    group = aws.create(
        "aws:ec2/securityGroup:SecurityGroup", {"name": "train-storage", "description": "storage", "vpcId": vpc.id}
    )
    subnet = aws.create(
        "aws:ec2/subnet:Subnet",
        {"vpcId": vpc.id, "cidrBlock": "10.0.9.0/24", "tags": {"Name": "train-private-4"}},
        "other",
    )
    lustre = aws.create(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        {
            "storageCapacity": 4800, "subnetIds": subnet.id, "securityGroupIds": [group.id], "deploymentType": "PERSISTENT_2",
            "perUnitStorageThroughput": 250, "tags": {"Name": "train-scratch-0"},
        },
    )  # fmt: skip
    ec2 = session.client("ec2")
    by_name = [{"Name": "group-name", "Values": ["train-storage"]}]
    assert [g["GroupId"] for g in ec2.describe_security_groups(Filters=by_name)["SecurityGroups"]] == [group.id]
    tagged = [{"Name": "vpc-id", "Values": [vpc.id]}, {"Name": "tag:Name", "Values": ["train-private-4"]}]
    assert [s["SubnetId"] for s in ec2.describe_subnets(Filters=tagged)["Subnets"]] == [subnet.id]
    (found,) = session.client("fsx").describe_file_systems()["FileSystems"]
    assert (found["FileSystemId"], found["Tags"]) == (lustre.id, [{"Key": "Name", "Value": "train-scratch-0"}])


def test_addresses_of_file_systems_are_in_their_subnets(session: Any, aws: Client) -> None:
    """A Lustre file system has several network interfaces, which EC2 describes by ID, and a mount target has an address."""
    _, subnet = stacks.network(aws)
    inputs = {"storageCapacity": 4800, "subnetIds": subnet.id, "deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 250}  # fmt: skip
    made = aws.create("aws:fsx/lustreFileSystem:LustreFileSystem", inputs)
    ids = made.outputs["networkInterfaceIds"]
    assert len(set(ids)) > 1
    ec2 = session.client("ec2")
    (found,) = ec2.describe_network_interfaces(NetworkInterfaceIds=ids[:1])["NetworkInterfaces"]
    assert (found["NetworkInterfaceId"], found["SubnetId"]) == (ids[0], subnet.id)
    assert ip_address(found["PrivateIpAddress"]) in ip_network(subnet.inputs["cidrBlock"])
    with pytest.raises(ClientError, match=r"InvalidNetworkInterfaceID\.NotFound"):
        ec2.describe_network_interfaces(NetworkInterfaceIds=["eni-0"])
    home = aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0"})
    target = aws.create("aws:efs/mountTarget:MountTarget", {"fileSystemId": home.id, "subnetId": subnet.id})
    assert ip_address(target.outputs["ipAddress"])
    states = [{"type": one.token, "id": one.id, "outputs": one.outputs} for one in (made, home, target)]
    client = AwsDns(lambda service, region: session.client(service, region_name=region), "us-east-1")
    lustre, homes = (client.mounted({"dns_name": one.outputs["dnsName"]}, states) for one in (made, home))
    assert lustre is not None
    assert lustre.addresses == (found["PrivateIpAddress"],)
    assert homes is not None
    assert homes.addresses == (target.outputs["ipAddress"],)


def test_a_file_system_on_openzfs_is_found_by_its_tag(session: Any, aws: Client) -> None:
    """The tag identifies the file system, and its name points to the address of its only network interface."""
    _, subnet = stacks.network(aws)
    inputs = {
        "deploymentType": "SINGLE_AZ_2", "storageCapacity": 64, "throughputCapacity": 160, "subnetIds": [subnet.id],
        "tags": {file_systems.IDENTITY: "train-home-0-0a1b2c3d"},
    }  # fmt: skip
    made = aws.create("aws:fsx/openZfsFileSystem:OpenZfsFileSystem", inputs)
    fsx = session.client("fsx")
    assert file_systems.find(fsx, "train-home-0-0a1b2c3d") == made.id
    assert file_systems.find(fsx, "train-home-0-ffffffff") is None
    states = [{"type": made.token, "id": made.id, "outputs": made.outputs}]
    client = AwsDns(lambda service, region: session.client(service, region_name=region), "us-east-1")
    mounted = client.mounted({"dns_name": made.outputs["dnsName"]}, states)
    assert mounted is not None
    (address,) = mounted.addresses
    assert ip_address(address) in ip_network(subnet.inputs["cidrBlock"])


def test_homes_are_found_by_creation_token(session: Any, aws: Client) -> None:
    """An EFS file system is found by its token; a second one with the token is refused."""
    home = aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0", "encrypted": True})
    aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "other"}, "other")
    efs = session.client("efs")
    (found,) = efs.describe_file_systems(CreationToken="train-home-0")["FileSystems"]
    assert (found["FileSystemId"], found["LifeCycleState"]) == (home.id, "available")
    assert efs.describe_file_systems(CreationToken="none")["FileSystems"] == []
    assert len(efs.describe_file_systems()["FileSystems"]) == 2
    with pytest.raises(ClientError, match="BadRequest"):
        efs.describe_access_points(FileSystemId=home.id)
    with pytest.raises(grpc.RpcError, match="already exists with creation token 'train-home-0'"):
        aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0"}, "again")


def test_the_policy_of_homes_is_read_with_its_resource(aws: Client) -> None:
    """EFS returns the ARN of the file system in a statement without a resource, so only a policy with it is read as it was written (https://github.com/aws/aws-cdk/issues/30753)."""
    home = aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0"})
    statement = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "elasticfilesystem:ClientMount"}
    with_arn = {**statement, "Resource": home.outputs["arn"]}
    for name, given in (("without", statement), ("with", with_arn)):
        written = json.dumps({"Version": "2012-10-17", "Statement": [given]})
        made = aws.create(
            "aws:efs/fileSystemPolicy:FileSystemPolicy", {"fileSystemId": home.id, "policy": written}, name
        )
        found = aws.read("aws:efs/fileSystemPolicy:FileSystemPolicy", made.id)
        assert json.loads(found.inputs["policy"])["Statement"] == [with_arn]
        assert (found.inputs["policy"] == written) is (given is with_arn)
        assert found.outputs["policy"] == found.inputs["policy"]
        aws.delete(made)


def test_mount_targets_are_one_per_zone_and_hold_their_file_system(aws: Client) -> None:
    """A second mount target in a zone, the deletion of its file system and that of its subnet are refused."""
    _, subnet = stacks.network(aws)
    home = aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0"})
    target = {"fileSystemId": home.id, "subnetId": subnet.id}
    made = aws.create("aws:efs/mountTarget:MountTarget", target)
    assert made.outputs["dnsName"] == home.outputs["dnsName"]
    with pytest.raises(grpc.RpcError, match="mount target already exists in this AZ"):
        aws.create("aws:efs/mountTarget:MountTarget", target, "again")
    for one, reason in ((home, "has mount targets created in it"), (subnet, "has dependencies and cannot be deleted")):
        with pytest.raises(grpc.RpcError, match=reason):
            aws.delete(one)


def test_resources_of_google_cloud_are_found_by_name(cloud: Cloud, server: Server, gcp: Client) -> None:
    """A key ring is found at its name, another name is 404, and a token of no operator is rejected."""
    ring = gcp.create("gcp:kms/keyRing:KeyRing", {"name": "train-data", "location": "us-central1"})
    token, _ = tokens.issue(cloud.store, tokens.OPERATOR, scopes=("https://www.googleapis.com/auth/cloud-platform",))
    base = f"{cloud.endpoint}/.gcp/cloudkms/v1/projects/{ids.PROJECT}/locations/us-central1/keyRings"
    assert _get(f"{base}/train-data", token) == (200, ring.id)
    assert _get(f"{base}/train-other", token)[0] == 404
    assert _get(f"{base}/train-data", "ya29.invented")[0] == 401


def _get(url: str, token: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)["name"]
    except urllib.error.HTTPError as error:
        return error.code, ""


OURS = {"gpuinfra:stack": "0a1b2c3d", "Name": "train-network-vpc"}
"""Tags of the resource that a killed run was creating."""


def pending(kind: str, **inputs: Any) -> PendingCreate:
    """A creation that a killed run left pending."""
    return PendingCreate(
        urn=f"urn:pulumi:s::p::{kind}::x", type=kind, inputs={"region": "us-east-1", "tags": OURS, **inputs}, state={}
    )


@pytest.fixture
def account(session: boto3.Session) -> PendingAccount:
    """The lookups of `gpuinfra up --resume`."""
    return PendingAccount(session, StackIdentity(tokens=frozenset({"0a1b2c3d"}), ids=frozenset()), "us-east-1")


def test_a_network_is_found_by_both_tags(account: PendingAccount, aws: Client) -> None:
    """Of the VPCs with the name, only that with the tag of the stack is found, and a subnet with the same tags is not a VPC."""
    mine = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": OURS}, "a")
    aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {**OURS, "gpuinfra:stack": "ffffffff"}}, "b")
    aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": OURS["Name"]}}, "c")
    aws.create("aws:ec2/subnet:Subnet", {"vpcId": mine.id, "cidrBlock": "10.0.0.0/24", "tags": OURS}, "d")
    assert account.ids(pending("aws:ec2/vpc:Vpc")) == (mine.id,)
    assert account.ids(pending("aws:ec2/natGateway:NatGateway")) == ()


def test_a_key_is_found_by_its_tags(account: PendingAccount, aws: Client) -> None:
    """KMS cannot filter by tags, so each key is read. Keys of other stacks are not found."""
    mine = aws.create("aws:kms/key:Key", {"description": "a", "tags": OURS}, "a")
    aws.create("aws:kms/key:Key", {"description": "a", "tags": {"Name": OURS["Name"]}}, "b")
    assert account.ids(pending("aws:kms/key:Key")) == (mine.id,)


def test_a_workspace_for_metrics_is_found_by_its_tags(account: PendingAccount, aws: Client) -> None:
    """Two stacks can have workspaces with the same alias. What is in a workspace has an ID that consists of inputs."""
    kind = "aws:amp/workspace:Workspace"
    mine = aws.create(kind, {"alias": "train", "tags": OURS}, "a")
    aws.create(kind, {"alias": "train", "tags": {**OURS, "gpuinfra:stack": "ffffffff"}}, "b")
    assert account.ids(pending(kind, alias="train")) == (mine.id,)
    rules = "aws:amp/ruleGroupNamespace:RuleGroupNamespace"
    inputs = {"workspaceId": mine.id, "name": "gpuinfra", "data": "{}"}
    made = aws.create(rules, inputs, "r")
    assert made.id == f"arn:aws:aps:us-east-1:000000000000:rulegroupsnamespace/{mine.id}/gpuinfra"
    assert mine.outputs["prometheusEndpoint"] == f"https://aps-workspaces.us-east-1.amazonaws.com/workspaces/{mine.id}/"


def test_an_association_is_found_by_its_ends(account: PendingAccount, aws: Client) -> None:
    """An association has no tags. The subnet and the route table are in the state."""
    vpc = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, "v")
    subnet = aws.create("aws:ec2/subnet:Subnet", {"vpcId": vpc.id, "cidrBlock": "10.0.0.0/24"}, "s")
    table = aws.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc.id}, "t")
    kind = "aws:ec2/routeTableAssociation:RouteTableAssociation"
    ends = {"subnetId": subnet.id, "routeTableId": table.id}
    assert account.ids(pending(kind, **ends)) == ()
    made = aws.create(kind, ends, "a")
    assert account.ids(pending(kind, **ends)) == (made.id,)


def test_a_route_has_a_computed_id(account: PendingAccount, aws: Client) -> None:
    """The provider computes the ID of a route from its table and its destination."""
    vpc = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, "v")
    table = aws.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc.id}, "t")
    inputs = {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0"}
    made = aws.create("aws:ec2/route:Route", inputs, "r")
    assert account.ids(pending("aws:ec2/route:Route", **inputs)) == (made.id,)
    assert made.id == f"r-{table.id}1080289494"


def test_ids_of_names_contain_account_and_region(account: PendingAccount) -> None:
    """A topic and a trail have an ARN, a budget the account, and a grant of a role its parts."""
    assert account.ids(pending("aws:sns/topic:Topic", name="t-0a1b2c3d")) == (
        "arn:aws:sns:us-east-1:000000000000:t-0a1b2c3d",
    )
    assert account.ids(pending("aws:budgets/budget:Budget", name="b-0a1b2c3d")) == ("000000000000:b-0a1b2c3d",)
    assert account.ids(pending("aws:sns/topicSubscription:TopicSubscription")) is None
