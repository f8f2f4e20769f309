"""What AWS rejects: taken names, resources in use, and injected faults."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import ModuleType

import grpc
import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.aws import pending as aws_pending
from gpuinfra.clouds.gcp import pending as gcp_pending
from gpuinfra_rehearsal.cloud.core import behaviors, wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from rehearsal.tests.cloud import stacks
from rehearsal.tests.cloud.conftest import Client

POLICY = json.dumps({"Statement": []})


@pytest.mark.parametrize(
    ("token", "inputs", "code"),
    [
        ("aws:s3/bucket:Bucket", {"bucket": "mine-000000000000"}, "BucketAlreadyOwnedByYou"),
        ("aws:iam/role:Role", {"name": "mine", "assumeRolePolicy": POLICY}, "EntityAlreadyExists"),
        ("aws:cloudwatch/logGroup:LogGroup", {"name": "/mine"}, "ResourceAlreadyExistsException"),
        ("aws:ec2/launchTemplate:LaunchTemplate", {"name": "mine"}, "InvalidLaunchTemplateName.AlreadyExistsException"),
        ("aws:budgets/budget:Budget", {"name": "mine", "budgetType": "COST", "timeUnit": "MONTHLY"}, "DuplicateRecordException"),
        ("aws:ssm/parameter:Parameter", {"name": "/mine", "type": "String", "insecureValue": "a"}, "ParameterAlreadyExists"),
    ],
)  # fmt: skip
def test_a_second_creation_under_a_name_is_rejected(aws: Client, token: str, inputs: dict, code: str) -> None:
    """The error has the cloud's own code, and the first resource stays."""
    made = aws.create(token, inputs, "first")
    with pytest.raises(grpc.RpcError, match=code):
        aws.create(token, inputs, "second")
    assert aws.read(token, made.id).outputs == made.outputs


@pytest.mark.parametrize("cloud", [aws_pending, gcp_pending], ids=["aws", "gcp"])
def test_what_a_killed_run_repeats_is_not_created_twice(cloud: ModuleType) -> None:
    """A type whose creation is repeated without a search joins the existing resource in the stand-in cloud."""
    assert [token for token in sorted(cloud.REPEATABLE) if not behaviors.of(token).joins] == []


def test_a_default_security_group_is_the_one_of_its_vpc(aws: Client) -> None:
    """The provider takes over the group that the VPC has, also the second time."""
    vpc = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, "vpc")
    groups = {aws.create("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", {"vpcId": vpc.id}).id for _ in range(2)}
    assert groups == {vpc.outputs["defaultSecurityGroupId"]}


def test_a_subscription_exists_once(aws: Client) -> None:
    """A second subscription of an endpoint returns the first, and another endpoint gets its own."""
    topic = aws.create("aws:sns/topic:Topic", {"name": "alerts"}, "topic")

    def subscribed(address: str, name: str) -> str:
        inputs = {"topic": topic.outputs["arn"], "protocol": "email", "endpoint": address}
        return aws.create("aws:sns/topicSubscription:TopicSubscription", inputs, name).id

    first = subscribed("a@example.com", "first")
    assert subscribed("a@example.com", "again") == first != subscribed("b@example.com", "other")


def test_the_same_name_is_free_in_another_region(aws: Client) -> None:
    """Log groups are regional; a region after an @ distinguishes equal ids."""
    token = "aws:cloudwatch/logGroup:LogGroup"
    for region, days in (("us-east-1", 7), ("us-west-2", 30)):
        aws.create(token, {"name": "/mine", "region": region, "retentionInDays": days}, region)
    assert aws.read(token, "/mine").outputs["retentionInDays"] == 7
    assert aws.read(token, "/mine@us-west-2").outputs["retentionInDays"] == 30


@pytest.mark.parametrize(
    ("package", "token", "inputs"),
    [
        (
            "azure-native",
            "azure-native:network:VirtualNetwork",
            {"resourceGroupName": "g", "virtualNetworkName": "net"},
        ),
        ("gcp", "gcp:compute/network:Network", {"name": "n"}),
    ],
)
def test_a_path_is_one_resource_on_azure_and_google_cloud(
    connect: Callable[[str], Client], package: str, token: str, inputs: dict
) -> None:
    """A second creation of the same path is rejected."""
    client = connect(package)
    client.create(token, inputs, "first")
    with pytest.raises(grpc.RpcError, match="already exist"):
        client.create(token, inputs, "second")


