"""The questions to AWS about a plan.

Each answer is validated against the output shape of its operation in botocore. Error texts and documents come from these sources:

- The metric of a quota and the name of the quota of P instances: a recorded `ListServiceQuotas` in aquasecurity/cloudsploit,
  plugins/aws/ec2/instanceLimit.spec.js, GPL-3.0 (facts only), retrieved 2026-11-23.
- Reservations and simulations: the examples of the AWS CLI (aws/aws-cli, awscli/examples, Apache-2.0), retrieved 2026-11-23.
- `InvalidCapacityReservationId.NotFound`: handled by hashicorp/terraform-provider-aws (MPL-2.0); EC2 error codes, AWS documentation.
- The denial of `iam:SimulatePrincipalPolicy`: recorded in several public reports, retrieved 2026-11-23.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.cli import main
from gpuinfra.clouds.aws import preflight
from gpuinfra.clouds.aws.permissions import permissions, statements
from gpuinfra.clouds.aws.simulation import denial
from gpuinfra.clouds.preflight import PreflightRow, RowState, answers, ok
from gpuinfra.plan.model import Plan
from gpuinfra_rehearsal.cloud.aws.policy import decide
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.stacks import plan_of
from tests.doctor import aws as account
from tests.doctor.aws import Account, Answer, refuse

ROLE = "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/deployer"
NOW = datetime.now(UTC)


def role(asked: dict[str, Any]) -> dict[str, Any]:
    """The role of the caller, with a path that is not in the ARN of a session."""
    assert asked == {"RoleName": "deployer"}
    name = {"Path": "/aws-reserved/sso.amazonaws.com/", "RoleName": "deployer", "RoleId": "AROA123456789EXAMPLE"}
    return {"Role": {**name, "Arn": ROLE, "CreateDate": NOW}}


def simulator(documents: list[dict[str, Any]], **more: Any) -> Answer:
    """The policy simulator for a role with these policies, with the evaluation that the stand-in cloud uses."""
    texts = [json.dumps(one) for one in documents]

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["PolicySourceArn"] == ROLE
        context = {one["ContextKeyName"]: one["ContextKeyValues"][0] for one in asked["ContextEntries"]}
        results = []
        for action in asked["ActionNames"]:
            each = []
            for resource in asked["ResourceArns"]:
                request = AccessRequest(action=action, resource=resource, principal=ROLE, context=context)
                allowed, _ = decide(request, texts)
                each.append(
                    {"EvalResourceName": resource, "EvalResourceDecision": "allowed" if allowed else "implicitDeny"}
                )
            denied = any(one["EvalResourceDecision"] != "allowed" for one in each)
            result = {"EvalActionName": action, "EvalDecision": "implicitDeny" if denied else "allowed", **more}
            results.append({**result, "ResourceSpecificResults": each})
        return {"EvaluationResults": results, "IsTruncated": False}

    return answer


def allow_all(asked: dict[str, Any]) -> dict[str, Any]:
    """The policy simulator for an administrator."""
    results = [{"EvalActionName": action, "EvalDecision": "allowed"} for action in asked["ActionNames"]]
    return {"EvaluationResults": results, "IsTruncated": False}


def quota(value: float, name: str = "Running On-Demand P instances", kind: str = "P/OnDemand") -> Answer:
    """The answer of `GetServiceQuota`, with the metric of the recording. The quotas of file systems have no metric, and are large."""
    metric = {
        "MetricNamespace": "AWS/Usage",
        "MetricName": "ResourceCount",
        "MetricDimensions": {"Class": kind, "Resource": "vCPU", "Service": "EC2", "Type": "Resource"},
        "MetricStatisticRecommendation": "Maximum",
    }

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        known = {
            "ServiceCode": asked["ServiceCode"],
            "QuotaCode": asked["QuotaCode"],
            "Unit": "None",
            "Adjustable": True,
        }
        if asked["ServiceCode"] != "ec2":
            return {"Quota": {**known, "QuotaName": asked["QuotaCode"], "Value": 1e6}}
        return {"Quota": {**known, "QuotaName": name, "Value": value, "GlobalQuota": False, "UsageMetric": metric}}

    return answer


def usage(vcpus: float | None) -> Answer:
    """The answer of `GetMetricStatistics`: one data point, or none while nothing is in use."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert (asked["Namespace"], asked["MetricName"], asked["Statistics"]) == (
            "AWS/Usage",
            "ResourceCount",
            ["Maximum"],
        )
        assert {"Name": "Resource", "Value": "vCPU"} in asked["Dimensions"]
        points = [] if vcpus is None else [{"Timestamp": NOW, "Maximum": vcpus, "Unit": "None"}]
        return {"Label": "ResourceCount", "Datapoints": points}

    return answer


