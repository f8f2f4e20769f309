"""The second region: what is replicated, with which key and permissions, and that an existing cluster does not change."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.clouds.gcp.adopt import Project
from gpuinfra.clouds.gcp.instances import Lookup
from gpuinfra.clouds.gcp.names import bucket
from gpuinfra.clouds.gcp.region.recovery import REPLICATION
from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery import recovery_point
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.report import tables
from gpuinfra.report.plan_tables import recovery_table
from gpuinfra.rules.recovery import recovery_covers_all_data
from gpuinfra.spec import parse_spec
from gpuinfra.spec.model import ClusterSpec
from tests.clouds.gcp.answers import NUMBER, PROJECT
from tests.clouds.recorder import Recording, Registered, record
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of
from tests.rules.cases import TODAY

FIRST, SECOND = "us-central1", "us-east4"
BUCKET, KEY = "gcp:storage/bucket:Bucket", "gcp:kms/cryptoKey:CryptoKey"
KEY_GRANT = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
JOB, ROLE = "gcp:storage/transferJob:TransferJob", "gcp:projects/iAMCustomRole:IAMCustomRole"
BUCKET_GRANT, PROJECT_GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember", "gcp:projects/iAMMember:IAMMember"
ALERT, CHANNEL = "gcp:monitoring/alertPolicy:AlertPolicy", "gcp:monitoring/notificationChannel:NotificationChannel"
SERVICE = "gcp:projects/service:Service"
TRANSFER = f"serviceAccount:project-{NUMBER}@storage-transfer-service.iam.gserviceaccount.com"
STORAGE = f"serviceAccount:service-{NUMBER}@gs-project-accounts.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The registrations of the shipped stack with a second region."""
    return recording_of("gcp-recovery")


def _pairs(recording: Recording) -> dict[str, str]:
    """Source -> replica of each job."""
    return {
        spec["gcsDataSource"]["bucketName"]: spec["gcsDataSink"]["bucketName"]
        for spec in (one.inputs["replicationSpec"] for one in recording.of(JOB))
    }


def test_every_bucket_with_data_is_replicated(recording: Recording) -> None:
    """Buckets of file systems and the evidence bucket have a replica in the second region. The audit bucket has none."""
    places = {one.id: one.inputs["location"] for one in recording.of(BUCKET)}
    pairs = _pairs(recording)
    data = {one.id for one in recording.of(BUCKET) if places[one.id] == FIRST.upper() and "audit" not in one.name}
    assert set(pairs) == data
    assert len(data) == 2
    assert set(pairs.values()) == {name for name, place in places.items() if place == SECOND.upper()}
    assert all(SECOND in replica for replica in pairs.values())


def _with_storage(*entries: dict[str, Any]) -> ClusterSpec:
    spec = spec_of("gcp-recovery").model_dump(mode="json", exclude_unset=True)
    spec["storage"] += entries
    return parse_spec(spec)


OUT = {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False}
CORPUS = {"kind": "object", "mount": "/corpus", "bucket": "corpus"}


def test_a_mounted_bucket_is_replicated_if_the_stack_creates_it() -> None:
    """The plan, the jobs and the replicas agree on the buckets.
    An existing bucket is not replicated, and the rule reports it at its place in the declaration, and no other mount."""
    spec = _with_storage(OUT, CORPUS)
    plan, made = build_plan(spec, TODAY), recording_of_spec(spec, stack="gcp-recovery")
    assert plan.recovery
    names = [one.name for one in plan.recovery.replicas]
    assert names == ["evidence", "out-0", "scratch-0"]
    pairs = _pairs(made)
    assert {one.rpartition("-")[0] for one in pairs} == {f"train-{name}" for name in names}
    assert {one.rpartition("-")[0] for one in pairs.values()} == {f"train-{name}-{SECOND}" for name in names}
    assert plan.recovery.rpo == _recovery_plan().rpo
    found = {one.path: one.level for one in recovery_covers_all_data(spec, TODAY)}
    assert found == {"storage[2].bucket": Level.WARN}


