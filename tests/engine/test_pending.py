"""The state in which a deployment continues after all processes of a run were killed."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.engine.pending import FoundResource, known_ids, pending_creates, resumed

VPC = "aws:ec2/vpc:Vpc"
URN = f"urn:pulumi:s::p::{VPC}::v"


def pending(**inputs: Any) -> dict[str, Any]:
    """A pending creation as the engine writes it."""
    return {
        "type": "creating",
        "resource": {"urn": URN, "type": VPC, "custom": True, "inputs": inputs, "parent": "urn:c"},
    }


def held(id: str, **more: Any) -> dict[str, Any]:
    """A resource of the state."""
    return {"urn": URN, "type": VPC, "custom": True, "id": id, "inputs": {"cidrBlock": "10.0.0.0/16"}, **more}


def continued(resources: list[dict[str, Any]], id: str = "vpc-2", **inputs: Any) -> list[dict[str, Any]]:
    """The resources of a state after the pending creation was found with this ID."""
    state = {"resources": resources, "pending_operations": [pending(**inputs)]}
    (create,) = pending_creates(state)
    after = resumed(state, [FoundResource(create=create, id=id)])
    assert after["pending_operations"] == []
    return after["resources"]


def test_a_found_resource_has_the_inputs_of_its_creation_and_is_read_first() -> None:
    """The resource is in the state with its inputs, parent and ID, and the engine reads it before the next deployment."""
    (new,) = continued([], cidrBlock="10.0.0.0/16", __defaults=["x"])
    assert (new["id"], new["parent"], new["refreshBeforeUpdate"]) == ("vpc-2", "urn:c", True)
    assert new["outputs"] == {"cidrBlock": "10.0.0.0/16", "id": "vpc-2"}
    assert new["inputs"] == {"cidrBlock": "10.0.0.0/16", "__defaults": ["x"]}


def test_what_was_created_a_second_time_is_deleted() -> None:
    """If the state has the resource of the repeated creation, the first one is deleted by the next deployment."""
    kept, double = continued([held("vpc-1")], cidrBlock="10.0.0.0/16")
    assert (kept["id"], kept.get("delete")) == ("vpc-1", None)
    assert (double["id"], double["delete"]) == ("vpc-2", True)


def test_a_generated_name_does_not_make_a_creation_different() -> None:
    """Two attempts of one creation differ only in the names that the provider generates."""
    old = held("vpc-1")
    old["inputs"] |= {"name": "v-1111111", "__defaults": ["name"]}
    kept, double = continued([old], cidrBlock="10.0.0.0/16", name="v-2222222", __defaults=["name"])
    assert (kept["id"], double["delete"]) == ("vpc-1", True)


def test_a_replacement_takes_the_place_of_the_old_resource() -> None:
    """The new resource of an interrupted replacement stays, and the old one is deleted."""
    new, old = continued([held("vpc-1")], cidrBlock="10.1.0.0/16")
    assert (new["id"], new.get("delete")) == ("vpc-2", None)
    assert (old["id"], old["delete"]) == ("vpc-1", True)


def test_a_replacement_after_a_deletion_has_no_old_resource() -> None:
    """A resource that was deleted before its replacement is not in the state anymore."""
    (new,) = continued([held("vpc-1", pendingReplacement=True)], cidrBlock="10.1.0.0/16")
    assert new["id"] == "vpc-2"


@pytest.mark.parametrize(
    "operation",
    [
        {"type": "updating", "resource": {"urn": URN, "type": VPC, "custom": True}},
        {"type": "creating", "resource": {"urn": URN, "type": "c:C", "custom": False}},
    ],
    ids=["update", "component"],
)
def test_other_operations_are_not_creations(operation: dict[str, Any]) -> None:
    """Only creations of resources with a provider can leave something that the state does not contain."""
    assert pending_creates({"pending_operations": [operation]}) == []


def test_known_ids_are_those_of_one_type() -> None:
    """IDs are unique within a type."""
    state = {"resources": [held("vpc-1"), {"urn": "u", "type": "other", "id": "x"}]}
    assert known_ids(state, VPC) == {"vpc-1"}


def test_encrypted_inputs_are_no_texts() -> None:
    """An ID never contains the ciphertext of a secret."""
    (create,) = pending_creates(
        {"pending_operations": [pending(name={"4dabf18193072939515e22adb298388d": "1b47", "ciphertext": "x"})]}
    )
    assert (create.text("name"), create.texts("name")) == ("", {})
