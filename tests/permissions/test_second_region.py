"""The permissions of `gpuinfra ready`, `failover` and `failback`, which a plan with `recovery` requires."""

from __future__ import annotations

import json
import re
from pathlib import Path

import boto3
import pytest

from gpuinfra.clouds.aws import requests
from gpuinfra.clouds.aws import requests as aws
from gpuinfra.clouds.azure import permissions as azure_permissions
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp import permissions as gcp
from gpuinfra.clouds.gcp import permissions as gcp_permissions
from gpuinfra.clouds.region.readiness import PREFLIGHT
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec.recovery import RecoveryNames
from gpuinfra_rehearsal.cloud.aws import operator
from gpuinfra_rehearsal.cloud.azure import operator as azure_operator
from tests.clouds.stacks import TODAY, plan_of, spec_of
from tests.permissions.needed import permissions_of
from tests.typed import present

RECOVERY = {"aws": "aws-recovery", "azure": "azure-recovery", "gcp": "gcp-recovery"}
FIRST, SECOND, OTHER = "us-east-2", "us-west-2", "eu-west-1"


READY = {"aws": requests.READY, "azure": azure_permissions.READY, "gcp": gcp_permissions.READY}
"""Requests of `gpuinfra ready` in each cloud's list of permissions."""
UNUSED = {"Microsoft.NetApp/locations/usages/read"}
"""Quotas of services that the stacks do not use. A plan with such a service requires the permission."""


def actions(stack: str) -> set[str]:
    """The actions for a stack."""
    return {need.action for need in permissions_of(plan_of(stack)).needs}


@pytest.mark.parametrize("cloud", RECOVERY)
def test_requests_of_ready_are_in_the_list(cloud: str) -> None:
    """A plan with `recovery` requires the permissions of the questions that `ready` asks about the second region, and a plan without it does not."""
    reads = present(cloud_of(cloud).preflight).READS
    with_recovery = actions(RECOVERY[cloud])
    assert {action for topic in PREFLIGHT for action in reads[topic]} - UNUSED <= with_recovery
    assert {action for group in READY[cloud].values() for action in group} - UNUSED <= with_recovery
    spec = spec_of(RECOVERY[cloud]).model_copy(update={"recovery": None})
    uses = {use for need in permissions_of(build_plan(spec, TODAY)).needs for use, _ in need.uses}
    assert not uses & READY[cloud].keys()


CALLS = {
    "s3": {"get_bucket_replication": "s3:GetReplicationConfiguration", "put_bucket_replication": "s3:PutReplicationConfiguration",
           "head_bucket": "s3:ListBucket", "head_object": "s3:GetObject", "list_object_versions": "s3:ListBucketVersions",
           "copy_object": "s3:PutObject", "create_multipart_upload": "s3:PutObject", "upload_part_copy": "s3:PutObject",
           "complete_multipart_upload": "s3:PutObject", "get_object_tagging": "s3:GetObjectVersionTagging"},
}  # fmt: skip
"""Requests whose action has another name (https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html, retrieved 2026-11-23)."""
SERVICES = ("s3", "kms", "iam", "cloudwatch", "autoscaling", "fsx", "route53", "ec2")


@pytest.mark.parametrize("module", ["readiness", "failover", "exports", "failback", "dns"])
def test_every_request_of_the_module_has_its_action(module: str) -> None:
    """Each client method in the source code is an operation of botocore, and its action is in the list of `ready` or `failover`."""
    source = (Path(aws.__file__).parent / "region" / f"{module}.py").read_text()
    called = set(re.findall(r"\)?\.([a-z]+_[a-z_]+)\b", source))
    found = {}
    for service in SERVICES:
        client = boto3.client(service, region_name=FIRST, aws_access_key_id="testing", aws_secret_access_key="testing")
        names = client.meta.method_to_api_mapping
        for method in called & set(names):
            found[method] = CALLS.get(service, {}).get(method, f"{service}:{names[method]}")
    assert len(found) >= {"dns": 4, "exports": 1}.get(module, 6), found
    groups = {
        "readiness": aws.READY,
        "failover": aws.FAILOVER,
        "exports": aws.FAILOVER,
        "failback": aws.FAILBACK,
        "dns": aws.NAMES,
    }[module]
    listed = {action for group in groups.values() for action in group}
    assert {action for method, action in found.items() if method != "head_bucket"} <= listed