def zones(**more: str) -> Answer:
    """The answer of `DescribeAvailabilityZones` for us-east-1 and us-east-2."""
    known = [("us-east-1b", "use1-az4"), ("us-east-1c", "use1-az6"), ("us-east-2a", "use2-az1")]
    listed = [
        {"ZoneName": name, "ZoneId": id, "State": "available", "OptInStatus": "opt-in-not-required", "Messages": [],
         "GroupName": name[:-1], "RegionName": name[:-1], **more}
        for name, id in known
    ]  # fmt: skip
    return lambda asked: {"AvailabilityZones": listed}


def offerings(*ids: str) -> Answer:
    """The answer of `DescribeInstanceTypeOfferings`: the zones that offer the machine type."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["LocationType"] == "availability-zone-id"
        (machine,) = asked["Filters"][0]["Values"]
        offered = [{"InstanceType": machine, "LocationType": "availability-zone-id", "Location": id} for id in ids]
        return {"InstanceTypeOfferings": offered}

    return answer


RESERVATION = {
    "CapacityReservationId": "cr-0123456789abcdef0", "EndDateType": "unlimited", "AvailabilityZone": "us-east-1b", "AvailabilityZoneId": "use1-az4",
    "InstanceMatchCriteria": "targeted", "Tags": [], "EphemeralStorage": False, "CreateDate": NOW, "AvailableInstanceCount": 2,
    "InstancePlatform": "Linux/UNIX", "TotalInstanceCount": 2, "State": "active", "Tenancy": "default", "EbsOptimized": True,
    "InstanceType": "p4d.24xlarge", "ReservationType": "default",
}  # fmt: skip


def reservations(**changes: Any) -> Answer:
    """The answer of `DescribeCapacityReservations` with these changes to a reservation that fits."""
    return lambda asked: {"CapacityReservations": [{**RESERVATION, **changes}]}


IMAGE = {
    "ImageId": "ami-06517bc7fad3c6a48", "Name": "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260403", "State": "available",
    "Architecture": "x86_64", "CreationDate": (NOW - timedelta(days=54)).strftime("%Y-%m-%dT%H:%M:%S.000Z"), "RootDeviceName": "/dev/sda1",
    "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75, "SnapshotId": "snap-0", "VolumeType": "gp3"}}],
}  # fmt: skip


def images(**changes: Any) -> Answer:
    """The answer of `DescribeImages` with these changes to an image that fits."""
    return lambda asked: {"Images": [{**IMAGE, **changes}]}


def parameter(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer of `GetParameter`: the newest image."""
    return {"Parameter": {"Name": asked["Name"], "Type": "String", "Value": "ami-06517bc7fad3c6a48", "Version": 12}}


def healthy() -> dict[str, Answer]:
    """Answers of an account in which the stack can be deployed."""
    return {
        "sts:GetCallerIdentity": account.caller,
        "iam:GetRole": role,
        "iam:SimulatePrincipalPolicy": allow_all,
        "servicequotas:GetServiceQuota": quota(960),
        "monitoring:GetMetricStatistics": usage(None),
        "ec2:DescribeAvailabilityZones": zones(),
        "ec2:DescribeInstanceTypeOfferings": offerings("use1-az4", "use2-az1"),
        "ec2:DescribeCapacityReservations": reservations(),
        "ssm:GetParameter": parameter,
        "ec2:DescribeImages": images(),
        "fsx:DescribeFileSystems": lambda asked: {"FileSystems": []},
        "s3:HeadBucket": refuse("404", "Not Found", 404),
    }


