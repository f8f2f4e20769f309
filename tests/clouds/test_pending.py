"""What a killed run created is found by tags or names, and only with proof that it belongs to the stack."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from gpuinfra.base.naming import stack_token
from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.aws import pending as aws
from gpuinfra.clouds.aws.pending import PendingAccount
from gpuinfra.clouds.aws.resources import resources
from gpuinfra.clouds.azure.pending import PendingSubscription
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.pending import LISTED, PendingProject
from gpuinfra.clouds.pending import NotFoundByTag, StackIdentity
from gpuinfra.engine.pending import PendingCreate, pending_creates
from gpuinfra.search.interrupted import found_resources, identity_of
from gpuinfra_rehearsal.cloud.aws import operator as judge
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.gcp import calls
from tests.clouds.stacks import plan_of, recording_of, shipped_stacks
from tests.permissions.needed import permissions_of

TOKEN = "0a1b2c3d"
STACK = StackIdentity(tokens=frozenset({TOKEN}), ids=frozenset({"train-node-role-1", "vpc-1"}))


def creation(kind: str, /, **inputs: Any) -> PendingCreate:
    """A pending creation."""
    return PendingCreate(urn=f"urn:pulumi:s::p::{kind}::x", type=kind, inputs=inputs, state={})


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_type_has_a_lookup(cloud: str) -> None:
    """Every type that gpuinfra creates can be continued: by its inputs, by a lookup, or because a second creation changes nothing."""
    module = importlib.import_module(f"gpuinfra.clouds.{cloud}.pending")
    known = {
        *module.SHAPES,
        *getattr(module, "REPEATABLE", ()),
        *getattr(module, "LISTED", ()),
        *getattr(module, "LOOKUPS", ()),
    }
    types = {row.type for row in cloud_of(cloud).resource_kinds if not row.type.startswith("gpuinfra:")}
    assert (types - known, known - types) == (set(), set())


@pytest.mark.parametrize(
    ("inputs", "id", "owned"),
    [
        ({"name": f"train-trail-{TOKEN}"}, f"train-trail-{TOKEN}", True),
        ({"name": "train-1f2e3d4", "__defaults": ["name"]}, "train-1f2e3d4", True),
        ({"role": "train-node-role-1", "name": "policy"}, "train-node-role-1:policy", True),
        ({"name": "shared"}, "shared", False),
        ({"name": "train-trail-ffffffff"}, "train-trail-ffffffff", False),
    ],
    ids=["token", "generated", "parent", "plain", "other stack"],
)
def test_proof_of_an_id(inputs: dict[str, Any], id: str, owned: bool) -> None:
    """The token, a generated name, or a parent of the stack is proof. A name that another stack can have is none."""
    assert STACK.owns(creation("aws:iam/role:Role", **inputs), id) is owned


def project(answers: Mapping[str, Any], asked: list[str] | None = None) -> PendingProject:
    """Lookups in a project with these answers by the end of the URL."""

    def get(url: str) -> dict[str, Any] | None:
        if asked is not None:
            asked.append(url)
        return next((value for end, value in answers.items() if url.split("?")[0].endswith(end)), None)

    return PendingProject(get, STACK)


def test_a_service_account_is_found_by_its_name() -> None:
    """A type without labels is found by the name with the token, without a request: the engine reads it."""
    asked: list[str] = []
    account = creation("gcp:serviceaccount/account:Account", project="p", accountId=f"train-node-{TOKEN}")
    assert project({}, asked).ids(account) == (
        f"projects/p/serviceAccounts/train-node-{TOKEN}@p.iam.gserviceaccount.com",
    )
    assert asked == []


@pytest.mark.parametrize(
    ("label", "found"), [(TOKEN, True), (None, True), ("ffffffff", False)], ids=["own", "none", "other"]
)
def test_the_label_of_another_stack_is_a_finding(label: str | None, found: bool) -> None:
    """A bucket with the label of another stack is not imported. A creation that was cut before its labels is."""
    bucket = creation("gcp:storage/bucket:Bucket", name="train-evidence-0123")
    answers = {"/b/train-evidence-0123": {"labels": {"gpuinfra-stack": label} if label else {}}}
    if found:
        assert project(answers).ids(bucket) == ("train-evidence-0123",)
        return
    with pytest.raises(NotFoundByTag, match="gpuinfra-stack=ffffffff of another stack"):
        project(answers).ids(bucket)


def test_a_connection_has_an_escaped_network() -> None:
    """The ID of a service connection is the escaped network and the service."""
    connection = creation(
        "gcp:servicenetworking/connection:Connection",
        network="projects/p/global/networks/n",
        service="s.googleapis.com",
    )
    assert project({}).ids(connection) == ("projects%2Fp%2Fglobal%2Fnetworks%2Fn:s.googleapis.com",)


def test_a_listed_resource_needs_the_label() -> None:
    """Of two alert policies with one title, the one with the label of the stack is found, on any page."""
    pages: list[dict[str, Any]] = [
        {
            "alertPolicies": [
                {
                    "name": "projects/p/alertPolicies/1",
                    "displayName": "late",
                    "userLabels": {"gpuinfra-stack": "ffffffff"},
                }
            ],
            "nextPageToken": "2",
        },
        {
            "alertPolicies": [
                {"name": "projects/p/alertPolicies/2", "displayName": "late", "userLabels": {"gpuinfra-stack": TOKEN}}
            ]
        },
    ]
    lookup = PendingProject(lambda _: pages.pop(0), STACK)
    policy = creation("gcp:monitoring/alertPolicy:AlertPolicy", project="p", displayName="late")
    assert lookup.ids(policy) == ("projects/p/alertPolicies/2",)


def test_a_transfer_job_is_found_by_its_buckets() -> None:
    """The service generates the name of a replication job. Its two buckets identify it, and the provider imports it as PROJECT/JOB."""
    spec = {"gcsDataSource": {"bucketName": "a"}, "gcsDataSink": {"bucketName": "b"}}
    jobs = [
        {"name": "transferJobs/1", "replicationSpec": {**spec, "gcsDataSink": {"bucketName": "c"}}},
        {"name": "transferJobs/2", "replicationSpec": spec},
    ]
    job = creation("gcp:storage/transferJob:TransferJob", project="p", replicationSpec=spec)
    assert project({"transferJobs": {"transferJobs": jobs}}).ids(job) == ("p/2",)


@pytest.mark.parametrize("token", [TOKEN, "", "ffffffff"], ids=["own", "none", "other"])
def test_a_budget_on_google_cloud_is_proven_by_its_name(token: str) -> None:
    """Budgets have no labels. A budget whose name contains the token of the stack is found; another one with the same name is a finding."""
    name = f"train per month ({token})"
    budget = creation("gcp:billing/budget:Budget", billingAccount="B", displayName=name)
    lookup = project({"/budgets": {"budgets": [{"name": "billingAccounts/B/budgets/1", "displayName": name}]}})
    if token == TOKEN:
        assert lookup.ids(budget) == ("billingAccounts/B/budgets/1",)
        return
    with pytest.raises(NotFoundByTag, match="nothing in its name proves"):
        lookup.ids(budget)


ANSWERS: dict[str, Any] = {
    "ListWorkspaces": {"workspaces": []},
    "GetCallerIdentity": {"Account": "000000000000"},
    "DescribeTags": {"Tags": []},
    "DescribeRouteTables": {"RouteTables": []},
    "DescribeFileSystems": {"FileSystems": []},
    "DescribeMountTargets": {"MountTargets": []},
    "DescribeDataRepositoryAssociations": {"Associations": []},
    "ListKeys": {"Keys": [{"KeyId": "k"}]},
    "ListResourceTags": {
        "Tags": [{"TagKey": "Name", "TagValue": "x"}, {"TagKey": "gpuinfra:stack", "TagValue": TOKEN}]
    },
    "DescribeKey": {"KeyMetadata": {"KeyState": "Enabled"}},
}
SERVICES = {"amp": "aps", "efs": "elasticfilesystem"}
"""Service of botocore -> prefix of its actions in IAM, if they differ (service authorization reference)."""


def account(stack: StackIdentity, sent: list[str]) -> PendingAccount:
    """Lookups in an account that answers with `ANSWERS`, and the actions of their requests."""

    def answer(model: Any, **_: Any) -> tuple[Any, Any]:
        service = model.service_model.service_name
        sent.append(f"{SERVICES.get(service, service)}:{model.name}")
        return SimpleNamespace(status_code=200), ANSWERS[model.name]

    session = boto3.Session("id", "secret", region_name="us-east-1")
    session.events.register("before-call", answer)
    return PendingAccount(session, stack, "us-east-1")


@pytest.mark.parametrize(
    "stack", [f"{cloud}-{name}" for cloud in CLOUDS for name in ("existing-network", "recovery")] + ["aws-cluster"]
)
def test_each_creation_of_a_shipped_stack_is_proven(stack: str) -> None:
    """A kill during any creation of a shipped stack leads to no finding: its name, its parent or its tags prove that it belongs to the stack."""
    recording, plan = recording_of(stack), plan_of(stack)
    made = [one for one in recording.custom if not one.type.startswith("gpuinfra:")]
    token = stack_token("organization", "gpuinfra", stack, plan.name)
    identity = StackIdentity(tokens=frozenset({token}), ids=frozenset(one.id for one in made))
    findings: list[str] = []
    for one in made:
        generated = {
            key: f"{one.name}-0a1b2c3" for key in ("name", "bucket", "vmScaleSetName") if key not in one.inputs
        }
        create = PendingCreate(
            urn=one.urn, type=one.type, inputs={**generated, **one.inputs, "__defaults": [*generated]}, state={}
        )
        try:
            if one.type.startswith("azure-native:"):
                PendingSubscription(lambda: "S", identity).ids(create)
            elif one.type.startswith("gcp:"):
                PendingProject(lambda url: None, identity).ids(create)
            elif one.type not in aws.LOOKUPS:
                account(identity, []).ids(create)
        except NotFoundByTag as problem:
            findings.append(str(problem))
    assert findings == []


@pytest.mark.parametrize("kind", sorted(aws.LOOKUPS))
def test_the_requests_of_a_lookup_are_in_the_policies(kind: str) -> None:
    """Each request that the search on AWS makes for a type is among the permissions for a plan with this type, and no other."""
    sent: list[str] = []
    inputs = {
        "subnetId": "subnet-1",
        "routeTableId": "rtb-1",
        "fileSystemId": "fs-1",
        "creationToken": "t",
        "alias": "train",
    }
    lookup = account(STACK, sent)
    lookup.ids(creation(kind, tags={"Name": "x"}, destinationCidrBlock="0.0.0.0/0", **inputs))
    assert set(sent) == {action for actions in aws.requests([kind]).values() for action in actions}


@pytest.mark.parametrize("stack", shipped_stacks("aws"))
def test_the_printed_policies_allow_the_search(stack: str) -> None:
    """An operator with exactly the printed policies can find what a killed run created, in each Region of the plan."""
    plan = plan_of(stack)
    documents = permissions_of(plan).documents
    actions = {action for one in aws.requests({one.type for one in resources(plan)}).values() for action in one}
    assert actions
    for region in {plan.region, *([plan.recovery.region] if plan.recovery else [])}:
        for action in sorted(actions):
            key = f"arn:aws:kms:{region}:000000000000:key/1"
            place = key if action.startswith("kms:") and action != "kms:ListKeys" else "*"
            Operator(documents).check(judge, judge.http(action, place, region))


@pytest.mark.parametrize("stack", ["gcp-a3mega", "gcp-recovery"])
def test_the_printed_roles_allow_the_lists(stack: str) -> None:
    """Each list that the search on Google Cloud requests for a type of the plan has its permission in the printed roles."""
    plan = plan_of(stack)
    allowed = {need.action for need in permissions_of(plan).needs}
    asked: list[str] = []
    for one in recording_of(stack).custom:
        if one.type in LISTED:
            project({}, asked).ids(PendingCreate(urn=one.urn, type=one.type, inputs=one.inputs, state={}))
    assert asked
    permissions = {
        calls.permission(f"GET {urlsplit(url).netloc.partition('.')[0]}{urlsplit(url).path}") for url in asked
    }
    # The permissions of Storage Transfer Service have another name than its collection (page of the roles of the service).
    assert {one.replace("transferJobs", "jobs") for one in permissions} <= allowed


def test_a_path_on_azure_contains_the_resource_group() -> None:
    """The name of the resource group proves that a subnet belongs to the stack."""
    lookup = PendingSubscription(lambda: "S", STACK)
    inputs = {"virtualNetworkName": "n", "subnetName": "nodes"}
    assert lookup.ids(creation("azure-native:network:Subnet", resourceGroupName=f"train-site-{TOKEN}", **inputs)) == (
        f"/subscriptions/S/resourceGroups/train-site-{TOKEN}/providers/Microsoft.Network/virtualNetworks/n/subnets/nodes",
    )
    with pytest.raises(NotFoundByTag, match="nothing in this name proves"):
        lookup.ids(creation("azure-native:network:Subnet", resourceGroupName="shared", **inputs))


def state(*creates: dict[str, Any], resources: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A state with pending creations."""
    return {
        "resources": list(resources),
        "pending_operations": [{"type": "creating", "resource": {"custom": True, **one}} for one in creates],
    }