def test_a_network_in_use_is_not_deleted(aws: Client) -> None:
    """A network with a subnet, a role with a profile and a gateway's address stay, with the cloud's error."""
    vpc, subnet = stacks.network(aws)
    with pytest.raises(grpc.RpcError, match=r"DependencyViolation.*has dependencies and cannot be deleted"):
        aws.delete(vpc)
    address = aws.create("aws:ec2/eip:Eip", {"domain": "vpc"})
    gateway = aws.create("aws:ec2/natGateway:NatGateway", {"subnetId": subnet.id, "allocationId": address.id})
    assert gateway.outputs["publicIp"] == address.outputs["publicIp"]
    with pytest.raises(grpc.RpcError, match=r"InvalidIPAddress\.InUse"):
        aws.delete(address)
    for made in (gateway, address, subnet, vpc):
        aws.delete(made)


def test_a_file_system_blocks_deletion_of_its_subnet_and_group(aws: Client) -> None:
    """A file system has interfaces in its subnet and security group."""
    vpc, subnet = stacks.network(aws)
    group = aws.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": vpc.id, "name": "storage"})
    inputs = {"subnetIds": subnet.id, "securityGroupIds": [group.id], "storageCapacity": 1200}
    file_system = aws.create("aws:fsx/lustreFileSystem:LustreFileSystem", inputs)
    for made in (subnet, group):
        with pytest.raises(grpc.RpcError, match="DependencyViolation"):
            aws.delete(made)
    for made in (file_system, group, subnet, vpc):
        aws.delete(made)


def test_subnets_do_not_overlap(aws: Client) -> None:
    """A range of another subnet, a range outside the network, and a zone of another region are rejected."""
    vpc, _ = stacks.network(aws)
    for inputs, code in (
        ({"cidrBlock": "10.0.1.128/25"}, "InvalidSubnet.Conflict"),
        ({"cidrBlock": "10.1.0.0/24"}, "InvalidSubnet.Range"),
        ({"cidrBlock": "10.0.2.0/24", "availabilityZoneId": "usw2-az1"}, "InvalidParameterValue"),
    ):
        with pytest.raises(grpc.RpcError, match=code):
            aws.create("aws:ec2/subnet:Subnet", {"vpcId": vpc.id, **inputs}, code)


def test_a_bucket_with_content_stays(aws: Client, cloud: Cloud) -> None:
    """A bucket with content is deleted only with forceDestroy."""
    made = stacks.bucket(aws)
    cloud.store.put_object(made.id, "a", b"1")
    with pytest.raises(grpc.RpcError, match="BucketNotEmpty"):
        aws.delete(made)
    aws.delete(aws.update(made, {"forceDestroy": True}))
    assert cloud.store.objects(made.id) == []


def test_a_compliance_lock_outlasts_force_destroy(aws: Client, cloud: Cloud) -> None:
    """Objects under a compliance lock cannot be deleted before their date."""
    made = stacks.bucket(aws, objectLockEnabled=True, forceDestroy=True)
    rule = {"defaultRetention": {"mode": "COMPLIANCE", "days": 1}}
    aws.create("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration", {"bucket": made.id, "rule": rule})
    cloud.store.put_object(made.id, "a", b"1")
    with pytest.raises(grpc.RpcError, match="object protected by object lock"):
        aws.delete(made)
    cloud.store._run("UPDATE objects SET modified = ?", time.time() - 2 * 86400)
    aws.delete(made)


def test_an_object_lock_needs_versioning(aws: Client) -> None:
    """A lock on a bucket without versioning is rejected."""
    made = stacks.bucket(aws)
    with pytest.raises(grpc.RpcError, match="Versioning must be 'Enabled'"):
        aws.create(
            "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration",
            {"bucket": made.id, "rule": {"defaultRetention": {"mode": "GOVERNANCE", "days": 1}}},
        )


