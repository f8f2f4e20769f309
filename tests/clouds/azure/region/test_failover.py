"""The requests of a failover on Azure. Requests and responses are validated against the azure-mgmt packages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.mgmt.compute import models as compute
from azure.mgmt.storage import models as storage
from azure.mgmt.storagecache import models as cache

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.blob_list import Blob
from gpuinfra.clouds.azure.region import failover as azure
from gpuinfra.clouds.azure.region.failover import AzureFailover, container_id
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import BucketPair, Unreachable
from tests.clouds.azure.failing import ACCOUNTS, FILE_SYSTEM, MARK, SET, TIMEOUT, Regions, blob
from tests.clouds.azure.region.test_readiness import POLICIES, REPLICAS, SOURCES, STATE
from tests.doctor.test_azure_live import checked

PAIR = BucketPair(source=container_id(SOURCES[1], "data"), replica=container_id(REPLICAS[1], "data"))
SOURCE, REPLICA = "trainscratch/data", "copyscratch/data"
DONE = {MARK: "complete"}
JOBS = f"{FILE_SYSTEM}/importJobs"


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(reach.time, "sleep", pauses.append)
    return pauses


def failing(rest: Regions) -> AzureFailover:
    """A failover with these responses."""
    return AzureFailover(rest, "southcentralus", "eastus2")


def test_names_come_from_the_state() -> None:
    """Scale sets, pairs of containers, and file systems with a container are read from the state."""
    state = [
        *STATE,
        {"type": azure.GROUP, "id": SET},
        {"type": azure.FILE_SYSTEM, "id": FILE_SYSTEM, "outputs": {"hsm": {"settings": {"container": PAIR.replica}}}},
        {"type": azure.FILE_SYSTEM, "id": f"{FILE_SYSTEM}-2", "outputs": {}},
    ]
    found = failing(Regions({}))
    assert found.groups(state) == (SET,)
    assert found.pairs(state)[1:] == (PAIR,)
    assert found.file_systems(state) == (FILE_SYSTEM,)
    assert isinstance(cloud_of("azure").failover("southcentralus", "eastus2", {}), AzureFailover)


def test_scale_set_is_scaled_to_zero() -> None:
    """Only the capacity changes. The number of machines includes machines that are being deleted, and a set that does not exist is left alone."""
    sku = checked(compute.Sku, {"name": "Standard_ND96amsr_A100_v4", "tier": "Standard", "capacity": 2})
    rest = Regions({SET: {"sku": sku}, f"{SET}/virtualMachines": {"value": [{"name": "a"}, {"name": "b"}]}})
    found = failing(rest)
    found.stop_group(SET)
    ((method, path, body),) = rest.changes
    assert (method, path) == ("PATCH", SET)
    assert checked(compute.VirtualMachineScaleSetUpdate, body) == {"sku": {**sku, "capacity": 0}}
    assert found.running(SET) == 2
    rest.arm_answers.clear()
    found.stop_group(SET)
    assert found.running(SET) == 0
    assert len(rest.changes) == 1


@pytest.mark.parametrize(
    ("source", "replica", "missing"),
    [
        ([blob("a", replication=DONE), blob("b", replication=DONE)], [], []),
        ([blob("a", replication=DONE), blob("b"), blob("c", replication={MARK: "failed"})], [], ["b", "c"]),
        ([blob("a", replication={MARK.replace("2", "9"): "complete"})], [], ["a"]),
        ([blob("a"), blob("b", md5="other"), blob("c", size=9), blob("d", md5="")],
         [blob("a"), blob("b"), blob("c"), blob("d", md5="")], ["b", "c", "d"]),
    ],
    ids=["complete", "not complete", "another policy", "compared with the replica"],
)  # fmt: skip
def test_blobs_that_are_not_replicated_are_found(source: list[Blob], replica: list[Blob], missing: list[str]) -> None:
    """A blob is replicated if Azure reports it for the policy of the pair, or if the checksum in the replica is the same. All pages count."""
    rest = Regions(ACCOUNTS, {SOURCE: source, REPLICA: replica})
    assert failing(rest).not_replicated(PAIR) == missing
    assert ("copyscratch" in rest.listed) == any(one.replication != DONE for one in source)


def test_without_a_policy_the_contents_are_compared() -> None:
    """After the policy is deleted, the contents decide. Names with characters that XML does not allow are decoded."""
    policies = {f"{SOURCES[1]}/objectReplicationPolicies": {"value": []}}
    rest = Regions({**ACCOUNTS, **policies}, {SOURCE: [blob("a"), blob("b\x01 %")], REPLICA: [blob("a")]})
    assert failing(rest).not_replicated(PAIR) == ["b\x01 %"]


@pytest.mark.parametrize("listed", [{"value": []}, 404])
def test_blobs_that_can_no_longer_be_replicated_stop_a_resumed_failover(listed: Any) -> None:
    """After the replica was opened, waiting has no effect, so the blobs that are missing are an error. Without missing blobs, there is none."""
    opened = {**ACCOUNTS, f"{REPLICAS[1]}/objectReplicationPolicies": listed}
    late = [blob(str(number)) for number in range(6)]
    with pytest.raises(
        DeploymentError,
        match=r"6 objects of trainscratch/data are not in the replica, .*: 0, 1, 2, 3, 4 \.\.\.; copy these objects yourself",
    ):
        failing(Regions(opened, {SOURCE: late, REPLICA: []})).not_replicated(PAIR)
    assert failing(Regions(opened, {SOURCE: late, REPLICA: late})).not_replicated(PAIR) == []


def test_what_cannot_be_stopped_is_named() -> None:
    """Nodes run until Azure changes their scale set."""
    (part,) = failing(Regions({})).beyond_reach([*STATE, {"type": azure.GROUP, "id": SET}])
    assert part.startswith(f"the nodes of {SET.rpartition('/')[2]}: ")
    assert failing(Regions({})).beyond_reach(STATE) == ()


def test_private_account_names_the_requirement() -> None:
    """If the firewall refuses the listing, the message states the network and the role that the machine requires."""
    with pytest.raises(
        DeploymentError,
        match=r"trainscratch/data cannot be listed: AuthorizationFailure.*; run the command on a machine with a private endpoint",
    ):
        failing(Regions(ACCOUNTS, {SOURCE: 403})).not_replicated(PAIR)


def test_replication_ends_in_the_first_region() -> None:
    """Only the policy of the pair is deleted, in the account of the first region. A policy that does not exist is left alone."""
    rest = Regions(ACCOUNTS)
    found = failing(rest)
    found.stop_replication(PAIR)
    assert rest.changes == [("DELETE", f"{SOURCES[1]}/objectReplicationPolicies/{POLICIES[1]}", None)]
    rest.arm_answers[f"{SOURCES[1]}/objectReplicationPolicies"] = {"value": []}
    found.stop_replication(PAIR)
    rest.arm_answers[f"{SOURCES[1]}/objectReplicationPolicies"] = 404
    found.stop_replication(PAIR)
    assert len(rest.changes) == 1


def test_replica_is_writable_after_its_time_is_recorded() -> None:
    """The time of Azure is added to the tags before the policy of the replica is deleted. A replica without a policy keeps its time.
    The first region is not asked."""
    rest = Regions({path: TIMEOUT if path.startswith(SOURCES[1]) else found for path, found in ACCOUNTS.items()})
    found = failing(rest)
    found.detach_replica(PAIR)
    tags = checked(storage.StorageAccountUpdateParameters, {"tags": {"team": "research", azure.STOPPED: "2026-11-22T12:00:00Z"}})  # fmt: skip
    assert rest.changes == [
        ("PATCH", REPLICAS[1], tags),
        ("DELETE", f"{REPLICAS[1]}/objectReplicationPolicies/{POLICIES[1]}", None),
    ]
    rest.arm_answers[f"{REPLICAS[1]}/objectReplicationPolicies"] = {"value": []}
    found.detach_replica(PAIR)
    assert len(rest.changes) == 2


def _job(state: str | None, **more: Any) -> dict[str, Any]:
    status = {"status": checked(cache.ImportJobPropertiesStatus, {"state": state, **more})} if state else {}
    properties = checked(cache.ImportJobProperties, {"provisioningState": "Succeeded", **status})
    return {"id": f"{JOBS}/old", "properties": properties}


def test_import_job_is_started_once() -> None:
    """The job imports the prefix of the file system, and replaces files whose blobs changed. A running job is found again."""
    held = {"location": "eastus2", "properties": {"hsm": {"settings": {"importPrefix": "/runs"}}}}
    rest = Regions({FILE_SYSTEM: held, JOBS: {"value": [_job("Completed"), _job("Failed")]}})
    found = failing(rest)
    rest.arm_answers |= {path: {} for path in _next_jobs()}
    job = found.start_import(FILE_SYSTEM)
    ((method, path, body),) = rest.changes
    assert (method, path) == ("PUT", job)
    assert checked(cache.ImportJob, body)["location"] == "eastus2"
    assert checked(cache.ImportJobProperties, body["properties"]) == {
        "importPrefixes": ["/runs"], "conflictResolutionMode": cache.ConflictResolutionMode.OVERWRITE_ALWAYS, "maximumErrors": 0,
    }  # fmt: skip
    rest.arm_answers[JOBS] = {"value": [_job("Completed"), {**_job("InProgress"), "id": f"{JOBS}/now"}]}
    assert found.start_import(FILE_SYSTEM) == f"{JOBS}/now"
    assert len(rest.changes) == 1


def _next_jobs() -> list[str]:
    """The names of a job that starts within a minute."""
    return [f"{JOBS}/gpuinfra-{datetime.now(UTC) + timedelta(seconds=one):%Y%m%d%H%M%S}" for one in range(60)]


@pytest.mark.parametrize(("state", "ended"), [(None, False), ("InProgress", False), ("Cancelling", False), ("Completed", True)])  # fmt: skip
def test_import_job_ends(state: str | None, ended: bool) -> None:
    """A job that Azure has not started yet, or that is running, has not ended."""
    assert failing(Regions({f"{JOBS}/old": _job(state)})).import_ended(f"{JOBS}/old") is ended


@pytest.mark.parametrize("state", ["CompletedPartial", "Failed", "Canceled"])
def test_failed_import_states_why(state: str) -> None:
    """A job that did not import every blob fails, with the reason of Azure and the counts."""
    job = _job(state, statusMessage="the container\ncannot be read", totalErrors=1, totalConflicts=2)
    with pytest.raises(
        DeploymentError,
        match=rf"old is {state}: the container cannot be read \(1 error, 2 conflicts\); see `az resource show --ids {JOBS}/old ",
    ):
        failing(Regions({f"{JOBS}/old": job})).import_ended(f"{JOBS}/old")


@pytest.mark.parametrize(
    ("status", "error"),
    [(200, None), (403, None), (503, DeploymentError), (TIMEOUT, Unreachable), (404, DeploymentError), (401, DeploymentError)],
)  # fmt: skip
def test_second_region_answers(status: Any, error: type[Exception] | None) -> None:
    """The storage service of the region must respond. A firewall that refuses the request is a response."""
    rest = Regions(ACCOUNTS, {REPLICA: [] if status == 200 else status})
    if error is None:
        failing(rest).answers(PAIR)
    else:
        with pytest.raises(error):
            failing(rest).answers(PAIR)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(TIMEOUT, Unreachable), (503, DeploymentError), (500, DeploymentError), (429, DeploymentError), (403, DeploymentError)],
)  # fmt: skip
def test_a_response_with_an_error_is_never_an_unreachable_region(answer: Any, error: type[Exception]) -> None:
    """Only a region without a connection is unreachable. A server error, a busy service and a refusal end the failover."""
    with pytest.raises(error):
        failing(Regions({SET: answer})).stop_group(SET)
    with pytest.raises(error):
        failing(Regions({f"{SET}/virtualMachines": answer})).running(SET)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_service_is_asked_again(status: int, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A request succeeds after throttling and errors of the service."""
    rest = Regions({f"{SET}/virtualMachines": status})
    monkeypatch.setattr(
        reach.time, "sleep", lambda _: rest.arm_answers.update({f"{SET}/virtualMachines": {"value": [{}]}})
    )
    assert failing(rest).running(SET) == 1


