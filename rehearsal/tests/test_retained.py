"""The record of what `destroy` retains."""

from __future__ import annotations

from pathlib import Path

from gpuinfra.clouds.adopt import Retained
from gpuinfra_rehearsal.retained import record, recorded, retained_in

from .folders import folder_in

BUCKET = "aws:s3/bucket:Bucket"


def test_retained_resources_are_read_from_the_state_and_recorded(tmp_path: Path) -> None:
    """Resources with retainOnDelete are recorded with their components; an empty list removes the record."""
    stack = {"urn": "urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", "type": "pulumi:pulumi:Stack"}
    outer = {"urn": "urn:pulumi:s::p::x:y:Outer::outer", "type": "x:y:Outer", "parent": stack["urn"]}
    inner = {"urn": "urn:pulumi:s::p::x:y:Outer$x:y:Inner::inner", "type": "x:y:Inner", "parent": outer["urn"]}
    bucket = {
        "urn": f"urn:pulumi:s::p::x:y:Outer$x:y:Inner${BUCKET}::b", "type": BUCKET, "id": "b-1", "custom": True,
        "parent": inner["urn"], "retainOnDelete": True,
    }  # fmt: skip
    plain = {"urn": "urn:pulumi:s::p::aws:ec2/vpc:Vpc::v", "type": "aws:ec2/vpc:Vpc", "id": "vpc-1", "custom": True}
    found = retained_in({"resources": [stack, outer, inner, bucket, plain]})
    assert found == [
        Retained(type=BUCKET, name="b", id="b-1", parents=[("x:y:Outer", "outer"), ("x:y:Inner", "inner")])
    ]
    folder = folder_in(tmp_path)
    record(folder, found)
    assert recorded(folder) == found
    record(folder, [])
    assert recorded(folder) == []