ACCOUNT = "gcp:serviceaccount/account:Account"


def pending_account(id: str) -> dict[str, Any]:
    """A pending service account."""
    return {
        "urn": f"urn:pulumi:s::p::{ACCOUNT}::train-node",
        "type": ACCOUNT,
        "inputs": {"project": "p", "accountId": id},
    }


def test_the_token_of_a_stack_needs_no_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first resources of a stack have no tags. Their names contain the token of the organization, project, stack and cluster."""
    token = stack_token("organization", "p", "s", "train")
    deployment = state(pending_account(f"train-node-{token}"))
    creates = pending_creates(deployment)
    assert identity_of(deployment, creates, ["train"]).tokens == {token}
    monkeypatch.setattr("gpuinfra.clouds.gcp.pending.lookup", lambda stack, _: PendingProject(lambda url: None, stack))
    found, findings = found_resources(deployment, creates, ["train"], {})
    assert ([one.id.rpartition("/")[2] for one in found], findings) == (
        [f"train-node-{token}@p.iam.gserviceaccount.com"],
        [],
    )


def test_an_unproven_resource_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without proof is one finding with both commands, and nothing is imported."""
    deployment = state(pending_account("shared"), pending_account("shared"))
    monkeypatch.setattr("gpuinfra.clouds.gcp.pending.lookup", lambda stack, _: PendingProject(lambda url: None, stack))
    found, findings = found_resources(deployment, pending_creates(deployment), ["train"], {})
    assert found == []
    assert len(findings) == 1
    assert "--import-pending-creates" in findings[0]
    assert "--clear-pending-creates" in findings[0]


