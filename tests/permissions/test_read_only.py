"""`gpuinfra permissions --read`: the permissions of an identity that previews and inspects a stack."""

from __future__ import annotations

import json
import re

import pytest

from tests.clouds.stacks import plan_of, shipped_stacks
from tests.permissions.needed import permissions_of
from tests.permissions.reference import access_levels

STACKS = [stack for cloud in ("aws", "azure", "gcp") for stack in shipped_stacks(cloud)]

DECRYPT = "kms:Decrypt"
"""AWS lists decryption as write access. It is required to read encrypted evidence, and the policy restricts it to requests of S3."""
CONSOLE = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action"
"""Returns links to the console output of a node, and changes nothing."""


FULL_VIEW = "cloudscheduler.jobs.fullView"
"""Returns the request of a job in addition to its schedule, and changes nothing
(https://docs.cloud.google.com/iam/docs/roles-permissions/cloudscheduler, retrieved 2026-11-29)."""


def _only_reads(cloud: str, action: str) -> bool:
    if cloud == "aws":
        return action == DECRYPT or access_levels()[action] in ("List", "Read")
    if cloud == "azure":
        return action == CONSOLE or action.endswith("/read")
    return action == FULL_VIEW or re.fullmatch(r"(get|list)[A-Za-z]*", action.rsplit(".", 1)[-1]) is not None


@pytest.mark.parametrize("stack", STACKS)
def test_no_permission_changes_anything(stack: str) -> None:
    """Each permission of `--read` has read or list access, and is one of the permissions of a deployment."""
    plan = plan_of(stack)
    found, whole = permissions_of(plan, read_only=True), permissions_of(plan)
    assert [need.action for need in found.needs if not _only_reads(plan.cloud, need.action)] == []
    names = {need.action for need in found.needs}
    assert names
    assert names < {need.action for need in whole.needs}
    printed = json.dumps(found.documents)
    assert all(f'"{name}"' in printed for name in names)


def test_reads_of_resources_are_complete() -> None:
    """The permissions of `--read` contain every permission that reads a resource of the plan."""
    for stack in STACKS:
        plan = plan_of(stack)
        needs = permissions_of(plan).needs
        reads = {need.action for need in needs if any(operation == "read" for _, operation in need.uses)}
        assert reads <= {need.action for need in permissions_of(plan, read_only=True).needs}
