"""The outage of a region, the replication lag, and the requests of a failover to the stand-in cloud, with the code of `gpuinfra failover`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from botocore.exceptions import ClientError

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import failover, record, replica_policies
from gpuinfra.clouds.aws.region.failback import AwsFailback
from gpuinfra.clouds.aws.region.failover import GROUP, AwsFailover
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, Unreachable
from gpuinfra.clouds.region.reach import prove
from gpuinfra_rehearsal import endpoints, workload
from gpuinfra_rehearsal.cloud.aws import replication
from gpuinfra_rehearsal.cloud.aws.http.describe import METRIC
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.aws.replication import CONFIGURATION
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.control import Control
from gpuinfra_rehearsal.cloud.core.http import Request
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.object_stores.aws import S3

from .conftest import Client

FIRST, SECOND = "us-east-1", "us-west-2"
REPLICATION_ROLE = f"arn:aws:iam::{ACCOUNT}:role/replication"
REPLICA_KEY = f"arn:aws:kms:{SECOND}:{ACCOUNT}:key/replica-key"
PAIR = BucketPair(source="first-data", replica="second-data", writer=REPLICATION_ROLE, key=REPLICA_KEY)
BUCKET, ROLE = "aws:s3/bucket:Bucket", "aws:iam/role:Role"
BUCKET_POLICY, KEY = "aws:s3/bucketPolicy:BucketPolicy", "aws:kms/key:Key"
LUSTRE, LINK = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"  # fmt: skip
FILE_SYSTEM, OTHER_FILE_SYSTEM = "fs-0123456789abcdef0", "fs-0123456789abcdef1"
TRUST = json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]})  # fmt: skip


@pytest.fixture
def boto(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Returns the client of a service in a region. Its requests go to the stand-in cloud."""
    import boto3
    from botocore.config import Config

    server = Server(cloud, "token")
    server.start()
    known = {one.name: one.operator_credentials(cloud) for one in registry.installed()}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", FIRST).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    once = Config(retries={"total_max_attempts": 1})
    session: Any = boto3.session.Session()
    yield lambda service, region: session.client(service, region_name=region, config=once)
    server.shutdown()
    server.server_close()


@pytest.fixture
def buckets(cloud: Cloud) -> None:
    """A bucket in the first region, and its replica in the second one."""
    cloud.existing(BUCKET, PAIR.source, {"bucket": PAIR.source, "region": FIRST})
    cloud.existing(BUCKET, PAIR.replica, {"bucket": PAIR.replica, "region": SECOND})
    for name in (PAIR.source, PAIR.replica):
        versions = {"bucket": name, "versioningConfiguration": {"status": "Enabled"}}
        cloud.existing("aws:s3/bucketVersioning:BucketVersioning", name, versions)
    owner = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    cloud.existing(KEY, "replica-key", {"policy": json.dumps({"Statement": [owner]}), "region": SECOND})
    tls = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    cloud.existing(BUCKET_POLICY, PAIR.replica, {"bucket": PAIR.replica, "policy": json.dumps({"Statement": [tls]})})
    writes = [{"Effect": "Allow", "Action": ["s3:Replicate*", "kms:Encrypt"], "Resource": "*"}]
    role = {
        "name": "replication",
        "assumeRolePolicy": TRUST,
        "inlinePolicies": [{"name": "write", "policy": json.dumps({"Statement": writes})}],
    }
    cloud.existing(ROLE, "replication", role)
    encryption = {"replicaKmsKeyId": REPLICA_KEY}
    rule = {
        "id": "all",
        "status": "Enabled",
        "destination": {"bucket": f"arn:aws:s3:::{PAIR.replica}", "encryptionConfiguration": encryption},
    }
    configuration = {"bucket": PAIR.source, "role": REPLICATION_ROLE, "rules": [rule], "region": FIRST}
    cloud.existing(CONFIGURATION, PAIR.source, configuration)


