"""The outage of a Google Cloud region, the replication lag, and the requests of a failover to the stand-in cloud, with the code of `gpuinfra failover`."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import google_crc32c
import grpc
import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.gcp.api import Api
from gpuinfra.clouds.gcp.region import record
from gpuinfra.clouds.gcp.region.failback import GcpFailback
from gpuinfra.clouds.gcp.region.failover import JOB, GcpFailover, copied_from
from gpuinfra.clouds.gcp.region.readiness import LATENCY
from gpuinfra.clouds.region.failover import BucketPair
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids, objects
from gpuinfra_rehearsal.cloud.gcp.http.reads import METRIC
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_gcp_replication import TRANSFER, _grants, _job
from rehearsal.tests.cloud.test_outage import ask

FIRST, SECOND = "us-central1", "us-east4"
LUSTRE = "gcp:lustre/instance:Instance"
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
INSTANCE = f"projects/{ids.PROJECT}/locations/us-east4-a/instances/scratch"
STATE = [
    {
        "type": "gpuinfra:gcp:SharedFilesystem",
        "outputs": {
            "import_command": (
                f"gcloud lustre instances import-data scratch --location=us-east4-a --project={ids.PROJECT} "
                "--gcs-path-uri=gs://replica-1/ --lustre-path=/"
            )
        },
    }
]


@pytest.fixture
def api(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Requests to the stand-in cloud with the credentials of the operator."""
    server = Server(cloud, "token")
    server.start()
    known = {one.name: one.operator_credentials(cloud) for one in registry.installed()}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "gcp", FIRST).items():
        monkeypatch.setenv(name, value)
    yield Api(sleep=lambda _: None)
    server.shutdown()
    server.server_close()


@pytest.fixture
def pair(cloud: Cloud, gcp: Client) -> BucketPair:
    """A bucket in the first region whose objects are replicated to the second one."""
    _grants(gcp)
    cloud.store.update(_moved(cloud, "replica-1", "US-EAST4"))
    name = _job(gcp).outputs["name"]
    job, role = f"{ids.PROJECT}/{name}", f"projects/{ids.PROJECT}/roles/replica"
    return BucketPair(source="source-1", replica="replica-1", job=job, writer=TRANSFER, role=role)


def _moved(cloud: Cloud, bucket: str, location: str) -> Any:

    found = cloud.store.find("gcp:storage/bucket:Bucket", bucket)
    assert found is not None
    return replace(found, inputs={**found.inputs, "location": location})


def put(api: Api, bucket: str, name: str, content: bytes = b"content") -> None:
    """Upload an object."""
    import requests

    address = api._client._open()  # pyright: ignore[reportAttributeAccessIssue]
    url = f"{os.environ['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/{bucket}/o"
    done: requests.Response = address.post(url, params={"uploadType": "media", "name": name}, data=content)
    assert done.status_code == 200, done.text


@pytest.mark.parametrize(
    ("region", "refused"), [(FIRST, {"bucket", "group"}), (SECOND, {"other"}), ("us-west1", set())]
)
def test_an_outage_refuses_changes_in_the_region(region: str, refused: set[str], cloud: Cloud, gcp: Client) -> None:
    """Zonal and regional resources require their region, and global ones do not."""
    template = google.template(gcp)
    changes = {
        "bucket": ("gcp:storage/bucket:Bucket", {"name": "new-1", "location": "US-CENTRAL1"}),
        "group": (google.GROUP, {"name": "new", "baseInstanceName": "new", "zone": "us-central1-a", "targetSize": 0, "versions": google.versions(template)}),
        "other": ("gcp:storage/bucket:Bucket", {"name": "new-2", "location": "US-EAST4"}),
        "network": ("gcp:compute/network:Network", {"name": "new", "autoCreateSubnetworks": False}),
    }  # fmt: skip
    ask(cloud, "outage", region=region)
    problems = {}
    for name, (token, inputs) in changes.items():
        try:
            gcp.create(token, inputs, name)
        except grpc.RpcError as problem:
            problems[name] = str(problem)
    assert set(problems) == refused
    assert all(f"requires {region}, which does not respond" in text for text in problems.values())
    ask(cloud, "outage", region=None)
    for name in refused:
        token, inputs = changes[name]
        gcp.create(token, inputs, name)


def test_an_unknown_region_has_no_outage(cloud: Cloud) -> None:
    """The error lists the regions of all clouds."""
    with pytest.raises(AssertionError, match="us-centrel1 is not a region; allowed: us-east-1"):
        ask(cloud, "outage", region="us-centrel1")


def test_a_failover_sees_an_outage_of_the_first_region(cloud: Cloud, gcp: Client, api: Api, pair: BucketPair) -> None:  # fmt: skip
    """In an outage, Compute Engine and Cloud Storage, whose endpoints are global, respond with errors for the first region. The second region and
    Storage Transfer Service respond."""
    google.group(gcp, google.template(gcp), 1)
    one = GcpFailover(api)
    ask(cloud, "outage", region=FIRST)
    for request in (lambda: one.stop_group(google.path()), lambda: one.running(google.path()), lambda: one.not_replicated(pair)):  # fmt: skip
        with pytest.raises(DeploymentError, match="us-central1"):
            request()
    one.answers(pair)
    one.stop_replication(pair)
    ask(cloud, "outage", region=SECOND)
    with pytest.raises(DeploymentError, match="us-east4"):
        one.answers(pair)


