"""The requests of a failback on Google Cloud. Discovery documents validate requests and responses."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.region import failback as gcp
from gpuinfra.clouds.gcp.region import failover
from gpuinfra.clouds.gcp.region.failback import GcpFailback
from gpuinfra.clouds.region.failover import BucketPair, Copy
from tests.clouds.gcp.asked import Google

COMPUTE, STORAGE, TRANSFER = "compute.v1", "storage.v1", "storagetransfer.v1"
GROUP = "projects/my-project/zones/us-central1-a/instanceGroupManagers/train-gpu-0"
PLACE = {"project": "my-project", "zone": "us-central1-a", "instanceGroupManager": "train-gpu-0"}
PAIR = BucketPair(source="train-scratch-first", replica="train-scratch-second", job="my-project/transferJobs/123")
COPY, NEWER, BOTH_SECOND, BOTH_FIRST = "copy", "newer", "both, second", "both, first"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Google:
    """The expected requests, one after another."""
    monkeypatch.setattr(gcp, "THREADS", 1)
    return Google()


def _moment(hour: str) -> str:
    return f"2026-11-26T{int(hour):02d}:00:00.000Z"


def versions(text: str) -> list[dict[str, Any]]:
    """Versions of the object `k`: content and hour, and the hour at which a noncurrent version was replaced or deleted: `A1/3 B3`."""
    found = []
    for number, one in enumerate(text.split(), 1):
        written, _, ended = one.partition("/")
        about = {"name": "k", "generation": str(number), "size": "7", "crc32c": written[0], "timeCreated": _moment(written[1:])}  # fmt: skip
        found.append(about | ({"timeDeleted": _moment(ended)} if ended else {}))
    return found


def compared(google: Google, here: list[dict[str, Any]], there: list[dict[str, Any]]) -> Any:
    """Compare two buckets with these versions."""
    for bucket, items in ((PAIR.source, here), (PAIR.replica, there)):
        google.expect(STORAGE, "objects.list", {"bucket": bucket, "versions": "true"}, {"items": items} if items else {})  # fmt: skip
    return GcpFailback(google.api()).compare(PAIR)


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        pytest.param("A1", "A2", None, id="replicated"),
        pytest.param("A1", "A2/4 B4", COPY, id="written in the second region"),
        pytest.param("", "B4", COPY, id="created in the second region"),
        pytest.param("A1/5 B5", "A2/4 B4", None, id="copied"),
        pytest.param("A1/5 B5", "A2/4 B4/6 C6", COPY, id="written after a copy"),
        pytest.param("A1/3 B3", "A2", NEWER, id="not replicated"),
        pytest.param("A1/3 B3", "A4", NEWER, id="not replicated, and the earlier version was replicated late"),
        pytest.param("A1/3 B3", "A2/4 C4", BOTH_SECOND, id="both, later in the second"),
        pytest.param("A1/5 B5", "A2/4 C4", BOTH_FIRST, id="both, later in the first"),
        pytest.param("A1/5 B5", "A2/4 B4/5 C5", BOTH_FIRST, id="both, at the same time"),
        pytest.param("A1/3 B3", "A2/4 C4/6 B6", BOTH_SECOND, id="replicated after the second region wrote"),
        pytest.param("A1/3 B3/7 C7", "A2/4 C4/6 B6", None, id="the same after the copy"),
        pytest.param("A1/3 B3", "A2/4 B4/6 A6", BOTH_SECOND, id="the second region wrote an earlier content"),
        pytest.param("A1/3 B3/5 A5", "A2/4 B4", None, id="the first region wrote an earlier content"),
        pytest.param("A1/3", "A2", None, id="deleted in the first region"),
        pytest.param("A1/3", "A2/4 B4", COPY, id="created again"),
        pytest.param("A1/5", "A2/4 B4", BOTH_FIRST, id="deleted after the failover"),
        pytest.param("A1", "A2/4", "deleted", id="deleted in the second region"),
        pytest.param("", "B2/4", None, id="deleted in both"),
        pytest.param("A1", "", None, id="only in the first region"),
    ],
)  # fmt: skip
def test_only_continuations_are_copied(google: Google, here: str, there: str, expected: str | None) -> None:
    """A version is copied if the first region has an earlier version of it. Other differences are conflicts, and only the later version can be copied."""
    ours, theirs = versions(here), versions(there)
    found = compared(google, ours, theirs)
    google.done()
    live = next((one["generation"] for one in ours if "timeDeleted" not in one), None)
    result = None
    for one in found.copies:
        result = COPY
        assert one == Copy(key="k", version=theirs[-1]["generation"], size=7, replaces=live)
    for one in found.conflicts:
        result = NEWER if "is newer" in one.reason else f"both, {one.reason.split()[-2]}"
        assert (one.copy is not None) is (result == BOTH_SECOND)
        assert one.copy is None or one.copy.replaces == live
    assert (result or ("deleted" if found.deleted else None)) == expected
    assert len(found.copies) + len(found.conflicts) + found.deleted <= 1


def test_the_last_write_of_the_second_region_can_be_copied(google: Google) -> None:
    """If a job replaced a later write in the replica, the copy has its generation."""
    (conflict,) = compared(google, versions("A1/3 B3"), versions("A2/4 C4/5 D5/6 B6")).conflicts
    assert conflict.copy == Copy(key="k", version="3", size=7, replaces="2")


def test_checksums_of_each_version_are_read(google: Google) -> None:
    """Objects with a customer-managed key are compared with the checksums of each version."""
    ours, theirs = versions("A1"), versions("A2/4 B4")
    for one in (*ours, *theirs):
        del one["crc32c"]
    for bucket, items in ((PAIR.source, ours), (PAIR.replica, theirs)):
        google.expect(STORAGE, "objects.list", {"bucket": bucket, "versions": "true"}, {"items": items})
    for bucket, generation, crc in ((PAIR.replica, "2", "B"), (PAIR.source, "1", "A"), (PAIR.replica, "1", "A")):
        asked = {"bucket": bucket, "object": "k", "generation": generation}
        google.expect(STORAGE, "objects.get", asked, {"name": "k", "generation": generation, "size": "7", "crc32c": crc})  # fmt: skip
    assert len(GcpFailback(google.api()).compare(PAIR).copies) == 1
    google.done()


def _rewrite(google: Google, answer: Any, replaces: str, **more: str) -> None:
    asked = {"sourceBucket": PAIR.replica, "sourceObject": "run/a b", "destinationBucket": PAIR.source, "destinationObject": "run/a b",
             "sourceGeneration": "9", "ifGenerationMatch": replaces, "maxBytesRewrittenPerCall": str(gcp.PART), **more}  # fmt: skip
    google.expect(STORAGE, "objects.rewrite", asked, answer)


@pytest.mark.parametrize(("replaces", "condition"), [("4", "4"), (None, "0")])
def test_copy_checks_what_it_replaces(google: Google, replaces: str | None, condition: str) -> None:
    """A copy has the generation that was compared as its condition, and continues until all bytes are copied."""
    _rewrite(google, {"done": False, "rewriteToken": "more"}, condition)
    _rewrite(google, {"done": True}, condition, rewriteToken="more")
    GcpFailback(google.api()).copy(PAIR, [Copy(key="run/a b", version="9", size=2**30, replaces=replaces)])
    google.done()
    assert gcp.PART % 2**20 == 0


def test_an_object_that_changed_is_not_replaced(google: Google) -> None:
    """A condition that does not hold is an error that names the object and the bucket."""
    _rewrite(google, 412, "4")
    with pytest.raises(DeploymentError, match="run/a b in train-scratch-first changed after the comparison and was not replaced"):  # fmt: skip
        GcpFailback(google.api()).copy(PAIR, [Copy(key="run/a b", version="9", size=7, replaces="4")])


def test_replication_is_enabled(google: Google) -> None:
    """The status of the job changes to enabled."""
    body = {"projectId": "my-project", "transferJob": {"status": "ENABLED"}, "updateTransferJobFieldMask": "status"}
    job = {"jobName": "transferJobs/123"}
    google.expect(TRANSFER, "transferJobs.get", {**job, "projectId": "my-project"}, {"status": "DISABLED"})
    google.expect(TRANSFER, "transferJobs.patch", job, {"status": "ENABLED"}, body)
    GcpFailback(google.api()).start_replication(PAIR)
    google.done()


def test_requests_of_a_queued_group_are_deleted(google: Google) -> None:
    """`up` creates new requests after the old ones are deleted. A group without requests requires no command."""
    listed = {"items": [{"name": "old", "state": "CANCELLED"}, {"name": "new", "state": "ACCEPTED"}]}
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.list", {**PLACE, "maxResults": "500"}, listed)
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.delete", {**PLACE, "resizeRequest": "old"}, {"status": "DONE"})  # fmt: skip
    one = GcpFailback(google.api())
    one.start_group(GROUP, 0)
    google.done()
    other = GROUP.replace("gpu-0", "gpu-1")
    state = [
        {"type": failover.GROUP, "id": GROUP},
        {"type": failover.GROUP, "id": other},
        {"type": failover.REQUEST, "id": f"{GROUP}/resizeRequests/old"},
    ]
    assert one.groups(state) == (GROUP, other)
    assert one.start_command(GROUP) == (
        "gcloud compute instance-groups managed resize-requests delete train-gpu-0 --resize-requests=old --zone=us-central1-a --project=my-project --quiet"
    )
    assert one.start_command(other) == ""


def test_a_stopped_group_launches_the_declared_nodes(google: Google) -> None:
    """A group of nodes that are not queued is resized."""
    google.expect(COMPUTE, "instanceGroupManagers.resize", {**PLACE, "size": "3"}, {"status": "RUNNING"})
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.list", {**PLACE, "maxResults": "500"}, {})
    GcpFailback(google.api()).start_group(GROUP, 3)
    google.done()


def test_google_cloud_has_a_failback() -> None:
    """The command finds the module."""
    assert isinstance(cloud_of("gcp").failback("us-central1", "us-east4", {}), GcpFailback)
