"""Permissions of cloud services: each one with its use, and no others.

A rehearsal does not simulate delivery of flow logs, trails and records, so the expected permissions are from the documentation of the clouds
(retrieved 2026-11-21) and compared with every shipped stack.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpuinfra_rehearsal.cloud.aws.policy import decide
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from tests.clouds.recorder import ACCOUNT, Registered
from tests.clouds.stacks import recording_of, shipped_stacks

ROLE, OWN = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"

AWS = {
    "vpc-flow-logs.amazonaws.com": {"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogGroups", "logs:DescribeLogStreams"},
    "cloudtrail.amazonaws.com": {"logs:CreateLogStream", "logs:PutLogEvents"},
    "s3.amazonaws.com batchoperations.s3.amazonaws.com": {
        "s3:GetReplicationConfiguration", "s3:ListBucket", "s3:PutInventoryConfiguration", "s3:GetObjectVersionAcl", "s3:GetObjectVersionForReplication",
        "s3:GetObjectVersionTagging", "s3:InitiateReplication", "s3:ReplicateDelete", "s3:ReplicateObject", "s3:ReplicateTags", "kms:Decrypt",
            "kms:Encrypt", "kms:GenerateDataKey",
    },
}  # fmt: skip
"""Service -> what it does in its role. VPC guide, "IAM role for publishing flow logs"; CloudTrail guide, "Role policy document for CloudTrail"; S3 guide,
"Setting up permissions for live replication", "Replicating encrypted objects" and "Configuring an IAM role for S3 Batch Replication", retrieved 2026-11-22."""

AZURE = {
    "e147488a-f6f5-4113-8e2d-b22465e65bf6": ("Key Vault Crypto Service Encryption User", r"/vaults/[^/]+/keys/[^/]+$"),
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": ("Storage Blob Data Contributor, for services", r"/storageAccounts/[^/]+$"),
    "17d1049b-9a84-46fb-8f53-869881c3d3ab": ("Storage Account Contributor, which Managed Lustre needs to import", r"/storageAccounts/[^/]+$"),
    "4633458b-17de-408a-b874-0445c86b69e6": ("Key Vault Secrets User, for the control node", r"/vaults/[^/]+/secrets/[^/]+$"),
}  # fmt: skip
"""Role -> its name, and the only form of scope that is allowed for it."""

GOOGLE = {
    ("CryptoKeyIAMMember", "roles/cloudkms.cryptoKeyEncrypterDecrypter"): r"(compute-system|gs-project-accounts|gcp-sa-[a-z-]+|cloud-filer)",
    ("BucketIAMMember", "roles/storage.objectCreator"): r"gcp-sa-logging",
    ("BucketIAMMember", "roles/storage.objectUser"): r"gcp-sa-lustre",
    ("BucketIAMMember", "roles/storage.legacyBucketReader"): r"gcp-sa-lustre",
}  # fmt: skip
"""(kind of grant, role) -> the service agent of the grant: services that encrypt with a key, the sink of records, Managed Lustre on its bucket."""


AGENT = r"\.iam\.gserviceaccount\.com$"
"""The end of the address of each service agent."""


def _service_of(role: Registered) -> str:
    (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    service = statement["Principal"]["Service"]
    return service if isinstance(service, str) else " ".join(service)


def _policies(stack: str) -> dict[str, list[str]]:
    """Service -> the documents of its roles' own policies."""
    found: dict[str, list[str]] = {}
    for role in recording_of(stack).of(ROLE):
        documents = [one.inputs["policy"] for one in recording_of(stack).of(OWN) if one.inputs["role"] == role.id]
        found.setdefault(_service_of(role), []).extend(documents)
    return found


def _actions(document: str) -> set[str]:
    statements = json.loads(document)["Statement"]
    return {
        action
        for one in statements
        for action in (one["Action"] if isinstance(one["Action"], list) else [one["Action"]])
    }


@pytest.mark.parametrize("stack", shipped_stacks("aws"))
def test_service_roles_on_aws_have_the_documented_permissions(stack: str) -> None:
    """Every role belongs to nodes or to a listed service, and has the documented actions on log groups of the stack only."""
    for service, documents in _policies(stack).items():
        if service == "ec2.amazonaws.com":
            continue
        for document in documents:
            assert _actions(document) == AWS[service], service
            other = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/somebody-else:log-stream:a"
            for action in (
                "logs:PutLogEvents",
                "logs:CreateLogStream",
                "logs:DeleteLogGroup",
                "s3:GetObject",
                "iam:PassRole",
            ):
                assert not decide(AccessRequest("service", action, other), [document])[0], action