def test_objects_hold_the_content_of_their_asset(aws: Client, cloud: Cloud) -> None:
    """The content can be downloaded, new content is an update, and a deleted object is missing in a refresh."""
    stacks.bucket(aws)
    asset = {wire.SIGNATURE: wire.ASSET, "text": "first"}
    made = aws.create(
        "aws:s3/bucketObjectv2:BucketObjectv2", {"bucket": "evidence-000000000000", "key": "k", "source": asset}
    )
    stored = cloud.store.object("evidence-000000000000", "k")
    assert stored is not None
    assert (stored.body, stored.etag) == (b"first", made.outputs["etag"])
    assert not aws.diff(made, made.inputs).detailedDiff
    changed = aws.update(made, {"source": {**asset, "text": "second"}})
    assert changed.outputs["etag"] != made.outputs["etag"]
    cloud.store.remove_object("evidence-000000000000", "k")
    assert aws.read(made.token, made.id).id == ""


def test_a_trail_needs_permission_to_write(aws: Client, cloud: Cloud) -> None:
    """CloudTrail checks its bucket's policy and writes its first record; a sixth trail is rejected."""
    made = stacks.bucket(aws)
    trail = {"s3BucketName": made.id, "isMultiRegionTrail": True}
    with pytest.raises(grpc.RpcError, match="InsufficientS3BucketPolicyException"):
        aws.create("aws:cloudtrail/trail:Trail", trail)
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "cloudtrail.amazonaws.com"},
        "Action": "s3:PutObject",
        "Resource": "*",
    }
    aws.create(
        "aws:s3/bucketPolicy:BucketPolicy", {"bucket": made.id, "policy": json.dumps({"Statement": [statement]})}
    )
    for number in range(5):
        aws.create("aws:cloudtrail/trail:Trail", {**trail, "name": f"trail{number}"}, f"t{number}")
    assert next(key for key, *_ in cloud.store.objects(made.id)).startswith(
        "AWSLogs/000000000000/CloudTrail/us-east-1/"
    )
    with pytest.raises(grpc.RpcError, match="MaximumNumberOfTrailsExceededException"):
        aws.create("aws:cloudtrail/trail:Trail", {**trail, "name": "trail6"}, "t6")


def test_a_lustre_file_system_can_be_mounted_and_only_grows(aws: Client) -> None:
    """It has the names that nodes mount by and sizes in steps. The service refuses a smaller size, so the provider replaces."""
    _, subnet = stacks.network(aws)
    inputs = {
        "subnetIds": subnet.id,
        "deploymentType": "PERSISTENT_2",
        "storageCapacity": 4800,
        "perUnitStorageThroughput": 250,
    }
    made = aws.create("aws:fsx/lustreFileSystem:LustreFileSystem", inputs)
    assert made.outputs["dnsName"] == "fs-00000000000000001.fsx.us-east-1.amazonaws.com"
    assert made.outputs["mountName"]
    assert list(aws.diff(made, {**made.inputs, "storageCapacity": 2400}).replaces) == ["storageCapacity"]
    assert not aws.diff(made, {**made.inputs, "storageCapacity": 7200}).replaces
    with pytest.raises(grpc.RpcError, match="can only grow"):
        aws.update(made, {"storageCapacity": 2400})
    (reason,) = aws.failures(made.token, {**inputs, "storageCapacity": 5000})
    assert "multiple of 2400" in reason


def test_an_address_has_its_association_after_a_refresh(aws: Client) -> None:
    """The state of an address has the association with its NAT gateway only after a refresh; deleting it then disassociates."""
    _, subnet = stacks.network(aws)
    address = aws.create("aws:ec2/eip:Eip", {"domain": "vpc"})
    assert aws.read(address.token, address.id).outputs["associationId"] == ""
    gateway = aws.create("aws:ec2/natGateway:NatGateway", {"subnetId": subnet.id, "allocationId": address.id})
    read = aws.read(address.token, address.id).outputs
    assert read["associationId"] == gateway.outputs["associationId"]
    assert (read["networkInterface"], read["privateIp"]) == (
        gateway.outputs["networkInterfaceId"],
        gateway.outputs["privateIp"],
    )