P4D = plan_of("aws-p4d")
TOKEN = "0a1b2c3d"
BLOCK = plan_of("aws-p5-block")
STARTS, ENDS = (datetime.fromisoformat(str(moment)) for moment in (BLOCK.pools[0].groups[0].starts_at, BLOCK.pools[0].groups[0].ends_at))  # fmt: skip
IN_BLOCK = {
    "InstanceType": "p5.48xlarge", "AvailabilityZoneId": "use2-az1", "ReservationType": "capacity-block", "State": "scheduled",
    "TotalInstanceCount": 4, "AvailableInstanceCount": 4, "StartDate": STARTS, "EndDate": ENDS + timedelta(minutes=35), "EndDateType": "limited",
}  # fmt: skip


FEW = list(statements(P4D))[:2]
"""Statements for tests that are not about permissions, so that they are fast."""


def ask(monkeypatch: pytest.MonkeyPatch, plan: Plan, **changes: Answer) -> tuple[list[PreflightRow], Account]:
    """The rows for a plan. `changes` replace answers by operation, such as `GetRole`."""
    given = healthy()
    if "SimulatePrincipalPolicy" not in changes:
        monkeypatch.setattr(preflight, "statements", lambda plan: FEW)
    names = {name.partition(":")[2]: name for name in given}
    given |= {names.get(name, name.replace("__", ":")): answer for name, answer in changes.items()}
    used = account.use(monkeypatch, given)
    cloud = preflight.Preflight(plan.region, {})
    list(cloud.identity())
    return answers(cloud.questions(plan, lambda: TOKEN), 300), used


def of(rows: list[PreflightRow], topic: str) -> PreflightRow:
    """The only row of a topic that is not fine, or the first one."""
    found = [row for row in rows if row.topic == topic]
    return next((row for row in found if row.state in (RowState.WARN, RowState.ERROR)), found[0])


def test_account_in_which_the_stack_can_be_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a healthy account, each topic has a row without a problem, and every request is in the table of read permissions."""
    rows, used = ask(monkeypatch, P4D)
    assert [row for row in rows if row.state in (RowState.WARN, RowState.ERROR)] == []
    assert {row.topic for row in rows} == set(preflight.TOPICS)
    said = {row.topic: row.found for row in rows}
    assert said["permissions"].startswith("all ")
    assert said["reservation"] == "active, targeted, 2 of 2 free, no end date, 2 needed"
    assert "54 days old" in said["image"]
    allowed = {action for actions in preflight.READS.values() for action in actions}
    permissions_of = {"s3:HeadBucket": "s3:ListBucket"}
    assert {
        permissions_of.get(name, name.replace("monitoring:", "cloudwatch:")) for name, _ in used.requests
    } <= allowed


def test_requests_are_reads_and_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests read, and at least eight are in flight at the same time."""
    gate = threading.Barrier(8, timeout=300)
    first = threading.Semaphore(8)

    def slow(asked: dict[str, Any]) -> dict[str, Any]:
        if first.acquire(blocking=False):
            gate.wait()
        return allow_all(asked)

    rows, used = ask(monkeypatch, P4D, SimulatePrincipalPolicy=slow)
    assert of(rows, "permissions").state is RowState.OK
    calls = {name.partition(":")[2] for name, _ in used.requests}
    assert all(call.startswith(("Get", "Describe", "Simulate", "List", "Head")) for call in calls)