def test_the_price_of_a_replicated_mount_is_listed_as_unknown() -> None:
    """The size of a mounted bucket is unknown, so the price names its replication and storage without a figure, and a job for each bucket is free."""
    cost = price(build_plan(_with_storage(OUT), TODAY), TODAY)
    assert any(
        "replication of data other than checkpoints and its storage in both regions" in one for one in cost.unknown
    )
    assert any("mounted buckets" in one for one in cost.unknown)


def test_replicas_are_versioned_and_use_the_key_of_the_second_region(recording: Recording) -> None:
    """Replicas keep replaced objects, and no resource of the second region uses a key of the first region, which fails with it."""
    (key,) = [one for one in recording.of(KEY) if f"/locations/{SECOND}/" in one.id]
    for one in recording.of(BUCKET):
        if one.inputs["location"] == SECOND.upper():
            assert one.inputs["versioning"] == {"enabled": True}
            assert one.inputs["encryption"] == {"defaultKmsKeyName": key.id}
            assert one.retained
            grants = {other.inputs["member"] for other in recording.before(one) if other.type == KEY_GRANT}
            assert STORAGE in grants
    users = {one.inputs["member"] for one in recording.of(KEY_GRANT) if one.inputs["cryptoKeyId"] == key.id}
    assert users == {STORAGE}
    assert all(
        one.inputs["replicationSpec"]["transferOptions"]["metadataOptions"]
        == {"kmsKey": "KMS_KEY_DESTINATION_BUCKET_DEFAULT", "timeCreated": "TIME_CREATED_PRESERVE_AS_CUSTOM_TIME"}
        for one in recording.of(JOB)
    )


def test_a_job_meets_the_conditions_of_the_service(recording: Recording) -> None:
    """The name is empty, because the service rejects names; there are no delete options, which it rejects, and no schedule."""
    for one in recording.of(JOB):
        assert one.inputs["name"] == ""
        assert one.inputs["status"] == "ENABLED"
        assert set(one.inputs) <= {"name", "description", "project", "status", "replicationSpec", "loggingConfig"}
        options = one.inputs["replicationSpec"]["transferOptions"]
        assert options["overwriteWhen"] == "DIFFERENT"
        assert not [name for name in options if name.startswith("delete")]


def test_a_job_starts_after_all_its_permissions(recording: Recording) -> None:
    """Each job depends on the grants on the project and on both of its buckets, and not on those of other buckets."""
    for one in recording.of(JOB):
        spec = one.inputs["replicationSpec"]
        before = recording.before(one)
        on = {other.inputs["bucket"] for other in before if other.type == BUCKET_GRANT and other.inputs["member"] == TRANSFER}  # fmt: skip
        assert on == {spec["gcsDataSource"]["bucketName"], spec["gcsDataSink"]["bucketName"]}
        assert {other.inputs["member"] for other in before if other.type == PROJECT_GRANT} == {TRANSFER, STORAGE}


NEEDED = {
    ("project", TRANSFER): {"pubsub.topics.create", "pubsub.subscriptions.create", "pubsub.subscriptions.consume"},
    ("project", STORAGE): {"pubsub.topics.publish", "pubsub.subscriptions.create", "pubsub.subscriptions.consume"},
    ("source", TRANSFER): {"storage.buckets.get", "storage.buckets.update", "storage.objects.get"},
    ("replica", TRANSFER): {
        "storage.buckets.get", "storage.objects.create", "storage.objects.get", "storage.objects.delete",
    },
}  # fmt: skip
"""Permissions that Google's page lists, by place and service agent, and the deletion for replaced objects."""


