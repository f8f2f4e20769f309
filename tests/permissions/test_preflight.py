"""`gpuinfra doctor` and `gpuinfra up` can ask all of their questions with exactly the printed permissions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuinfra.clouds.cloud import cloud_of
from tests.clouds.stacks import plan_of
from tests.permissions.needed import permissions_of
from tests.permissions.test_second_region import UNUSED
from tests.typed import present

STACKS = {"aws": "aws-p5-block", "azure": "azure-ndv5", "gcp": "gcp-a3ultra"}
WITHOUT_PERMISSION = {"sts:GetCallerIdentity"}
"""Each identity may send it (https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html)."""
CLOUDS = Path(__file__).parents[2] / "gpuinfra" / "clouds"


@pytest.mark.parametrize("read_only", [False, True], ids=["deploy", "read"])
@pytest.mark.parametrize("cloud", STACKS)
def test_the_printed_role_answers_each_question(cloud: str, read_only: bool) -> None:
    """The permissions of each topic, such as quota and machine, are in the printed role of a stack with nodes, also in the read-only role."""
    reads = present(cloud_of(cloud).preflight).READS
    plan = plan_of(STACKS[cloud])
    reserved = any(group.reservation_id or group.reservation_group_arn for pool in plan.pools for group in pool.groups)
    printed = {need.action for need in permissions_of(plan, read_only=read_only).needs}
    topics = [topic for topic in reads if topic != "reservation" or reserved]
    assert len(topics) >= 5
    assert {(topic, action) for topic in topics for action in reads[topic]} - {
        (topic, action) for topic in topics for action in printed | UNUSED | WITHOUT_PERMISSION
    } == set()


def test_each_permission_that_a_question_on_aws_names_is_printed() -> None:
    """The permission that the source code names beside a request is among the permissions of the topics."""
    reads = present(cloud_of("aws").preflight).READS
    source = "".join((CLOUDS / "aws" / f"{name}.py").read_text(encoding="utf-8") for name in ("preflight", "quotas"))
    named = set(re.findall(r"""\basked\(\s*"([\w-]+:\w+)\"""", source))
    assert len(named) > 10
    assert named - {action for actions in reads.values() for action in actions} == set()
