"""Recovery after an interrupted run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra_rehearsal.cloud.core import behaviors
from gpuinfra_rehearsal.recover import (
    drop_truncated_attributes,
    import_flags,
    plan_recovery,
    recover,
    restore_state,
)

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


class _Cloud:
    """A stand-in cloud that holds one resource and refuses to undo it."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = [held]
        self.asked: list[str] = []

    def resources(self) -> list[dict[str, Any]]:
        return self.held

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(path)
        if path == "undo":
            raise DeploymentError("the name stays in use after a deletion")
        return {}


class _Engine:
    """An engine whose state contains no resource, and a pending create if `creating` is given."""

    def __init__(self, folder: Path, creating: str | None) -> None:
        (folder / "state").mkdir()
        self.folder = SimpleNamespace(state=folder / "state", stack="try")
        self.checkpoint = folder / "state.json"
        self.checkpoint.write_text("{}")
        operations = [{"type": "creating", "resource": {"urn": creating}}] if creating else []
        self.state = {"resources": [], "pending_operations": operations}
        self.ran: list[tuple[str, ...]] = []

    def deployment(self) -> dict[str, Any]:
        return self.state

    def quick(self, *words: str) -> None:
        self.ran.append(words)


@pytest.mark.parametrize("creating", [True, False])
def test_a_resource_whose_name_stays_in_use_is_imported_or_removed(tmp_path: Path, creating: bool) -> None:
    """The engine imports such a resource if it has a pending create. Otherwise, it is removed without a deletion."""
    kind = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
    name = urn(kind, "audit")
    cloud = _Cloud(held(kind, "audit", "buckets/audit"))
    engine = _Engine(tmp_path, name if creating else None)
    recover(cast("Any", engine), cast("Any", cloud), (), lambda line: None)
    if creating:
        assert cloud.asked == ["undo"]
        ((*words,),) = engine.ran
        assert words[0] == "refresh"
        assert words[words.index("--import-pending-creates") + 1 :][:3] == [
            name,
            "--import-pending-creates",
            "buckets/audit",
        ]
    else:
        assert cloud.asked == ["undo", "vanish"]
        assert engine.ran == []


@pytest.mark.parametrize(
    "kind",
    [
        "gcp:logging/projectBucketConfig:ProjectBucketConfig",
        "gcp:kms/keyRing:KeyRing",
        "gcp:kms/cryptoKey:CryptoKey",
        "azure-native:keyvault:Vault",
    ],
)
def test_the_cloud_does_not_undo_a_resource_whose_name_stays_in_use(kind: str) -> None:
    """The stand-in cloud refuses to undo types whose names the real cloud keeps after a deletion."""
    assert behaviors.of(kind).keeps_name
