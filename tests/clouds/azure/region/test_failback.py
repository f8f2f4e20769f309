"""The requests of a failback on Azure: which blobs are copied, which are conflicts, and under which conditions a copy is made."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.blob._generated.operations import _block_blob_operations as client

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.blob_list import COPY_OF, Blob
from gpuinfra.clouds.azure.region import failback as azure
from gpuinfra.clouds.azure.region.failback import AzureFailback
from gpuinfra.clouds.azure.region.failover import STOPPED
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.failover import Copy, DisabledReplication
from tests.clouds.azure.failing import ACCOUNTS, MARK, Regions, account, blob
from tests.clouds.azure.region.test_failover import DONE, PAIR, REPLICA, SOURCE
from tests.clouds.azure.region.test_readiness import NOW, POLICIES, REPLICAS, RULE_ID

BEFORE, LATER, LATEST = (NOW + timedelta(hours=hours) for hours in (-1, 1, 2))
OTHER = {f"{POLICIES[0]}_{RULE_ID}": "complete"}
"""The status of the policy to another account."""


def regions(source: list[Blob], replica: list[Blob], **tags: str) -> Regions:
    """Both regions after a failover that opened the replica at `NOW`."""
    known = tags or {STOPPED: "2026-11-22T12:00:00Z"}
    return Regions({**ACCOUNTS, REPLICAS[1]: account(REPLICAS[1], **known)}, {SOURCE: source, REPLICA: replica})


def failback(rest: Regions) -> AzureFailback:
    """A failback with these responses."""
    return AzureFailback(rest, "southcentralus", "eastus2")


def here(**more: Any) -> Blob:
    """A blob in the first region that was replicated before the failover."""
    return blob("a", **{"etag": "0xhere", "md5": "1", "modified": BEFORE, "replication": DONE, **more})


def there(**more: Any) -> Blob:
    """A blob that the second region wrote."""
    return blob("a", **{"etag": "0xthere", "md5": "2", "modified": LATER, **more})


COPY = Copy(key="a", version="0xthere", size=1, replaces="0xhere")
NEW = Copy(key="a", version="0xthere", size=1, replaces=None)


@pytest.mark.parametrize(
    ("source", "replica", "copy"),
    [
        (here(), there(), COPY),
        (here(md5=""), there(md5=""), COPY),
        (None, there(), NEW),
        (None, there(modified=BEFORE), None),
        (here(), there(md5="1"), None),
        (here(), there(modified=BEFORE, md5=""), None),
        (here(replication={}, modified=LATEST, metadata={COPY_OF: "0xthere"}), there(), None),
        (here(replication={}, modified=LATEST, metadata={COPY_OF: "0xolder"}), there(), COPY),
        (here(), None, None),
    ],
    ids=[
        "changed in the second region", "without checksums", "new in the second region", "deleted in the first region", "same content",
        "replicated without checksums", "copied", "copied, then changed again", "deleted in the second region",
    ],
)  # fmt: skip
def test_blobs_of_the_second_region_are_copied(source: Blob | None, replica: Blob | None, copy: Copy | None) -> None:
    """A blob is copied only if the second region wrote it and the first region has an earlier version that was replicated, or none."""
    found = failback(regions([source] if source else [], [replica] if replica else [])).compare(PAIR)
    assert found.copies == ((copy,) if copy else ())
    assert found.conflicts == ()
    assert found.deleted == (replica is None)


@pytest.mark.parametrize(
    ("source", "replica", "reason", "copy"),
    [
        (here(replication={}), there(), "was changed in both regions, last in the second region", COPY),
        (here(replication=OTHER), there(), "was changed in both regions, last in the second region", COPY),
        (here(replication={MARK: "failed"}), there(), "was changed in both regions, last in the second region", COPY),
        (here(modified=LATEST, replication={}), there(), "was changed in both regions, last in the first region", None),
        (here(modified=LATER, replication={}), there(modified=LATER), "was changed in both regions, last in the first region", None),
        (here(replication={}), there(modified=BEFORE), "is newer in the first region", None),
        (here(modified=LATER, replication={}), there(modified=BEFORE), "is newer in the first region", None),
    ],
)  # fmt: skip
def test_blobs_that_the_replica_never_had_are_conflicts(
    source: Blob, replica: Blob, reason: str, copy: Copy | None
) -> None:
    """A blob that was not replicated, or that was written in the first region after the failover, is not replaced."""
    found = failback(regions([source], [replica])).compare(PAIR)
    assert found.copies == ()
    ((key, why, made),) = [(one.key, one.reason, one.copy) for one in found.conflicts]
    assert (key, why, made) == ("a", reason, copy)


def test_a_blob_that_was_never_replicated_is_not_counted_as_deleted() -> None:
    """Only a blob that the replica had, and that is missing now, was deleted in the second region."""
    found = failback(regions([here(), blob("b", replication={}), blob("c", replication={MARK: "failed"})], [])).compare(PAIR)  # fmt: skip
    assert found.deleted == 1


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        ({"team": "research"}, "does not have the tag gpuinfra:replication-stopped"),
        ({STOPPED: "today"}, "is 'today', expected a time"),
    ],
)
def test_a_replica_that_was_not_opened_is_refused(tags: dict[str, str], text: str) -> None:
    """Without the time of the failover, it is unknown who wrote the blobs of the replica."""
    with pytest.raises(DeploymentError, match=text):
        failback(regions([], [], **tags)).compare(PAIR)


def test_a_copy_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy replaces only the compared blob, or none, reads only the compared blob, and keeps the metadata. Microsoft's client has the same headers."""
    rest = regions([], [])
    failback(rest).copy(PAIR, [COPY, NEW])
    assert len(rest.puts) == 2
    for path, headers, body in rest.puts:
        assert path == "/data/a"
        assert body == b""
        assert headers["x-ms-copy-source"] == "https://copyscratch.blob.core.windows.net/data/a"
        assert headers["x-ms-source-if-match"] == '"0xthere"'
        assert headers["x-ms-copy-source-authorization"] == headers["Authorization"]
        assert (headers["x-ms-meta-Owner"], headers[f"x-ms-meta-{COPY_OF}"]) == ("1000", "0xthere")
    guards = sorted((headers.get("If-Match", ""), headers.get("If-None-Match", "")) for _, headers, _ in rest.puts)
    assert guards == [("", "*"), ('"0xhere"', "")]
    text = inspect.getsource(client.build_put_blob_from_url_request)
    for name in ("If-Match", "If-None-Match", "x-ms-source-if-match", "x-ms-copy-source", "x-ms-copy-source-authorization"):  # fmt: skip
        assert f'"{name}"' in text


