"""The newest complete checkpoint in a replica."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import checkpoints as aws
from gpuinfra.clouds.aws.region.failover import REPLICATION
from gpuinfra.clouds.azure.region import checkpoints as azure
from gpuinfra.clouds.azure.region.failover import AzureFailover
from gpuinfra.clouds.gcp.region import checkpoints as gcp
from gpuinfra.clouds.gcp.region.failover import GcpFailover
from gpuinfra.clouds.region import checkpoints
from gpuinfra.clouds.region.checkpoints import CheckpointObject, CheckpointPair, lines, matcher, pattern_problem
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.readiness import FAIL, OK, SKIPPED, UNREAD, WARN
from tests.clouds.azure.failing import ACCOUNTS, Regions, blob
from tests.clouds.azure.region.test_readiness import STATE
from tests.clouds.gcp.asked import Google

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PATTERN = "runs/*/step-*/COMPLETE"


def written(minutes: float, *keys: str, size: int = 1) -> list[CheckpointObject]:
    """Objects that were written some minutes ago."""
    return [CheckpointObject(key=key, size=size, modified=NOW - timedelta(minutes=minutes)) for key in keys]


def step(number: int, minutes: float, *files: str) -> list[CheckpointObject]:
    """A checkpoint with its files."""
    folder = f"runs/a/step-{number}"
    return written(minutes, *(f"{folder}/{name}" for name in (*files, "COMPLETE")))


def line(
    source: list[CheckpointObject] | Exception,
    copy: list[CheckpointObject] | Exception,
    pattern: str = PATTERN,
    *,
    private: bool = False,
) -> tuple[str, str]:
    """The state and the reason for two listings."""

    def listing(found: list[CheckpointObject] | Exception) -> Any:
        def listed(prefix: str) -> Iterable[CheckpointObject]:
            if isinstance(found, Exception):
                raise found
            return [one for one in found if one.key.startswith(prefix)]

        return listed

    pair = CheckpointPair(replica="second", source=listing(source), copy=listing(copy), private=private)
    (found,) = lines(pattern, [pair], 90, NOW)
    assert (found.topic, found.name) == ("checkpoint", "second")
    return found.state, found.reason


def test_the_age_is_that_of_the_newest_checkpoint() -> None:
    """The newest checkpoint in the replica, and not the last one by name, has the age of the first region."""
    source = [*step(9, 200, "a"), *step(10, 30, "a")]
    copy = [*step(9, 190, "a"), *step(10, 12, "a")]
    assert line(source, copy) == (OK, "the newest complete checkpoint is runs/a/step-10, 30 minutes old")


@pytest.mark.parametrize(
    "copy",
    [step(10, 12), [*step(10, 12), *written(12, "runs/a/step-10/a", size=9)], []],
    ids=["a file is missing", "a file differs", "nothing"],
)
def test_a_checkpoint_with_missing_files_is_not_complete(copy: list[CheckpointObject]) -> None:
    """A cloud replicates objects in any order, so the object that completes a checkpoint is not sufficient."""
    source = [*step(9, 40, "a"), *step(10, 5, "a")]
    state, reason = line(source, [*step(9, 39, "a"), *copy])
    assert state == OK
    assert reason.startswith(
        "the newest complete checkpoint is runs/a/step-9, 40 minutes old; runs/a/step-10, which the"
    )
    assert reason.endswith("wrote 5 minutes ago, is not complete in the replica")


def test_an_old_checkpoint_fails_only_if_a_newer_one_exists() -> None:
    """Without new checkpoints, nothing would be lost. With a newer one that is not replicated, the loss exceeds the target."""
    assert line(step(9, 3000), step(9, 3000)) == (OK, "the newest complete checkpoint is runs/a/step-9, 2 days old")
    assert line([*step(9, 91), *step(10, 1, "a")], step(9, 91))[0] == FAIL
    assert line([*step(9, 90), *step(10, 1, "a")], step(9, 90))[0] == OK


def test_a_replica_without_a_checkpoint_fails_if_the_first_region_has_one() -> None:
    """A new cluster has none, which is a warning."""
    assert line(step(9, 150, "a"), written(1, "runs/a/step-9/a")) == (
        FAIL,
        "contains no complete checkpoint; the first region wrote runs/a/step-9 2 hours ago",
    )
    assert line([], written(1, "other/COMPLETE"))[0] == WARN


@pytest.mark.parametrize("problem", [Unreachable("timed out"), DeploymentError("refused")])
def test_without_the_first_region_the_files_are_not_compared(problem: Exception) -> None:
    """The replica alone gives the age, with the reason, and an age above the target is a warning. Without the replica, the age is unknown."""
    state, reason = line(problem, step(9, 30))
    assert state == OK
    assert reason.endswith(f"30 minutes old; its files were not compared with the first region: {problem}")
    assert line(problem, step(9, 91))[0] == WARN
    assert line(step(9, 1), problem) == (UNREAD, str(problem))
    assert line(step(9, 1), problem, private=True) == (SKIPPED, str(problem))


def test_a_listing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket with millions of objects needs a longer folder name, and the message says so."""
    monkeypatch.setattr(checkpoints, "MOST_OBJECTS", 1)
    state, reason = line([], step(9, 1, "a"))
    assert state == UNREAD
    assert "more than 1 objects begin with 'runs/'; begin recovery.checkpoints with a longer folder name" in reason


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("runs/*/DONE", ["runs/a/DONE"], ["runs/a/b/DONE", "runs/a/DONE2", "xruns/a/DONE"]),
        ("**/DONE", ["DONE", "a/DONE", "a/b/DONE"], ["aDONE"]),
        ("runs/**/s-?/DONE", ["runs/s-1/DONE", "runs/a/b/s-1/DONE"], ["runs/s-12/DONE"]),
        ("a.b+c", ["a.b+c"], ["axb+c", "a.bbc"]),
    ],
)
def test_patterns(pattern: str, matches: list[str], others: list[str]) -> None:
    """`*` and `?` match within a folder, `**/` matches folders, and other characters are literal."""
    assert pattern_problem(pattern) == ""
    assert all(matcher(pattern).fullmatch(key) for key in matches)
    assert not any(matcher(pattern).fullmatch(key) for key in others)


