"""The requests of a failback to the stand-in for Google Cloud, with the code of `gpuinfra failback`."""

from __future__ import annotations

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.gcp import permissions
from gpuinfra.clouds.gcp.api import Api
from gpuinfra.clouds.gcp.region.exports import GcpExports
from gpuinfra.clouds.gcp.region.failback import GcpFailback
from gpuinfra.clouds.region.failover import BucketPair
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.gcp import ids
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_gcp_outage import INSTANCE, KEY, LUSTRE, STATE, put
from rehearsal.tests.cloud.test_gcp_outage import api as api
from rehearsal.tests.cloud.test_gcp_outage import pair as pair
from rehearsal.tests.cloud.test_outage import ask

BUCKET = "gcp:storage/bucket:Bucket"


@pytest.fixture
def moved(cloud: Cloud, api: Api, pair: BucketPair) -> BucketPair:
    """Both buckets have versions and keys, two objects are replicated, and the stack has failed over."""
    for bucket in (pair.source, pair.replica):
        settings = {"versioning": {"enabled": True}, "encryption": {"defaultKmsKeyName": KEY}}
        ask(cloud, "drift", type=BUCKET, id=bucket, set=settings)
    ask(cloud, "clock", at=2_000_000_000)
    for name in ("model", "kept"):
        put(api, pair.source, name, b"first")
    one = GcpFailback(api)
    assert one.not_replicated(pair) == []
    one.stop_replication(pair)
    ask(cloud, "clock", at=2_000_000_100)
    return pair


def contents(cloud: Cloud, bucket: str) -> dict[str, bytes]:
    """The live objects of a bucket."""
    return {key: found.body for key, *_ in cloud.store.objects(bucket) if (found := cloud.store.object(bucket, key))}


def test_newer_objects_are_copied_back(cloud: Cloud, api: Api, moved: BucketPair) -> None:
    """The first region gets the changed and the new object once, and keeps the earlier version and the object that only it has."""
    one = GcpFailback(api)
    put(api, moved.source, "only here", b"first")
    put(api, moved.replica, "model", b"second")
    put(api, moved.replica, "new", b"second")
    compared = one.compare(moved)
    assert sorted(copy.key for copy in compared.copies) == ["model", "new"]
    assert compared.conflicts == ()
    one.start_replication(moved)
    one.copy(moved, compared.copies)
    assert contents(cloud, moved.source) == {"model": b"second", "new": b"second", "kept": b"first", "only here": b"first"}  # fmt: skip
    listed = api.sent("GET", "storage", f"storage/v1/b/{moved.source}/o", {"versions": "true"})["items"]
    assert [("timeDeleted" in item) for item in listed if item["name"] == "model"] == [True, False]
    again = one.compare(moved)
    assert (again.copies, again.conflicts) == ((), ())
    assert contents(cloud, moved.replica)["model"] == b"second"


def test_objects_of_a_disabled_replication_are_replicated_again(cloud: Cloud, api: Api, moved: BucketPair) -> None:
    """An enabled job covers only new generations, so what was written before is written again, once, with the same content."""
    one = GcpFailback(api)
    put(api, moved.source, "only here", b"first")
    ask(cloud, "clock", at=2_000_000_200)
    one.start_replication(moved)
    assert one.not_replicated(moved) == ["only here"]
    assert one.replicate_again(moved) == 1
    assert one.not_replicated(moved) == []
    assert contents(cloud, moved.replica)["only here"] == b"first"
    assert one.replicate_again(moved) == 0


def test_an_object_that_changes_after_the_comparison_is_not_replaced(cloud: Cloud, api: Api, moved: BucketPair) -> None:
    """The condition of the copy does not hold, so the object stays."""
    one = GcpFailback(api)
    put(api, moved.replica, "model", b"second")
    compared = one.compare(moved)
    put(api, moved.source, "model", b"late")
    with pytest.raises(DeploymentError, match="model in source-1 changed after the comparison"):
        one.copy(moved, compared.copies)
    assert contents(cloud, moved.source)["model"] == b"late"


def test_a_write_in_both_regions_is_a_conflict(cloud: Cloud, api: Api, moved: BucketPair) -> None:
    """The later version becomes the live version only if the conflict is ignored, and the other one is kept."""
    one = GcpFailback(api)
    put(api, moved.source, "model", b"late")
    ask(cloud, "clock", at=2_000_000_200)
    put(api, moved.replica, "model", b"second")
    compared = one.compare(moved)
    (conflict,) = compared.conflicts
    assert compared.copies == ()
    assert conflict.reason == "was changed in both regions, last in the second region"
    assert conflict.copy is not None
    one.copy(moved, [conflict.copy])
    assert contents(cloud, moved.source)["model"] == b"second"
    assert one.compare(moved).conflicts == ()


