"""The second region: what is replicated, with which keys, and that an existing cluster does not change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.aws.adopt import Account
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.clouds.permissions import permissions_of
from gpuinfra.naming import bucket_name
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording, record
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, spec_of

FIRST, SECOND = "us-east-1", "us-west-2"
BUCKET, KEY = "aws:s3/bucket:Bucket", "aws:kms/key:Key"
REPLICATION, VERSIONING = (
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
    "aws:s3/bucketVersioning:BucketVersioning",
)
ALARM, TOPIC = "aws:cloudwatch/metricAlarm:MetricAlarm", "aws:sns/topic:Topic"
SUBSCRIPTION, TRAIL = "aws:sns/topicSubscription:TopicSubscription", "aws:cloudtrail/trail:Trail"


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The registrations of the shipped stack with a second region."""
    return recording_of("aws-recovery")


def _without_recovery() -> Recording:
    spec = spec_of("aws-recovery").model_dump(mode="json", exclude_unset=True)
    del spec["recovery"]
    return recording_of_spec(parse_spec(spec), stack="aws-recovery")


def test_every_bucket_with_data_is_replicated(recording: Recording) -> None:
    """Buckets of file systems and the evidence bucket have a replica of the same purpose in the second region."""
    pairs = {
        one.inputs["bucket"]: one.inputs["rules"][0]["destination"]["bucket"].rpartition(":")[2]
        for one in recording.of(REPLICATION)
    }
    data = {
        one.inputs["bucket"]
        for one in recording.of(BUCKET)
        if one.inputs["region"] == FIRST and ("evidence" in one.name or "scratch" in one.name)
    }
    assert set(pairs) == data
    assert len(data) == 2
    assert pairs == {name: name.replace(FIRST, SECOND) for name in data}


def test_replication_meets_the_conditions_of_the_service(recording: Recording) -> None:
    """Both buckets are versioned, encrypted objects are replicated with the key of the second region, and metrics are enabled with the replication time."""
    versioned = {one.inputs["bucket"] for one in recording.of(VERSIONING)}
    (key,) = [one for one in recording.of(KEY) if one.name == "train-recovery-data-key"]
    for one in recording.of(REPLICATION):
        assert one.inputs["region"] == FIRST
        (rule,) = one.inputs["rules"]
        destination = rule["destination"]
        assert {one.inputs["bucket"], destination["bucket"].rpartition(":")[2]} <= versioned
        assert rule["sourceSelectionCriteria"]["sseKmsEncryptedObjects"]["status"] == "Enabled"
        assert (
            destination["encryptionConfiguration"]["replicaKmsKeyId"]
            == f"arn:aws:kms:{SECOND}:000000000000:key/{key.id}"
        )
        assert destination["replicationTime"] == {"status": "Enabled", "time": {"minutes": 15}}
        assert destination["metrics"]["status"] == "Enabled"
        assert rule["deleteMarkerReplication"]["status"] == "Enabled"


def test_replication_starts_after_both_sides_are_ready(recording: Recording) -> None:
    """A replication depends on the versioning of both buckets, on its role and on the policy of the role."""
    for one in recording.of(REPLICATION):
        before = recording.before(one)
        versioned = {other.inputs["bucket"] for other in before if other.type == VERSIONING}
        assert {one.inputs["bucket"], one.inputs["rules"][0]["destination"]["bucket"].rpartition(":")[2]} <= versioned
        assert {"train-recovery-replication-role", "train-recovery-replication-policy"} <= {
            other.name for other in before
        }


def test_keys_of_the_second_region_are_used_only_there(recording: Recording) -> None:
    """No resource in the second region uses a key of the first region, which cannot be used when that region fails."""
    here = [one for one in recording.custom if one.inputs.get("region") == SECOND]
    assert len(here) > 30
    text = json.dumps([one.inputs for one in here])
    assert f":kms:{SECOND}:" in text
    assert f":kms:{FIRST}:" not in text


def test_the_role_reads_sources_and_writes_replicas(recording: Recording) -> None:
    """The replication role has no access to other buckets, and each key only through S3 in its region."""
    policy = next(one for one in recording.of("aws:iam/rolePolicy:RolePolicy") if "replication" in one.name)
    statements = {one["Sid"]: one for one in json.loads(policy.inputs["policy"])["Statement"]}
    assert all(
        f"-{FIRST}-" in arn for sid in ("ReadConfiguration", "ReadVersions") for arn in statements[sid]["Resource"]
    )
    assert all(f"-{SECOND}-" in arn for arn in statements["WriteReplicas"]["Resource"])
    assert statements["DecryptSources"]["Condition"]["StringEquals"]["kms:ViaService"] == f"s3.{FIRST}.amazonaws.com"
    assert statements["EncryptReplicas"]["Condition"]["StringEquals"]["kms:ViaService"] == f"s3.{SECOND}.amazonaws.com"
    assert f":kms:{SECOND}:" in statements["EncryptReplicas"]["Resource"]


