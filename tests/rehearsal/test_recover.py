from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuinfra.errors import DeploymentError
from gpuinfra.rehearsal.recover import adopting, drop_cut_attributes, plan_mending, restore
from gpuinfra.rehearsal.retained import import_file, kept_in, remember, remembered

from .folders import folder_in

BUCKET, VPC = "aws:s3/bucket:Bucket", "aws:ec2/vpc:Vpc"


def urn(kind: str, name: str, *parents: str) -> str:
    """A URN as the engine writes it."""
    return f"urn:pulumi:s::p::{'$'.join((*parents, kind))}::{name}"


def resource(kind: str, name: str, identity: str, **more: Any) -> dict[str, Any]:
    """A resource of a state."""
    return {"urn": urn(kind, name), "type": kind, "id": identity, "custom": True, **more}


def held(kind: str, name: str, identity: str) -> dict[str, Any]:
    """A resource that the stand-in cloud holds."""
    return {"urn": urn(kind, name), "type": kind, "id": identity, "name": name}


def pending(kind: str, name: str, what: str = "creating") -> dict[str, Any]:
    """A pending operation of a state."""
    return {"type": what, "resource": {"urn": urn(kind, name), "type": kind}}


def test_nothing_to_mend() -> None:
    """A state that knows everything that the cloud holds needs nothing."""
    state = {"resources": [resource(VPC, "v", "vpc-1")]}
    mending = plan_mending(state, [held(VPC, "v", "vpc-1")], [])
    assert (mending.adopt, mending.delete, mending.pending) == ((), (), 0)


def test_what_was_made_in_a_pending_create_is_adopted() -> None:
    """A resource with a pending create is given to the engine with its id; one without is deleted."""
    state = {"resources": [], "pending_operations": [pending(VPC, "v")]}
    mending = plan_mending(state, [held(VPC, "v", "vpc-1"), held(BUCKET, "b", "b-1")], [])
    assert mending.adopt == ((urn(VPC, "v"), "vpc-1"),)
    assert [item["id"] for item in mending.delete] == ["b-1"]
    assert mending.pending == 1


def test_a_second_one_of_the_same_name_is_deleted() -> None:
    """Two resources of one URN: one is adopted, the other goes, so that nothing is there twice."""
    state = {"resources": [], "pending_operations": [pending(VPC, "v")]}
    mending = plan_mending(state, [held(VPC, "v", "vpc-1"), held(VPC, "v", "vpc-2")], [])
    assert (len(mending.adopt), len(mending.delete)) == (1, 1)


def test_a_replacement_in_hand_is_deleted() -> None:
    """While the old one is still in the state, the half-made new one cannot be adopted under the same URN."""
    state = {"resources": [resource(VPC, "v", "vpc-1")], "pending_operations": [pending(VPC, "v")]}
    mending = plan_mending(state, [held(VPC, "v", "vpc-1"), held(VPC, "v", "vpc-2")], [])
    assert [item["id"] for item in mending.delete] == ["vpc-2"]


def test_kept_things_are_left_alone() -> None:
    """What a destroy left on purpose is in no state, and stays."""
    mending = plan_mending({"resources": []}, [held(BUCKET, "b", "b-1")], ["b-1"])
    assert mending.delete == ()


def test_kept_things_are_found_with_their_parents(tmp_path: Any) -> None:
    """Everything with retainOnDelete is kept, with its components and its provider's version, and survives in a file."""
    stack = {"urn": "urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", "type": "pulumi:pulumi:Stack"}
    home = {"urn": urn("x:y:Home", "home"), "type": "x:y:Home", "parent": stack["urn"]}
    room = {"urn": urn("x:y:Room", "room"), "type": "x:y:Room", "parent": home["urn"]}
    provider = "urn:pulumi:s::p::pulumi:providers:aws::default_7_51_1::0a1b"
    bucket = resource(BUCKET, "b", "b-1", parent=room["urn"], retainOnDelete=True, provider=provider)
    plain = resource(VPC, "v", "vpc-1", parent=home["urn"])
    things = kept_in({"resources": [stack, home, room, bucket, plain]})
    assert [(t.name, t.id, t.version, [p[2] for p in t.parents]) for t in things] == [
        ("b", "b-1", "7.51.1", ["home", "room"])
    ]
    folder = folder_in(tmp_path)
    remember(folder, things)
    assert remembered(folder) == things
    remember(folder, [])
    assert remembered(folder) == []


def test_import_file_ties_children_to_parents_by_numbers() -> None:
    """Two things of one name and of different types do not meet in the import file, and parents come first."""
    home = (urn("x:y:Home", "same"), "x:y:Home", "same")
    things = kept_in(
        {
            "resources": [
                {"urn": home[0], "type": home[1]},
                resource(BUCKET, "same", "b-1", parent=home[0], retainOnDelete=True),
                resource(VPC, "other", "vpc-1", parent=home[0], retainOnDelete=True),
            ]
        }
    )
    rows = import_file(things)["resources"]
    assert [r["logicalName"] for r in rows] == ["same", "same", "other"]
    assert len({r["name"] for r in rows}) == 3
    assert [r.get("parent") for r in rows] == [None, rows[0]["name"], rows[0]["name"]]
    assert rows[0]["component"] is True
    again = import_file(things, known=[home[0], things[0].urn])
    assert [r["logicalName"] for r in again["resources"]] == ["other"]
    assert again["nameTable"] == {again["resources"][0]["parent"]: home[0]}


def test_adopting_names_urn_and_id_in_turn() -> None:
    """The engine reads its list two by two, so that an odd number of words would be refused."""
    words = adopting([("urn:a", "id-1"), ("urn:b", "id-2")])
    flags, values = words[::2], words[1::2]
    assert set(flags) == {"--import-pending-creates"}
    assert values == ["urn:a", "id-1", "urn:b", "id-2"]


def test_a_state_that_was_cut_off_is_restored(tmp_path: Path) -> None:
    """A kill in the middle of a write leaves half a file; the backup of the step before takes its place, once."""
    state = tmp_path / "aws-p4d.json"
    (tmp_path / "aws-p4d.json.bak").write_text('{"checkpoint": {"latest": {"resources": []}}}', encoding="utf-8")
    for broken in ("", '{"checkpoint": {"latest"'):
        state.write_text(broken, encoding="utf-8")
        assert restore(state)
        assert "resources" in state.read_text(encoding="utf-8")
    assert not restore(state)


def test_a_state_without_a_whole_backup_is_said(tmp_path: Path) -> None:
    """Where nothing is whole nothing is guessed: the message names the file and the way out."""
    state = tmp_path / "aws-p4d.json"
    state.write_text("", encoding="utf-8")
    with pytest.raises(DeploymentError, match="both cut off"):
        restore(state)


def test_attributes_that_were_cut_off_are_dropped(tmp_path: Path) -> None:
    """The backend refuses a file whose attributes it cannot read; without any it takes the file as it is."""
    folder = tmp_path / ".pulumi" / "stacks"
    folder.mkdir(parents=True)
    whole, cut = folder / "a.json.attrs", folder / "b.json.attrs"
    whole.write_text('{"user.content_type": "application/json"}', encoding="utf-8")
    cut.touch()
    assert drop_cut_attributes(tmp_path) == 1
    assert whole.exists()
    assert not cut.exists()
