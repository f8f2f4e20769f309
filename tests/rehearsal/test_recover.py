"""Recovery after an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuinfra.errors import DeploymentError
from gpuinfra.rehearsal.recover import drop_truncated_attributes, import_flags, plan_recovery, restore_state

BUCKET, VPC = "aws:s3/bucket:Bucket", "aws:ec2/vpc:Vpc"


def urn(kind: str, name: str) -> str:
    """A URN as the engine writes it."""
    return f"urn:pulumi:s::p::{kind}::{name}"


def resource(kind: str, name: str, identity: str) -> dict[str, Any]:
    """A resource of a state."""
    return {"urn": urn(kind, name), "type": kind, "id": identity, "custom": True}


def held(kind: str, name: str, identity: str) -> dict[str, Any]:
    """A resource in the stand-in cloud."""
    return {"urn": urn(kind, name), "type": kind, "id": identity, "name": name}


def pending(kind: str, name: str) -> dict[str, Any]:
    """A pending create of a state."""
    return {"type": "creating", "resource": {"urn": urn(kind, name), "type": kind}}


def test_nothing_to_recover() -> None:
    """A state that has every resource of the cloud needs no recovery."""
    state = {"resources": [resource(VPC, "v", "vpc-1")]}
    plan = plan_recovery(state, [held(VPC, "v", "vpc-1")], [])
    assert (plan.pending, plan.delete, plan.operations) == ((), (), 0)


def test_resources_of_a_pending_create_are_imported() -> None:
    """A resource with a pending create goes to the engine with its id; one without is deleted."""
    state = {"resources": [], "pending_operations": [pending(VPC, "v")]}
    plan = plan_recovery(state, [held(VPC, "v", "vpc-1"), held(BUCKET, "b", "b-1")], [])
    assert plan.pending == ((urn(VPC, "v"), "vpc-1"),)
    assert [item["id"] for item in plan.delete] == ["b-1"]
    assert plan.operations == 1


def test_a_second_resource_of_the_same_name_is_deleted() -> None:
    """Of two resources with one URN, one is imported and the other is deleted."""
    state = {"resources": [], "pending_operations": [pending(VPC, "v")]}
    plan = plan_recovery(state, [held(VPC, "v", "vpc-1"), held(VPC, "v", "vpc-2")], [])
    assert (len(plan.pending), len(plan.delete)) == (1, 1)


def test_an_unfinished_replacement_is_deleted() -> None:
    """While the state has the old resource, the new one cannot be imported under the same URN."""
    state = {"resources": [resource(VPC, "v", "vpc-1")], "pending_operations": [pending(VPC, "v")]}
    plan = plan_recovery(state, [held(VPC, "v", "vpc-1"), held(VPC, "v", "vpc-2")], [])
    assert [item["id"] for item in plan.delete] == ["vpc-2"]


def test_retained_resources_are_not_deleted() -> None:
    """A resource that a destroy retained is in no state, and stays."""
    assert plan_recovery({"resources": []}, [held(BUCKET, "b", "b-1")], ["b-1"]).delete == ()


def test_import_flags_alternate_urn_and_id() -> None:
    """The engine reads the list in pairs, and each value has a flag of its own."""
    words = import_flags([("urn:a", "id-1"), ("urn:b", "id-2")])
    assert set(words[::2]) == {"--import-pending-creates"}
    assert words[1::2] == ["urn:a", "id-1", "urn:b", "id-2"]


def test_a_truncated_state_is_restored(tmp_path: Path) -> None:
    """The backup replaces a state file that a kill truncated, once."""
    state = tmp_path / "aws-p4d.json"
    (tmp_path / "aws-p4d.json.bak").write_text('{"checkpoint": {"latest": {"resources": []}}}', encoding="utf-8")
    for broken in ("", '{"checkpoint": {"latest"'):
        state.write_text(broken, encoding="utf-8")
        assert restore_state(state)
        assert "resources" in state.read_text(encoding="utf-8")
    assert not restore_state(state)


def test_a_truncated_state_without_a_backup_is_an_error(tmp_path: Path) -> None:
    """Without a complete file the message names the file and what to do."""
    state = tmp_path / "aws-p4d.json"
    state.write_text("", encoding="utf-8")
    with pytest.raises(DeploymentError, match="both truncated"):
        restore_state(state)


def test_truncated_attributes_are_removed(tmp_path: Path) -> None:
    """The backend rejects a file with unreadable attributes and accepts a file without any."""
    folder = tmp_path / ".pulumi" / "stacks"
    folder.mkdir(parents=True)
    complete, truncated = folder / "a.json.attrs", folder / "b.json.attrs"
    complete.write_text('{"user.content_type": "application/json"}', encoding="utf-8")
    truncated.touch()
    assert drop_truncated_attributes(tmp_path) == 1
    assert complete.exists()
    assert not truncated.exists()
