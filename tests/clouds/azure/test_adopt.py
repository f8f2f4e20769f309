"""After a destroy, retained resources are found with the ids and parents of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.clouds.adopt import import_file, retained
from gpuinfra.clouds.azure import adopt
from gpuinfra.clouds.azure.adopt import RetainedResource, Subscription, look, retained_resources
from gpuinfra.clouds.azure.resources import resources
from gpuinfra.clouds.azure.rest import AzureRefused
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.answers import SUBSCRIPTION
from tests.clouds.azure.variants import BASE, LUSTRE, spec_of_variant, variant
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec

PLAN = plan_of("azure-ndv4")


def _left_by_destroy(recording: Recording) -> dict[str, Mapping[str, Any]]:
    """The retained resources of a recorded program by id, with the properties of identities."""
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


def _found(recording: Recording, stack: str = "azure-ndv4", plan: Any = PLAN) -> list[RetainedResource]:
    left = _left_by_destroy(recording)
    token = naming.stack_token("organization", "gpuinfra", stack, plan.name)
    return list(retained_resources(Subscription(lambda path, _: left.get(path), SUBSCRIPTION, plan, token), plan))


def test_all_retained_resources_are_found_by_id() -> None:
    """Resource groups, vault, keys with identities and role assignments, and accounts with settings have the ids of the program."""
    recording = recording_of("azure-ndv4")
    found = {(one.resource.type, one.resource.name): one.id for one in _found(recording)}
    assert found == {(one.type, one.name): one.id for one in recording.custom if one.retained}
    assert set(found) == {(one.type, one.name) for one in resources(PLAN) if one.retained}
    assert len(found) > 25


def test_a_retained_file_system_is_found_with_its_network() -> None:
    """The ids of network, subnet, security group, NAT gateway and address are derived from names too."""
    spec = parse_spec({**BASE, "storage": [LUSTRE]})
    recording = recording_of_spec(spec)
    found = {one.resource.name: one.id for one in _found(recording, "test", build_plan(spec, TODAY))}
    assert found == {one.name: one.id for one in recording.custom if one.retained}
    assert found["train-scratch-0-lustre"].endswith("/amlFilesystems/train-scratch-0-" + recording_token(recording))
    assert "train-network-storage-scratch-0" in found


def test_retained_home_directories_are_found_by_id() -> None:
    """The account of the shares, its settings and both shares have the ids and parents of the program."""
    spec, recording = spec_of_variant("home directories"), variant("home directories")
    found = _found(recording, "test", build_plan(spec, TODAY))
    assert {one.resource.name: one.id for one in found} == {
        one.name: one.id for one in recording.custom if one.retained
    }
    shares = [one for one in found if one.resource.type.endswith(":FileShare")]
    assert [one.id.rpartition("/fileServices/default/shares/")[2] for one in shares] == ["home-0", "tools-0"]
    assert {parent for one in shares for parent in one.resource.parents} >= {
        ("gpuinfra:azure:HomeDirectories", "train-homes")
    }


def test_retained_volumes_of_netapp_are_found_by_id() -> None:
    """The account, its pools, volumes and snapshot policy, and their network have the ids and parents of the program."""
    spec, recording = spec_of_variant("netapp"), variant("netapp")
    found = _found(recording, "test", build_plan(spec, TODAY))
    assert {one.resource.name: one.id for one in found} == {
        one.name: one.id for one in recording.custom if one.retained
    }
    volumes = [one for one in found if one.resource.type.endswith(":CapacityPoolVolume")]
    assert [one.id.rpartition("/capacityPools/")[2] for one in volumes] == ["home-0/volumes/home-0", "tools-0/volumes/tools-0"]  # fmt: skip
    assert {parent for one in volumes for parent in one.resource.parents} >= {
        ("gpuinfra:azure:NetAppHomeDirectories", "train-netapp")
    }


def recording_token(recording: Recording) -> str:
    """The token of the stack, from a name."""
    return recording.one("azure-native:network:VirtualNetwork").inputs["virtualNetworkName"].rsplit("-", 1)[1]


def test_resources_of_another_stack_are_not_found() -> None:
    """The same declaration in another stack has other names."""
    assert _found(recording_of("azure-ndv4"), stack="another") == []


def test_nothing_is_found_in_an_empty_subscription() -> None:
    """The first `up` adopts nothing."""
    assert retained_resources(Subscription(lambda *_: None, SUBSCRIPTION, PLAN, "0a1b2c3d"), PLAN) == []


def test_imported_resources_have_the_parents_of_the_program() -> None:
    """With another parent, the next `up` would replace the resource."""
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


def test_a_missing_permission_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that cannot be read is not reported as absent."""

    class Forbidden:
        def arm(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise AzureRefused(403, "AuthorizationFailed", "the client has no permission to read")

    monkeypatch.setenv(adopt.SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    monkeypatch.setattr("gpuinfra.clouds.azure.rest.Rest", Forbidden)
    with pytest.raises(EnvironmentMissing, match="AuthorizationFailed"):
        look(PLAN, "0a1b2c3d", {}, None)


@pytest.mark.parametrize("seen", [[], ["one", "two"]])
def test_the_subscription_must_be_unique(monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> None:
    """With none or several subscriptions, the variable is required."""

    class Visible:
        def pages(self, *_: Any) -> list[dict[str, str]]:
            return [{"subscriptionId": one} for one in seen]

    monkeypatch.delenv(adopt.SUBSCRIPTION_VARIABLE, raising=False)
    monkeypatch.setattr("gpuinfra.clouds.azure.rest.Rest", Visible)
    with pytest.raises(EnvironmentMissing, match=f"have access to {len(seen)} subscriptions; set ARM_SUBSCRIPTION_ID"):
        look(PLAN, "0a1b2c3d", {}, None)


def test_a_profile_is_rejected() -> None:
    """`--profile` is an option for AWS."""
    with pytest.raises(UsageError, match="--profile applies to AWS only"):
        look(PLAN, "0a1b2c3d", {}, "team")