def test_service_agents_have_the_permissions_that_google_lists_and_no_others(recording: Recording) -> None:
    """No agent can change or delete an object of the source, and no predefined role is granted."""
    roles = {one.id: set(one.inputs["permissions"]) for one in recording.of(ROLE) if "replication" in one.id}
    pairs, found = _pairs(recording), {}
    for one in recording.of(PROJECT_GRANT):
        if one.inputs["role"] not in roles:
            continue
        found["project", one.inputs["member"]] = roles[one.inputs["role"]]
    for one in recording.of(BUCKET_GRANT):
        if one.inputs["role"] in roles:
            place = "source" if one.inputs["bucket"] in pairs else "replica"
            assert found.setdefault((place, one.inputs["member"]), roles[one.inputs["role"]]) == roles[one.inputs["role"]]  # fmt: skip
    assert found == NEEDED
    assert len(roles) == len(NEEDED)


def test_each_pair_has_both_alerts(recording: Recording) -> None:
    """The lag alert has the declared time in milliseconds, the failure alert counts failed objects, and both notify the recipients."""
    channels = [one.id for one in recording.of(CHANNEL) if "recovery" in one.name]
    assert [one.inputs["labels"] for one in recording.of(CHANNEL) if one.id in channels][-1] == {"email_address": "gpu-budget@example.com"}  # fmt: skip
    found = set()
    for one in recording.of(ALERT):
        assert one.inputs["notificationChannels"] == channels
        if "conditionThreshold" not in one.inputs["conditions"][0]:
            continue
        (condition,) = [condition["conditionThreshold"] for condition in one.inputs["conditions"]]
        terms = dict(re.findall(r'(\S+) = "([^"]*)"', condition["filter"]))
        assert terms.pop("resource.type") == "storage_transfer_job"
        assert condition["comparison"] == "COMPARISON_GT"
        metric = terms["metric.type"].rpartition("/")
        assert metric[0] == "storagetransfer.googleapis.com/transferjob"
        (how,) = condition["aggregations"]
        pair = terms["metric.labels.source_bucket"], terms["metric.labels.destination_bucket"]
        found.add((metric[2], pair, terms.get("metric.labels.status"), condition["thresholdValue"], how["perSeriesAligner"]))  # fmt: skip
    assert found == {
        row
        for pair in _pairs(recording).items()
        for row in (
            ("replication_latency", pair, None, 30 * 60 * 1000, "ALIGN_PERCENTILE_99"),
            ("object_replication_count", pair, "failed", 0, "ALIGN_SUM"),
        )
    }


def _condition(recording: Recording, kind: str) -> tuple[Registered, dict[str, Any]]:
    """The only alert with a condition of this kind, and its condition."""
    (alert,) = (one for one in recording.of(ALERT) if kind in one.inputs["conditions"][0])
    return alert, alert.inputs["conditions"][0][kind]


def test_a_changed_job_notifies_the_recipients(recording: Recording) -> None:
    """The filter matches each successful request that changes or deletes a job of the stack, or whose record names no job, and no other job of the
    project. The creation of a job does not match."""
    alert, condition = _condition(recording, "conditionMatchedLog")
    methods, jobs = re.findall(r"\(((?:(?:NOT )?\"[^\"]+\"(?: OR )?)+)\)", condition["filter"])[-2:]
    service = "google.storagetransfer.v1.StorageTransferService"
    assert re.findall(r'"([^"]+)"', methods) == [f"{service}.UpdateTransferJob", f"{service}.DeleteTransferJob"]
    assert len(re.findall(r'"([^"/]+)"', jobs)) == len(recording.of(JOB))
    assert jobs.startswith('NOT "transferJobs/" OR ')
    assert 'log_id("cloudaudit.googleapis.com/activity")' in condition["filter"]
    assert "NOT protoPayload.status.code > 0" in condition["filter"]
    assert alert.inputs["alertStrategy"] == {"notificationRateLimit": {"period": "300s"}}
    assert {one.urn for one in recording.of(JOB)} <= {one.urn for one in recording.before(alert)}


def test_a_missing_readiness_result_is_an_alert(recording: Recording) -> None:
    """The query returns a value after 48 hours without a value of the metric that `gpuinfra ready --record` writes. The metric does not have to exist yet."""
    _, condition = _condition(recording, "conditionPrometheusQueryLanguage")
    (replica,) = (one for source, one in _pairs(recording).items() if "evidence" in source)
    selected = f'custom_googleapis_com:gpuinfra_ready{{monitored_resource="global",replica="{replica}"}}'
    assert condition == {
        "query": f"absent_over_time({selected}[48h])",
        "duration": "0s",
        "evaluationInterval": "3600s",
        "disableMetricValidation": True,
    }