def ask(cloud: Cloud, action: str, **body: object) -> None:
    """Send a request to the control interface."""
    request = Request("POST", f"/.control/{action}", "", {"x-gpuinfra-control": "t"}, json.dumps(body).encode())
    answer = Control(cloud, "t")(request)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("region", "refused"),
    [
        (FIRST, {"role", "bucket in the second region", "group in the first region"}),
        (SECOND, {"bucket in the second region", "group in the second region"}),
    ],
)
def test_an_outage_refuses_changes_that_require_the_region(
    region: str, refused: set[str], cloud: Cloud, aws: Client
) -> None:
    """Without us-east-1, roles and bucket settings cannot be created in any region; without another region, only its own resources cannot."""
    group = "aws:ec2/securityGroup:SecurityGroup"
    changes = {
        "role": (ROLE, {"assumeRolePolicy": TRUST}),
        "bucket in the second region": (BUCKET, {"bucket": "new", "region": SECOND}),
        "group in the first region": (group, {"region": FIRST}),
        "group in the second region": (group, {"region": SECOND}),
    }
    ask(cloud, "outage", region=region)
    problems = {}
    for name, (token, inputs) in changes.items():
        try:
            aws.create(token, inputs, name.replace(" ", "-"))
        except grpc.RpcError as problem:
            problems[name] = str(problem)
    assert set(problems) == refused
    assert all(f"requires {region}, which does not respond" in text for text in problems.values())
    ask(cloud, "outage", region=None)
    for name in refused:
        token, inputs = changes[name]
        aws.create(token, inputs, name.replace(" ", "-"))