def test_a_resource_in_the_state_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the resource was created again with the same ID, nothing remains to import."""
    token = stack_token("organization", "p", "s", "train")
    id = f"projects/p/serviceAccounts/train-node-{token}@p.iam.gserviceaccount.com"
    held = {**pending_account(f"train-node-{token}"), "id": id}
    deployment = state(pending_account(f"train-node-{token}"), resources=[held])
    monkeypatch.setattr("gpuinfra.clouds.gcp.pending.lookup", lambda stack, _: PendingProject(lambda url: None, stack))
    assert found_resources(deployment, pending_creates(deployment), ["train"], {}) == ([], [])


def test_several_matches_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two VPCs with the tags of one creation are not imported."""

    class Two:
        def ids(self, create: PendingCreate) -> Sequence[str]:
            return ("vpc-2", "vpc-3")

    monkeypatch.setattr("gpuinfra.clouds.aws.pending.lookup", lambda *_: Two())
    vpc = {"urn": "urn:pulumi:s::p::aws:ec2/vpc:Vpc::v", "type": "aws:ec2/vpc:Vpc", "inputs": {}}
    found, findings = found_resources(state(vpc), pending_creates(state(vpc)), ["train"], {})
    assert found == []
    assert "2 resources have its tags: vpc-2, vpc-3" in findings[0]


@pytest.mark.parametrize("kind", ["kubernetes:core/v1:Namespace", "aws:rds/cluster:Cluster"])
def test_an_unknown_type_is_a_finding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource of the user's own program is not dropped in silence."""
    from gpuinfra.clouds.pending import from_inputs

    class Table:
        def ids(self, create: PendingCreate) -> Sequence[str] | None:
            return from_inputs(create, STACK, {}, repeatable=())

    monkeypatch.setattr("gpuinfra.clouds.aws.pending.lookup", lambda *_: Table())
    deployment = state({"urn": f"urn:pulumi:s::p::{kind}::n", "type": kind, "inputs": {}})
    _, findings = found_resources(deployment, pending_creates(deployment), [], {})
    assert "cannot find resources of this type" in json.dumps(findings)


@pytest.mark.parametrize("kind", ["gpuinfra:index:NodesReady", "pulumi:providers:aws"])
def test_what_exists_only_in_the_state_is_created_again(kind: str) -> None:
    """Resources that create nothing in an account need no lookup."""
    deployment = state({"urn": f"urn:pulumi:s::p::{kind}::n", "type": kind, "inputs": {}})
    assert found_resources(deployment, pending_creates(deployment), [], {}) == ([], [])
