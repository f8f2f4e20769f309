"""The second region: what is replicated, with which key and IDs, and that an existing cluster does not change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.clouds.azure import fixed, names
from gpuinfra.clouds.azure.adopt import Subscription, retained_resources
from gpuinfra.clouds.azure.region.recovery import BUCKETS, early_buckets
from gpuinfra.clouds.azure.resources import resources
from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.answers import SUBSCRIPTION
from tests.clouds.recorder import Recording, Registered, record
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of

FIRST, SECOND = "southcentralus", "eastus2"
ACCOUNT, CONTAINER = "azure-native:storage:StorageAccount", "azure-native:storage:BlobContainer"
SETTINGS, POLICY = "azure-native:storage:BlobServiceProperties", "azure-native:storage:ObjectReplicationPolicy"
VAULT, KEY = "azure-native:keyvault:Vault", "azure-native:keyvault:Key"
GROUP, GRANT = "azure-native:resources:ResourceGroup", "azure-native:authorization:RoleAssignment"
ROLE = "azure-native:authorization:RoleDefinition"
IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
CHANGED = "azure-native:monitor:ActivityLogAlert"
ALERT, RECIPIENTS = "azure-native:monitor:MetricAlert", "azure-native:monitor:ActionGroup"


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The registrations of the shipped stack with a second region."""
    return recording_of("azure-recovery")


def _second(recording: Recording, type_: str) -> list[Registered]:
    """The resources of a type in the resource group of the second region."""
    (group,) = [one for one in recording.of(GROUP) if one.inputs["location"] == SECOND]
    return [one for one in recording.of(type_) if one.inputs.get("resourceGroupName") == group.inputs["resourceGroupName"]]  # fmt: skip


def _policies(recording: Recording) -> tuple[dict[str, Registered], dict[str, Registered]]:
    """The policies in the accounts of replicas and of sources, by the account of the source."""
    made = recording.of(POLICY)
    new = {one.inputs["sourceAccount"]: one for one in made if one.inputs["objectReplicationPolicyId"] == "default"}
    return new, {one.inputs["sourceAccount"]: one for one in made if one not in new.values()}


def test_every_container_with_data_is_replicated(recording: Recording) -> None:
    """Containers of file systems and the evidence container have a replica in the second region. Audit records and flow logs have none."""
    new, _ = _policies(recording)
    places = {one.id: one for one in recording.of(ACCOUNT)}
    data = {id_ for id_, one in places.items() if one.inputs["location"] == FIRST and not re.search("records|flow", one.name)}  # fmt: skip
    assert set(new) == data
    assert len(data) == 2
    replicas = {one.inputs["destinationAccount"] for one in new.values()}
    assert replicas == {id_ for id_, one in places.items() if one.inputs["location"] == SECOND}
    assert sorted(one.inputs["rules"][0]["sourceContainer"] for one in new.values()) == ["data", "evidence"]
    held = {one.id for one in _second(recording, CONTAINER) if not one.id.endswith("/active-region")}
    assert held == {
        f"{one.inputs['destinationAccount']}/blobServices/default/containers/{one.inputs['rules'][0]['destinationContainer']}"
        for one in new.values()
    }


def test_operators_can_write_the_record_of_the_active_region(recording: Recording) -> None:
    """The record has its own container in the account of the evidence replica, and operators can read and write it, but not delete it."""
    (container,) = [one for one in _second(recording, CONTAINER) if one.id.endswith("/active-region")]
    (evidence,) = [one for one in _second(recording, CONTAINER) if one.id.endswith("/evidence")]
    assert container.inputs["accountName"] == evidence.inputs["accountName"]
    grants = [one for one in recording.of(GRANT) if one.inputs["scope"] == container.id]
    assert [one.name for one in grants] == ["train-recovery-record-0"]
    (role,) = [one for one in recording.of(ROLE) if one.name == "train-recovery-record-role"]
    assert grants[0].inputs["roleDefinitionId"].endswith(role.inputs["roleDefinitionId"])
    (allowed,) = role.inputs["permissions"]
    verbs = {one.partition("/blobs/")[2] for one in allowed["dataActions"]}
    assert (verbs, allowed["actions"]) == ({"read", "write", "add/action"}, [])


