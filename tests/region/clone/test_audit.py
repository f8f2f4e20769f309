"""The audit records of the second region, which has no replica of the audit bucket (docs/internals/decisions/second-region.md)."""

from __future__ import annotations

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.region.clone.model import Mode
from gpuinfra.spec import parse_spec
from tests.region.clone.stacks import TODAY, cloned, file_of

TRAIL = {
    "aws-recovery": ("us-west-2", "aws:cloudtrail/trail:Trail"),
    "azure-recovery": ("eastus2", "azure-native:monitor:SubscriptionDiagnosticSetting"),
    "gcp-recovery": ("us-east4", "gcp:logging/projectSink:ProjectSink"),
}
"""Stack -> its second region, and the resource that exports the records of the entire account, subscription or project."""


@pytest.mark.parametrize("mode", ["pilot-light", "hot"])
@pytest.mark.parametrize("stack", TRAIL)
def test_audit_records_are_also_stored_in_the_second_region_before_a_failover(stack: str, mode: Mode) -> None:
    """A stack of the second region that is deployed before a failover has its own audit trail."""
    region, type_ = TRAIL[stack]
    result = cloned(file_of(stack), region, mode=mode)
    assert result.ok
    plan = build_plan(parse_spec(result.files[0].declaration), TODAY)
    assert plan.audit.trail
    assert plan.resources.get(type_)