def test_an_imported_file_system_has_no_security_groups(aws: Client) -> None:
    """FSx does not return the security groups of a file system, so an import leaves them empty. A refresh keeps them."""
    vpc, subnet = stacks.network(aws)
    group = aws.create("aws:ec2/securityGroup:SecurityGroup", {"name": "storage", "vpcId": vpc.id})
    inputs = {"subnetIds": subnet.id, "storageCapacity": 1200, "securityGroupIds": [group.id]}
    made = aws.create("aws:fsx/lustreFileSystem:LustreFileSystem", {**inputs, "deploymentType": "SCRATCH_2"})
    imported = aws.read(made.token, made.id)
    assert "securityGroupIds" not in imported.inputs
    assert "securityGroupIds" not in imported.outputs


def test_import_ids_find_resources(aws: Client) -> None:
    """Associations, routes and attachments are found by their import ids."""
    vpc, subnet = stacks.network(aws)
    table = aws.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc.id})
    gateway = aws.create("aws:ec2/internetGateway:InternetGateway", {"vpcId": vpc.id})
    joined = aws.create(
        "aws:ec2/routeTableAssociation:RouteTableAssociation", {"subnetId": subnet.id, "routeTableId": table.id}
    )
    route = aws.create(
        "aws:ec2/route:Route", {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway.id}
    )
    assert aws.read(joined.token, f"{subnet.id}/{table.id}").id == joined.id
    assert aws.read(route.token, f"{table.id}_0.0.0.0/0").id == route.id
    assert aws.read(vpc.token, f"{vpc.id}@us-east-1").inputs["cidrBlock"] == "10.0.0.0/16"
    assert aws.read(vpc.token, "vpc-none").id == ""


def test_injected_errors_end_after_their_count(aws: Client, cloud: Cloud) -> None:
    """The first two creations fail in the provider's words, the third succeeds, and a new process on the same store continues the count."""
    cloud.faults = Faults(["cloud:error:aws:ec2/vpc:Vpc:2"], cloud.store)
    for _ in range(2):
        with pytest.raises(grpc.RpcError, match="api error ServiceUnavailable"):
            aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
        cloud.faults = Faults(["cloud:error:aws:ec2/vpc:Vpc:2"], cloud.store)
    assert aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}).id == "vpc-00000000000000001"


def test_a_partial_failure_keeps_the_resource(aws: Client, cloud: Cloud) -> None:
    """The resource exists, and the engine gets its id with the error."""
    cloud.faults = Faults(["cloud:partial:Vpc:1"], cloud.store)
    with pytest.raises(grpc.RpcError, match="did not become ready") as error:
        aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    assert b"vpc-00000000000000001" in dict(error.value.trailing_metadata())["grpc-status-details-bin"]
    assert aws.read("aws:ec2/vpc:Vpc", "vpc-00000000000000001").id


def test_a_lost_answer_leaves_an_orphan(aws: Client, cloud: Cloud) -> None:
    """The resource exists without the engine's knowledge; the log of calls has its URN."""
    cloud.faults = Faults(["cloud:lost:Vpc:1"], cloud.store)
    with pytest.raises(grpc.RpcError, match="the connection broke"):
        aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    (orphan,) = cloud.store.list()
    assert orphan.urn.endswith("::it")


@pytest.mark.parametrize(
    "text", ["node:gpu:broken", "cloud:no-capacity", "cloud:error:Vpc", "disk:full", "cloud:error:Vpc:many"]
)
def test_an_unknown_fault_is_rejected(cloud: Cloud, text: str) -> None:
    """The message lists the allowed forms."""
    with pytest.raises(UsageError, match="unknown fault; allowed: node:"):
        Faults([text], cloud.store)


def test_lookups_return_what_programs_expect(aws: Client) -> None:
    """Account, region, zones and parameters are returned; an absent parameter is an error."""
    assert aws.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == "000000000000"
    assert aws.invoke("aws:index/getPartition:getPartition")["partition"] == "aws"
    assert aws.invoke("aws:index/getRegion:getRegion", region="us-west-2")["region"] == "us-west-2"
    zones = aws.invoke("aws:index/getAvailabilityZones:getAvailabilityZones")
    assert "use1-az4" in zones["zoneIds"]
    assert len(zones["names"]) == len(zones["zoneIds"]) == 6
    name = "/aws/service/deeplearning/ami/x86_64/x/latest/ami-id"
    found = aws.invoke("aws:ssm/getParameter:getParameter", name=name)
    assert found["insecureValue"] == aws.invoke("aws:ssm/getParameter:getParameter", name=name)["insecureValue"]
    assert found["insecureValue"].startswith("ami-")
    assert wire.is_secret(found["value"])
    with pytest.raises(grpc.RpcError, match="ParameterNotFound"):
        aws.invoke("aws:ssm/getParameter:getParameter", name="/mine/none")