def test_quota_below_the_need_names_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota below the vCPUs of all nodes is a problem with the command that requests the quota."""
    row = of(ask(monkeypatch, P4D, GetServiceQuota=quota(76))[0], "quota")
    assert (row.state, row.found) == (RowState.ERROR, "76 vCPUs, 0 in use")
    assert row.needed == "192 vCPUs for all nodes of the stack"
    assert row.fix == (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-417A185B --desired-value 192 --region us-east-1"
    )


@pytest.mark.parametrize(
    ("used", "kind", "state"),
    [(768.0, "on_demand", RowState.OK), (769.0, "on_demand", RowState.WARN), (960.0, "reserved", RowState.OK)],
)
def test_quota_in_use_is_a_warning(monkeypatch: pytest.MonkeyPatch, used: float, kind: str, state: RowState) -> None:
    """vCPUs in use and the vCPUs of new nodes must fit. Nodes of a reservation are in use already, because AWS counts reservations."""
    pool = P4D.pools[0]
    group = replace(pool.groups[0], kind=kind, reservation_id=None, max_count=2)
    plan = replace(P4D, pools=(replace(pool, groups=(group,)),))
    row = of(ask(monkeypatch, plan, GetMetricStatistics=usage(used))[0], "quota")
    assert row.state is state
    if state is RowState.WARN:
        assert "--desired-value 961 " in row.fix


def test_spot_and_on_demand_have_separate_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vCPUs of spot nodes count against the spot quota of the family, and nodes in a Capacity Block against none."""
    _, used = ask(monkeypatch, P4D)
    codes = {asked["QuotaCode"] for _, asked in used.requests if asked.get("ServiceCode") == "ec2"}
    assert codes == {"L-417A185B", "L-7212CCBC"}
    rows, used = ask(monkeypatch, BLOCK, DescribeCapacityReservations=reservations(**IN_BLOCK))
    assert not any(asked.get("ServiceCode") == "ec2" for _, asked in used.requests)
    assert not [row for row in rows if row.topic == "quota" and "vCPUs" in row.found]


def test_quota_without_a_code_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family whose quota code is not in the catalog is skipped with the command that lists the quotas."""
    monkeypatch.setitem(preflight.MACHINES, "p4d.24xlarge", replace(preflight.MACHINES["p4d.24xlarge"], quotas={}))
    row = of(ask(monkeypatch, P4D)[0], "quota")
    assert row.state is RowState.SKIPPED
    assert row.fix.startswith("aws service-quotas list-service-quotas")


def test_default_quota_applies_without_an_own_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the account has no value of a quota, the default of AWS applies."""
    none = refuse("NoSuchResourceException", "The request failed because the specified quota does not exist.")
    row = of(ask(monkeypatch, P4D, GetServiceQuota=none, servicequotas__GetAWSDefaultServiceQuota=quota(0))[0], "quota")
    assert (row.state, row.found) == (RowState.ERROR, "0 vCPUs, 0 in use")


def test_quota_that_service_quotas_cannot_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside the answer of Service Quotas is not a quota of 0."""
    broken = {"ErrorCode": "DEPENDENCY_THROTTLING_ERROR", "ErrorMessage": "rate exceeded"}
    answer = quota(0)
    row = of(
        ask(
            monkeypatch, P4D, GetServiceQuota=lambda asked: {"Quota": {**answer(asked)["Quota"], "ErrorReason": broken}}
        )[0],
        "quota",
    )
    assert row.state is RowState.WARN
    assert "DEPENDENCY_THROTTLING_ERROR" in row.found


def test_unread_use_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission to read metrics, the quota is compared with the need, and the row states that its use is not read."""
    denied = refuse("AccessDenied", "User is not authorized to perform: cloudwatch:GetMetricStatistics", 403)
    row = of(ask(monkeypatch, P4D, GetMetricStatistics=denied)[0], "quota")
    assert row.state is RowState.OK
    assert "usage unknown" in row.found