def test_a_group_is_scaled_to_zero(cloud: Cloud, gcp: Client, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes are deleted and not launched again, the provider reads the new size, and an update restores the declared size."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    made = google.group(gcp, google.template(gcp), 2)
    cloud.fleet.reconcile()
    one = GcpFailover(api)
    assert one.running(google.path()) == 2
    one.stop_group(google.path())
    for _ in range(3):
        cloud.fleet.reconcile()
    assert one.running(google.path()) == 0
    read = gcp.read(google.GROUP, made.id)
    assert read.outputs["targetSize"] == 0
    gcp.update(read, {"targetSize": 2})
    cloud.fleet.reconcile()
    assert one.running(google.path()) == 2


def test_a_queued_group_does_not_launch_nodes_after_it_was_stopped(cloud: Cloud, gcp: Client, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A request that waits for capacity is canceled."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    google.group(gcp, google.template(gcp), 0)
    request = {"name": "wait", "zone": google.ZONE, "instanceGroupManager": "gpu", "resizeBy": 2, "requestedRunDuration": {"seconds": "3600"}}  # fmt: skip
    made = gcp.create("gcp:compute/resizeRequest:ResizeRequest", request, "wait")
    one = GcpFailover(api)
    one.stop_group(google.path())
    cloud.fleet.reconcile()
    assert one.running(google.path()) == 0
    assert gcp.read(made.token, made.id).outputs["state"] == "CANCELLED"


def test_a_report_of_a_ready_region_is_kept(cloud: Cloud, api: Api, pair: BucketPair) -> None:
    """Cloud Monitoring keeps the value of a custom metric by its labels, and refuses the metrics of Google."""
    state = [{"type": "gcp:storage/bucket:Bucket", "id": pair.replica, "outputs": {"project": ids.PROJECT}}]
    record.report_ready(pair.replica, state, api)
    ((key, value),) = cloud.store.all(METRIC).items()
    assert key == f"custom.googleapis.com/gpuinfra/ready/replica={pair.replica}"
    assert value["point"]["value"] == {"int64Value": "1"}
    point = {"interval": {"endTime": "2026-11-29T12:00:00Z"}, "value": {"int64Value": "1"}}
    series = {"metric": {"type": LATENCY}, "points": [point]}
    with pytest.raises(DeploymentError, match="invalid value"):
        api.sent("POST", "monitoring", f"v3/projects/{ids.PROJECT}/timeSeries", body={"timeSeries": [series]})


def test_objects_are_replicated_after_the_lag(cloud: Cloud, api: Api, pair: BucketPair) -> None:
    """An object is in the replica after the lag, with its own generation. The metric shows the latency, and an outage stops the replication."""
    begin = time.time()
    ask(cloud, "replication", lag_s=900)
    for number, at in ((1, 0), (2, 1800)):
        ask(cloud, "clock", at=begin + at)
        put(api, pair.source, f"run/{number}")
    ask(cloud, "clock", at=begin + 1800 + 840)
    one = GcpFailover(api)
    assert one.not_replicated(pair) == ["run/2"]
    source, replica = (cloud.store.object(bucket, "run/1") for bucket in (pair.source, pair.replica))
    assert source is not None
    assert replica is not None
    assert objects.generation(source) != objects.generation(replica)
    now = datetime.now(UTC)
    asked = {
        "filter": f'metric.type = "{LATENCY}" AND metric.labels.source_bucket = "{pair.source}" AND metric.labels.destination_bucket = "{pair.replica}"',
        "interval.startTime": (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"), "interval.endTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }  # fmt: skip
    (series,) = api.sent("GET", "monitoring", f"v3/projects/{ids.PROJECT}/timeSeries", asked)["timeSeries"]
    assert series["points"][0]["value"] == {"doubleValue": 900_000.0}
    ask(cloud, "outage", region=FIRST)
    ask(cloud, "clock", at=begin + 9000)
    assert [one["name"] for one in api.sent("GET", "storage", f"storage/v1/b/{pair.replica}/o")["items"]] == ["run/1"]
    ask(cloud, "outage", region=None)
    assert one.not_replicated(pair) == []


def test_a_copy_has_the_time_of_its_source(cloud: Cloud, api: Api, pair: BucketPair) -> None:
    """The lists of both buckets show that an object is replicated, and an object that the second region wrote has no such time."""
    (job,) = cloud.store.list(JOB)
    spec = job.plain["replicationSpec"]
    options = {**spec["transferOptions"], "metadataOptions": {"timeCreated": "TIME_CREATED_PRESERVE_AS_CUSTOM_TIME"}}
    cloud.store.update(job.changed(replicationSpec={**spec, "transferOptions": options}))
    put(api, pair.source, "model", b"first")
    listed = lambda bucket: api.sent("GET", "storage", f"storage/v1/b/{bucket}/o", {})["items"]  # noqa: E731
    (copy,), (source,) = listed(pair.replica), listed(pair.source)
    assert copied_from(source, copy)
    put(api, pair.replica, "model", b"other")
    (own,) = listed(pair.replica)
    assert not copied_from(source, own)


def test_a_disabled_job_does_not_copy_objects(cloud: Cloud, api: Api, pair: BucketPair) -> None:
    """Objects that are written while the job is disabled are not in the replica, also after it is enabled again.
    A changed object of the replica is not replaced."""
    one = GcpFailover(api)
    put(api, pair.source, "before")
    assert one.not_replicated(pair) == []
    one.stop_replication(pair)
    put(api, pair.source, "meanwhile")
    put(api, pair.replica, "before", b"changed in the second region")
    with pytest.raises(DeploymentError, match=r"2 objects of .* its replication job is disabled: before, meanwhile; copy"):  # fmt: skip
        one.not_replicated(pair)
    one._set_replication(pair, "ENABLED")
    put(api, pair.source, "after")
    assert one.not_replicated(pair) == ["before", "meanwhile"]


def test_a_detached_replica_refuses_what_a_returning_region_replicates(
    cloud: Cloud, api: Api, pair: BucketPair
) -> None:
    """The job is still enabled, and its service agent has no grant on the replica until a failback."""
    one = GcpFailback(api)
    put(api, pair.source, "model", b"first")
    assert one.not_replicated(pair) == []
    one.detach_replica(pair)
    one.detach_replica(pair)
    put(api, pair.replica, "model", b"second")
    for name in ("model", "late"):
        put(api, pair.source, name, b"first, too late")
    with pytest.raises(
        DeploymentError,
        match=r"2 objects of .* the replica does not grant access to Storage Transfer Service: late, model; copy",
    ):
        one.not_replicated(pair)
    found = cloud.store.object(pair.replica, "model")
    assert found is not None
    assert found.body == b"second"
    assert cloud.store.object(pair.replica, "late") is None
    one.attach_replica(pair)
    one.attach_replica(pair)
    put(api, pair.source, "after")
    one.not_replicated(pair)
    assert cloud.store.object(pair.replica, "after") is not None


def test_a_policy_that_changed_meanwhile_is_not_replaced(cloud: Cloud, api: Api, pair: BucketPair) -> None:
    """Cloud Storage refuses a policy with an old etag, so the grant of another operator stays."""
    policy = api.sent("GET", "storage", f"storage/v1/b/{pair.replica}/iam", {})
    GcpFailover(api).detach_replica(pair)
    with pytest.raises(DeploymentError, match="Etag does not match"):
        api.sent("PUT", "storage", f"storage/v1/b/{pair.replica}/iam", body=policy)


def test_checksums_of_objects_with_a_key_are_only_in_their_description(cloud: Cloud, gcp: Client, api: Api) -> None:
    """A list contains the checksums of objects without a customer-managed key only. CRC32C equals that of Google's own library."""
    google.bucket(gcp, "open-1")
    google.bucket(gcp, "keyed-1", encryption={"defaultKmsKeyName": KEY})
    for name in ("open-1", "keyed-1"):
        put(api, name, "run/a b", b"some content")
    listed = [api.sent("GET", "storage", f"storage/v1/b/{name}/o")["items"][0] for name in ("open-1", "keyed-1")]
    assert ["crc32c" in one and "md5Hash" in one for one in listed] == [True, False]
    assert listed[1]["kmsKeyName"] == f"{KEY}/cryptoKeyVersions/1"
    found = api.sent("GET", "storage", f"storage/v1/b/keyed-1/o/{quote('run/a b', safe='')}", {"generation": listed[1]["generation"]})  # fmt: skip
    assert found["crc32c"] == base64.b64encode(google_crc32c.value(b"some content").to_bytes(4, "big")).decode()
    assert api.ask("GET", "storage", f"storage/v1/b/keyed-1/o/{quote('run/a b', safe='')}", {"generation": "1"}) is None  # fmt: skip


def test_a_replica_is_imported_if_the_service_agent_can_read_it(cloud: Cloud, gcp: Client, api: Api, pair: BucketPair) -> None:  # fmt: skip
    """The import ends with the objects of the bucket. Without the role on the bucket, it fails, and an instance that does not exist is refused."""
    one = GcpFailover(api)
    assert one.file_systems(STATE) == (INSTANCE,)
    with pytest.raises(DeploymentError, match="was not found"):
        one.start_import(INSTANCE)
    cloud.existing(LUSTRE, INSTANCE, {"instanceId": "scratch", "location": "us-east4-a", "filesystem": "scratch"})
    with pytest.raises(DeploymentError, match="does not have access to the bucket replica-1"):
        one.import_ended(one.start_import(INSTANCE))
    agent = f"serviceAccount:service-{ids.PROJECT_NUMBER}@gcp-sa-lustre.iam.gserviceaccount.com"
    gcp.create(
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        {"bucket": "replica-1", "role": "roles/storage.objectUser", "member": agent},
        "agent",
    )
    assert one.import_ended(one.start_import(INSTANCE))
