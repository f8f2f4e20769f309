"""Replicas that refuse the replication: the policies, their requests, and what they deny."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import failover as aws
from gpuinfra.clouds.aws.region import replica_policies
from gpuinfra.clouds.aws.region.failback import AwsFailback
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, DisabledReplication
from gpuinfra_rehearsal.cloud.aws import policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/train-recovery-replication"
KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/0a1b2c3d-0000-4000-8000-000000000000"
PAIR = BucketPair(source="train-scratch-us-east-1", replica="train-scratch-us-west-2", writer=ROLE, key=KEY)
TLS = {"Sid": "OnlyOverTls", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{PAIR.replica}/*"}  # fmt: skip
OWNER = {"Sid": "AccountOwnsKey", "Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*", "Resource": "*"}  # fmt: skip


def document(*statements: Mapping[str, Any]) -> str:
    """A policy."""
    return json.dumps({"Version": replica_policies.VERSION, "Statement": statements})


OF_REPLICA = replica_policies.of_replica(PAIR.replica, "aws")
OF_KEY = replica_policies.of_key(ROLE)
Answers = list[tuple[str, Any, dict[str, Any] | None]]


@contextmanager
def second_region(s3: Answers, kms: Answers) -> Iterator[AwsFailback]:
    """A failback whose clients in the second Region answer with these responses, in order. All must be used, and no other Region is asked."""
    clients = {}
    for service in ("s3", "kms"):
        clients[service] = boto3.client(
            service, region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b"
        )  # pyright: ignore[reportCallIssue, reportArgumentType]
    with Stubber(clients["s3"]) as of_s3, Stubber(clients["kms"]) as of_kms:
        for stubber, answers in ((of_s3, s3), (of_kms, kms)):
            for method, answer, expected in answers:
                if isinstance(answer, str):
                    stubber.add_client_error(method, answer, "refused", http_status_code=400)
                else:
                    stubber.add_response(method, answer, expected)

        def client(service: str, region: str) -> Any:
            assert region == "us-west-2"
            return clients[service]

        yield AwsFailback(client, "us-east-1", "us-west-2")
        of_s3.assert_no_pending_responses()
        of_kms.assert_no_pending_responses()


BUCKET = {"Bucket": PAIR.replica}
KEY_POLICY = {"KeyId": KEY, "PolicyName": "default"}


def test_the_names_of_the_policies_come_from_the_state() -> None:
    """The replication rule contains the role that writes and the key of the replica."""
    rule = {"destination": {"bucket": f"arn:aws:s3:::{PAIR.replica}", "encryptionConfiguration": {"replicaKmsKeyId": KEY}}}  # fmt: skip
    state = [{"type": aws.REPLICATION, "outputs": {"bucket": PAIR.source, "role": ROLE, "rules": [rule]}}]
    with second_region([], []) as failover:
        assert failover.pairs(state) == (PAIR,)
        assert isinstance(failover, DisabledReplication)


def test_a_replica_is_detached_once() -> None:
    """Both policies keep their statements and get one more. A repeated request changes nothing."""
    denied, locked = document(TLS, OF_REPLICA), document(OWNER, OF_KEY)
    s3: Answers = [
        ("get_bucket_policy", {"Policy": document(TLS)}, BUCKET),
        ("put_bucket_policy", {}, {**BUCKET, "Policy": denied}),
        ("get_bucket_policy", {"Policy": denied}, BUCKET),
    ]
    kms: Answers = [
        ("get_key_policy", {"Policy": document(OWNER)}, KEY_POLICY),
        ("put_key_policy", {}, {**KEY_POLICY, "Policy": locked}),
        ("get_key_policy", {"Policy": locked}, KEY_POLICY),
    ]
    with second_region(s3, kms) as failover:
        failover.detach_replica(PAIR)
        failover.detach_replica(PAIR)


def test_a_replica_without_a_policy_and_a_key_is_detached() -> None:
    """A bucket without a policy gets one, and a replica without a key needs no other."""
    s3: Answers = [
        ("get_bucket_policy", "NoSuchBucketPolicy", BUCKET),
        ("put_bucket_policy", {}, {**BUCKET, "Policy": document(OF_REPLICA)}),
    ]
    with second_region(s3, []) as failover:
        failover.detach_replica(BucketPair(source=PAIR.source, replica=PAIR.replica))


def test_the_key_is_denied_before_the_policy_that_s3_can_refuse() -> None:
    """If S3 refuses the change, the key already stops the replication of objects, and the step fails."""
    s3: Answers = [
        ("get_bucket_policy", {"Policy": document(TLS)}, BUCKET),
        ("put_bucket_policy", "AccessDenied", {**BUCKET, "Policy": document(TLS, OF_REPLICA)}),
    ]
    kms: Answers = [
        ("get_key_policy", {"Policy": document(OWNER)}, KEY_POLICY),
        ("put_key_policy", {}, {**KEY_POLICY, "Policy": document(OWNER, OF_KEY)}),
    ]
    with second_region(s3, kms) as failover, pytest.raises(DeploymentError):
        failover.detach_replica(PAIR)


@pytest.mark.parametrize("others", [[TLS], []], ids=["other statements", "no other statement"])
def test_a_replica_is_attached_once(others: list[dict[str, Any]]) -> None:
    """Only the statements of the failover are removed. A policy without other statements is deleted. A repeated request changes nothing."""
    removed: Answers = (
        [("put_bucket_policy", {}, {**BUCKET, "Policy": document(*others)}), ("get_bucket_policy", {"Policy": document(*others)}, BUCKET)]
        if others
        else [("delete_bucket_policy", {}, BUCKET), ("get_bucket_policy", "NoSuchBucketPolicy", BUCKET)]
    )  # fmt: skip
    kms: Answers = [
        ("get_key_policy", {"Policy": document(OWNER, OF_KEY)}, KEY_POLICY),
        ("put_key_policy", {}, {**KEY_POLICY, "Policy": document(OWNER)}),
        ("get_key_policy", {"Policy": document(OWNER)}, KEY_POLICY),
    ]
    with second_region([("get_bucket_policy", {"Policy": document(*others, OF_REPLICA)}, BUCKET), *removed], kms) as failback:  # fmt: skip
        failback.attach_replica(PAIR)
        failback.attach_replica(PAIR)


def allowed(action: str, resource: str, documents: list[str], role: str = ROLE) -> bool:
    """Whether a role with all permissions can perform an action on a resource with these policies."""
    who = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.rpartition('/')[2]}/session"
    everything = document({"Effect": "Allow", "Action": "*", "Resource": "*"})
    request = AccessRequest(who, action, resource, {"aws:PrincipalArn": role})
    return policy.decide(request, [everything], documents)[0]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("s3:ReplicateObject", False),
        ("s3:ReplicateDelete", False),
        ("s3:ReplicateTags", False),
        ("s3:PutObject", True),
        ("s3:DeleteObject", True),
        ("s3:GetObjectVersionForReplication", True),
    ],
)
def test_a_detached_replica_refuses_the_replication_only(action: str, expected: bool) -> None:
    """Objects, delete markers and tags of the first Region are refused, whichever role replicates them. The second Region reads, writes and replicates."""
    for role in (ROLE, f"{ROLE}-new"):
        assert allowed(action, f"arn:aws:s3:::{PAIR.replica}/model", [document(OF_REPLICA)], role) is expected


@pytest.mark.parametrize("action", ["kms:Encrypt", "kms:GenerateDataKey"])
def test_a_detached_key_refuses_the_replication_role_only(action: str) -> None:
    """The second Region uses the same key."""
    assert not allowed(action, KEY, [document(OWNER, OF_KEY)])
    assert allowed(action, KEY, [document(OWNER, OF_KEY)], f"arn:aws:iam::{ACCOUNT}:role/node")


def test_a_policy_that_is_no_policy_is_an_error() -> None:
    """A response that cannot be read is not replaced."""
    with pytest.raises(DeploymentError, match="not a JSON object"):
        replica_policies.denying("[]", OF_REPLICA)


def version(key: str, name: str, size: int = 1) -> dict[str, Any]:
    """A version in a listing."""
    return {"Key": key, "VersionId": name, "IsLatest": True, "Size": size}


Versions = list[dict[str, Any]]


class Listed(AwsFailback):
    """Both buckets, given their versions. `marks` are the versions that a failback copied, by key."""

    heads: tuple[str, ...] = ()

    def __init__(self, first: Versions, second: Versions, policy: str | None = None, **marks: str) -> None:
        super().__init__(lambda service, region: self, "us-east-1", "us-west-2")
        self._listed, self._held, self._marks = {PAIR.source: first, PAIR.replica: second}, policy, marks

    def _versions(self, region: str, bucket: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return iter([(str(one["Key"]), one) for one in self._listed[bucket]])

    def get_bucket_policy(self, Bucket: str) -> dict[str, str]:
        return {"Policy": self._held} if self._held else {}

    def head_object(self, Bucket: str, Key: str, VersionId: str) -> dict[str, Any]:
        self.heads += (Key,)
        return {"Metadata": {aws.MARK: self._marks[Key]} if Key in self._marks else {}}


def test_objects_that_a_detached_replica_refused_stop_a_resumed_failover() -> None:
    """Waiting has no effect, so the objects that are missing are an error. Without missing objects, there is none."""
    late = [version(str(number), "1") for number in range(6)]
    with pytest.raises(
        DeploymentError,
        match=r"6 objects of train-scratch-us-east-1 .* and the policy of the replica denies",
    ):
        Listed(late, [], document(TLS, OF_REPLICA)).not_replicated(PAIR)
    assert Listed(late, late, document(TLS, OF_REPLICA)).not_replicated(PAIR) == []
    assert Listed(late, [], document(TLS)).not_replicated(PAIR) == [str(number) for number in range(6)]


def test_copies_of_a_failback_are_in_the_replica() -> None:
    """A failback copies objects before the replication starts again, so the replica has their content as another version. Only objects of the same size
    are read."""
    first = [
        version("copied", "9"),
        version("later", "9"),
        version("own", "9"),
        version("size", "9", 2),
        version("new", "9"),
    ]
    second = [version("copied", "1"), version("later", "1"), version("own", "1"), version("size", "1")]
    both = Listed(first, second, copied="1", later="0")
    assert both.not_replicated(PAIR) == ["later", "new", "own", "size"]
    assert sorted(both.heads) == ["copied", "later", "own"]


@pytest.mark.parametrize(("region", "count"), [("us-east-1", 2), ("us-east-2", 1)])
def test_what_cannot_be_stopped_is_named(region: str, count: int) -> None:
    """Nodes run until Auto Scaling responds. S3 changes bucket policies in us-east-1 only."""
    state = [
        {"type": aws.GROUP, "id": "train-gpu-0"},
        {"type": aws.REPLICATION, "outputs": {"bucket": PAIR.source, "rules": [{"destination": {"bucket": f"arn:aws:s3:::{PAIR.replica}"}}]}},
    ]  # fmt: skip
    parts = aws.AwsFailover(lambda service, where: None, region, "us-west-2").beyond_reach(state)
    assert len(parts) == count
    assert "train-gpu-0" in parts[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts take no time."""
    monkeypatch.setattr(reach.time, "sleep", lambda seconds: None)
