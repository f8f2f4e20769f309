"""The second region: what is replicated, with which keys, and that an existing cluster does not change."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from gpuinfra.base.naming import bucket_name
from gpuinfra.clouds.aws.adopt import Account
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.clouds.aws.region import replica_policies
from gpuinfra.clouds.aws.resources import resources
from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery_model import RecoveryPart, RecoveryPlan
from gpuinfra.report import tables
from gpuinfra.report.plan_tables import recovery_table
from gpuinfra.spec import ClusterSpec, parse_spec
from tests.clouds.recorder import Recording, record
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of
from tests.rules.cases import TODAY

FIRST, SECOND = "us-east-2", "us-west-2"
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


AMI = "ami-0123456789abcdef0"
COPY = "aws:ec2/amiCopy:AmiCopy"


def _with_images(*refs: str, copy: bool = True) -> ClusterSpec:
    """The shipped stack with pools that select images by their IDs."""
    spec = spec_of("aws-recovery").model_dump(mode="json", exclude_unset=True)
    spec["recovery"]["copy_images"] = copy
    (pool,) = spec["pools"]
    others = [{"name": f"cpu{number}", "machine": "m7i.xlarge", "capacity": [{"kind": "on_demand", "count": 1}]} for number in range(1, len(refs))]  # fmt: skip
    spec["pools"] = [{**one, "image": {"ref": ref, "os": "ubuntu-22.04"}} for one, ref in zip([pool, *others], refs, strict=True)]  # fmt: skip
    return parse_spec(spec)


def test_images_are_copied_to_the_second_region() -> None:
    """Each image that a pool selects by its ID is copied once, encrypted with the key of the second region, and retained. A public parameter is not copied."""
    spec = _with_images(AMI, AMI, "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id")
    plan, recording = build_plan(spec, TODAY), recording_of_spec(spec, stack="aws-recovery")
    (copy,) = recording.of(COPY)
    key = next(one for one in recording.of(KEY) if one.inputs["region"] == SECOND and "data" in one.name)
    assert {name: copy.inputs[name] for name in ("region", "sourceAmiId", "sourceAmiRegion", "encrypted")} == {
        "region": SECOND, "sourceAmiId": AMI, "sourceAmiRegion": FIRST, "encrypted": True,
    }  # fmt: skip
    assert key.urn in copy.depends_on
    assert copy.retained
    assert copy.name in {one.name for one in resources(plan) if one.type == COPY}
    assert [one.copied for one in plan.recovery.images] == [True, False] if plan.recovery else False
    assert not [one for one in plan.recovery.commands if "copy-image" in one.command] if plan.recovery else False


def test_images_are_not_copied_without_the_field() -> None:
    """Without `copy_images`, the plan prints the command that copies an image, and the stack copies none."""
    spec = _with_images(AMI, copy=False)
    plan = build_plan(spec, TODAY)
    assert plan.recovery
    assert [one.copied for one in plan.recovery.images] == [False]
    assert [one for one in plan.recovery.commands if "copy-image" in one.command]
    assert not recording_of_spec(spec, stack="aws-recovery").of(COPY)


def test_price_of_an_image_copy_is_a_line() -> None:
    """The price contains the storage of each copy, up to the size of the smallest root disk that starts from it."""
    plan = build_plan(_with_images(AMI, AMI), TODAY)
    size = min(pool.disk.size_gib for pool in plan.pools)
    (line,) = (one for one in price(plan, TODAY).lines if AMI in one.what)
    assert (line.quantity, line.unit) == (size, "GB-month")
    assert line.usd_per_unit_hour


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


def test_each_alarm_is_in_the_region_of_its_metric(recording: Recording) -> None:
    """S3 publishes the lag in the region of the replica, and failures in the region of the source. The topic of each alarm has the recipients of the budget."""
    topics = {one.inputs["region"]: one for one in recording.of(TOPIC)}
    assert set(topics) == {FIRST, SECOND}
    assert {(one.inputs["region"], one.inputs["endpoint"]) for one in recording.of(SUBSCRIPTION)} == {
        (region, "gpu-budget@example.com") for region in topics
    }
    alarms = [one for one in recording.of(ALARM) if one.inputs["namespace"] == "AWS/S3"]
    assert len(alarms) == 2 * len(recording.of(REPLICATION))
    assert {(one.inputs["metricName"], one.inputs["region"], one.inputs["threshold"], one.inputs["statistic"]) for one in alarms} == {
        ("ReplicationLatency", SECOND, 900, "Maximum"),
        ("OperationsFailedReplication", FIRST, 0, "Sum"),
    }  # fmt: skip
    pairs = {
        (one.inputs["bucket"], one.inputs["rules"][0]["destination"]["bucket"].rpartition(":")[2])
        for one in recording.of(REPLICATION)
    }
    for metric in ("ReplicationLatency", "OperationsFailedReplication"):
        watched = [one.inputs["dimensions"] for one in alarms if one.inputs["metricName"] == metric]
        assert {(one["SourceBucket"], one["DestinationBucket"]) for one in watched} == pairs
    for one in alarms:
        assert one.inputs["comparisonOperator"] == "GreaterThanThreshold"
        assert one.inputs["dimensions"]["RuleId"] == recording.of(REPLICATION)[0].inputs["rules"][0]["id"]
        assert one.inputs["alarmActions"] == [f"arn:aws:sns:{one.inputs['region']}:000000000000:{topics[one.inputs['region']].name}"]  # fmt: skip


def test_changed_replications_notify_the_recipients(recording: Recording) -> None:
    """A rule in the region of the sources matches each successful change of their replication, and publishes to the topic.
    The policy of the topic allows this, and the alarms. The rule is created after the replications, whose creation is also a change."""
    (rule,), (target,) = (
        recording.of("aws:cloudwatch/eventRule:EventRule"),
        recording.of("aws:cloudwatch/eventTarget:EventTarget"),
    )
    pattern = json.loads(rule.inputs["eventPattern"])
    assert (pattern["source"], pattern["detail-type"]) == (["aws.s3"], ["AWS API Call via CloudTrail"])
    assert pattern["detail"] == {
        "eventSource": ["s3.amazonaws.com"],
        "eventName": ["PutBucketReplication", "DeleteBucketReplication"],
        "requestParameters": {"bucketName": [one.inputs["bucket"] for one in recording.of(REPLICATION)]},
        "errorCode": [{"exists": False}],
    }
    assert {one.urn for one in recording.of(REPLICATION)} <= {one.urn for one in recording.before(rule)}
    topic = next(one for one in recording.of(TOPIC) if one.inputs["region"] == FIRST)
    arn = f"arn:aws:sns:{FIRST}:000000000000:{topic.name}"
    assert (target.inputs["rule"], target.inputs["arn"], target.inputs["targetId"]) == (rule.name, arn, "recipients")
    (policy,) = recording.of("aws:sns/topicPolicy:TopicPolicy")
    assert policy.urn in target.depends_on
    statements = json.loads(policy.inputs["policy"])["Statement"]
    assert {one["Principal"]["Service"]: one.get("Condition") for one in statements} == {
        "events.amazonaws.com": None,
        "cloudwatch.amazonaws.com": {"StringEquals": {"aws:SourceAccount": "000000000000"}},
    }
    assert {(one["Resource"], one["Action"]) for one in statements} == {(arn, "sns:Publish")}
    assert {one.inputs["region"] for one in (rule, target, policy)} == {FIRST}
    shown = target.inputs["inputTransformer"]
    assert set(re.findall("<([a-z]+)>", shown["inputTemplate"])) == set(shown["inputPaths"])
    assert "gpuinfra failover" in json.loads(shown["inputTemplate"])


def test_a_missing_readiness_result_is_an_alarm(recording: Recording) -> None:
    """The alarm is in the second region and counts hours without a value of the metric that `gpuinfra ready --record` writes.
    CloudWatch accepts at most seven days."""
    (alarm,) = (one.inputs for one in recording.of(ALARM) if one.inputs["namespace"] != "AWS/S3")
    replicas = [one.inputs["bucket"] for one in recording.of(BUCKET) if "recovery-evidence" in one.name]
    assert alarm["dimensions"] == {"Replica": replicas[0]}
    assert (alarm["namespace"], alarm["metricName"], alarm["region"]) == ("gpuinfra", "Ready", SECOND)
    assert (alarm["comparisonOperator"], alarm["threshold"], alarm["statistic"]) == ("LessThanThreshold", 1, "Maximum")
    assert alarm["treatMissingData"] == "breaching"
    assert alarm["period"] * alarm["evaluationPeriods"] == 2 * 24 * 3600
    assert alarm["period"] >= 3600
    assert "datapointsToAlarm" not in alarm
    assert alarm["alarmActions"] == alarm["okActions"]
    assert SECOND in alarm["alarmActions"][0]


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


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "aws-second-region.md"
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
    assert {one.inputs["bucket"].rpartition("-")[0] for one in made.of(REPLICATION)} == {
        "train-evidence-000000000000-us-east-1",
        "train-scratch-0-000000000000-us-east-1",
    }


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
    assert regions("events:PutRule") == regions("events:PutTargets") == {FIRST}
    assert regions("cloudwatch:PutMetricAlarm") == {FIRST, SECOND}
    assert regions("ec2:RunInstances") == {FIRST}
    assert regions("fsx:CreateFileSystem") == {FIRST}


def test_adopt_looks_in_the_region_of_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets and keys of the second region are looked up there, under the name of that region, and their import IDs contain it."""
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
    for region, suffix in ((None, ""), (SECOND, f"@{SECOND}")):
        assert account.find(Lookup(kind="key", purpose="data", region=region)) == (region or FIRST) + suffix
        assert str(account.find(Lookup(kind="alias", purpose="data", region=region))).endswith(f"0a1b2c3d{suffix}")
        assert str(account.find(Lookup(kind="bucket", purpose="evidence", region=region))).endswith(f"0a1b2c3d{suffix}")
    assert [(region, name) for service, region, name in asked if service == "s3"] == [
        (region, bucket_name("train", "evidence", "000000000000", region, "0a1b2c3d")) for region in (FIRST, SECOND)
    ]


