"""The outage of a region, the replication of containers, and the requests of a failover to the stand-in cloud, with the code of `gpuinfra failover`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.region import failover as azure_failover
from gpuinfra.clouds.azure.region.failback import AzureFailback
from gpuinfra.clouds.azure.region.failover import AzureFailover
from gpuinfra.clouds.azure.rest import AzureRefused, Rest, raise_for
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, Unreachable
from gpuinfra_rehearsal import workload
from gpuinfra_rehearsal.cloud.azure import identity
from gpuinfra_rehearsal.cloud.azure.behaviors.storage import LUSTRE
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.object_stores.azure import Blobs, admit
from rehearsal.tests.cloud import microsoft
from rehearsal.tests.cloud.conftest import Client, Made
from rehearsal.tests.cloud.test_azure_http import environment
from rehearsal.tests.cloud.test_outage import ask

FIRST, SECOND = "southcentralus", "eastus2"
PLACES = {"source": (FIRST, "rg"), "replica": (SECOND, "rg2")}
SETTINGS, POLICY = "azure-native:storage:BlobServiceProperties", "azure-native:storage:ObjectReplicationPolicy"
RULE = {"sourceContainer": "data", "destinationContainer": "data", "filters": {"minCreationTime": "1601-01-01T00:00:00Z"}}  # fmt: skip
SET = "azure-native:compute:VirtualMachineScaleSet"


@pytest.fixture
def rest(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    """The operator's requests."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    server = Server(cloud, "token")
    server.start()
    for name, value in environment(cloud).items():
        if name.startswith(("AZURE_", "GPUINFRA_AZURE")):
            monkeypatch.setenv(name, value)
    yield Rest()
    server.shutdown()
    server.server_close()


@pytest.fixture
def pair(azure: Client, rest: Rest) -> BucketPair:
    """A private container in the first region, and its replica in the second one."""
    accounts: dict[str, Made] = {}
    containers = {}
    for name, (region, group) in PLACES.items():
        azure.create("azure-native:resources:ResourceGroup", {"resourceGroupName": group, "location": region}, group)
        where = {"resourceGroupName": group, "accountName": name}
        accounts[name] = azure.create(
            "azure-native:storage:StorageAccount",
            {
                **where,
                "location": region,
                "kind": "StorageV2",
                "sku": {"name": "Standard_LRS"},
                "publicNetworkAccess": "Disabled",
                "tags": {"team": "research"},
            },
            name,
        )
        azure.create(SETTINGS, {**where, "blobServicesName": "default", "isVersioningEnabled": True, "changeFeed": {"enabled": True}}, name)  # fmt: skip
        containers[name] = azure.create("azure-native:storage:BlobContainer", {**where, "containerName": "data"}, name).id  # fmt: skip
    policy(azure, accounts)
    return BucketPair(source=containers["source"], replica=containers["replica"])


def policy(azure: Client, accounts: dict[str, Made]) -> None:
    """Replicate the container."""
    both = {"sourceAccount": accounts["source"].id, "destinationAccount": accounts["replica"].id}
    made = azure.create(
        POLICY,
        {
            "resourceGroupName": "rg2",
            "accountName": "replica",
            "objectReplicationPolicyId": "default",
            "rules": [RULE],
            **both,
        },
        "replica-policy",
    )
    rule = {**RULE, "ruleId": made.outputs["rules"][0]["ruleId"]}
    azure.create(
        POLICY,
        {
            "resourceGroupName": "rg",
            "accountName": "source",
            "objectReplicationPolicyId": made.outputs["policyId"],
            "rules": [rule],
            **both,
        },
        "source-policy",
    )


def failing(rest: Rest) -> AzureFailover:
    """A failover with the operator's requests."""
    return AzureFailover(rest, FIRST, SECOND)


def admitted(cloud: Cloud, rest: Rest, pair: BucketPair) -> Blobs:
    """The blobs, after the operator got a role and a machine in the private network."""
    admit(lambda action, body: ask(cloud, action, **body), [pair.source, pair.replica])
    return Blobs(rest)


@pytest.mark.parametrize(
    ("region", "refused"),
    [
        (FIRST, {"account in the first region", "account of the group of the first region", "child of the first account"}),
        (SECOND, {"account of the group of the first region"}),
    ],
)  # fmt: skip
def test_an_outage_refuses_changes_that_require_the_region(
    region: str, refused: set[str], cloud: Cloud, azure: Client, pair: BucketPair
) -> None:
    """A change requires the region of the resource and of its resource group. Role assignments do not belong to a region."""
    account, container = "azure-native:storage:StorageAccount", "azure-native:storage:BlobContainer"
    more = {"kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    changes: dict[str, tuple[str, dict[str, Any]]] = {
        "account in the first region": (account, {"resourceGroupName": "rg", "accountName": "one", "location": FIRST, **more}),
        "account of the group of the first region": (account, {"resourceGroupName": "rg", "accountName": "two", "location": SECOND, **more}),
        "child of the first account": (container, {"resourceGroupName": "rg", "accountName": "source", "containerName": "other"}),
        "role": (identity.ASSIGNMENT, {
            "roleAssignmentName": "00000000-0000-4d00-8000-000000000009", "scope": pair.source, "principalId": "p", "principalType": "User",
            "roleDefinitionId": f"/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/{microsoft.READER}"}),
    }  # fmt: skip
    ask(cloud, "outage", region=region)
    problems = {}
    for name, (token, inputs) in changes.items():
        try:
            azure.create(token, inputs, name.replace(" ", "-"))
        except grpc.RpcError as problem:
            problems[name] = str(problem)
    assert set(problems) == refused
    assert all(f"requires {region}, which does not respond" in text for text in problems.values())
    ask(cloud, "outage", region=None)
    for name in refused:
        token, inputs = changes[name]
        azure.create(token, inputs, name.replace(" ", "-"))