@pytest.mark.parametrize(
    "plan", [P4D, plan_of("aws-recovery"), plan_of("aws-existing-network")], ids=lambda plan: plan.name
)
def test_the_printed_policies_are_enough(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """A role with exactly the policies that `gpuinfra permissions` prints has all permissions."""
    printed = simulator([dict(one) for one in permissions(plan).documents])
    row = of(ask(monkeypatch, plan, SimulatePrincipalPolicy=printed)[0], "permissions")
    assert (row.state, row.where) == (RowState.OK, "role deployer")


@pytest.mark.parametrize(
    "action",
    ["iam:PassRole", "kms:PutKeyPolicy", "ssm:StartSession"],
)
def test_each_missing_action_is_named(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """If one action is removed from the policies, the row names this action, the role and the command that prints the policies."""
    documents = json.loads(json.dumps([dict(one) for one in permissions(P4D).documents]))
    for document in documents:
        for statement in document["Statement"]:
            statement["Action"] = [one for one in statement["Action"] if one != action]
    row = of(ask(monkeypatch, P4D, SimulatePrincipalPolicy=simulator(documents))[0], "permissions")
    assert row.state is RowState.ERROR
    assert row.found.endswith(f"denied: {action}")
    assert row.found.startswith("1 of ")
    assert row.fix.startswith("run `gpuinfra permissions STACK`")
    assert ROLE in row.fix


def test_policies_of_another_region_do_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies that are restricted to another Region are reported, so that the simulation passes the Region of the plan."""
    documents = json.loads(
        json.dumps([dict(one) for one in permissions(P4D).documents]).replace("us-east-1", "eu-west-1")
    )
    row = of(ask(monkeypatch, P4D, SimulatePrincipalPolicy=simulator(documents))[0], "permissions")
    assert row.state is RowState.ERROR
    assert " more" in row.found


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"OrganizationsDecisionDetail": {"AllowedByOrganizations": False}}, "(service control policy)"),
        ({"PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": False}}, "(permissions boundary)"),
    ],
)
def test_reason_of_a_denial_is_named(monkeypatch: pytest.MonkeyPatch, detail: dict[str, Any], said: str) -> None:
    """A denial by the organization or by a permissions boundary is named, because policies of the role cannot fix it."""
    row = of(ask(monkeypatch, P4D, SimulatePrincipalPolicy=simulator([], **detail))[0], "permissions")
    assert said in row.found


def test_explicit_deny_on_one_resource_is_a_denial() -> None:
    """An action that is allowed on one resource of a statement is allowed, except if another resource is denied explicitly."""
    allowed = {"EvalResourceName": "a", "EvalResourceDecision": "allowed"}
    for other, reason in (("implicitDeny", None), ("explicitDeny", " (explicit deny)")):
        single = [allowed, {"EvalResourceName": "b", "EvalResourceDecision": other}]
        assert denial({"EvalDecision": other, "ResourceSpecificResults": single}) == reason
    assert denial({"EvalDecision": "implicitDeny"}) == ""


def test_denied_simulation_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission to simulate, one row names it. The text is the recorded one."""
    text = (
        "User: arn:aws:sts::123456789012:assumed-role/deployer/ana is not authorized to perform: "
        f"iam:SimulatePrincipalPolicy on resource: {ROLE} because no identity-based policy allows the iam:SimulatePrincipalPolicy action"
    )
    rows, _ = ask(monkeypatch, P4D, SimulatePrincipalPolicy=refuse("AccessDenied", text, 403))
    (row,) = [one for one in rows if one.topic == "permissions"]
    assert (row.state, row.needed) == (RowState.WARN, "the permission iam:SimulatePrincipalPolicy")


def test_root_user_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """IAM does not simulate the root user, so that its permissions are skipped."""
    root = {"UserId": "123456789012", "Account": "123456789012", "Arn": "arn:aws:iam::123456789012:root"}
    row = of(ask(monkeypatch, P4D, GetCallerIdentity=lambda asked: root)[0], "permissions")
    assert (row.state, row.where) == (RowState.SKIPPED, "root user")


@pytest.mark.parametrize(
    ("answer", "state", "found", "fix"),
    [
        (offerings("use1-az6"), RowState.ERROR, "not offered in use1-az4", "set `zone` in the stack file to use1-az6"),
        (
            offerings(),
            RowState.ERROR,
            "not offered to this account in us-east-1",
            "`gpuinfra catalog p4d.24xlarge` lists regions",
        ),
    ],
)
def test_machine_that_is_not_offered(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, state: RowState, found: str, fix: str
) -> None:
    """A machine type that the zone or the Region does not offer is a problem with the zones that do."""
    row = of(ask(monkeypatch, P4D, DescribeInstanceTypeOfferings=answer)[0], "machine")
    assert (row.state, row.found) == (state, found)
    assert row.fix.startswith(fix)


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (zones(OptInStatus="not-opted-in"), RowState.ERROR, "--opt-in-status opted-in"),
        (zones(State="impaired"), RowState.WARN, "the zone is impaired"),
        (lambda asked: {"AvailabilityZones": []}, RowState.ERROR, "has no zone use1-az4"),
    ],
)
def test_zone_that_is_not_usable(monkeypatch: pytest.MonkeyPatch, answer: Answer, state: RowState, said: str) -> None:
    """A zone that does not exist, is not enabled or has a problem is reported."""
    row = of(ask(monkeypatch, P4D, DescribeAvailabilityZones=answer)[0], "machine")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"InstanceType": "p5.48xlarge"}, RowState.ERROR, "is for p5.48xlarge"),
        ({"AvailabilityZoneId": "use1-az6", "AvailabilityZone": "us-east-1c"}, RowState.ERROR, "is in use1-az6"),
        ({"State": "expired"}, RowState.ERROR, "is expired"),
        ({"State": "cancelled"}, RowState.ERROR, "is cancelled"),
        ({"State": "pending"}, RowState.ERROR, "is pending"),
        ({"State": "scheduled", "StartDate": datetime(2027, 1, 2, 3, 4, tzinfo=UTC)}, RowState.ERROR, "starts at 2027-01-02 03:04 UTC"),
        ({"ReservationType": "capacity-block"}, RowState.ERROR, "set `kind` to block"),
        ({"TotalInstanceCount": 1, "AvailableInstanceCount": 1}, RowState.ERROR, ("modify-capacity-reservation --capacity-reservation-id "
            "cr-0123456789abcdef0 --instance-count 2")),
        ({"AvailableInstanceCount": 0}, RowState.WARN, "0 of 2 free"),
        ({"EndDate": NOW + timedelta(days=2), "EndDateType": "limited"}, RowState.WARN, "--end-date-type unlimited"),
        ({"PlacementGroupArn": "arn:aws:ec2:us-east-1:123456789012:placement-group/gpus"}, RowState.ERROR, "set `placement_group` to gpus"),
        ({"InstanceMatchCriteria": "open"}, RowState.OK, "active, open"),
    ],
)  # fmt: skip
def test_reservation_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: RowState, said: str
) -> None:
    """Type, zone, state, kind, size, free instances, end and placement group of a reservation are compared with its nodes."""
    row = of(ask(monkeypatch, P4D, DescribeCapacityReservations=reservations(**changes))[0], "reservation")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({}, RowState.OK, "scheduled"),
        ({"AvailableInstanceCount": 0}, RowState.OK, "0 of 4 free"),
        ({"ReservationType": "default"}, RowState.ERROR, "set `kind` to reserved"),
        ({"StartDate": STARTS + timedelta(hours=1)}, RowState.ERROR, "set `starts_at`"),
        ({"EndDate": ENDS - timedelta(hours=1)}, RowState.ERROR, "set `ends_at`"),
        ({"State": "payment-failed"}, RowState.ERROR, "is payment-failed"),
        ({"TotalInstanceCount": 2}, RowState.ERROR, "reduce `count`"),
    ],
)
def test_capacity_block_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: RowState, said: str
) -> None:
    """The window, type and state of a Capacity Block are compared with the declaration. A block that starts later has no free instances yet."""
    rows, _ = ask(monkeypatch, BLOCK, DescribeCapacityReservations=reservations(**{**IN_BLOCK, **changes}))
    row = of(rows, "reservation")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