# The calculation of the recovery objectives.


def _part(text: str, **recovery: Any) -> RecoveryPart:
    (part,) = [one for one in _recovery_plan(**recovery).rpo.parts if one.what.startswith(text)]
    return part


def _recovery_plan(first: str = FIRST, **fields: Any) -> RecoveryPlan:
    spec = spec_of("aws-recovery").model_dump(mode="json", exclude_unset=True)
    spec["where"] = {"cloud": "aws", "region": first}
    spec["recovery"] = {**spec["recovery"], **fields}
    plan = build_plan(parse_spec(spec), TODAY).recovery
    assert plan
    return plan


def test_an_export_above_the_replication_rate_has_no_guarantee() -> None:
    """A period above the rate is not covered, so the transfer is added to the 15 minutes, also if the average of the interval is below the rate."""
    part = _part("replicate")
    assert part.minutes == pytest.approx(15 + 100 * 2**30 * 8 / 1e9 / 60, abs=0.01)
    assert "the export at 9.4 Gbit/s exceeds this rate, so the cloud does not guarantee a time" in part.how


@pytest.mark.parametrize("fields", [{"export_mb_s": 125}, {"replication_gbps": 9.4}])
def test_an_export_within_the_replication_rate_takes_15_minutes(fields: dict[str, float]) -> None:
    """At 1 Gbit/s, or with a higher quota, only the time of the service is counted."""
    part = _part("replicate", **fields)
    assert part.minutes == 15
    assert "guaranteed" not in part.how
    assert "99.99 percent of objects, each individually" in part.how
    assert _part("replicate", export_mb_s=126).minutes > 29


