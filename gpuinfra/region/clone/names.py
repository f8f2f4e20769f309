"""Names of the clone's stack, of its file, and of the stacks that it references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_STACK = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Names of stacks and projects (https://www.pulumi.com/learn/building-with-pulumi/understanding-stacks, retrieved 2026-11-22)."""
_BASE = "-base"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The original stack of a clone."""

    stack: str
    region: str
    use: Mapping[str, str] = field(default_factory=dict)
    """Layer -> stack reference in the region of the origin."""


def origin_of(value: object) -> Origin | None:
    """Parse the setting `gpuinfra:clone-of`. Returns None if it is missing or has a different format."""
    if not isinstance(value, dict):
        return None
    stack, region, use = value.get("stack"), value.get("region"), value.get("use")
    if not isinstance(stack, str) or not is_name(stack) or not isinstance(region, str):
        return None
    references = use.items() if isinstance(use, dict) else ()
    return Origin(stack=stack, region=region, use={str(key): one for key, one in references if isinstance(one, str)})


def record_of(stack: str, region: str, use: Mapping[str, str]) -> dict[str, Any]:
    """Return the setting `gpuinfra:clone-of`: the names that a clone in the region of the origin gets."""
    return {"stack": stack, "region": region, **({"use": dict(use)} if use else {})}


def is_name(text: str) -> bool:
    """Whether a text is the name of a stack or of a project."""
    return _STACK.fullmatch(text) is not None


def base_of(stack: str) -> str:
    """Return the name of the stack that mode `pilot-light` deploys in advance."""
    return f"{stack}{_BASE}"


def stack_in(name: str, source: str, target: str, origin: Origin | None) -> str:
    """Return the name of a stack in the region `target`: `aws-p4d` in us-west-2 is `aws-p4d-us-west-2`.

    A clone in the region of its origin gets the recorded name.
    """
    if origin is not None and origin.region == target:
        return origin.stack
    return _named(name, source, target)


def _named(name: str, source: str, target: str) -> str:
    base = base_of(f"-{source}")
    if name.endswith(base):
        return base_of(f"{name.removesuffix(base)}-{target}")
    return f"{name.removesuffix(f'-{source}')}-{target}"


def reference_in(reference: str, layer: str, source: str, target: str, origin: Origin | None) -> str:
    """Return the reference to the stack of a layer in the region `target`.

    A clone in the region of its origin gets the recorded reference. Without a record, the region is removed from the name.
    """
    folder, slash, name = reference.rpartition("/")
    if origin is not None and origin.region == target:
        return origin.use.get(layer) or f"{folder}{slash}{name.removesuffix(f'-{source}')}"
    return f"{folder}{slash}{_named(name, source, target)}"


def file_of(path: Path, stack: str) -> Path:
    """Return the file of a stack next to another stack file."""
    return path.with_name(f"Pulumi.{stack}.yaml" if path.name.startswith("Pulumi.") else f"{stack}.yaml")
