"""The policies of `gpuinfra permissions` on AWS, under an evaluator that is not part of this project (npkt): stacks live, and retained data stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.aws.resources import resources
from gpuinfra.clouds.permissions import Permissions
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec import ClusterSpec, parse_spec, read_stack
from gpuinfra.spec.policy import LayersUsed
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of_spec, shipped_aws_stacks, spec_of
from tests.permissions.evaluator import Evaluator
from tests.permissions.lives import requests_of
from tests.permissions.needed import permissions_of

PEERS = [
    path
    for path in sorted((Path(__file__).parents[1] / "peers" / "specs").glob("*.yaml"))
    if read_stack(path).spec.cloud == "aws"
]
OWN_KEY = "gpuinfra:cluster"


def _denied(recording: Recording | str, permissions: Permissions) -> set[str]:
    evaluator = Evaluator(permissions.documents)
    found = set()
    for request in requests_of(recording):
        allowed, reason = evaluator.decide(request)
        if not allowed:
            found.add(f"{request.action} on {request.resource}: {reason}")
    return found


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_a_shipped_stack_lives_under_its_policies(stack: str) -> None:
    """Each layer is created, read, changed and destroyed."""
    assert _denied(stack, permissions_of(plan_of(stack))) == set()


@pytest.mark.parametrize("path", PEERS, ids=[path.stem for path in PEERS])
def test_a_peer_lives_under_its_policies(path: Path) -> None:
    """The cluster of a public project is created, read, changed and destroyed."""
    spec = read_stack(path).spec
    if "foundation" not in spec.made_layers and not spec.use.foundation:
        spec = spec.model_copy(update={"use": LayersUsed(foundation="organization/gpuinfra/base")})
    assert _denied(recording_of_spec(spec, stack="prod"), permissions_of(build_plan(spec, TODAY))) == set()


def _mixed() -> ClusterSpec:
    """The shipped stack with a file system that `destroy` retains, because it is the only copy of its data, beside the one that it deletes."""
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    only_copy = {key: value for key, value in whole["storage"][0].items() if key != "bucket"}
    return parse_spec({**whole, "storage": [only_copy, {**whole["storage"][0], "mount": "/data"}]})


def _bucket(purpose: str, cluster: str = "train", region: str = "us-east-1") -> str:
    return f"arn:aws:s3:::{cluster}-{purpose}-{ACCOUNT}-{region}-06011db7"


def _ask(action: str, resource: str, **context: str | tuple[str, ...]) -> AccessRequest:
    return AccessRequest("operator", action, resource, {"aws:RequestedRegion": "us-east-1", **context})


OWN = {f"aws:ResourceTag/{OWN_KEY}": "train"}
FILE_SYSTEM = {**OWN, "aws:ResourceTag/Name": "train-scratch-0-lustre"}
ARN = f"arn:aws:{{}}:us-east-1:{ACCOUNT}:"
KEY, GROUP, LUSTRE = (
    ARN.format("kms") + "key/k",
    ARN.format("logs") + "log-group:",
    ARN.format("fsx") + "file-system/fs-0",
)

LOSSES: dict[str, AccessRequest] = {
    **{
        f"{action} in the {purpose} bucket": _ask(f"s3:{action}", f"{_bucket(purpose)}/{key}")
        for action in ("DeleteObject", "DeleteObjectVersion", "BypassGovernanceRetention", "PutObjectRetention", "PutObject")
        for purpose, key in (
            ("audit", "AWSLogs/1"),
            ("access", "x"),
            ("evidence", "evidence/train/AROA1:i-0/boot/000001.json"),
            ("evidence", "evidence/other/AROA1:i-0/boot/000001.json"),
            ("evidence", "bootstrap/other/gpu/0.tar.gz"),
            ("data-0", "checkpoint"),
        )
    },
    **{f"DeleteBucket of {one}": _ask("s3:DeleteBucket", _bucket(one)) for one in ("audit", "access", "evidence", "data-0")},
    "objects of another stack": _ask("s3:DeleteObjectVersion", f"{_bucket('evidence', 'other')}/evidence/other/x"),
    "lifecycle rule on a bucket of another stack": _ask("s3:PutLifecycleConfiguration", _bucket("audit", "other")),
    "policy of a bucket of another stack": _ask("s3:PutBucketPolicy", _bucket("audit", "other")),
    "versioning of a bucket of another stack": _ask("s3:PutBucketVersioning", _bucket("audit", "other")),
    "deletion of a key": _ask("kms:ScheduleKeyDeletion", KEY, **OWN),
    "a disabled key": _ask("kms:DisableKey", KEY, **OWN),
    "policy of a key that locks everybody out": _ask("kms:PutKeyPolicy", KEY, **OWN, **{"kms:BypassPolicyLockoutSafetyCheck": "true"}),
    "policy of a key of another stack": _ask("kms:PutKeyPolicy", KEY, **{f"aws:ResourceTag/{OWN_KEY}": "other", "kms:ResourceAliases": "alias/x"}),
    "records of the trail": _ask("logs:DeleteLogGroup", f"{GROUP}/gpuinfra/train-trail-06011db7"),
    "streams of the trail": _ask("logs:DeleteLogStream", f"{GROUP}/gpuinfra/train-trail-06011db7:log-stream:x"),
    "a retained file system": _ask("fsx:DeleteFileSystem", LUSTRE, **FILE_SYSTEM),
    "a new name of a retained file system": _ask("fsx:TagResource", LUSTRE, **FILE_SYSTEM, **{
        "aws:TagKeys": ("Name",), "aws:RequestTag/Name": "x", f"aws:RequestTag/{OWN_KEY}": "train"}),
    "no name of a retained file system": _ask("fsx:UntagResource", LUSTRE, **FILE_SYSTEM, **{"aws:TagKeys": ("Name",)}),
    "a file system of another stack": _ask("fsx:DeleteFileSystem", LUSTRE, **{f"aws:ResourceTag/{OWN_KEY}": "other"}),
    "a role of another stack": _ask("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/other-node-role-0a1b2c3"),
    "a role of another stack for new instances": _ask("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/other-node-role-0a1b2c3", **{
        "iam:PassedToService": "ec2.amazonaws.com"}),
}  # fmt: skip
"""The ways to lose retained data that AWS can deny to an operator. `docs/reference/retained-data.md` lists the others."""


def _documents() -> tuple[Mapping[str, Any], ...]:
    return permissions_of(build_plan(_mixed(), TODAY)).documents


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_of_retained_data_is_denied(loss: str) -> None:
    """The policies of a stack deny each way to lose what `destroy` retains and what other stacks have."""
    assert not Evaluator(_documents()).allows(LOSSES[loss])


_BUCKET_GRANT = {"Version": "2012-10-17", "Statement": [
    {"Sid": "Granted", "Effect": "Allow", "Action": "*", "Resource": "*"}]}  # fmt: skip


@pytest.mark.parametrize(
    "loss",
    [
        one
        for one, ask in LOSSES.items()
        if "other" not in f"{one}{ask.resource}" and one != "PutObject in the data-0 bucket"
    ],
)
def test_a_loss_stays_denied_after_a_grant(loss: str) -> None:
    """A policy of a bucket or of a key that grants everything does not allow the loss, because the policies of the operator deny it."""
    assert not Evaluator((*_documents(), _BUCKET_GRANT)).allows(LOSSES[loss])


@pytest.mark.parametrize(
    ("storage", "service", "name"),
    [
        ({"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200}, "fsx", "train-scratch-0-lustre"),
        ({"kind": "home", "service": "openzfs"}, "fsx", "train-home-0-openzfs"),
        ({"kind": "home"}, "elasticfilesystem", "train-home-0-efs"),
    ],
    ids=["lustre", "openzfs", "efs"],
)
def test_each_kind_of_retained_file_system_is_kept(storage: dict[str, Any], service: str, name: str) -> None:
    """The deletion of a file system that is the only copy of its data is denied, also if another policy grants it."""
    whole = spec_of("aws-p4d").model_dump(mode="json", exclude_unset=True)
    plan = build_plan(parse_spec({**whole, "storage": [storage]}), TODAY)
    (made,) = [one for one in resources(plan) if one.retained and one.type.lower().endswith("filesystem")]
    place = ARN.format(service) + "file-system/fs-0"
    loss = _ask(f"{service}:DeleteFileSystem", place, **{**OWN, "aws:ResourceTag/Name": made.name})
    assert made.name == name
    assert not Evaluator((*permissions_of(plan).documents, _BUCKET_GRANT)).allows(loss)


def test_what_destroy_deletes_is_allowed() -> None:
    """The bundles of the cluster and the file system that `destroy` deletes are deleted."""
    evaluator = Evaluator(_documents())
    bundle = f"{_bucket('evidence')}/bootstrap/train/gpu/0.tar.gz"
    for action in ("s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"):
        assert evaluator.allows(_ask(action, bundle)), action
    removed = {**OWN, "aws:ResourceTag/Name": "train-data-0-lustre"}
    assert evaluator.allows(_ask("fsx:DeleteFileSystem", LUSTRE, **removed))


def test_a_cluster_on_another_foundation_keeps_the_evidence_of_others() -> None:
    """The operator of a stack with only a cluster deletes its bundles, but no evidence and no bundle of other clusters."""
    evaluator = Evaluator(permissions_of(plan_of("aws-cluster")).documents)
    bucket = _bucket("evidence", "base")
    assert evaluator.allows(_ask("s3:DeleteObjectVersion", f"{bucket}/bootstrap/train/gpu/0.tar.gz"))
    for key in (
        "evidence/train/x",
        "evidence/other/x",
        "bootstrap/other/gpu/0.tar.gz",
        "bootstrap/trainers/gpu/0.tar.gz",
    ):
        for action in ("s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject"):
            assert not evaluator.allows(_ask(action, f"{bucket}/{key}")), (action, key)


BREAKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "no prefix of the bundles": lambda statement: statement.update(Resource=json.loads(json.dumps(statement["Resource"]).replace("/bootstrap/train/*", "/*"))),
    "no denial": lambda statement: statement.update(Effect="Allow") if statement["Effect"] == "Deny" else None,
    "no cluster tag": lambda statement: statement.pop("Condition", None) if statement["Effect"] == "Allow" else None,
    "names of all stacks": lambda statement: statement.update(Resource=json.loads(json.dumps(statement["Resource"]).replace(":train-", ":*-"))),
}  # fmt: skip


@pytest.mark.parametrize("change", BREAKS)
def test_a_weaker_policy_is_found(change: str) -> None:
    """Without a prefix, a denial, a condition or a name, at least one loss is allowed."""
    documents = json.loads(json.dumps(_documents()))
    for document in documents:
        for statement in document["Statement"]:
            BREAKS[change](statement)
    evaluator = Evaluator(documents)
    assert [loss for loss, ask in LOSSES.items() if evaluator.allows(ask)]


def test_the_evaluator_knows_each_condition_operator() -> None:
    """The evaluator implements the operators of all policies, so that no condition is ignored."""
    from npkt.engine.condition_operators import OPERATORS

    used: set[str] = set()
    plans: list[Plan] = [plan_of(stack) for stack in shipped_aws_stacks()]
    for plan in plans:
        for document in permissions_of(plan).documents:
            used |= {operator for one in document["Statement"] for operator in one.get("Condition", {})}
    plain = {one.removeprefix("ForAllValues:").removeprefix("ForAnyValue:").removesuffix("IfExists") for one in used}
    assert plain <= set(OPERATORS)