def test_services_of_the_first_region_are_asked_once(slept: list[float]) -> None:
    """The evidence has a request to Azure Resource Manager and one to the account, and a response with any status is one."""
    rest = Regions({SET: TIMEOUT}, {SOURCE: TIMEOUT})
    services = failing(rest).services([{"type": azure.GROUP, "id": SET}, *STATE])
    assert list(services) == ["Azure Resource Manager", "Blob Storage"]
    for request in services.values():
        with pytest.raises(Unreachable):
            request()
    rest.blobs[SOURCE] = 503
    services["Blob Storage"]()
    assert slept == []


def test_missing_login_is_not_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials, the message states what to do."""
    rest = Regions({})

    def refused(*_: str) -> Any:
        raise ValueError("no token")

    monkeypatch.setattr(rest._credential, "get_token", refused)
    with pytest.raises(DeploymentError, match="no credentials for Azure: no token; log in to Azure"):
        failing(rest).running(SET)


RECORDED = (
    '<?xml version="1.0" encoding="utf-8"?><EnumerationResults '
    'ServiceEndpoint="https://fakestorageaccount.blob.core.windows.net/" ContainerName="orssrc"><Blobs><Blob>'
    "<Name>orsBlob</Name><VersionId>2020-06-22T10:32:08.3617832Z</VersionId><IsCurrentVersion>true</IsCurrentVersion><Properties><Creation-Time>Mon, "
    "22 Jun 2020 10:32:08 GMT"
    "</Creation-Time><Last-Modified>Mon, 22 Jun 2020 10:32:08 "
    "GMT</Last-Modified><Etag>0x8D8169784037828</Etag><Content-Length>308736</Content-Length><Content-Type>application/octet-stream"
    "</Content-Type><Content-MD5>y7XBmARNLrDlPIkUsiWY+Q==</Content-MD5><BlobType>BlockBlob</BlobType></Properties><OrMetadata>"
    "<or-003ca702-58ab-4405-8f52-cb92316babde_9a53f315-d56b-44f6-a3e8-1d62c1b7089b>complete</or-003ca702-58ab-4405-8f52-cb92316babde_9a53f315-d56b-44f6-a3e8-1d62c1b7089b>"
    "</OrMetadata></Blob></Blobs><NextMarker /></EnumerationResults>"
)
"""A response of Azure that Microsoft's tests recorded (listBlobsFlat with object replication in Azure/azure-sdk-for-js, retrieved 2026-11-26), shortened."""


def test_recorded_listing_is_parsed() -> None:
    """The recorded response of Azure contains the replication status, the checksum and the time of a blob."""
    (found,) = failing(Regions(ACCOUNTS, {SOURCE: RECORDED})).listed(PAIR.source)
    assert found.replication == {
        "003ca702-58ab-4405-8f52-cb92316babde_9a53f315-d56b-44f6-a3e8-1d62c1b7089b": "complete"
    }
    assert (found.name, found.md5, found.size) == ("orsBlob", "y7XBmARNLrDlPIkUsiWY+Q==", 308736)
    assert found.modified == datetime(2020, 6, 22, 10, 32, 8, tzinfo=UTC)