def test_a_service_writes_to_its_log_group() -> None:
    """The policies allow writing to exactly one log group."""
    groups = {one.inputs["name"] for one in recording_of("aws-p4d").of("aws:cloudwatch/logGroup:LogGroup")}
    for service, actions in AWS.items():
        if "logs:PutLogEvents" not in actions:
            continue
        (document,) = _policies("aws-p4d")[service]
        own = [
            g
            for g in groups
            if decide(
                AccessRequest(
                    "service", "logs:PutLogEvents", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{g}:log-stream:a"
                ),
                [document],
            )[0]
        ]
        assert len(own) == 1, service


@pytest.mark.parametrize("stack", shipped_stacks("azure"))
def test_role_assignments_on_azure_are_known_and_narrow(stack: str) -> None:
    """Every role assignment is a known role at one key, account or container, with a description; roles for evidence have a condition."""
    recording = recording_of(stack)
    grants = recording.of("azure-native:authorization:RoleAssignment")
    custom = {one.inputs["roleDefinitionId"] for one in recording.of("azure-native:authorization:RoleDefinition")}
    for one in grants:
        guid = one.inputs["roleDefinitionId"].rsplit("/", 1)[-1]
        if one.name.endswith(("-control-discovery", "-control-repair", "-control-attach")):
            # They list, redeploy and change machines, so their scope is the resource group. tests/clouds/azure/test_roles.py has their actions.
            assert re.fullmatch(r"/subscriptions/[^/]+/resourceGroups/[^/]+", one.inputs["scope"]), one.name
            continue
        if one.name.endswith("-control-disk"):
            assert re.search(r"/Microsoft\.Compute/disks/[^/]+$", one.inputs["scope"]), one.name
            continue
        if one.name.endswith("-scratch-0-export"):
            # tests/clouds/test_scheduled_exports.py has its action.
            assert re.search(r"/amlFilesystems/[^/]+$", one.inputs["scope"]), one.name
            continue
        scope = r"/containers/(evidence|active-region)$" if guid in custom else AZURE[guid][1]
        assert re.search(scope, one.inputs["scope"]), one.name
        assert one.inputs["description"]
        if one.inputs["scope"].endswith("/containers/evidence"):
            assert one.inputs["condition"], one.name
    assert grants


@pytest.mark.parametrize("stack", shipped_stacks("gcp"))
def test_grants_on_google_cloud_are_known_and_narrow(stack: str) -> None:
    """A grant without a condition is for one service agent on one key or bucket. A project has only the grants that Google requires there: those of the
    replication, roles of the stack that contain Pub/Sub permissions only, for a service agent, and the one of the control node, which lists instances."""
    recording = recording_of(stack)
    roles = {one.id: one.inputs["permissions"] for one in recording.of("gcp:projects/iAMCustomRole:IAMCustomRole")}
    for one in recording.custom:
        if "IAM" not in one.type.rsplit(":", 1)[-1] and "IamMember" not in one.type:
            continue
        kind = one.type.rsplit(":", 1)[-1]
        if one.name.startswith(("watched-control-", "train-scratch-0-export-")):
            # tests/clouds/gcp/test_node_role.py and tests/clouds/test_scheduled_exports.py have all grants of these accounts.
            continue
        if one.type in ("gcp:projects/iAMCustomRole:IAMCustomRole", "gcp:projects/iAMMember:IAMMember"):
            assert stack == "gcp-recovery", one.name
            if kind == "IAMMember":
                assert all(permission.startswith("pubsub.") for permission in roles[one.inputs["role"]]), one.name
                assert re.search(rf"@(storage-transfer-service|gs-project-accounts){AGENT}", one.inputs["member"]), (
                    one.name
                )
            continue
        assert kind in ("CryptoKeyIAMMember", "BucketIAMMember", "RepositoryIamMember", "IAMAuditConfig"), one.name
        if one.inputs.get("role") in roles:
            assert kind == "BucketIAMMember", one.name
            assert all(permission.startswith("storage.") for permission in roles[one.inputs["role"]]), one.name
            assert re.search(rf"@storage-transfer-service{AGENT}", one.inputs["member"]), one.name
            continue
        if kind in ("IAMAuditConfig", "RepositoryIamMember") or one.inputs.get("condition"):
            continue
        agent = GOOGLE[kind, one.inputs["role"]]
        assert re.search(rf"@{agent}{AGENT}", one.inputs["member"]), one.inputs["member"]


BROAD: list[tuple[str, dict[str, Any]]] = [
    ("logs:*", {"Sid": "All", "Effect": "Allow", "Action": "logs:*", "Resource": "*"}),
    ("logs:PutLogEvents", {"Sid": "Wide", "Effect": "Allow", "Action": "logs:PutLogEvents", "Resource": "*"}),
]


@pytest.mark.parametrize(("action", "statement"), BROAD, ids=[one[0] for one in BROAD])
def test_a_broad_policy_is_found(action: str, statement: dict[str, Any]) -> None:
    """An unrestricted policy allows another log group."""
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    assert decide(AccessRequest("service", "logs:PutLogEvents", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/other:log-stream:a"), [document])[0]  # fmt: skip
    assert _actions(document) == {action}