def test_the_source_has_the_ids_that_the_replica_assigned(recording: Recording) -> None:
    """Each pair of accounts has one policy in both, with the same IDs, rules and metrics. Existing blobs are replicated, too."""
    new, assigned = _policies(recording)
    assert set(new) == set(assigned)
    for source, one in new.items():
        other = assigned[source]
        assert one.inputs["accountName"] == one.inputs["destinationAccount"].rsplit("/", 1)[-1]
        assert other.inputs["accountName"] == source.rsplit("/", 1)[-1]
        assert other.inputs["resourceGroupName"] == source.split("/")[4]
        assert other.inputs["objectReplicationPolicyId"] == one.id.rsplit("/", 1)[-1]
        (rule,) = one.inputs["rules"]
        assert rule["filters"] == {"minCreationTime": "1601-01-01T00:00:00Z"}
        assert "ruleId" not in rule
        (same,) = other.inputs["rules"]
        assert same.pop("ruleId")
        assert same == rule
        for key in ("sourceAccount", "destinationAccount", "metrics"):
            assert one.inputs[key] == other.inputs[key]
        assert one.inputs["metrics"] == {"enabled": True}


def test_a_policy_meets_the_conditions_of_the_service(recording: Recording) -> None:
    """Both accounts have versioning before the policy exists, the source has the change feed, and no account has a hierarchical namespace."""
    settings = {one.inputs["accountName"]: one for one in recording.of(SETTINGS)}
    for one in recording.of(POLICY):
        before = recording.before(one)
        for key in ("sourceAccount", "destinationAccount"):
            held = settings[one.inputs[key].rsplit("/", 1)[-1]]
            assert held in before
            assert held.inputs["isVersioningEnabled"] is True
        assert settings[one.inputs["sourceAccount"].rsplit("/", 1)[-1]].inputs["changeFeed"]["enabled"] is True
        containers = {other.inputs["containerName"] for other in before if other.type == CONTAINER}
        (rule,) = one.inputs["rules"]
        assert {rule["sourceContainer"], rule["destinationContainer"]} <= containers
    for one in recording.of(ACCOUNT):
        assert not one.inputs.get("isHnsEnabled")
        assert one.inputs["kind"] == "StorageV2"


def test_a_change_replaces_a_policy(recording: Recording) -> None:
    """Azure takes an update of a policy with the ID `default` for a new policy, and two accounts have one policy, so the old one is deleted first."""
    for one in recording.of(POLICY):
        assert one.fixed == fixed.REPLICATION_POLICY
        assert one.old_first is True
        assert not one.retained
        assert set(one.inputs) - {"accountName", "resourceGroupName", "objectReplicationPolicyId"} == set(one.fixed)


def test_the_second_region_has_its_own_key(recording: Recording) -> None:
    """The accounts of the replicas use a key, a vault and an identity of the second region, after the identity may use the key."""
    (vault,), (key,), (identity,) = (_second(recording, type_) for type_ in (VAULT, KEY, IDENTITY))
    assert vault.inputs["location"] == identity.inputs["location"] == SECOND
    assert vault.inputs["properties"]["enablePurgeProtection"] is True
    assert vault.inputs["vaultName"] not in {one.inputs["vaultName"] for one in recording.of(VAULT) if one != vault}
    accounts = _second(recording, ACCOUNT)
    assert len(accounts) == 2
    for one in accounts:
        properties = one.inputs["encryption"]["keyVaultProperties"]
        assert properties == {"keyName": "data", "keyVaultUri": f"https://{vault.inputs['vaultName']}.vault.azure.net/"}
        assert one.inputs["identity"]["userAssignedIdentities"] == [identity.id]
        assert [other.inputs["scope"] for other in recording.before(one) if other.type == GRANT] == [key.id]
    assert all(one.retained for one in (vault, key, identity, *accounts))