def test_the_plan_names_what_the_times_do_not_contain() -> None:
    """Steps without a figure are rows of the table; the foundation is one of them only if the failover creates it."""
    cold, hot = _recovery_plan(), _recovery_plan(mode="hot", site_minutes=None)
    assert any("foundation" in one for one in cold.rto.excluded)
    assert not any("foundation" in one for one in hot.rto.excluded)
    for word in ("decision", "replication", "data repository association"):
        assert any(word in one for one in cold.rto.excluded)
        assert any(word in one for one in hot.rto.excluded)
    shown = tables.text(recovery_table(cold))
    text = " ".join(" ".join(shown).split())
    assert text.count("not in RTO") == len(cold.rto.excluded)
    assert text.count("met if the rates are reached") == 2


# Commands.

MODELS = botocore.session.get_session()
SERVICES = {"iam": "iam", "kms": "kms", "s3control": "s3control", "service-quotas": "service-quotas", "ec2": "ec2"}


def _command_problems(command: str) -> list[str]:
    """Return what botocore's model of the operation rejects. JSON values are validated; other values count as text of the right type."""
    from botocore import xform_name
    from botocore.validate import ParamValidator

    words = shlex.split(command.partition(" > ")[0])
    assert words[0] == "aws"
    model = MODELS.get_service_model(SERVICES[words[1]])
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if words[2] not in names:
        return [f"{words[2]} does not exist"]
    shape = model.operation_model(names[words[2]]).input_shape
    members = {xform_name(name, "-"): name for name in shape.members}
    given: dict[str, Any] = {
        name: "0" * 32 for name, one in shape.members.items() if one.metadata.get("idempotencyToken")
    }
    for option, value in zip(words[3:], [*words[4:], "--end"], strict=True):
        if not option.startswith("--") or option in ("--region", "--query", "--output"):
            continue
        name = option[2:].removeprefix("no-")
        if name not in members:
            return [f"{option} does not exist"]
        of = shape.members[members[name]]
        if option.startswith("--no-") or value.startswith("--"):
            given[members[name]] = not option.startswith("--no-")
        elif of.type_name == "structure":
            pairs = dict(pair.split("=") for pair in value.split(",")) if value[0] != "{" else json.loads(value)
            given[members[name]] = {
                key: {"true": True, "false": False}.get(one, one) if isinstance(one, str) else one
                for key, one in pairs.items()
            }
        else:
            given[members[name]] = {"integer": int, "double": float}.get(of.type_name, str)(value)
    report = ParamValidator().validate(given, shape)
    return [report.generate_report()] if report.has_errors() else []