def test_the_role_for_a_failover_is_named_whatever_the_name_of_the_cluster() -> None:
    """A cluster called `replicas` gets the advice about the role of its replicas, not about its main role."""
    spec = spec_of("gcp-recovery").model_copy(update={"name": "replicas"})
    notes = permissions_of(build_plan(spec, TODAY)).notes
    assert [note for note in notes if note.startswith("grant the role `gpuinfra_replicas_replicas` only for the time")]


def test_moves_on_google_cloud_have_their_permissions() -> None:
    """The permissions of a failover and a failback are in the role of a plan with `recovery`, and changes are not in its read role."""
    listed = {action for group in (*gcp.FAILOVER.values(), *gcp.FAILBACK.values()) for action in group}
    assert listed <= actions("gcp-recovery")
    read = {need.action for need in permissions_of(plan_of("gcp-recovery"), read_only=True).needs}
    changes = {action for action in listed if not action.endswith((".get", ".list", ".getIamPolicy"))}
    assert changes == {
        "storage.buckets.setIamPolicy",
        "compute.instanceGroupManagers.update",
        "storagetransfer.jobs.update",
        "lustre.instances.importData",
        "lustre.instances.exportData",
        "storage.objects.create",
        "storage.objects.delete",
    }
    assert not changes & read


def _allowed(action: str, resource: str, region: str) -> bool:
    documents = tuple(json.dumps(one) for one in permissions_of(plan_of("aws-recovery")).documents)
    (request, *_) = operator.http(action, resource, region)
    return operator.allows(documents, request)[0]


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("cloudwatch:GetMetricStatistics", "*"),
        ("servicequotas:GetServiceQuota", "*"),
        ("ec2:DescribeCapacityReservations", "*"),
        ("ec2:DescribeImages", "*"),
        ("ssm:GetParameter", "arn:aws:ssm:{region}::parameter/aws/service/canonical/ubuntu"),
        ("fsx:CreateDataRepositoryTask", "arn:aws:fsx:{region}:000000000000:file-system/fs-0123456789abcdef0"),
        ("fsx:CreateDataRepositoryTask", "arn:aws:fsx:{region}:000000000000:task/task-0123456789abcdef0"),
        ("fsx:DescribeDataRepositoryTasks", "*"),
    ],
)
def test_requests_are_allowed_in_both_regions_only(action: str, resource: str) -> None:
    """Both Regions of the plan, and no other Region."""
    found = [_allowed(action, resource.format(region=region), region) for region in (FIRST, SECOND, OTHER)]
    assert found == [True, True, False]


def test_a_failover_changes_only_the_groups_and_buckets_of_the_stack() -> None:
    """Nodes of another cluster are not stopped, and the versions of another bucket are not listed."""
    group = f"arn:aws:autoscaling:{FIRST}:000000000000:autoScalingGroup:u:autoScalingGroupName/"
    for action in ("autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup"):
        assert _allowed(action, f"{group}train-gpu-reserved-0-0a1b2c3", FIRST)
        assert not _allowed(action, f"{group}other-gpu-reserved-0-0a1b2c3", FIRST)
    replica = f"arn:aws:s3:::train-scratch-0-000000000000-{SECOND}-0a1b2c3d"
    assert _allowed("s3:ListBucketVersions", replica, SECOND)
    assert not _allowed("s3:ListBucketVersions", "arn:aws:s3:::payroll", SECOND)