def test_replicas_are_private(recording: Recording) -> None:
    """Only the evidence replica allows the declared ranges, and only the replica for Managed Lustre has account keys, as in the first region."""
    by_name = {one.name: one.inputs for one in recording.of(ACCOUNT)}
    for purpose, first in (("evidence", "train-foundation-evidence-store"), ("scratch-0", "train-scratch-0-data")):
        replica, source = by_name[f"train-recovery-{purpose}-account"], by_name[f"{first}-account"]
        for key in ("publicNetworkAccess", "networkRuleSet", "allowSharedKeyAccess", "allowCrossTenantReplication", "minimumTlsVersion"):  # fmt: skip
            assert replica[key] == source[key]
        assert replica["sku"] == {"name": "Standard_LRS"}


def test_each_pair_has_an_alert(recording: Recording) -> None:
    """The alert counts operations of the policy in the account of the source that are older than the declared time, and notifies the recipients."""
    (group,) = recording.of(RECIPIENTS)
    assert [one["emailAddress"] for one in group.inputs["emailReceivers"]] == ["gpu-budget@example.com"]
    _, assigned = _policies(recording)
    scopes = []
    for one in recording.of(ALERT):
        scopes += one.inputs["scopes"]
        assert one.inputs["location"] == group.inputs["location"] == "global"
        assert one.inputs["actions"] == [{"actionGroupId": group.id}]
        (criterion,) = one.inputs["criteria"]["allOf"]
        assert (criterion["metricName"], criterion["timeAggregation"]) == ("PendingOperationsForReplication", "Maximum")
        assert (criterion["operator"], criterion["threshold"]) == ("GreaterThan", 0)
        (dimension,) = criterion["dimensions"]
        assert (dimension["name"], dimension["operator"]) == ("TimeBucket", "Exclude")
        assert dimension["values"] == ["0-5 mins", "5-10 mins", "10-15 mins", "15-30 mins"]
    assert sorted(scopes) == sorted(one.id for one in assigned.values())


def test_without_recipients_there_is_no_action_group() -> None:
    """Azure rejects an action group without receivers. The alerts exist without an action."""
    spec = spec_of("azure-recovery").model_dump(mode="json", exclude_unset=True)
    spec["budget"] = {"limit_usd_per_month": 100000}
    made = recording_of_spec(parse_spec(spec), stack="azure-recovery")
    assert not made.of(RECIPIENTS)
    assert len(made.of(ALERT)) == 2
    assert not any("actions" in one.inputs for one in made.of(ALERT))
    assert [one.inputs["actions"] for one in made.of(CHANGED)] == [{"actionGroups": []}]


def test_a_changed_policy_notifies_the_recipients(recording: Recording) -> None:
    """The alert matches each successful change or deletion of a policy in an account of a source or of a replica. It is created after the policies,
    whose creation is also a change."""
    (alert,), (recipients,) = recording.of(CHANGED), recording.of(RECIPIENTS)
    assert alert.inputs["location"] == "global"
    accounts = {one.inputs[side] for one in recording.of(POLICY) for side in ("sourceAccount", "destinationAccount")}
    assert len(accounts) == 4
    assert set(alert.inputs["scopes"]) == accounts
    category, operation, status = alert.inputs["condition"]["allOf"]
    assert category == {"field": "category", "equals": "Administrative"}
    assert status == {"field": "status", "equals": "Succeeded"}
    kind = "Microsoft.Storage/storageAccounts/objectReplicationPolicies"
    assert operation == {
        "anyOf": [{"field": "operationName", "equals": f"{kind}/{verb}"} for verb in ("write", "delete")]
    }
    assert alert.inputs["actions"] == {"actionGroups": [{"actionGroupId": recipients.id}]}
    assert {one.urn for one in recording.of(POLICY)} <= {one.urn for one in recording.before(alert)}


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(60, 1), (300, 1), (301, 2), (1800, 4), (1801, 5), (7200, 5), (7201, 6), (86_400, 7), (604_800, 7)],
)
def test_the_limit_is_rounded_up_to_one_of_the_metric(seconds: int, count: int) -> None:
    """Operations that are younger than the limit are excluded, at most up to a day."""
    assert early_buckets(seconds) == tuple(name for name, _ in BUCKETS[:count])