def test_deleting_an_absent_resource_succeeds(aws: Client) -> None:
    """A run that was killed after a deletion can repeat it."""
    made = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    aws.delete(made)
    aws.delete(made)
    assert aws.read(made.token, made.id).id == ""


def test_default_tags_reach_every_resource(aws: Client) -> None:
    """Default tags of the provider are in tagsAll; those of the resource override them."""
    aws.configure(region="us-west-2", defaultTags=json.dumps({"tags": {"team": "ml", "a": "x"}}))
    made = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}})
    assert made.outputs["tagsAll"] == {"team": "ml", "a": "b"}
    assert made.outputs["region"] == "us-west-2"


def test_resources_of_the_account_can_be_used_and_read(aws: Client, cloud: Cloud) -> None:
    """A network of the account is added under its own id, also twice; any other real id is believed."""
    vpc, subnet = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0"
    for _ in range(2):
        cloud.existing("aws:ec2/vpc:Vpc", vpc, {"cidrBlock": "10.0.0.0/16"})
        cloud.existing(
            "aws:ec2/subnet:Subnet",
            subnet,
            {"vpcId": vpc, "cidrBlock": "10.0.1.0/24", "availabilityZoneId": "use1-az4"},
        )
    assert aws.invoke("aws:ec2/getSubnet:getSubnet", id=subnet)["availabilityZoneId"] == "use1-az4"
    assert {one.operation for one in cloud.store.list()} == {"existing"}
    aws.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": "vpc-0fedcba9876543210"})
    with pytest.raises(grpc.RpcError, match=r"InvalidVpcID\.NotFound"):
        aws.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": "vpc-00000000000000099"}, "other")


_GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:/mine"


def _role(aws: Client, name: str, service: str, condition: dict | None, actions: list[str]) -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    trust |= {"Condition": condition} if condition else {}
    role = aws.create("aws:iam/role:Role", {"name": name, "assumeRolePolicy": json.dumps({"Statement": [trust]})}, name)
    allowed = {"Effect": "Allow", "Action": actions, "Resource": f"{_GROUP}:*"}
    policy = {"role": role.id, "name": "write", "policy": json.dumps({"Statement": [allowed]})}
    aws.create("aws:iam/rolePolicy:RolePolicy", policy, name)
    return str(role.outputs["arn"])


@pytest.mark.parametrize(
    ("condition", "actions", "reason"),
    [
        (None, ["logs:CreateLogStream", "logs:PutLogEvents"], None),
        ({"StringEquals": {"aws:SourceAccount": "000000000000"}}, ["logs:CreateLogStream", "logs:PutLogEvents"], "trust relationships"),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:cloudtrail:*"}}, ["logs:CreateLogStream", "logs:PutLogEvents"], "trust relationships"),
        (None, ["logs:CreateLogStream"], "permissions"),
    ],
)  # fmt: skip
def test_a_trail_rejects_a_role_that_it_cannot_use(
    aws: Client, condition: dict | None, actions: list[str], reason: str | None
) -> None:
    """CloudTrail sends no source when it assumes the role for its log group, so a condition on a source rejects it."""
    made = stacks.bucket(aws)
    write = {"Effect": "Allow", "Principal": {"Service": "cloudtrail.amazonaws.com"}, "Action": "s3:PutObject", "Resource": "*"}  # fmt: skip
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": made.id, "policy": json.dumps({"Statement": [write]})})
    role = _role(aws, "log", "cloudtrail.amazonaws.com", condition, actions)
    trail = {"s3BucketName": made.id, "cloudWatchLogsRoleArn": role, "cloudWatchLogsGroupArn": f"{_GROUP}:*"}
    if reason is None:
        assert aws.create("aws:cloudtrail/trail:Trail", trail).id
        return
    with pytest.raises(grpc.RpcError, match=f"InvalidCloudWatchLogsRoleArnException.*{reason}"):
        aws.create("aws:cloudtrail/trail:Trail", trail)