def test_a_failover_detaches_only_the_replicas_of_the_stack() -> None:
    """Policies of other buckets, and of keys without the tag of the cluster, are not changed."""
    documents = tuple(json.dumps(one) for one in permissions_of(plan_of("aws-recovery")).documents)
    key = f"arn:aws:kms:{SECOND}:000000000000:key/0a1b2c3d"
    for action in ("kms:GetKeyPolicy", "kms:PutKeyPolicy"):
        for cluster in ("train", "other"):
            tag = {"aws:ResourceTag/gpuinfra:cluster": cluster, "kms:ResourceAliases": "alias"}
            (request, *_) = operator.http(action, key, SECOND, tag)
            assert operator.allows(documents, request)[0] is (cluster == "train" or action == "kms:GetKeyPolicy"), (
                action,
                cluster,
            )
    replica = f"arn:aws:s3:::train-scratch-0-000000000000-{SECOND}-0a1b2c3d"
    for action in ("s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"):
        assert _allowed(action, replica, SECOND)
        assert not _allowed(action, "arn:aws:s3:::payroll", SECOND)


def test_a_failback_stops_and_copies_only_what_belongs_to_the_stack() -> None:
    """The groups of the second region can have another kind of capacity, and each key is used through S3 in its own region only."""
    group = f"arn:aws:autoscaling:{SECOND}:000000000000:autoScalingGroup:u:autoScalingGroupName/"
    for action in ("autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses", "autoscaling:UpdateAutoScalingGroup"):
        assert _allowed(action, f"{group}train-gpu-on_demand-0-0a1b2c3", SECOND)
        assert not _allowed(action, f"{group}other-gpu-on_demand-0-0a1b2c3", SECOND)
    assert not _allowed("autoscaling:DeleteAutoScalingGroup", f"{group}train-gpu-on_demand-0-0a1b2c3", SECOND)
    replica = f"arn:aws:s3:::train-scratch-0-000000000000-{SECOND}-0a1b2c3d/checkpoint"
    assert _allowed("s3:GetObjectVersion", replica, SECOND)
    assert not _allowed("s3:GetObjectVersion", "arn:aws:s3:::payroll/checkpoint", SECOND)
    documents = json.dumps([one for one in permissions_of(plan_of("aws-recovery")).documents])
    for region, other in ((FIRST, SECOND), (SECOND, FIRST)):
        (statement,) = [
            one
            for document in json.loads(documents)
            for one in document["Statement"]
            if one.get("Condition") == {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}}
        ]
        assert region in statement["Resource"]
        assert other not in statement["Resource"]


ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"