def test_reservation_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation that EC2 does not know is a problem with the command that lists reservations."""
    answer = refuse(
        "InvalidCapacityReservationId.NotFound", "The capacity reservation cr-0123456789abcdef0 does not exist."
    )
    row = of(ask(monkeypatch, P4D, DescribeCapacityReservations=answer)[0], "reservation")
    assert row.state is RowState.ERROR
    assert row.fix.startswith("`aws ec2 describe-capacity-reservations --region us-east-1` lists the reservations")


def _grouped() -> Plan:
    pool = P4D.pools[0]
    arn = "arn:aws:resource-groups:us-east-1:123456789012:group/gpus"
    group = replace(pool.groups[0], reservation_id=None, reservation_group_arn=arn)
    return replace(P4D, pools=(replace(pool, groups=(group,)),))


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        ([RESERVATION, {**RESERVATION, "State": "expired"}], RowState.OK, "2 of 2 free"),
        ([{**RESERVATION, "InstanceType": "p5.48xlarge"}] * 2, RowState.ERROR, "none of the 2 reservations fits"),
        ([], RowState.ERROR, "no such reservation"),
    ],
)
def test_group_of_reservations(
    monkeypatch: pytest.MonkeyPatch, found: list[dict[str, Any]], state: RowState, said: str
) -> None:
    """The reservations of a resource group that fit are counted together."""
    members = [
        {
            "Identifier": {
                "ResourceArn": f"arn:aws:ec2:us-east-1:123456789012:capacity-reservation/cr-{n}",
                "ResourceType": "AWS::EC2::CapacityReservation",
            }
        }
        for n in range(len(found))
    ]
    rows, _ = ask(
        monkeypatch,
        _grouped(),
        **{
            "resource-groups__ListGroupResources": lambda asked: {"Resources": members},
            "DescribeCapacityReservations": lambda asked: {"CapacityReservations": found},
        },
    )
    row = of(rows, "reservation")
    assert row.state is state
    assert said in row.found


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"DescribeImages": lambda asked: {"Images": []}}, RowState.ERROR, "not found in us-east-1"),
        ({"DescribeImages": refuse("InvalidAMIID.NotFound", "The image id '[ami-06517bc7fad3c6a48]' does not exist")}, RowState.ERROR, "not found"),
        ({"GetParameter": refuse("ParameterNotFound", "")}, RowState.ERROR, "not found"),
        ({"DescribeImages": images(State="deregistered")}, RowState.ERROR, "is deregistered"),
        ({"DescribeImages": images(Architecture="arm64")}, RowState.ERROR, "is for arm64"),
        ({"DescribeImages": images(DeprecationTime="2026-01-01T00:00:00.000Z")}, RowState.WARN, "deprecated since 2026-01-01"),
        ({"DescribeImages": images(BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 9999}}])}, RowState.ERROR, "root volume of 9999 GiB"),
        ({"GetParameter": refuse("ThrottlingException", "Rate exceeded")}, RowState.WARN, "is throttled"),
    ],
)  # fmt: skip
def test_image_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Answer], state: RowState, said: str
) -> None:
    """An image that is missing, not available, for another architecture, too large or deprecated is reported."""
    row = of(ask(monkeypatch, P4D, **changes)[0], "image")
    assert row.state is state
    assert said in row.found


OPERATIONS = sorted(name.partition(":")[2] for name in healthy() if not name.startswith("sts"))
ERRORS: list[tuple[str, str, int]] = [
    ("RequestLimitExceeded", "Request limit exceeded.", 503),
    ("UnauthorizedOperation", "You are not authorized to perform this operation.", 403),
    ("InternalError", "An internal error has occurred", 500),
    ("UnknownErrorOfTheFuture", "text", 400),
    ("ExpiredTokenException", "The security token included in the request is expired", 400),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error[0])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_failed_request_is_a_row(
    monkeypatch: pytest.MonkeyPatch, operation: str, error: tuple[str, str, int]
) -> None:
    """Each request that is throttled, denied or fails is a row with the error code and a fix, and the other topics have rows."""
    rows, _ = ask(monkeypatch, P4D, **{operation: refuse(*error)})
    said = [row for row in rows if error[0] in row.found]
    assert said
    assert all(row.fix for row in said if row.state is not RowState.OK)
    assert {row.topic for row in rows} == set(preflight.TOPICS)


def test_plan_live_shows_the_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan --live` shows the rows of the state backend and of the cloud, and a problem ends with exit code 1."""
    monkeypatch.setattr(
        "gpuinfra.doctor.state.backend", lambda *_, **__: iter([ok("state", "backend", "file:///state")])
    )
    account.use(monkeypatch, healthy() | {"servicequotas:GetServiceQuota": quota(0)})
    assert main(["plan", "aws-p4d", "--live", "--json"]) == 1
    live = json.loads(capsys.readouterr().out)["live"]
    assert live["ok"] is False
    account.use(monkeypatch, healthy())
    assert main(["plan", "aws-p4d", "--live"]) == 0
    out = capsys.readouterr().out
    assert (
        "\nlive\nok       state        backend: file:///state\nok       identity     AWS: account 123456789012, role deployer"
        in out
    )
    assert main(["plan", "aws-p4d", "--json"]) == 0
    assert "live" not in json.loads(capsys.readouterr().out)