@pytest.mark.usefixtures("buckets")
def test_a_failover_sees_that_the_first_region_does_not_respond(cloud: Cloud, boto: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """In an outage, no service of the first region responds, and the second region responds."""
    monkeypatch.setattr(reach, "PROOF_S", 0.0)
    one = AwsFailover(boto, FIRST, SECOND)
    assert one.running("gpu") == 0
    ask(cloud, "outage", region=FIRST)
    for request in (
        lambda: one.stop_group("gpu"),
        lambda: one.not_replicated(PAIR),
        lambda: one.stop_replication(PAIR),
        lambda: failover.ask(boto("iam", SECOND).get_role, RoleName="r"),
    ):
        with pytest.raises(Unreachable):
            request()
    state = [{"type": GROUP, "id": "gpu"}, {"type": CONFIGURATION, "outputs": {"bucket": PAIR.source, "rules": []}}]
    assert {each.service for each in prove(FIRST, one.services(state))} == {"Auto Scaling", "S3"}
    one.answers(PAIR)
    ask(cloud, "outage", region=None)
    with pytest.raises(DeploymentError, match="Auto Scaling in us-east-1 responds"):
        prove(FIRST, one.services(state))


def test_a_report_of_a_ready_region_reaches_only_its_own_region(cloud: Cloud, boto: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """CloudWatch keeps the value of the metric in the second region, also while the first region does not respond, and refuses the namespaces of AWS."""
    monkeypatch.setattr(record, "client_of", lambda config: boto)
    ask(cloud, "outage", region=FIRST)
    record.report_ready(PAIR.replica, SECOND, {})
    ((key, value),) = cloud.store.all(METRIC).items()
    assert (key, value["value"]) == (f"{SECOND}/gpuinfra/Ready/Replica={PAIR.replica}", 1.0)
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        boto("cloudwatch", SECOND).put_metric_data(Namespace="AWS/S3", MetricData=[{"MetricName": "x", "Value": 1.0}])


@pytest.mark.usefixtures("buckets")
def test_objects_are_replicated_after_the_lag(cloud: Cloud, boto: Any) -> None:
    """A checkpoint is in the replica after the lag, the metric shows the age of the oldest waiting object, and an outage stops the replication."""
    begin = time.time()
    ask(cloud, "replication", lag_s=900)
    for number, at in ((1, 0), (2, 1800)):
        ask(cloud, "clock", at=begin + at)
        workload.write(S3(boto("s3", FIRST)), PAIR.source, number)
    ask(cloud, "clock", at=begin + 1800 + 840)
    assert workload.complete(S3(boto("s3", SECOND)), PAIR.replica, [1, 2]) == ([1], [])
    dimensions = {"SourceBucket": PAIR.source, "DestinationBucket": PAIR.replica, "RuleId": "all"}
    answer = boto("cloudwatch", SECOND).get_metric_statistics(
        Namespace="AWS/S3", MetricName="ReplicationLatency", Statistics=["Maximum"], Period=300, StartTime=0, EndTime=1,
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
    )  # fmt: skip
    assert [one["Maximum"] for one in answer["Datapoints"]] == [840.0]
    ask(cloud, "outage", region=FIRST)
    ask(cloud, "clock", at=None)
    ask(cloud, "replication", lag_s=0)
    assert workload.complete(S3(boto("s3", SECOND)), PAIR.replica, [1, 2]) == ([1], [])


@pytest.mark.usefixtures("buckets")
def test_a_changed_file_of_a_checkpoint_is_found(cloud: Cloud, boto: Any) -> None:
    """A checkpoint with a file whose checksum is wrong, or that is missing, is not complete."""
    workload.write(S3(boto("s3", FIRST)), PAIR.source, 1)
    s3 = boto("s3", SECOND)
    assert workload.complete(S3(s3), PAIR.replica, [1]) == ([1], [])
    keys = [f"{workload.PREFIX}/checkpoint-1/shard-{index}" for index in (0, 2)]
    ask(cloud, "outage", region=FIRST)
    s3.put_object(Bucket=PAIR.replica, Key=keys[0], Body=b"changed")
    s3.delete_object(Bucket=PAIR.replica, Key=keys[1])
    assert workload.complete(S3(s3), PAIR.replica, [1]) == ([], keys)


@pytest.mark.usefixtures("buckets")
def test_a_replica_is_imported_into_a_file_system(cloud: Cloud, boto: Any) -> None:
    """The import of a linked file system ends, and a file system without a link is refused."""
    one = AwsFailover(boto, FIRST, SECOND)
    for name in (FILE_SYSTEM, OTHER_FILE_SYSTEM):
        cloud.existing(LUSTRE, name, {"storageCapacity": 4800, "subnetIds": "subnet-0", "region": SECOND})
    link = {"fileSystemId": FILE_SYSTEM, "fileSystemPath": "/", "dataRepositoryPath": f"s3://{PAIR.replica}", "region": SECOND}  # fmt: skip
    cloud.existing(LINK, "dra-1", link)
    assert one.import_ended(one.start_import(FILE_SYSTEM))
    with pytest.raises(DeploymentError, match="no data repository association"):
        one.start_import(OTHER_FILE_SYSTEM)


@pytest.mark.usefixtures("buckets")
def test_a_failover_stops_the_replication_and_compares_the_buckets(cloud: Cloud, boto: Any) -> None:
    """The version of a replicated object is that of its source.
    A rule that a failover disabled copies nothing, also after it is enabled again, and a changed object of the replica stays as it is."""
    one, first, second = AwsFailover(boto, FIRST, SECOND), boto("s3", FIRST), boto("s3", SECOND)
    first.put_object(Bucket=PAIR.source, Key="before", Body=b"first")
    assert one.not_replicated(PAIR) == []
    one.stop_replication(PAIR)
    one.stop_replication(PAIR)
    first.put_object(Bucket=PAIR.source, Key="late", Body=b"first")
    assert one.not_replicated(PAIR) == ["late"]
    one._set_replication(PAIR, "Enabled")
    second.put_object(Bucket=PAIR.replica, Key="before", Body=b"second")
    assert second.get_object(Bucket=PAIR.replica, Key="before")["Body"].read() == b"second"
    # The bucket has versions, so the replica also keeps the version that was replicated. What was written meanwhile needs a new version.
    assert one.not_replicated(PAIR) == ["late"]
    assert AwsFailback(boto, FIRST, SECOND).replicate_again(PAIR) == 1
    assert one.not_replicated(PAIR) == []
    rules = [{"ID": "other", "Status": "Enabled", "Filter": {"Prefix": ""}, "Destination": {"Bucket": f"arn:aws:s3:::{PAIR.replica}"}}]  # fmt: skip
    with pytest.raises(DeploymentError, match="only changes of the status"):
        failover.ask(first.put_bucket_replication, Bucket=PAIR.source, ReplicationConfiguration={"Role": "r", "Rules": rules})  # fmt: skip


def held(cloud: Cloud, key: str) -> bytes | None:
    """An object of the replica, after what is due was replicated."""
    replication.run(cloud.store)
    found = cloud.store.object(PAIR.replica, key)
    return found.body if found else None


@pytest.mark.usefixtures("buckets")
def test_a_detached_replica_refuses_what_a_returning_region_replicates(cloud: Cloud, boto: Any) -> None:
    """The replication of the first region is still enabled. Objects and delete markers are refused, and an object is not replicated later either."""
    (rule,) = replication.enabled(cloud.store)
    failback, first, second = AwsFailback(boto, FIRST, SECOND), boto("s3", FIRST), boto("s3", SECOND)
    first.put_object(Bucket=PAIR.source, Key="model", Body=b"first")
    assert held(cloud, "model") == b"first"
    failback.detach_replica(PAIR)
    failback.detach_replica(PAIR)
    second.put_object(Bucket=PAIR.replica, Key="model", Body=b"second")
    for key in ("model", "late"):
        first.put_object(Bucket=PAIR.source, Key=key, Body=b"first, too late")
    assert (held(cloud, "model"), held(cloud, "late")) == (b"second", None)
    assert not any(
        replication.allows(cloud.store, rule, f"s3:Replicate{what}") for what in ("Object", "Delete", "Tags")
    )
    with pytest.raises(
        DeploymentError, match="2 objects of first-data are not in the replica, or the replica has a different version"
    ):
        failback.not_replicated(PAIR)
    failback.attach_replica(PAIR)
    failback.attach_replica(PAIR)
    first.put_object(Bucket=PAIR.source, Key="after", Body=b"first")
    assert (held(cloud, "after"), held(cloud, "model"), held(cloud, "late")) == (b"first", b"second", None)
    assert all(replication.allows(cloud.store, rule, f"s3:Replicate{what}") for what in ("Object", "Delete", "Tags"))


@pytest.mark.usefixtures("buckets")
def test_without_us_east_1_the_key_stops_the_objects(cloud: Cloud, boto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 refuses the policy of a bucket, so the step fails. The key, which is regional, refuses objects, and delete markers could still be replicated."""
    monkeypatch.setattr(reach, "BUSY_S", 0.0)
    (rule,) = replication.enabled(cloud.store)
    ask(cloud, "outage", region=FIRST)
    with pytest.raises(DeploymentError, match="PutBucketPolicy requires us-east-1"):
        AwsFailover(boto, FIRST, SECOND).detach_replica(PAIR)
    ask(cloud, "outage", region=None)
    boto("s3", FIRST).put_object(Bucket=PAIR.source, Key="late", Body=b"first")
    assert held(cloud, "late") is None
    assert replication.allows(cloud.store, rule, "s3:ReplicateDelete")


@pytest.mark.parametrize(
    "missing",
    ["s3:PutBucketPolicy", "s3:GetBucketPolicy", "s3:DeleteBucketPolicy", "kms:GetKeyPolicy", "kms:PutKeyPolicy"],
)
@pytest.mark.usefixtures("buckets")
def test_a_detached_replica_requires_its_permissions(cloud: Cloud, boto: Any, missing: str) -> None:
    """Without one of the actions that `gpuinfra permissions` prints, a request is refused."""
    if missing == "s3:DeleteBucketPolicy":
        (found,) = cloud.store.list(BUCKET_POLICY)
        cloud.store.update(
            found.changed(policy=json.dumps({"Statement": [dict(replica_policies.of_replica(PAIR.replica, "aws"))]}))
        )
    statements = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": missing, "Resource": "*"},
    ]
    cloud.operator = Operator([{"Statement": statements}])
    failback = AwsFailback(boto, FIRST, SECOND)

    def move() -> None:
        failback.detach_replica(PAIR)
        failback.attach_replica(PAIR)

    with pytest.raises(DeploymentError, match="AccessDenied"):
        move()


def test_a_failover_stops_a_group(cloud: Cloud, boto: Any) -> None:
    """A group of size 0 whose launches are suspended has no instances, and a resumed group can launch them.
    Other changes and groups that do not exist are refused."""
    cloud.existing(
        GROUP,
        "gpu",
        {
            "name": "gpu",
            "minSize": 2,
            "maxSize": 2,
            "desiredCapacity": 2,
            "launchConfiguration": "old",
            "waitForCapacityTimeout": "0",
            "region": FIRST,
        },
    )
    AwsFailover(boto, FIRST, SECOND).stop_group("gpu")
    client = boto("autoscaling", FIRST)
    (found,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=["gpu"])["AutoScalingGroups"]
    assert [found[size] for size in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 0, 0]
    held = cloud.store.find(GROUP, "gpu", FIRST)
    assert held is not None
    assert held.plain["suspendedProcesses"] == ["Launch"]
    client.resume_processes(AutoScalingGroupName="gpu", ScalingProcesses=["Launch"])
    held = cloud.store.find(GROUP, "gpu", FIRST)
    assert held is not None
    assert held.plain["suspendedProcesses"] == []
    with pytest.raises(DeploymentError, match="not found"):
        failover.ask(client.suspend_processes, AutoScalingGroupName="other", ScalingProcesses=["Launch"])
    with pytest.raises(DeploymentError, match="not supported in a rehearsal"):
        failover.ask(client.update_auto_scaling_group, AutoScalingGroupName="gpu", HealthCheckType="EC2")