def test_a_late_replication_notifies_the_recipients_in_both_regions(recording: Recording) -> None:
    """Each replicated bucket has an alarm on its lag in each region, whose topic has the recipients of the budget."""
    topics = {one.inputs["region"]: one for one in recording.of(TOPIC)}
    assert set(topics) == {FIRST, SECOND}
    assert {(one.inputs["region"], one.inputs["endpoint"]) for one in recording.of(SUBSCRIPTION)} == {
        (region, "gpu-budget@example.com") for region in topics
    }
    alarms = recording.of(ALARM)
    assert len(alarms) == 2 * len(recording.of(REPLICATION))
    for one in alarms:
        assert one.inputs["dimensions"]["RuleId"] == recording.of(REPLICATION)[0].inputs["rules"][0]["id"]
        assert one.inputs["threshold"] == 900
        assert one.inputs["alarmActions"] == [f"arn:aws:sns:{one.inputs['region']}:000000000000:{topics[one.inputs['region']].name}"]  # fmt: skip


def test_the_trail_and_the_budget_cover_the_second_region(recording: Recording) -> None:
    """The trail records all regions and the objects of the replicas, and the budget has no filter for a region."""
    trail = recording.one(TRAIL)
    assert trail.inputs["isMultiRegionTrail"] is True
    fields = [field for one in trail.inputs["advancedEventSelectors"] for field in one["fieldSelectors"]]
    (objects,) = [field["startsWiths"] for field in fields if field["field"] == "resources.ARN"]
    replicas = {one.inputs["bucket"] for one in recording.of(BUCKET) if one.inputs["region"] == SECOND and "access" not in one.name}  # fmt: skip
    assert {f"arn:aws:s3:::{name}/" for name in replicas} <= set(objects)
    (budget,) = recording.of("aws:budgets/budget:Budget")
    assert [one["name"] for one in budget.inputs["costFilters"]] == ["TagKeyValue"]


def test_a_second_region_replaces_nothing_in_an_existing_cluster(recording: Recording) -> None:
    """With `recovery`, every resource of the cluster has the same inputs as before, except for the objects that the trail records."""
    before = {(one.type, one.name): one for one in _without_recovery().custom}
    after = {(one.type, one.name): one for one in recording.custom}
    assert set(before) < set(after)
    changed = {name for key, one in before.items() for name in _changed(one.inputs, after[key].inputs)}
    assert changed == {"advancedEventSelectors", "limitAmount"}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    # The key of a bundle contains the digest of its source.
    return {name for name in {*before, *after} - {"source"} if before.get(name) != after.get(name)}


PAGE = Path(__file__).parents[3] / "docs" / "aws.md"
(PROGRAM,) = [
    one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S) if "RegionClone(" in one
]


def test_a_short_program_adds_a_second_region_to_an_existing_cluster() -> None:
    """The program on the page has at most 15 lines, and each resource of the cluster stays as it is."""
    assert len(PROGRAM.strip().splitlines()) <= 15
    before = {(one.type, one.name): one.inputs for one in recording_of("aws-p4d").custom}
    made = record(lambda: exec(compile(PROGRAM, "program", "exec"), {}), stack="aws-p4d")
    after = {(one.type, one.name): one.inputs for one in made.custom}
    assert set(before) < set(after)
    assert {name for key, inputs in before.items() for name in _changed(inputs, after[key])} == set()
    assert {one.inputs["bucket"] for one in made.of(REPLICATION)} == {
        "train-evidence-000000000000-us-east-1-" + _token(made)
    }


def _token(made: Recording) -> str:
    return str(made.of(REPLICATION)[0].inputs["bucket"]).rpartition("-")[2]


def test_permissions_cover_both_regions() -> None:
    """The operator can change keys and alarms in both regions, and nodes are launched in the first region only."""
    statements = [
        one for document in permissions_of(plan_of("aws-recovery")).documents for one in document["Statement"]
    ]

    def regions(action: str) -> set[str]:
        return {
            region
            for one in statements
            if action in one["Action"]
            for region in (FIRST, SECOND)
            if region in json.dumps([one["Resource"], one.get("Condition")])
        }

    assert regions("kms:PutKeyPolicy") == {FIRST, SECOND}
    assert regions("kms:CreateKey") == {FIRST, SECOND}
    assert regions("s3:PutBucketPolicy") == {FIRST, SECOND}
    assert regions("cloudwatch:PutMetricAlarm") == {FIRST, SECOND}
    assert regions("ec2:RunInstances") == {FIRST}
    assert regions("fsx:CreateFileSystem") == {FIRST}


def test_adopt_looks_in_the_region_of_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets and keys of the second region are looked up there, under the name of that region."""
    asked: list[tuple[str, str, Any]] = []

    class Client:
        def __init__(self, service: str, region: str) -> None:
            self.service, self.region = service, region

        def get_caller_identity(self) -> dict[str, str]:
            return {"Account": "000000000000"}

        def head_bucket(self, **given: str) -> dict[str, str]:
            asked.append((self.service, self.region, given["Bucket"]))
            return {"found": "yes"}

        def describe_key(self, KeyId: str) -> dict[str, Any]:
            asked.append((self.service, self.region, KeyId))
            return {"KeyMetadata": {"KeyId": self.region}}

    class Session:
        def client(self, service: str, region_name: str) -> Client:
            return Client(service, region_name)

    session: Any = Session()
    account = Account(session, plan_of("aws-recovery"), "0a1b2c3d")
    for region in (None, SECOND):
        assert account.find(Lookup(kind="key", purpose="data", region=region)) == (region or FIRST)
        account.find(Lookup(kind="bucket", purpose="evidence", region=region))
    assert [(region, name) for service, region, name in asked if service == "s3"] == [
        (region, bucket_name("train", "evidence", "000000000000", region, "0a1b2c3d")) for region in (FIRST, SECOND)
    ]