PARTITIONS = [("us-east-2", "us-west-2", "aws"), ("us-gov-west-1", "us-gov-east-1", "aws-us-gov")]


@pytest.mark.parametrize(("first", "second", "partition"), PARTITIONS)
def test_printed_commands_match_the_service_models(first: str, second: str, partition: str) -> None:
    """Each command is an operation with valid parameters, and its ARNs are in the partition of the region."""
    commands = [one.command for one in _recovery_plan(first, region=second).commands]
    assert any("create-job" in one for one in commands)
    for one in commands:
        assert _command_problems(one) == []
        assert set(re.findall(r"arn:([a-z-]+):", one)) <= {partition}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("create-job", "create-jobs"), ("--role-arn", "--role"), ('"SourceBucket"', '"SourceBuckets"'), (" --priority 1", "")],
)  # fmt: skip
def test_a_wrong_command_is_found(right: str, wrong: str) -> None:
    """A misspelled operation, option or member of a JSON value, and a missing option are problems."""
    (job,) = [one.command for one in _recovery_plan().commands if "create-job" in one.command]
    assert _command_problems(job.replace(right, wrong, 1))


def test_the_role_has_one_inline_policy(recording: Recording) -> None:
    """The replication role has no permissions but those of its inline policy."""
    (role,) = [one for one in recording.of("aws:iam/role:Role") if "replication" in one.name]
    assert not {"managedPolicyArns", "inlinePolicies"} & set(role.inputs)
    attached = [
        one
        for one in recording.custom
        if one.type.lower().startswith("aws:iam/rolepolic") and "replication" in one.name
    ]
    assert [one.type for one in attached] == ["aws:iam/rolePolicy:RolePolicy"]


def test_a_detached_replica_denies_all_writes_of_the_role(recording: Recording) -> None:
    """Each action with which the role writes to a replica is denied by the policy of the replica, and each use of its key by the policy of the key."""
    (found,) = [one for one in recording.of("aws:iam/rolePolicy:RolePolicy") if "replication" in one.name]
    statements = {one["Sid"]: one for one in json.loads(found.inputs["policy"])["Statement"]}
    assert set(statements["WriteReplicas"]["Action"]) <= set(replica_policies.REPLICATION_ACTIONS)
    assert set(statements["EncryptReplicas"]["Action"]) == {"kms:Encrypt", "kms:GenerateDataKey"}
    assert replica_policies.of_key("role")["Action"] == "kms:*"
