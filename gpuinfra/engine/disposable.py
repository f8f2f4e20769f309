"""Deletes a stack with everything that `destroy` retains, for stacks whose data is a copy.

The engine decides by `retainOnDelete` in the state whether it deletes a resource (`Deployment.Delete` in pkg/resource/deploy of Pulumi v3.259.0), and
the provider by `forceDestroy` in the state whether it deletes a bucket with its objects (`resourceBucketDelete` in internal/service/s3/bucket.go of
hashicorp/terraform-provider-aws, and `resourceStorageBucketDelete` of hashicorp/terraform-provider-google).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.engine.find import Engine
from gpuinfra.engine.pending import Deployment, read_deployment, write_deployment
from gpuinfra.engine.up import NO_STACK, destroy, quick

AGAIN_S = 20.0
"""Time until the deletion is repeated, because a node that is being terminated can write to a bucket that was already emptied."""


def disposable(deployment: Deployment, holders: Collection[str]) -> dict[str, Any]:
    """Return the state in which `destroy` deletes every resource. `holders` are the types of buckets."""
    resources: list[dict[str, Any]] = []
    for resource in deployment.get("resources") or ():
        changed = {key: value for key, value in resource.items() if key != "retainOnDelete"}
        if resource.get("type") in holders:
            for part in ("inputs", "outputs"):
                changed[part] = {**(resource.get(part) or {}), "forceDestroy": True}
        resources.append(changed)
    return {**deployment, "resources": resources}


def remove_stack(
    engine: Engine, stack: str, project: Path, holders: Collection[str], *, output: IO[str], keep: Sequence[int] = ()
) -> None:
    """Delete all resources of a stack, and the stack. Raises `DeploymentError` with the resources that remain. Can be repeated."""
    for attempt in range(2):
        before = read_deployment(engine, stack, project)
        if before.get("resources"):
            after = disposable(before, holders)
            if after != before:
                write_deployment(engine, stack, project, before, after, output=output, keep=keep, again=True)
            if attempt == 0:
                with contextlib.suppress(DeploymentError):
                    destroy(engine, stack, project, output=output, keep=keep, again=True)
                    break
                time.sleep(AGAIN_S)
            else:
                destroy(engine, stack, project, output=output, keep=keep, again=True)
    answer = quick(engine, project, "stack", "rm", stack, "--yes")
    if answer.returncode and NO_STACK not in answer.stderr:
        raise DeploymentError(f"the stack {stack} cannot be removed: {one_line(answer.stderr.strip())}")