def test_a_flow_log_rejects_a_role_that_another_service_assumes(aws: Client) -> None:
    """The role of a flow log trusts VPC Flow Logs."""
    vpc, _ = stacks.network(aws)
    source = {"StringEquals": {"aws:SourceAccount": "000000000000"}, "ArnLike": {"aws:SourceArn": "arn:aws:ec2:*:*:vpc-flow-log/*"}}  # fmt: skip
    log = {"vpcId": vpc.id, "trafficType": "ALL", "logDestination": _GROUP}
    good = _role(aws, "flow", "vpc-flow-logs.amazonaws.com", source, ["logs:PutLogEvents"])
    other = _role(aws, "other", "ec2.amazonaws.com", None, ["logs:PutLogEvents"])
    assert aws.create("aws:ec2/flowLog:FlowLog", {**log, "iamRoleArn": good}, "good").id
    with pytest.raises(grpc.RpcError, match="Unable to assume given IAM role"):
        aws.create("aws:ec2/flowLog:FlowLog", {**log, "iamRoleArn": other}, "other")


def test_a_text_with_characters_that_a_cloud_excludes_is_rejected(aws: Client) -> None:
    """EC2 rejects an apostrophe in the description of a security group, on creation."""
    vpc, _ = stacks.network(aws)
    group = {"vpcId": vpc.id, "description": "the cloud's own services"}
    with pytest.raises(grpc.RpcError, match=r"InvalidParameterValue.*the cloud's own services"):
        aws.create("aws:ec2/securityGroup:SecurityGroup", group)


def _buckets(aws: Client, *versioned: str) -> None:
    for name, region in (("first-data", "us-east-1"), ("second-data", "us-west-2")):
        aws.create("aws:s3/bucket:Bucket", {"bucket": name, "region": region}, name)
        if name in versioned:
            status = {"versioningConfiguration": {"status": "Enabled"}}
            aws.create("aws:s3/bucketVersioning:BucketVersioning", {"bucket": name, "region": region, **status}, name)


def _replication(**destination: object) -> dict:
    timed = {"replicationTime": {"status": "Enabled", "time": {"minutes": 15}}}
    rule = {
        "id": "all",
        "status": "Enabled",
        "sourceSelectionCriteria": {"sseKmsEncryptedObjects": {"status": "Enabled"}},
        "destination": {
            "bucket": "arn:aws:s3:::second-data",
            "encryptionConfiguration": {"replicaKmsKeyId": "arn:aws:kms:us-west-2:000000000000:key/1"},
            "metrics": {"status": "Enabled", "eventThreshold": {"minutes": 15}},
            **timed,
            **destination,
        },
    }
    return {"bucket": "first-data", "role": "arn:aws:iam::000000000000:role/replication", "rules": [rule]}


REPLICATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"


def test_a_replication_between_versioned_buckets_is_accepted(aws: Client) -> None:
    """Buckets in two regions with versioning, a key for the replicas, and metrics."""
    _buckets(aws, "first-data", "second-data")
    assert aws.create(REPLICATION, _replication(), "replication").id == "first-data"


@pytest.mark.parametrize(
    ("versioned", "destination", "text"),
    [
        (("second-data",), {}, "Versioning must be 'Enabled' on the bucket"),
        (("first-data",), {}, "Destination bucket must have versioning enabled"),
        (("first-data", "second-data"), {"bucket": "arn:aws:s3:::no-data"}, "Destination bucket must exist"),
        (("first-data", "second-data"), {"encryptionConfiguration": None}, "ReplicaKmsKeyID must be specified"),
        (("first-data", "second-data"), {"metrics": None}, "Metrics must be enabled"),
    ],
)
def test_an_invalid_replication_is_rejected(
    aws: Client, versioned: tuple[str, ...], destination: dict, text: str
) -> None:
    """Versioning on both sides, an existing replica, a key for encrypted objects, and metrics with the replication time are required."""
    _buckets(aws, *versioned)
    with pytest.raises(grpc.RpcError, match=text):
        aws.create(REPLICATION, _replication(**destination), "replication")