def test_a_failover_sees_an_outage_of_the_first_region(
    cloud: Cloud, rest: Rest, pair: BucketPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage, the management API refuses requests for the first region, its storage does not respond, and the second region responds."""
    monkeypatch.setattr(reach, "BUSY_S", 0.0)
    one, group = failing(rest), f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"  # fmt: skip
    assert one.running(group) == 0
    one.answers(pair)
    cloud.existing(SET, group, {"location": FIRST, "sku": {"capacity": 1}})
    ask(cloud, "outage", region=FIRST)
    for request in (
        lambda: one.stop_group(group),
        lambda: one.not_replicated(pair),
        lambda: one.stop_replication(pair),
    ):
        with pytest.raises(DeploymentError, match="the service responds"):
            request()
    with pytest.raises(Unreachable):
        azure_failover.asked(lambda: rest.blob("GET", rest.blob_base("https://source.blob.core.windows.net/data")))
    one.answers(pair)
    ask(cloud, "outage", region=None)
    ask(cloud, "outage", region=SECOND)
    with pytest.raises(DeploymentError, match="the service responds"):
        one.answers(pair)


def test_blobs_are_replicated_after_the_lag(cloud: Cloud, rest: Rest, pair: BucketPair) -> None:
    """A checkpoint is in the replica after the lag, the status and the metric show what waits, and an outage stops the replication."""
    blobs, one = admitted(cloud, rest, pair), failing(rest)
    begin = time.time()
    ask(cloud, "replication", lag_s=900)
    for number, at in ((1, 0), (2, 1800)):
        ask(cloud, "clock", at=begin + at)
        workload.write(blobs, pair.source, number)
    ask(cloud, "clock", at=begin + 1800 + 840)
    assert workload.complete(blobs, pair.replica, [1, 2]) == ([1], [])
    second = [f"{workload.PREFIX}/checkpoint-2/{name}" for name in (workload.MANIFEST, *(f"shard-{index}" for index in range(workload.FILES)))]  # fmt: skip
    assert one.not_replicated(pair) == second
    (held,) = rest.arm(f"{azure_failover.account_of(pair.source)}/objectReplicationPolicies", azure_failover.STORAGE)["value"]  # fmt: skip
    query = {"metricnames": "PendingOperationsForReplication", "metricnamespace": "n", "aggregation": "Maximum"}
    (metric,) = rest.arm(f"{held['id']}/providers/Microsoft.Insights/metrics", "2024-02-01", query)["value"]
    found = {one["metadatavalues"][0]["value"]: one["data"][0]["maximum"] for one in metric["timeseries"]}
    assert found == {"10-15 mins": len(second)}
    ask(cloud, "outage", region=FIRST)
    ask(cloud, "clock", at=begin + 3600)
    assert workload.complete(blobs, pair.replica, [1, 2]) == ([1], [])
    ask(cloud, "outage", region=None)
    assert one.not_replicated(pair) == []
    assert workload.complete(blobs, pair.replica, [1, 2]) == ([1, 2], [])


def test_a_private_account_is_read_only_in_its_network(cloud: Cloud, rest: Rest, pair: BucketPair) -> None:
    """Without a private endpoint and a role, the operator cannot list the blobs, and the error states the requirement."""
    with pytest.raises(DeploymentError, match="source/data cannot be listed: AuthorizationFailure"):
        failing(rest).not_replicated(pair)
    admitted(cloud, rest, pair)
    assert failing(rest).not_replicated(pair) == []


def test_a_replica_can_be_written_after_its_policy_is_deleted(cloud: Cloud, rest: Rest, pair: BucketPair) -> None:
    """Even without the first region, the second region can write to the replica, and the account has a tag with the time."""
    blobs, one = admitted(cloud, rest, pair), failing(rest)
    with pytest.raises(AzureRefused, match="ObjectReplicationPolicyConflict"):
        blobs.put(pair.replica, "log", b"1")
    ask(cloud, "outage", region=FIRST)
    one.detach_replica(pair)
    one.detach_replica(pair)
    blobs.put(pair.replica, "log", b"1")
    tags = rest.arm(azure_failover.account_of(pair.replica), azure_failover.STORAGE)["tags"]
    assert set(tags) == {"team", azure_failover.STOPPED}
    ask(cloud, "outage", region=None)
    blobs.put(pair.source, "other", b"1")
    assert blobs.keys(pair.replica, "") == {"log"}
    one.stop_replication(pair)
    one.stop_replication(pair)
    assert rest.arm(f"{azure_failover.account_of(pair.source)}/objectReplicationPolicies", azure_failover.STORAGE)["value"] == []  # fmt: skip


def test_a_failback_copies_what_the_second_region_wrote(cloud: Cloud, rest: Rest, pair: BucketPair) -> None:
    """Blobs are copied once, and a blob that changed in the first region after the failover is a conflict."""
    blobs, one = admitted(cloud, rest, pair), AzureFailback(rest, FIRST, SECOND)
    for name in ("kept", "changed", "both"):
        blobs.put(pair.source, name, b"first")
    assert one.not_replicated(pair) == []
    one.stop_replication(pair)
    one.detach_replica(pair)
    ask(cloud, "clock", at=time.time() + 60)
    for name in ("changed", "both", "new"):
        blobs.put(pair.replica, name, b"second")
    blobs.put(pair.source, "both", b"late")
    found = one.compare(pair)
    assert {copy.key: copy.replaces is None for copy in found.copies} == {"changed": False, "new": True}
    assert [conflict.key for conflict in found.conflicts] == ["both"]
    one.copy(pair, found.copies)
    assert {name: blobs.get(pair.source, name) for name in blobs.keys(pair.source, "")} == {
        "kept": b"first",
        "changed": b"second",
        "new": b"second",
        "both": b"late",
    }
    again = one.compare(pair)
    assert (again.copies, [conflict.key for conflict in again.conflicts]) == ((), ["both"])
    with pytest.raises(DeploymentError, match="changed after the comparison and was not replaced"):
        one.copy(pair, found.copies)


def test_conditions_of_writes_are_checked(cloud: Cloud, rest: Rest, pair: BucketPair) -> None:
    """A write with an outdated ETag, or to a blob that must not exist, is refused."""
    admitted(cloud, rest, pair)
    url = f"{rest.blob_base('https://source.blob.core.windows.net/data')}/log"
    put = {"x-ms-blob-type": "BlockBlob", "x-ms-meta-owner": "me"}
    first = raise_for(rest.blob("PUT", url, {**put, "If-None-Match": "*"}, b"1"))
    etag = first.headers["ETag"]
    assert rest.blob("PUT", url, {**put, "If-None-Match": "*"}, b"2").status == 409
    assert rest.blob("PUT", url, {**put, "If-Match": etag}, b"2").status == 201
    assert rest.blob("PUT", url, {**put, "If-Match": etag}, b"3").status == 412
    (found,) = failing(rest).listed(pair.source)
    assert (found.size, found.metadata) == (1, {"owner": "me"})


def test_a_scale_set_is_scaled_to_zero(cloud: Cloud, azure: Client, rest: Rest) -> None:
    """All machines of the set end, and its other settings do not change."""
    microsoft.group(azure)
    made = microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)))
    cloud.fleet.reconcile()
    one = failing(rest)
    assert one.running(made.id) == 2
    one.stop_group(made.id)
    cloud.fleet.reconcile()
    assert one.running(made.id) == 0
    after = azure.read(SET, made.id).inputs
    assert after == {**made.inputs, "sku": {**made.inputs["sku"], "capacity": 0}}


def test_a_replica_is_imported_into_a_file_system(cloud: Cloud, azure: Client, rest: Rest, pair: BucketPair) -> None:
    """The import of a file system with a container ends, a running import is found again, and a file system without a container is refused."""
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg2/providers/Microsoft.StorageCache/amlFilesystems"
    for number, role in enumerate(("17d1049b-9a84-46fb-8f53-869881c3d3ab", microsoft.CONTRIBUTOR)):
        inputs = {
            "scope": azure_failover.account_of(pair.replica),
            "principalId": "importer",
            "principalType": "ServicePrincipal",
            "roleAssignmentName": f"00000000-0000-4d00-8000-00000000000{number}",
            "roleDefinitionId": f"/x/{role}",
        }
        cloud.existing(identity.ASSIGNMENT, f"{inputs['scope']}/providers/Microsoft.Authorization/roleAssignments/{number}", inputs)  # fmt: skip
    settings = {
        "container": pair.replica,
        "loggingContainer": pair.replica.replace("/data", "/log"),
        "importPrefix": "/",
    }
    for number, (name, hsm) in enumerate((("linked", {"hsm": {"settings": settings}}), ("empty", {}))):
        subnet = microsoft.subnet(azure, name, f"10.0.{number}.0/24", make=number == 0).id
        cloud.existing(
            LUSTRE,
            f"{base}/{name}",
            {
                "location": SECOND,
                "storageCapacityTiB": 8,
                "sku": {"name": "AMLFS-Durable-Premium-250"},
                "filesystemSubnet": subnet,
                **hsm,
            },
        )
    one = failing(rest)
    job = one.start_import(f"{base}/linked")
    assert not one.import_ended(job)
    assert one.import_ended(job)
    with pytest.raises(DeploymentError, match="has no container to import from"):
        one.start_import(f"{base}/empty")
