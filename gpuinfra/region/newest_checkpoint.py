"""The lines of `gpuinfra ready` and `gpuinfra failover` about the newest complete checkpoint in the replicas."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import checkpoints
from gpuinfra.clouds.region.readiness import ReadinessLine, ReadinessQuestion, unread
from gpuinfra.region.clone.replicas import replicas_of

EVIDENCE = "evidence"
"""Purpose of the bucket that contains no checkpoints."""


def of_checkpoints(cloud: str, question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Return the line of each replica of a file system or a mounted bucket about its newest complete checkpoint, if the stack declares checkpoints."""
    pattern = question.recovery.checkpoints
    if pattern is None:
        return
    try:
        pairs = pairs_of(cloud, question)
    except DeploymentError as problem:
        yield unread(checkpoints.TOPIC, question.recovery.region, str(problem))
        return
    yield from checkpoints.lines(pattern, pairs, question.rpo_minutes, datetime.now(UTC))


def newest(cloud: str, question: ReadinessQuestion) -> checkpoints.ReplicatedCheckpoint | None:
    """Return the newest complete checkpoint in the replicas, or None if there is none. Raises `Unreachable` and `DeploymentError`."""
    pattern = question.recovery.checkpoints
    return None if pattern is None else checkpoints.newest_of(pattern, pairs_of(cloud, question))


def pairs_of(cloud: str, question: ReadinessQuestion) -> list[checkpoints.CheckpointPair]:
    """Return the buckets that can contain checkpoints, with their replicas. Raises `DeploymentError`."""
    evidence = replicas_of(question.resources).buckets.get(EVIDENCE)
    pairs = cloud_of(cloud).checkpoints(question.region, question.recovery.region, question.config, question.resources)
    return [one for one in pairs if evidence is None or one.replica != evidence]
