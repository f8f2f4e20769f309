"""After a destroy: what was kept is found under the ids and parents that the program has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuinfra import naming
from gpuinfra.adopt import import_file, retained
from gpuinfra.clouds.azure import adopt
from gpuinfra.clouds.azure.adopt import Found, Subscription, kept_there, look
from gpuinfra.clouds.azure.resources import resources
from gpuinfra.errors import EnvironmentMissing, UsageError
from gpuinfra.handover.azure_rest import Refused
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.answers import SUBSCRIPTION
from tests.clouds.azure.variants import BASE, LUSTRE
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec

PLAN = plan_of("azure-ndv4")


def _there(recording: Recording) -> dict[str, Mapping[str, Any]]:
    """What a destroy of a recorded program leaves, by id, with what the identity says of itself."""
    principals = {
        one.inputs["scope"].rsplit("/", 1)[1]: one.inputs["principalId"]
        for one in recording.of("azure-native:authorization:RoleAssignment")
    }
    left: dict[str, Mapping[str, Any]] = {}
    for one in recording.custom:
        if one.retained:
            left[one.id] = {"id": one.id}
        if one.retained and one.type.endswith("UserAssignedIdentity"):
            purpose = "audit" if "key-audit" in one.name else "data"
            left[one.id] = {"properties": {"principalId": principals[purpose]}}
    return left


def _found(recording: Recording, stack: str = "azure-ndv4", plan: Any = PLAN) -> list[Found]:
    left = _there(recording)
    token = naming.stack_token("organization", "gpuinfra", stack, plan.name)
    return list(kept_there(Subscription(lambda path, _: left.get(path), SUBSCRIPTION, plan, token), plan))


def test_everything_that_was_kept_is_found_under_its_own_id() -> None:
    """Groups, vault, keys with their identities and grants, accounts with their settings: all that the plan keeps, each with the id of the program."""
    recording = recording_of("azure-ndv4")
    found = {(one.resource.type, one.resource.name): one.id for one in _found(recording)}
    assert found == {(one.type, one.name): one.id for one in recording.custom if one.retained}
    assert set(found) == {(one.type, one.name) for one in resources(PLAN) if one.retained}
    assert len(found) > 25


def test_a_kept_file_system_is_found_with_what_it_stands_in() -> None:
    """Network, subnet, rules, gateway and address have ids that are made from names too."""
    spec = parse_spec({**BASE, "storage": [LUSTRE]})
    recording = recording_of_spec(spec)
    found = {one.resource.name: one.id for one in _found(recording, "test", make_plan(spec, TODAY))}
    assert found == {one.name: one.id for one in recording.custom if one.retained}
    assert found["train-scratch-0-lustre"].endswith("/amlFilesystems/train-scratch-0-" + recording_token(recording))
    assert "train-network-storage-scratch-0" in found


def recording_token(recording: Recording) -> str:
    """The stack's token, as it stands in a name."""
    return recording.one("azure-native:network:VirtualNetwork").inputs["virtualNetworkName"].rsplit("-", 1)[1]


def test_nothing_of_another_stack_is_found() -> None:
    """The same declaration in another stack has other names, so that it takes nothing that is not its own."""
    assert _found(recording_of("azure-ndv4"), stack="another") == []


def test_nothing_is_found_in_an_empty_subscription() -> None:
    """A first `up` has nothing to take back."""
    assert kept_there(Subscription(lambda *_: None, SUBSCRIPTION, PLAN, "0a1b2c3d"), PLAN) == []


def test_parents_are_those_of_the_program() -> None:
    """The import file puts each thing under the components that the program has it in, or the next `up` would replace it."""
    document = import_file(retained(_found(recording_of("azure-ndv4"))))
    rows = {row["name"]: row for row in document["resources"]}
    program = {(one.type, one.name): one for one in recording_of("azure-ndv4").resources}
    by_urn = {one.urn: one for one in program.values()}
    for row in rows.values():
        parent = by_urn[program[row["type"], row["logicalName"]].parent]
        if parent.type == "pulumi:pulumi:Stack":
            assert "parent" not in row
        else:
            assert (rows[row["parent"]]["type"], rows[row["parent"]]["logicalName"]) == (parent.type, parent.name)


def test_a_refusal_is_not_taken_for_an_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the subscription forbids to look, adopt says so and does not claim that nothing is there."""

    class Forbidding:
        def arm(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise Refused(403, "AuthorizationFailed", "the client may not read this")

    monkeypatch.setenv(adopt.SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    monkeypatch.setattr("gpuinfra.handover.azure_rest.Rest", Forbidding)
    with pytest.raises(EnvironmentMissing, match="AuthorizationFailed"):
        look(PLAN, "0a1b2c3d", None)


@pytest.mark.parametrize("seen", [[], ["one", "two"]])
def test_one_of_several_subscriptions_has_to_be_named(monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> None:
    """Which subscription is meant is not guessed."""

    class Seeing:
        def pages(self, *_: Any) -> list[dict[str, str]]:
            return [{"subscriptionId": one} for one in seen]

    monkeypatch.delenv(adopt.SUBSCRIPTION_VARIABLE, raising=False)
    monkeypatch.setattr("gpuinfra.handover.azure_rest.Rest", Seeing)
    with pytest.raises(EnvironmentMissing, match=f"see {len(seen)} subscriptions; set ARM_SUBSCRIPTION_ID"):
        look(PLAN, "0a1b2c3d", None)


def test_a_profile_is_a_word_of_another_cloud() -> None:
    """What has no meaning here is refused and not ignored."""
    with pytest.raises(UsageError, match="--profile is a word of AWS"):
        look(PLAN, "0a1b2c3d", "team")


def test_grants_name_the_role_of_the_components() -> None:
    """The pure list and the component mean the same role."""
    from gpuinfra.clouds.azure.components.grants import CRYPTO_USER

    assert adopt.KEY_USER == CRYPTO_USER
