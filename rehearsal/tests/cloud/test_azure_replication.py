"""What Azure Storage rejects: replication policies without the settings they require, of unsuitable accounts, and with other IDs."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.azure import stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from rehearsal.tests.cloud import microsoft
from rehearsal.tests.cloud.conftest import Client, Made

POLICY = "azure-native:storage:ObjectReplicationPolicy"
SETTINGS = "azure-native:storage:BlobServiceProperties"
VERSIONS = {"isVersioningEnabled": True}
FEED = {"changeFeed": {"enabled": True}}
RULE = {"sourceContainer": "data", "destinationContainer": "copy", "filters": {"minCreationTime": "1601-01-01T00:00:00Z"}}  # fmt: skip


def _account(azure: Client, name: str, container: str, settings: dict[str, Any], **more: Any) -> Made:
    made = microsoft.account(azure, name, **more)
    azure.create(SETTINGS, {"resourceGroupName": "rg", "accountName": name, "blobServicesName": "default", **settings}, name)  # fmt: skip
    microsoft.container(azure, name, container)
    return made


def _accounts(azure: Client, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None, **more: Any) -> tuple[Made, Made]:  # fmt: skip
    """A source and a destination, with the settings that a policy requires unless others are given."""
    microsoft.group(azure)
    source = _account(azure, "source", "data", {**VERSIONS, **FEED} if first is None else first, **more)
    return source, _account(azure, "replica", "copy", VERSIONS if second is None else second)


def _policy(azure: Client, on: str, pair: tuple[Made, Made], id: str = "default", rule: dict[str, Any] = RULE, **more: Any) -> Made:  # fmt: skip
    inputs = {
        "resourceGroupName": "rg", "accountName": on, "objectReplicationPolicyId": id, "sourceAccount": pair[0].id,
        "destinationAccount": pair[1].id, "rules": [rule], **more,
    }  # fmt: skip
    return azure.create(POLICY, inputs, f"{on}-{id}")


def _assigned(made: Made) -> tuple[str, dict[str, Any]]:
    return made.outputs["policyId"], {**RULE, "ruleId": made.outputs["rules"][0]["ruleId"]}


def test_a_policy_gets_its_ids_from_the_destination(azure: Client) -> None:
    """The destination assigns the IDs of policy and rule, which the source requires, and a second check changes nothing."""
    pair = _accounts(azure)
    replica = _policy(azure, "replica", pair)
    id, rule = _assigned(replica)
    assert replica.id == f"{pair[1].id}/objectReplicationPolicies/{id}"
    assert id != "default"
    source = _policy(azure, "source", pair, id, rule)
    assert source.id == f"{pair[0].id}/objectReplicationPolicies/{id}"
    for made in (replica, source):
        assert not azure.diff(made, made.inputs).diffs


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (VERSIONS, None, "Change feed must be enabled on the source account source"),
        (FEED, None, "Blob versioning must be enabled on the account source"),
        (None, FEED, "Blob versioning must be enabled on the account replica"),
        ({**VERSIONS, "changeFeed": {"enabled": False}}, None, "Change feed must be enabled on the source account source"),
    ],
)  # fmt: skip
def test_a_policy_requires_settings(azure: Client, first: Any, second: Any, words: str) -> None:
    """Both accounts need versioning, and the source needs the change feed."""
    pair = _accounts(azure, first, second)
    with pytest.raises(grpc.RpcError, match=words):
        _policy(azure, "replica", pair)


@pytest.mark.parametrize(("field", "value"), [("isHnsEnabled", True), ("kind", "Storage")])
def test_some_accounts_are_not_supported(azure: Client, field: str, value: Any) -> None:
    """An account with a hierarchical namespace and an account of an old kind cannot be replicated."""
    pair = _accounts(azure, **{field: value})
    with pytest.raises(grpc.RpcError, match="not supported for the account"):
        _policy(azure, "replica", pair)


def test_an_account_is_not_replicated_to_itself(azure: Client) -> None:
    """Source and destination are different accounts, and the policy is in one of them."""
    source, replica = _accounts(azure)
    with pytest.raises(grpc.RpcError, match="'source' is not allowed for property destinationAccount"):
        _policy(azure, "source", (source, source))
    _account(azure, "third", "copy", VERSIONS)
    with pytest.raises(grpc.RpcError, match="'third' is not allowed for property accountName"):
        _policy(azure, "third", (source, replica))


def test_an_account_name_requires_replication_between_tenants(azure: Client) -> None:
    """Without it, both accounts are given as full resource IDs."""
    pair = _accounts(azure)
    with pytest.raises(grpc.RpcError, match="Specify the full resource ID"):
        _policy(azure, "replica", pair, sourceAccount="source")


def test_a_policy_requires_its_containers(azure: Client) -> None:
    """Both containers of a rule exist before the policy."""
    pair = _accounts(azure)
    for key in ("sourceContainer", "destinationContainer"):
        with pytest.raises(grpc.RpcError, match=r"specified container nothing"):
            _policy(azure, "replica", pair, rule={**RULE, key: "nothing"})


def test_the_source_has_the_ids_of_the_destination(azure: Client) -> None:
    """Another policy ID, another rule ID and a rule without an ID are rejected, also before the destination has a policy."""
    pair = _accounts(azure)
    unknown = "00000000-0000-4000-8000-000000000007"
    for id in ("default", unknown):
        with pytest.raises(grpc.RpcError, match=f"'{id}' is not allowed for property policyId"):
            _policy(azure, "source", pair, id)
    id, rule = _assigned(_policy(azure, "replica", pair))
    for other in (
        RULE,
        {**rule, "ruleId": unknown},
        {**rule, "sourceContainer": "data", "destinationContainer": "data"},
    ):
        with pytest.raises(grpc.RpcError, match=r"not allowed for property ruleId|does not exist"):
            _policy(azure, "source", pair, id, other)
    with pytest.raises(grpc.RpcError, match=f"'{unknown}' is not allowed for property policyId"):
        _policy(azure, "source", pair, unknown, rule)


def test_the_destination_assigns_the_ids(azure: Client) -> None:
    """A new policy has the ID `default`, and its rules have no IDs."""
    pair = _accounts(azure)
    with pytest.raises(grpc.RpcError, match="'mine' is not allowed for property policyId"):
        _policy(azure, "replica", pair, "mine")
    with pytest.raises(grpc.RpcError, match="'mine' is not allowed for property ruleId"):
        _policy(azure, "replica", pair, rule={**RULE, "ruleId": "mine"})


def test_two_accounts_have_one_policy(azure: Client) -> None:
    """A second policy for the same accounts is rejected, also as an update, because the provider sends an update to `default`."""
    pair = _accounts(azure)
    made = _policy(azure, "replica", pair)
    for again in (lambda: _policy(azure, "replica", pair), lambda: azure.update(made, {"metrics": {"enabled": True}})):
        with pytest.raises(grpc.RpcError, match="already exists"):
            again()
    azure.delete(made)
    _policy(azure, "replica", pair)


def test_a_source_has_two_policies(azure: Client) -> None:
    """A third destination of one source is rejected."""
    source, replica = _accounts(azure)
    places = [replica, *(_account(azure, name, "copy", VERSIONS) for name in ("second", "third"))]
    for index, place in enumerate(places):
        name = place.id.rsplit("/", 1)[-1]
        id, rule = _assigned(_policy(azure, name, (source, place)))
        if index < 2:
            _policy(azure, "source", (source, place), id, rule)
        else:
            with pytest.raises(grpc.RpcError, match="already has 2 policies"):
                _policy(azure, "source", (source, place), id, rule)


def test_settings_stay_while_a_policy_exists(azure: Client) -> None:
    """Versioning cannot be disabled in both accounts, nor the change feed in the source."""
    pair = _accounts(azure)
    id, rule = _assigned(replica := _policy(azure, "replica", pair))
    source = _policy(azure, "source", pair, id, rule)
    path = "/blobServices/default"
    held = {name: azure.read(SETTINGS, one.id + path) for name, one in zip(("source", "replica"), pair, strict=True)}
    where = {"resourceGroupName": "rg", "blobServicesName": "default"}
    for name, change, words in (
        ("source", FEED, "isVersioningEnabled because Object Replication is enabled"),
        ("replica", FEED, "isVersioningEnabled because Object Replication is enabled"),
        ("source", VERSIONS, "Change Feed because Object Replication is enabled"),
    ):
        one = held[name]
        one.inputs = {**where, "accountName": name, "isVersioningEnabled": False, "changeFeed": {"enabled": False}}
        with pytest.raises(grpc.RpcError, match=words):
            azure.update(one, change)
    azure.update(held["replica"], VERSIONS)
    azure.delete(source)
    azure.delete(replica)
    azure.update(held["source"], VERSIONS)


def test_the_container_of_a_replica_is_read_only(azure: Client, cloud: Cloud) -> None:
    """Until the policy of its account is deleted. The container of the source can be written."""
    pair = _accounts(azure)
    id, rule = _assigned(replica := _policy(azure, "replica", pair))
    source = _policy(azure, "source", pair, id, rule)
    stores.writable(cloud.store, "source", "data")
    stores.writable(cloud.store, "replica", "other")
    azure.delete(source)
    with pytest.raises(AzureError, match="rejected because of object replication policy"):
        stores.writable(cloud.store, "replica", "copy")
    azure.delete(replica)
    stores.writable(cloud.store, "replica", "copy")


def test_a_policy_has_rules(azure: Client) -> None:
    """A policy has at least one rule and at most ten."""
    inputs = {"resourceGroupName": "rg", "accountName": "a", "sourceAccount": "a", "destinationAccount": "b"}
    for count in (0, 11):
        (found,) = azure.failures(POLICY, {**inputs, "rules": [RULE] * count})
        assert f"must have 1 to 10 rules, got {count}" in found
