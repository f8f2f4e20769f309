"""Amazon's own mock of the EC2 metadata service as a witness for the notices that a node reads."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuinfra.node import aws
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.notices import Notice, NoticeKind, NoticeStage, stage_of
from tests.servers import free_port

MODULE = Path(__file__).parent / "metadata_mock"
PACKAGE = "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock"
PATIENCE_S = 1500


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from the version that `metadata_mock/go.sum` pins."""
    program = tmp_path_factory.mktemp("mock") / "mock"
    words = ["go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(program), PACKAGE]
    subprocess.run(words, cwd=MODULE, check=True, timeout=PATIENCE_S)
    return program


@contextmanager
def serving(program: Path, home: Path, *words: str) -> Iterator[aws.AwsNode]:
    """A node whose metadata service is the mock, which accepts only requests with a token."""
    port = free_port()
    process = subprocess.Popen(
        [str(program), *words, "--imdsv2", "--hostname", "127.0.0.1", "--port", str(port)],
        env={**os.environ, "HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        node = aws.connect({"region": "us-east-1"}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{port}"})
        for _ in range(600):
            try:
                node.instance_id()
                break
            except CloudError:
                time.sleep(0.1)
        yield node
    finally:
        process.kill()
        process.wait()


def notices(node: aws.AwsNode) -> list[Notice]:
    """What all sources report. Each answers also while another one has no notice."""
    return [one for read in node.notice_sources().values() for one in read()]


@pytest.mark.long
def test_a_spot_interruption_is_read_with_its_deadline(mock: Path, tmp_path: Path) -> None:
    """The mock announces a termination two minutes ahead, and a recommendation with it."""
    with serving(mock, tmp_path, "spot", "--action", "terminate") as node:
        spot, rebalance = notices(node)
    assert (spot.kind, spot.what, rebalance.kind) == (
        NoticeKind.RECLAIM,
        "spot interruption: terminate",
        NoticeKind.REBALANCE,
    )
    assert spot.deadline is not None
    assert 90 < spot.deadline - time.time() <= 121
    assert [stage_of(one, time.time()) for one in (spot, rebalance)] == [NoticeStage.IMMINENT, NoticeStage.ANNOUNCED]


@pytest.mark.long
def test_a_scheduled_event_is_read(mock: Path, tmp_path: Path) -> None:
    """The mock announces a reboot at the given time."""
    words = ("events", "--code", "system-reboot", "--state", "active", "--not-before", "2027-01-02T03:04:05Z")
    with serving(mock, tmp_path, *words) as node:
        (event,) = notices(node)
    assert (event.kind, event.what.partition(":")[0]) == (NoticeKind.MAINTENANCE, "system-reboot")
    assert event.deadline == 1798859045.0


@pytest.mark.long
def test_an_interruption_in_the_future_is_no_notice_yet(mock: Path, tmp_path: Path) -> None:
    """Before the delay of the mock ends, no path of a notice exists."""
    with serving(mock, tmp_path, "spot", "--mock-delay-sec", "3600", "--rebalance-delay-sec", "3600") as node:
        assert notices(node) == []
