"""The replication of home directories on Amazon EFS: the requests of gpuinfra to a stand-in cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import grpc
import pytest

from gpuinfra.clouds.aws.components.home_replicas import unprotect_if_empty
from gpuinfra.clouds.aws.region.failover import AwsFailover
from gpuinfra.clouds.aws.region.homes import ALONE
from gpuinfra.clouds.region.failover import HomePair
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.aws import credentials, home_replication
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from rehearsal.tests.cloud.conftest import Client, Made

FIRST, SECOND = "us-east-2", "us-west-2"
CONFIGURATION = "aws:efs/replicationConfiguration:ReplicationConfiguration"


@pytest.fixture
def clients(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """The clients of the operator."""
    server = Server(cloud, "control-token")
    server.start()
    key = credentials.operator(cloud.store)
    known = {"aws": {"access_key_id": key.id, "secret_access_key": key.secret}}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", FIRST).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    session = boto3.Session()
    yield lambda service, region: session.client(service, region_name=region)  # pyright: ignore[reportCallIssue, reportArgumentType]
    server.shutdown()
    server.server_close()


def systems(aws: Client) -> tuple[Made, Made]:
    """The file system of each Region."""
    made = [aws.create("aws:efs/fileSystem:FileSystem", {"creationToken": "train-home-0", "region": one}, one) for one in (FIRST, SECOND)]  # fmt: skip
    return made[0], made[1]


def replicate(aws: Client, first: Made, second: Made) -> Made:
    """Create the replication, as the stack does."""
    unprotect_if_empty(second.id, SECOND, {}, "homes")
    target = {"region": SECOND, "fileSystemId": second.id}
    return aws.create(CONFIGURATION, {"sourceFileSystemId": first.id, "destination": target, "region": FIRST})


def until(ended: Callable[[], bool], most: int = 6) -> None:
    """Ask until something has ended."""
    assert any(ended() for _ in range(most))


def files(cloud: Cloud, system: str, **written: str) -> dict[str, str]:
    """Write files, and return all of them."""
    return home_replication.control(cloud, {"id": system, "write": written})["files"]


def test_a_replica_opens_and_its_files_return(cloud: Cloud, aws: Client, clients: Callable[[str, str], Any]) -> None:
    """The replica is read-only until the replication ends. The first Region then gets the files of the second one, and the next deployment replicates again."""
    first, second = systems(aws)
    made = replicate(aws, first, second)
    move = AwsFailover(clients, FIRST, SECOND)
    state: list[dict[str, Any]] = [{"type": one.token, "id": one.id, "outputs": one.outputs} for one in (first, second)]
    pair = HomePair(source=first.id, replica=second.id)
    assert move.homes(state) == (pair,)
    files(cloud, first.id, old="1", both="1")
    with pytest.raises(ValueError, match="is read-only"):
        files(cloud, second.id, new="2")
    assert move.home_synced(pair, datetime.now(UTC) - timedelta(minutes=1))
    assert not move.home_synced(pair, datetime.now(UTC) + timedelta(hours=1))
    until(lambda: move.home_opened(pair, alone=False))
    assert files(cloud, second.id, both="2") == {"old": "1", "both": "2"}
    assert aws.read(CONFIGURATION, made.id).id == ""
    # What the second Region wrote is protected from the next deployment until it is copied back.
    with pytest.raises(RuntimeError, match=r"contains files, .*run `gpuinfra failback`"):
        unprotect_if_empty(second.id, SECOND, {}, "homes")
    until(lambda: move.home_returned(pair))
    assert files(cloud, first.id, last="3") == {"old": "1", "both": "2", "last": "3"}
    assert move.home_returned(pair), "an ended return is done again"
    replicate(aws, first, second)
    assert files(cloud, second.id) == {"old": "1", "both": "2", "last": "3"}
    assert move.home_returned(pair), "a replica that is replicated has nothing to return"


def test_a_replica_opens_without_the_first_region(
    cloud: Cloud, aws: Client, clients: Callable[[str, str], Any]
) -> None:
    """If the first Region does not take part, the second one deletes its own configuration. The failback deletes the other one."""
    first, second = systems(aws)
    replicate(aws, first, second)
    pair, move = HomePair(source=first.id, replica=second.id), AwsFailover(clients, FIRST, SECOND)
    outage.begin(cloud.store, FIRST)
    for _ in range(3):
        assert not move.home_opened(pair, alone=False)
    until(lambda: move.home_opened(pair, alone=True))
    files(cloud, second.id, new="2")
    outage.end(cloud.store)
    until(lambda: move.home_returned(pair))
    assert files(cloud, first.id) == {"new": "2"}


def test_an_aborted_failover_allows_the_replication_again(
    cloud: Cloud, aws: Client, clients: Callable[[str, str], Any]
) -> None:
    """No job wrote to the replica, so the next deployment can replace its files."""
    first, second = systems(aws)
    replicate(aws, first, second)
    files(cloud, first.id, old="1")
    pair, move = HomePair(source=first.id, replica=second.id), AwsFailover(clients, FIRST, SECOND)
    assert move.home_accepts(pair), "the replication has not ended"
    until(lambda: move.home_opened(pair, alone=False))
    assert files(cloud, second.id) == {"old": "1"}
    until(lambda: move.home_accepts(pair))
    replicate(aws, first, second)
    with pytest.raises(ValueError, match="is read-only"):
        files(cloud, second.id, new="2")


def test_the_cloud_rejects_what_efs_rejects(aws: Client, clients: Callable[[str, str], Any]) -> None:
    """A protected replica and a second replication are rejected, and a file system of a replication is not deleted."""
    first, second = systems(aws)
    target = {"region": SECOND, "fileSystemId": second.id}
    with pytest.raises(grpc.RpcError, match=r"overwrite protection of '.*' is enabled"):
        aws.create(CONFIGURATION, {"sourceFileSystemId": first.id, "destination": target, "region": FIRST})
    replicate(aws, first, second)
    with pytest.raises(grpc.RpcError, match="is part of a replication"):
        aws.create(CONFIGURATION, {"sourceFileSystemId": first.id, "destination": target, "region": FIRST}, "again")
    with pytest.raises(grpc.RpcError, match="is part of a replication"):
        aws.delete(second)
    efs = clients("efs", SECOND)
    with pytest.raises(efs.exceptions.ReplicationAlreadyExists):
        efs.update_file_system_protection(FileSystemId=second.id, ReplicationOverwriteProtection="DISABLED")
    (found,) = efs.describe_file_systems(FileSystemId=second.id)["FileSystems"]
    assert found["FileSystemProtection"] == {"ReplicationOverwriteProtection": "REPLICATING"}
    efs.delete_replication_configuration(SourceFileSystemId=first.id, DeletionMode=ALONE)
    with pytest.raises(efs.exceptions.ReplicationNotFound):
        efs.describe_replication_configurations(FileSystemId=second.id)
