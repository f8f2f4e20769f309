"""What the state of a stack contains for its second region: the replicas of its buckets, their key, and the copies of its images.

`gpuinfra ready`, `gpuinfra failover` and the drill read the state here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import join
from typing import Any

from gpuinfra.clouds.region.readiness import ReadinessLine, fails, passes
from gpuinfra.plan.recovery_model import RecoveryPlan
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.load import LoadedStack

SET = "--set"
COMPONENT = ":RegionClone"
"""End of the type of the component in the state."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The outputs of `RegionClone` in the state of a stack. Empty if the state has none."""

    buckets: Mapping[str, str] = field(default_factory=dict)
    """Names of the replicas by purpose, such as `evidence` or `scratch-0`."""
    images: Mapping[str, str] = field(default_factory=dict)
    """IDs of the image copies, by the ID of the image in the first region."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """IDs of the replicas of home directories, by the name of the file system, such as `home-0`."""
    key_arn: str | None = None
    """Key of the replicas, on clouds whose nodes need its name to read a bucket."""


def replicas_of(resources: Iterable[Mapping[str, Any]]) -> Replicas:
    """Return the replicas and image copies in the state of a stack."""
    for resource in resources:
        if str(resource.get("type", "")).endswith(COMPONENT):
            outputs = resource.get("outputs") or {}
            key = outputs.get("data_key_arn")
            return Replicas(
                buckets=outputs.get("buckets") or {},
                images=outputs.get("images") or {},
                homes=outputs.get("homes") or {},
                key_arn=key if isinstance(key, str) else None,
            )
    return Replicas()


def declared_images(stack: LoadedStack) -> Iterator[tuple[str, CustomImage]]:
    """Yield the path and the value of each image that the declaration selects by its ID."""
    for index, pool in enumerate(stack.spec.pools):
        if isinstance(pool.image, CustomImage):
            yield f"pools[{index}].image", pool.image
    if isinstance(stack.spec.software.image, CustomImage):
        yield "software.image", stack.spec.software.image


def image_values(stack: LoadedStack, copies: Mapping[str, str]) -> tuple[tuple[str, object], ...]:
    """Return the values of `--set` that make a clone of the stack use the copies of its images."""
    return tuple((f"{path}.ref", copies[image.ref]) for path, image in declared_images(stack) if image.ref in copies)


def image_lines(
    stack: LoadedStack, recovery: RecoveryPlan, files: Sequence[LoadedStack], replicas: Replicas, rewrite: Sequence[str]
) -> Iterator[ReadinessLine]:
    """Check that the stack file of the second region uses the copies of the images that the stack uses now.

    `files` are the stack files of the second region, and `rewrite` is the command that writes them again. `preflight` checks that the
    images in these files exist.
    """
    copied = [one.ref for one in recovery.images if one.copied]
    for ref in copied:
        if ref not in replicas.images:
            yield fails("image", ref, f"the state contains no copy of {ref} in {recovery.region}")
    nodes = [one for one in files if one.spec.pools]
    for file in nodes[-1:]:
        used = dict(declared_images(file))
        for path, image in declared_images(stack):
            copy = replicas.images.get(image.ref)
            if image.ref not in copied or copy is None:
                continue
            ref_there = used[path].ref if path in used else "not set"
            if ref_there == copy:
                yield passes("image", f"{path}.ref", f"is {copy}, the copy of {image.ref}")
                continue
            reason = f"is {ref_there} in {file.path.name}, but the copy of {image.ref} is {copy}"
            fix = join(with_values(rewrite, {f"{path}.ref": copy}))
            yield fails("image", f"{path}.ref", reason, fix)


def with_values(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """Return a `gpuinfra clone` command with values of `--set`, which replace its values for the same paths. Each path can be set only once."""
    words_filled: list[str] = []
    for word in command:
        if words_filled and words_filled[-1] == SET and word.partition("=")[0] in values:
            words_filled.pop()
        else:
            words_filled.append(word)
    for path, value in values.items():
        words_filled += [SET, f"{path}={json.dumps(value) if isinstance(value, bool) else value}"]
    return words_filled
