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
    evidence = replicas_of(question.resources).buckets.get(EVIDENCE)
    try:
        pairs_of_cloud = cloud_of(cloud).checkpoints(
            question.region, question.recovery.region, question.config, question.resources
        )
    except DeploymentError as problem:
        yield unread(checkpoints.TOPIC, question.recovery.region, str(problem))
        return
    pairs = [one for one in pairs_of_cloud if evidence is None or one.replica != evidence]
    yield from checkpoints.lines(pattern, pairs, question.rpo_minutes, datetime.now(UTC))