def test_a_late_replication_does_not_hide_a_write_of_the_second_region(
    cloud: Cloud, api: Api, moved: BucketPair
) -> None:
    """If the job replaced a write in the replica, the noncurrent version is copied with its content."""
    one = GcpFailback(api)
    put(api, moved.source, "model", b"late")
    ask(cloud, "clock", at=2_000_000_200)
    put(api, moved.replica, "model", b"second")
    ask(cloud, "clock", at=2_000_000_300)
    put(api, moved.replica, "model", b"late")
    (conflict,) = one.compare(moved).conflicts
    assert conflict.copy is not None
    one.copy(moved, [conflict.copy])
    assert contents(cloud, moved.source)["model"] == b"second"


def test_deleted_requests_of_a_queued_group_can_be_created_again(cloud: Cloud, gcp: Client, api: Api) -> None:
    """The provider does not find the deleted request, so an update creates it. A request that waits for capacity is not deleted."""
    google.group(gcp, google.template(gcp), 0)
    inputs = {"name": "wait", "zone": google.ZONE, "instanceGroupManager": "gpu", "resizeBy": 2, "requestedRunDuration": {"seconds": "3600"}}  # fmt: skip
    made = gcp.create("gcp:compute/resizeRequest:ResizeRequest", inputs, "wait")
    one = GcpFailback(api)
    one.start_group(google.path(), 0)
    assert gcp.read(made.token, made.id).id
    with pytest.raises(DeploymentError, match="ACCEPTED and cannot be deleted"):
        api.sent("DELETE", "compute", f"{google.path()}/resizeRequests/wait")
    one.stop_group(google.path())
    one.start_group(google.path(), 0)
    assert not gcp.read(made.token, made.id).id
    gcp.create(made.token, inputs, "wait")


NEEDED = sorted({one for group in (*permissions.FAILOVER.values(), *permissions.FAILBACK.values()) for one in group})


@pytest.mark.long
@pytest.mark.parametrize("missing", ["", *NEEDED])
def test_both_moves_require_exactly_their_permissions(
    missing: str, cloud: Cloud, gcp: Client, api: Api, moved: BucketPair
) -> None:
    """All requests succeed with the permissions of `gpuinfra permissions`. Without one of them, a request is refused with the name of the permission."""
    google.group(gcp, google.template(gcp), 0)
    inputs = {"name": "wait", "zone": google.ZONE, "instanceGroupManager": "gpu", "resizeBy": 2, "requestedRunDuration": {"seconds": "3600"}}  # fmt: skip
    gcp.create("gcp:compute/resizeRequest:ResizeRequest", inputs, "wait")
    cloud.existing(LUSTRE, INSTANCE, {"instanceId": "scratch", "location": "us-east4-a", "filesystem": "scratch"})
    agent = f"serviceAccount:service-{ids.PROJECT_NUMBER}@gcp-sa-lustre.iam.gserviceaccount.com"
    gcp.create(
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        {"bucket": moved.replica, "role": "roles/storage.objectUser", "member": agent},
        "agent",
    )
    put(api, moved.replica, "model", b"second")
    one = GcpFailback(api)
    one.start_replication(moved)
    outputs = STATE[0]["outputs"]
    exporting = [
        {**STATE[0], "outputs": {"export_command": outputs["import_command"].replace("import-data", "export-data")}}
    ]
    exports = GcpExports(api)
    cloud.operator = Operator([{"includedPermissions": [name for name in NEEDED if name != missing]}])

    def move() -> None:
        one.answers(moved)
        one.stop_group(google.path())
        one.running(google.path())
        for file_system in exports.exporting(exporting):
            started = exports.start(file_system)
            assert started is not None
            exports.ended(started)
        one.not_replicated(moved)
        one.stop_replication(moved)
        one.detach_replica(moved)
        (file_system,) = one.file_systems(STATE)
        one.import_ended(one.start_import(file_system))
        one.attach_replica(moved)
        one.start_replication(moved)
        one.copy(moved, one.compare(moved).copies)
        one.start_group(google.path(), 0)

    if not missing:
        move()
        return
    with pytest.raises(DeploymentError, match=f"Required '{missing}' permission"):
        move()
