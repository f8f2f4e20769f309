"""The import file of `gpuinfra adopt`, apart from the clouds' read calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.adopt import command
from gpuinfra.clouds.adopt import Retained, import_file, urns_in

COMPONENT = ("x:y:Home", "same")
FOUND = [
    Retained(type="aws:s3/bucket:Bucket", name="same", id="b-1", parents=[COMPONENT]),
    Retained(type="aws:ec2/vpc:Vpc", name="other", id="vpc-1", parents=[COMPONENT]),
]


def test_components_come_before_their_resources() -> None:
    """Each component is one row without an id, before its resources; rows of one name and different types are distinct."""
    rows = import_file(FOUND)["resources"]
    assert [row["logicalName"] for row in rows] == ["same", "same", "other"]
    assert len({row["name"] for row in rows}) == 3
    assert [row.get("parent") for row in rows] == [None, rows[0]["name"], rows[0]["name"]]
    assert rows[0]["component"] is True
    assert [row.get("id") for row in rows] == [None, "b-1", "vpc-1"]


def test_resources_in_the_state_are_left_out() -> None:
    """A component in the state is referred to by its URN, and a resource in the state is not imported again."""
    urns = ["urn:pulumi:s::p::x:y:Home::same", "urn:pulumi:s::p::x:y:Home$aws:s3/bucket:Bucket::same"]
    export = {
        "deployment": {"resources": [{"urn": urn, "type": urn.split("::")[2].rpartition("$")[2]} for urn in urns]}
    }
    document = import_file(FOUND, urns_in(export))
    (row,) = document["resources"]
    assert row["logicalName"] == "other"
    assert document["nameTable"] == {row["parent"]: urns[0]}


def test_a_state_that_is_no_export_is_a_usage_error(tmp_path: Path) -> None:
    """The message names the file and the command that writes it."""
    path = tmp_path / "state.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match="pulumi stack export"):
        CliRunner().invoke(command, ["aws-p4d", "--state", str(path)], catch_exceptions=False, standalone_mode=False)