def test_a_large_blob_is_copied_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block reads its range of the compared blob, and the condition applies to the list that creates the blob, with the content type of the blob."""
    monkeypatch.setattr(azure, "PART", 10)
    rest = regions([], [])
    failback(rest).copy(PAIR, [Copy(key="a b", version="0xthere", size=25, replaces="0xhere")])
    *blocks, (path, headers, body) = rest.puts
    assert path == "/data/a%20b?comp=blocklist"
    assert headers["If-Match"] == '"0xhere"'
    assert headers["x-ms-blob-content-type"] == "text/plain"
    assert headers[f"x-ms-meta-{COPY_OF}"] == "0xthere"
    assert "x-ms-copy-source" not in headers
    ranges = {one["x-ms-source-range"]: where for where, one, _ in blocks}
    assert sorted(ranges) == ["bytes=0-9", "bytes=10-19", "bytes=20-24"]
    assert {one["x-ms-source-if-match"] for _, one, _ in blocks} == {'"0xthere"'}
    assert body is not None
    listed = body.decode()
    order = [ranges[span].partition("blockid=")[2].replace("%3D", "=") for span in sorted(ranges)]
    assert [listed.index(f"<Latest>{block}</Latest>") for block in order] == sorted(listed.index(f"<Latest>{block}</Latest>") for block in order)  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (412, "ConditionNotMet", DeploymentError, "a changed after the comparison and was not replaced"),
        (409, "BlobAlreadyExists", DeploymentError, "a changed after the comparison and was not replaced"),
        (412, "SourceConditionNotMet", DeploymentError, "a changed after the comparison and was not replaced"),
        (403, "AuthorizationFailure", DeploymentError, "AuthorizationFailure"),
        (503, "ServerBusy", DeploymentError, "ServerBusy"),
    ],
)
@pytest.mark.parametrize("part", [azure.PART, 0])
def test_a_refused_copy_fails(
    status: int, code: str, error: type[Exception], text: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob that changed after the comparison is not replaced, and the error names it."""
    monkeypatch.setattr(azure, "PART", part or 1)
    monkeypatch.setattr(reach, "BUSY_S", 0.0)
    rest = regions([], [])
    rest.put_status, rest.put_code = status, code
    with pytest.raises(error, match=text):
        failback(rest).copy(PAIR, [Copy(key="a", version="0xthere", size=1 if part else 2, replaces="0xhere")])


def test_policies_are_restored_by_the_deployment() -> None:
    """`pulumi up --refresh` creates the policies, so a failback on Azure has no steps for them."""
    found = cloud_of("azure").failback("southcentralus", "eastus2", {})
    assert isinstance(found, AzureFailback)
    assert not isinstance(found, DisabledReplication)


def test_a_stopped_scale_set_launches_the_declared_nodes() -> None:
    """Only the capacity changes, and a repeated request is not sent."""
    group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/gpu-0"
    sku = {"name": "Standard_ND96amsr_A100_v4", "tier": "Standard", "capacity": 0}
    rest = Regions({group: {"sku": sku}})
    failback(rest).start_group(group, 3)
    ((method, path, body),) = rest.changes
    assert (method, path, body) == ("PATCH", group, {"sku": {**sku, "capacity": 3}})
    rest.arm_answers[group] = {"sku": {**sku, "capacity": 3}}
    failback(rest).start_group(group, 3)
    assert len(rest.changes) == 1