def test_a_second_region_replaces_nothing_in_an_existing_cluster(recording: Recording) -> None:
    """With `recovery`, every resource of the cluster has the same inputs as before, except for the amount of the budget."""
    spec = spec_of("azure-recovery").model_dump(mode="json", exclude_unset=True)
    del spec["recovery"]
    without = recording_of_spec(parse_spec(spec), stack="azure-recovery")
    before = {(one.type, one.name): one for one in without.custom}
    after = {(one.type, one.name): one for one in recording.custom}
    assert set(before) < set(after)
    changed = {name for key, one in before.items() for name in _changed(one.inputs, after[key].inputs)}
    assert changed <= {"amount"}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    # The key of a bundle contains the digest of its source.
    return {name for name in {*before, *after} - {"source"} if before.get(name) != after.get(name)}


PAGE = Path(__file__).parents[4] / "docs" / "reference" / "azure-second-region.md"
(PROGRAM,) = [
    one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S) if "RegionClone(" in one
]


def test_a_short_program_adds_a_second_region_to_an_existing_cluster() -> None:
    """The program on the page has at most 15 lines, and each resource of the cluster stays as it is."""
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 15
    before = {(one.type, one.name): one.inputs for one in recording_of("azure-ndv4").custom}
    made = record(lambda: exec(compile(PROGRAM, "program", "exec"), {}), stack="azure-ndv4")
    after = {(one.type, one.name): one.inputs for one in made.custom}
    assert set(before) < set(after)
    assert {name for key, inputs in before.items() for name in _changed(inputs, after[key])} == set()
    new, assigned = _policies(made)
    assert len(new) == len(assigned) == 2
    for one in new.values():
        assert {other.name for other in made.before(one) if other.type == SETTINGS} > {
            "train-foundation-evidence-store-blobs"
        } or "scratch" in one.name


def test_permissions_cover_the_replication_only_with_a_second_region() -> None:
    """Without `recovery`, the operator can create neither policies nor alerts."""
    needed = {
        "Microsoft.Storage/storageAccounts/objectReplicationPolicies/write",
        "Microsoft.Insights/activityLogAlerts/write",
        "Microsoft.Insights/metricAlerts/write",
        "Microsoft.Insights/actionGroups/write",
    }
    with_, without = (
        {need.action for need in permissions_of(plan_of(stack)).needs} for stack in ("azure-recovery", "azure-ndv4")
    )
    assert needed <= with_
    assert not needed & without


def test_retained_resources_of_the_second_region_are_found(recording: Recording) -> None:
    """The resource group, the vault with its key, the accounts and their containers have the IDs of the program, and no others are found."""
    left: dict[str, Mapping[str, Any]] = {}
    for one in recording.custom:
        if one.retained:
            left[one.id] = {"id": one.id}
        if one.retained and one.type == IDENTITY:
            (grant,) = [g for g in recording.of(GRANT) if g.name == one.name.removesuffix("-user") + "-use"]
            left[one.id] = {"properties": {"principalId": grant.inputs["principalId"]}}
    plan = plan_of("azure-recovery")
    token = naming.stack_token("organization", "gpuinfra", "azure-recovery", plan.name)
    found = retained_resources(Subscription(lambda path, _: left.get(path), SUBSCRIPTION, plan, token), plan)
    assert {(one.resource.type, one.resource.name): one.id for one in found} == {
        (one.type, one.name): one.id for one in recording.custom if one.retained
    }
    assert plan.recovery
    elsewhere = replace(plan, recovery=replace(plan.recovery, region="westus2"))
    other = retained_resources(Subscription(lambda path, _: left.get(path), SUBSCRIPTION, elsewhere, token), elsewhere)
    assert not [one for one in other if "train-recovery" in one.resource.name]


def test_container_ids_are_split() -> None:
    """An ID has a resource group, an account and a container; anything else is an error."""
    account = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"
    parts = names.container_parts(f"{account}/blobServices/default/containers/c")
    assert (parts.group, parts.account_id, parts.account, parts.name) == ("g", account, "a", "c")
    for wrong in (account, "https://a.blob.core.windows.net/c", f"{account}/blobServices/default/containers/c/d"):
        with pytest.raises(ValueError, match="is not the resource ID of a container"):
            names.container_parts(wrong)


ENDPOINT, LUSTRE = "azure-native:network:PrivateEndpoint", "azure-native:storagecache:AmlFilesystem"
REPLICA = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/second/providers/Microsoft.Storage/storageAccounts/replica"