def named() -> Plan:
    """The plan of `aws-recovery` with names."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    return build_plan(spec.model_copy(update={"recovery": recovery}), TODAY)


def test_names_can_be_changed_in_the_declared_zone_only() -> None:
    """A stack without names has no permission for records, and `--read` allows no changes of records."""
    assert not {one for one in actions("aws-recovery") if one.startswith("route53:")}
    plan = named()
    documents = tuple(json.dumps(one) for one in permissions_of(plan).documents)
    zone = "arn:aws:route53:::hostedzone/{}"
    for action in (*aws.NAMES[aws.Purpose.READ_NAMES], *aws.NAMES[aws.Purpose.MOVE_NAMES]):
        (own,) = operator.http(action, zone.format(ZONE), FIRST)
        (other,) = operator.http(action, zone.format("ZOTHER"), FIRST)
        assert operator.allows(documents, own)[0], action
        assert not operator.allows(documents, other)[0], action
    read = {need.action for need in permissions_of(plan, read_only=True).needs}
    assert {one for one in read if one.startswith("route53:")} == set(aws.NAMES[aws.Purpose.READ_NAMES])


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (("login", "A", "UPSERT"), True),
        (("scratch", "A", "UPSERT"), True),
        (("source.scratch", "TXT", "UPSERT"), True),
        (("mail", "A", "UPSERT"), False),
        (("login", "MX", "UPSERT"), False),
        (("login", "A", "DELETE"), False),
    ],
)
def test_only_the_records_of_the_names_can_be_changed(change: tuple[str, str, str], allowed: bool) -> None:
    """The zone can contain other records, so the policies list the names, the types and the action."""
    documents = tuple(json.dumps(one) for one in permissions_of(named()).documents)
    key, (host, type_, verb) = "route53:ChangeResourceRecordSets", change
    context = {
        f"{key}NormalizedRecordNames": (f"login.{DOMAIN}", f"{host}.{DOMAIN}"),
        f"{key}RecordTypes": ("A", type_),
        f"{key}Actions": ("UPSERT", verb),
    }
    (request,) = operator.http(key, f"arn:aws:route53:::hostedzone/{ZONE}", FIRST, context)
    assert operator.allows(documents, request)[0] is allowed


@pytest.mark.parametrize("read_only", [False, True])
def test_addresses_of_file_systems_are_read_in_both_regions(read_only: bool) -> None:
    """A failover reads the network interfaces in the second Region, and a failback in the first one."""
    documents = tuple(json.dumps(one) for one in permissions_of(named(), read_only=read_only).documents)
    for region, allowed in ((FIRST, True), (SECOND, True), (OTHER, False)):
        (request,) = operator.http("ec2:DescribeNetworkInterfaces", "*", region)
        assert operator.allows(documents, request)[0] is allowed, region


def test_requests_of_a_failover_on_azure_are_in_the_list() -> None:
    """A role with the printed actions allows each request of a failover, and the role with `--read` allows no changes."""
    document = tuple(json.dumps(one) for one in permissions_of(plan_of("azure-recovery")).documents)
    read = tuple(json.dumps(one) for one in permissions_of(plan_of("azure-recovery"), read_only=True).documents)
    scope = "/subscriptions/s/resourceGroups/train-site-0a1b2c3d/providers"
    requests = [
        ("PATCH", f"{scope}/Microsoft.Compute/virtualMachineScaleSets/gpu"),
        ("PATCH", f"{scope}/Microsoft.Storage/storageAccounts/a"),
        ("DELETE", f"{scope}/Microsoft.Storage/storageAccounts/a/objectReplicationPolicies/p"),
        ("PUT", f"{scope}/Microsoft.StorageCache/amlFilesystems/f/importJobs/j"),
        ("POST", f"{scope}/Microsoft.StorageCache/amlFilesystems/f/archive"),
    ]
    for method, path in requests:
        (request,) = azure_operator.http(path, method)
        assert azure_operator.allows(document, request)[0], request
        assert not azure_operator.allows(read, request)[0], request
    for path in (f"{scope}/Microsoft.StorageCache/amlFilesystems/f/importJobs", requests[2][1].rpartition("/")[0]):
        (request,) = azure_operator.http(path)
        assert azure_operator.allows(document, request)[0], request
    assert any("Storage Blob Data Reader" in note for note in permissions_of(plan_of("azure-recovery")).notes)


def test_read_permissions_include_ready_and_no_failover() -> None:
    """With `--read`, the second region can be checked, but nothing can be moved to it."""
    read = {need.action for need in permissions_of(plan_of("aws-recovery"), read_only=True).needs}
    assert {action for group in aws.READY.values() for action in group} <= read
    changes = {"autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup", "s3:PutReplicationConfiguration", "fsx:CreateDataRepositoryTask",
               "autoscaling:ResumeProcesses", "s3:GetObjectVersion", "s3:PutObjectTagging"}  # fmt: skip
    assert changes <= actions("aws-recovery")
    assert not changes & read


def test_a_report_of_a_ready_region_is_allowed_only_in_its_place() -> None:
    """An operator writes the metric only in the second Region and in the namespace of gpuinfra. The permissions of `--read` write no metric."""
    documents = tuple(json.dumps(one) for one in permissions_of(plan_of("aws-recovery")).documents)
    for region, namespace, allowed in ((SECOND, "gpuinfra", True), (FIRST, "gpuinfra", False), (SECOND, "own", False)):
        (request,) = operator.http("cloudwatch:PutMetricData", "*", region, {"cloudwatch:namespace": namespace})
        assert operator.allows(documents, request)[0] is allowed, (region, namespace)
    for cloud, action in (("aws", "cloudwatch:PutMetricData"), ("gcp", "monitoring.timeSeries.create")):
        assert action in actions(RECOVERY[cloud])
        read = permissions_of(plan_of(RECOVERY[cloud]), read_only=True)
        assert action not in {need.action for need in read.needs}