def test_an_object_without_a_folder_is_the_checkpoint() -> None:
    """A checkpoint in one file at the root of the bucket has no other files."""
    assert line(written(5, "s-1.pt", "other"), written(5, "s-1.pt"), "s-*.pt") == (
        OK,
        "the newest complete checkpoint is s-1.pt, 5 minutes old",
    )


def test_aws_lists_all_pages_in_the_region_of_each_bucket() -> None:
    """The service models of botocore validate the requests. The source is in the first Region, and the replica in the second one."""
    asked: list[str] = []
    client: Any = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")

    def client_of(service: str, region: str) -> Any:
        asked.append(region)
        return client

    rules = [{"destination": {"bucket": "arn:aws:s3:::second"}}]
    state = [{"type": REPLICATION, "outputs": {"bucket": "first", "rules": rules}}]
    (pair,) = aws.pairs_of(client_of, "us-east-1", "us-west-2", state)
    with Stubber(client) as stubber:
        found = {"Key": "runs/1", "Size": 7, "LastModified": NOW}
        page = {"IsTruncated": True, "NextContinuationToken": "t", "Contents": [found]}
        stubber.add_response("list_objects_v2", page, {"Bucket": "first", "Prefix": "runs/"})
        more = {"Bucket": "first", "Prefix": "runs/", "ContinuationToken": "t"}
        stubber.add_response("list_objects_v2", {"IsTruncated": False}, more)
        stubber.add_response("list_objects_v2", {"IsTruncated": False}, {"Bucket": "second", "Prefix": ""})
        assert list(pair.source("runs/")) == [CheckpointObject(key="runs/1", size=7, modified=NOW)]
        assert list(pair.copy("")) == []
        stubber.assert_no_pending_responses()
    assert asked == ["us-east-1", "us-east-1", "us-west-2"]


def test_google_lists_objects_with_a_prefix() -> None:
    """The discovery document validates the requests."""
    google = Google()
    cloud = GcpFailover(google.api())
    found = {"name": "runs/1", "size": "7", "timeCreated": "2026-11-29T12:00:00.000Z"}
    google.expect("storage.v1", "objects.list", {"bucket": "first", "prefix": "runs/"}, {"items": [found]})
    google.expect("storage.v1", "objects.list", {"bucket": "second"}, {})
    assert list(gcp.objects_in(cloud, "first", "runs/")) == [CheckpointObject(key="runs/1", size=7, modified=NOW)]
    assert list(gcp.objects_in(cloud, "second", "")) == []
    google.done()


def test_azure_lists_blobs_of_both_accounts() -> None:
    """Each replicated container is a pair, and its blobs have their names and sizes."""
    rest = Regions(ACCOUNTS, {"trainscratch/data": [blob("runs/1", size=7)], "copyscratch/data": []})
    cloud = AzureFailover(rest, "southcentralus", "eastus2")
    (pair,) = (pair for pair in cloud.pairs(STATE) if "copyscratch" in pair.replica)
    assert [(blob.key, blob.size) for blob in azure.listing(cloud, pair.source, "runs/")] == [("runs/1", 7)]
    assert list(azure.listing(cloud, pair.replica, "")) == []