def test_without_credentials_the_topics_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without credentials, `plan --live` states what it does not check, and ends with exit code 1."""
    monkeypatch.setattr(
        "gpuinfra.doctor.state.backend", lambda *_, **__: iter([ok("state", "backend", "file:///state")])
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert main(["plan", "aws-p4d", "--live"]) == 1
    assert (
        "skipped  account   permissions, quota, machine, reservation, image, names: not checked"
        in capsys.readouterr().out
    )


PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")


def test_read_permissions_are_documented() -> None:
    """The page lists the permission of each request."""
    wanted: Callable[[str], bool] = lambda action: f"`{action}`" in PAGE  # noqa: E731
    assert [action for actions in preflight.READS.values() for action in actions if not wanted(action)] == []


def test_all_pages_of_a_simulation_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denial on the second page of a simulation is reported."""

    def paged(asked: dict[str, Any]) -> dict[str, Any]:
        if "Marker" not in asked:
            return {"EvaluationResults": [], "IsTruncated": True, "Marker": "next"}
        assert asked["Marker"] == "next"
        results = [{"EvalActionName": action, "EvalDecision": "implicitDeny"} for action in asked["ActionNames"]]
        return {"EvaluationResults": results, "IsTruncated": False}

    assert of(ask(monkeypatch, P4D, SimulatePrincipalPolicy=paged)[0], "permissions").state is RowState.ERROR


def test_simulated_resources_are_in_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each simulated ARN names the account of the caller and has no wildcard, so that policies for one account match."""
    _, used = ask(monkeypatch, P4D, SimulatePrincipalPolicy=allow_all)
    arns = {arn for name, asked in used.requests if name.startswith("iam:Sim") for arn in asked["ResourceArns"]}
    assert {arn.split(":")[4] for arn in arns - {"*"}} == {"123456789012", ""}
    assert not [arn for arn in arns - {"*"} if "*" in arn or "?" in arn]


@pytest.mark.parametrize("changes", [{"TotalInstanceCount": 1}, {"AvailableInstanceCount": 0}])
def test_reservation_with_overflow_can_be_full(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """With `overflow`, nodes that do not fit in the reservation start on demand."""
    pool = P4D.pools[0]
    group = replace(pool.groups[0], reservation_preference="capacity-reservations-first")
    plan = replace(P4D, pools=(replace(pool, groups=(group,)),))
    row = of(ask(monkeypatch, plan, DescribeCapacityReservations=reservations(**changes))[0], "reservation")
    assert row.state is RowState.OK
