"""The objects whose reads and writes the audit trail records."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec, spec_of

TRAIL, BUCKET = "aws:cloudtrail/trail:Trail", "aws:s3/bucket:Bucket"


def _recording(stack: str = "aws-p4d", **audit: Any) -> Recording:
    whole = spec_of(stack).model_dump(mode="json", exclude_unset=True)
    return recording_of_spec(parse_spec({**whole, "audit": audit}))


def _objects(recording: Recording) -> list[dict[str, Any]]:
    """The conditions on object ARNs of the selectors of data events."""
    selectors = [
        {field["field"]: field for field in selector["fieldSelectors"]}
        for selector in recording.one(TRAIL).inputs["advancedEventSelectors"]
    ]
    data = [fields for fields in selectors if fields["eventCategory"]["equals"] == ["Data"]]
    assert all(fields["resources.type"]["equals"] == ["AWS::S3::Object"] for fields in data)
    return [{key: value for key, value in fields["resources.ARN"].items() if key != "field"} for fields in data]


@pytest.mark.parametrize("stack", ["aws-p4d", "aws-foundation"])
def test_data_events_are_of_the_buckets_of_the_stack(stack: str) -> None:
    """CloudTrail bills each data event, so by default the trail records objects of the stack's buckets, and of no other bucket of the account."""
    recording = _recording(stack)
    own = {
        f"arn:aws:s3:::{one.inputs['bucket']}/"
        for one in recording.of(BUCKET)
        if not any(part in one.name for part in ("-records-", "-access-"))
    }
    assert len(own) >= 1
    (condition,) = _objects(recording)
    assert set(condition) == {"startsWiths"}
    assert set(condition["startsWiths"]) == own


def test_all_buckets_can_be_recorded() -> None:
    """With `all_buckets`, the trail records objects of all buckets except those to which it causes deliveries."""
    (condition,) = _objects(_recording(all_buckets=True))
    assert set(condition) == {"notStartsWiths"}
    assert len(condition["notStartsWiths"]) == 2


def test_without_data_events_no_object_is_recorded() -> None:
    """Without `data_events`, the trail records management events only."""
    assert _objects(_recording(data_events=False)) == []