@pytest.mark.parametrize("kind", ["lustre", "object"])
@pytest.mark.parametrize("reached", [True, False])
def test_stack_in_the_second_region_reaches_a_replica_through_a_private_endpoint(kind: str, reached: bool) -> None:
    """With `private_endpoint`, the stack creates an endpoint of the replica's account in its network,
    and the file system is created after the endpoint has its DNS name."""
    spec = spec_of("azure-recovery").model_dump(mode="json", exclude_unset=True)
    del spec["recovery"]
    container = f"{REPLICA}/blobServices/default/containers/data"
    entry = spec["storage"][0] if kind == "lustre" else {"kind": "object", "mount": "/data"}
    spec["storage"] = [{**entry, "bucket": container, **({"private_endpoint": True} if reached else {})}]
    parsed = parse_spec(spec)
    recording, plan = recording_of_spec(parsed, stack="azure-second"), build_plan(parsed, TODAY)
    found = [one for one in recording.of(ENDPOINT) if one.inputs["privateLinkServiceConnections"][0]["privateLinkServiceId"] == REPLICA]  # fmt: skip
    assert len(found) == reached
    assert {(one.type, one.name) for one in recording.custom} == {(one.type, one.name) for one in resources(plan)}
    for one in found:
        assert one.inputs["privateLinkServiceConnections"][0]["groupIds"] == ["blob"]
        assert one.inputs["location"] == FIRST
    if kind == "lustre" and reached:
        (file_system,) = recording.of(LUSTRE)
        assert any(urn.endswith("scratch-0-data-names") for urn in file_system.depends_on)


def _recovery_plan(**fields: Any) -> RecoveryPlan:
    spec = spec_of("azure-recovery").model_dump(mode="json", exclude_unset=True)
    spec["recovery"] = {**spec["recovery"], **fields}
    plan = build_plan(parse_spec(spec), TODAY).recovery
    assert plan
    return plan


def test_the_declared_replication_time_is_part_of_the_rpo() -> None:
    """The time is the measured one, and the same time triggers the alert."""
    plan = _recovery_plan(replication_minutes=45)
    (part,) = [one for one in plan.rpo.parts if one.what.startswith("replicate")]
    assert part.minutes == 45
    assert "does not commit to a time" in part.how
    assert plan.alert_after_s == 45 * 60


def test_the_plan_prints_the_commands_for_what_no_resource_can_do() -> None:
    """The quota counts the vCPUs of all nodes in the second region, and exports have a command. Existing blobs and private endpoints need none."""
    plan = _recovery_plan()
    quota, export = [one.command for one in plan.commands]
    assert "'standard NDAMSv4_A100Family' --resource-type dedicated --limit-object value=192" in quota
    assert quota.endswith(f"/locations/{SECOND}")
    assert "export_commands" in export
    assert plan.rpo.excluded == ()


def test_the_export_command_has_the_file_system() -> None:
    """The command has the names of the resource group and the file system."""
    recording = recording_of("azure-recovery")
    outputs = recording.outputs[recording.one("gpuinfra:index:GpuCluster").urn]
    assert re.fullmatch(
        r"az amlfs archive --resource-group train-site-\w+ --amlfs-name train-scratch-0-\w+ --filesystem-path /",
        outputs["export_commands"]["/scratch"],
    )


def test_the_price_names_both_containers_and_the_alerts() -> None:
    """The transfer, the storage of both containers and the alerts have prices that are estimates. Deleted blobs are deleted in the replica."""
    cost = price(plan_of("azure-recovery"), TODAY)
    (transfer,) = [line for line in cost.lines if "checkpoints replicated" in line.what]
    assert transfer.usd_per_unit_hour is not None
    assert not transfer.certain
    assert not [line for line in cost.lines if "fee" in line.what or "deletions are not replicated" in line.what]
    stored = [line for line in cost.lines if "checkpoints of the last 90 days" in line.what]
    assert ["southcentralus" in line.what for line in stored] == [True, False]
    (alerts,) = [line for line in cost.lines if "metric alert" in line.what]
    assert alerts.quantity == 2
    assert all(line.usd_per_unit_hour and not line.certain for line in (*stored, alerts))