def test_the_apis_of_the_replication_are_enabled_first(recording: Recording) -> None:
    """Jobs, roles and alerts depend on the APIs that they call."""
    for type_, api in (
        (JOB, "storagetransfer"),
        (JOB, "pubsub"),
        (ALERT, "monitoring"),
        (ALERT, "logging"),
        (ROLE, "iam"),
    ):
        for one in recording.of(type_):
            enabled = {other.inputs["service"] for other in recording.before(one) if other.type == SERVICE}
            assert f"{api}.googleapis.com" in enabled


def test_a_second_region_replaces_nothing_in_an_existing_cluster(recording: Recording) -> None:
    """With `recovery`, every resource of the cluster has the same inputs as before, except for the amount of the budget."""
    spec = spec_of("gcp-recovery").model_dump(mode="json", exclude_unset=True)
    del spec["recovery"]
    without = recording_of_spec(parse_spec(spec), stack="gcp-recovery")
    before = {(one.type, one.name): one for one in without.custom}
    after = {(one.type, one.name): one for one in recording.custom}
    assert set(before) < set(after)
    changed = {name for key, one in before.items() for name in _changed(one.inputs, after[key].inputs)}
    assert changed <= {"amount"}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    # The key of a bundle contains the digest of its source.
    return {name for name in {*before, *after} - {"source"} if before.get(name) != after.get(name)}


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "gcp-second-region.md"
(PROGRAM,) = [
    one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S) if "RegionClone(" in one
]


def test_a_short_program_adds_a_second_region_to_an_existing_cluster() -> None:
    """The program on the page has at most 15 lines, and each resource of the cluster stays as it is."""
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 15
    before = {(one.type, one.name): one.inputs for one in recording_of("gcp-a3high").custom}
    made = record(lambda: exec(compile(PROGRAM, "program", "exec"), {}), stack="gcp-a3high")
    after = {(one.type, one.name): one.inputs for one in made.custom}
    assert set(before) < set(after)
    assert {name for key, inputs in before.items() for name in _changed(inputs, after[key])} == set()
    assert {one.rpartition("-")[0] for one in _pairs(made)} == {"train-evidence", "train-scratch-0"}
    for one in made.of(JOB):
        enabled = {other.inputs["service"] for other in made.before(one) if other.type == SERVICE}
        assert {"storagetransfer.googleapis.com", "pubsub.googleapis.com"} <= enabled


def test_permissions_cover_the_replication_only_with_a_second_region() -> None:
    """Without `recovery`, the operator can neither create roles nor replication jobs."""
    needed = {"storagetransfer.jobs.create", "storagetransfer.projects.getServiceAccount", "iam.roles.create"}
    needed |= {"monitoring.alertPolicies.create", "logging.notificationRules.create", "monitoring.timeSeries.create"}
    with_, without = (
        {need.action for need in permissions_of(plan_of(stack)).needs} for stack in ("gcp-recovery", "gcp-a3mega")
    )
    assert needed <= with_
    assert not needed & without


def test_adopt_looks_in_the_region_of_a_resource() -> None:
    """The key of the second region is looked up there, and the replica under its own name."""
    asked: list[str] = []

    def get(url: str) -> dict[str, Any] | None:
        asked.append(url)
        return {}

    plan = plan_of("gcp-recovery")
    project = Project(get, PROJECT, plan, "0a1b2c3d")
    for region in ("", SECOND):
        assert f"/locations/{region or FIRST}/keyRings/" in project.path(
            Lookup(kind="key", purpose="data", region=region)
        )
    from gpuinfra.clouds.gcp.resources import resources

    replicas = [one.lookup for one in resources(plan) if one.type == BUCKET and one.region == SECOND]
    for lookup in replicas:
        assert lookup
        project.find(lookup)
    assert [url.rpartition("/")[2] for url in asked] == [
        bucket("train", f"{name}-{SECOND}", PROJECT, "0a1b2c3d") for name in ("evidence", "scratch-0")
    ]


# The calculation of the recovery objectives.


def _recovery_plan(**fields: Any) -> RecoveryPlan:
    spec = spec_of("gcp-recovery").model_dump(mode="json", exclude_unset=True)
    spec["recovery"] = {**spec["recovery"], **fields}
    plan = build_plan(parse_spec(spec), TODAY).recovery
    assert plan
    return plan


def test_the_declared_replication_time_is_part_of_the_rpo() -> None:
    """The time is the measured one, and the same time triggers the alert."""
    plan = _recovery_plan(replication_minutes=45)
    (part,) = [one for one in plan.rpo.parts if one.what.startswith("replicate")]
    assert part.minutes == 45
    assert "does not commit to a time" in part.how
    assert plan.alert_after_s == 45 * 60
    assert plan.rpo.minutes == pytest.approx(_recovery_plan(replication_minutes=30).rpo.minutes + 15)


def test_a_replication_longer_than_the_interval_does_not_hold() -> None:
    """If a checkpoint is not replicated before the next one, the objective does not hold, whatever the target."""
    assert _recovery_plan(checkpoint_minutes=30, replication_minutes=30, rpo_minutes=1000).rpo.holds
    late = _recovery_plan(checkpoint_minutes=30, replication_minutes=31, rpo_minutes=1000).rpo
    assert not late.holds
    assert late.parts[-1].what == "backlog"


def test_the_plan_names_what_the_times_do_not_contain() -> None:
    """The import of the replica and, without a schedule, the start of the export are rows without a figure. The interval of a schedule is a part."""
    plan = _recovery_plan()
    (wait,) = (one for one in plan.rpo.parts if one.what == "wait for the next scheduled export")
    assert (wait.minutes, plan.rpo.excluded) == (15, ())
    systems = [replace(one, export_minutes=None) for one in plan_of("gcp-recovery").file_systems]
    recovery = spec_of("gcp-recovery").recovery
    assert recovery is not None
    unscheduled = recovery_point(recovery, REPLICATION, systems)
    assert any("start exporting" in one for one in unscheduled.excluded)
    assert unscheduled.minutes == pytest.approx(plan.rpo.minutes - 15)
    assert any("importing" in one for one in plan.rto.excluded)
    text = " ".join(" ".join(tables.text(recovery_table(plan))).split())
    assert text.count("not in RPO") == 0
    assert text.count("not in RTO") == len(plan.rto.excluded)


def test_the_plan_prints_the_commands_for_what_no_resource_can_do() -> None:
    """The quota counts the GPUs of all nodes in the second region; existing objects and exports have a command each."""
    commands = [one.command for one in _recovery_plan().commands]
    (quota,) = [one for one in commands if "quotas preferences create" in one]
    assert "--preferred-value=16" in quota
    assert f"region={SECOND},gpu_family=NVIDIA_H100_MEGA" in quota
    assert "gcloud transfer jobs create gs://BUCKET gs://REPLICA" in commands
    assert any("export_commands" in one for one in commands)


def test_the_price_has_no_fee_and_names_deleted_objects() -> None:
    """Agentless transfers have no fee. The replica keeps objects that are deleted in the first region. Each region has its own storage price."""
    cost = price(plan_of("gcp-recovery"), TODAY)
    texts = [line.what for line in cost.lines]
    assert not [one for one in texts if "fee" in one]
    kept = [one for one in texts if "deletions are not replicated" in one]
    assert [SECOND in one for one in kept] == [True]
    (transfer,) = [line for line in cost.lines if "checkpoints replicated" in line.what]
    assert transfer.usd_per_unit_hour is not None
    stored = [line for line in cost.lines if "checkpoints of the last 90 days" in line.what]
    assert [round((line.usd_per_unit_hour or 0) * 730, 4) for line in stored] == [0.02, 0.023]
