"""Names of the clone's stack, of its file, and of the stacks to which it refers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The stack of which a stack is a clone."""

    stack: str
    region: str


def origin_of(value: object) -> Origin | None:
    """Parse the setting `gpuinfra:clone-of`. Returns None if it is missing or has another form."""
    if not isinstance(value, dict):
        return None
    stack, region = value.get("stack"), value.get("region")
    return Origin(stack=stack, region=region) if isinstance(stack, str) and isinstance(region, str) else None


def stack_in(name: str, source: str, target: str, origin: Origin | None) -> str:
    """Return the name of a stack in the region `target`: `aws-p4d` in us-west-2 is `aws-p4d-us-west-2`.

    A clone in the region of its origin gets the original name.
    """
    bare = name.removesuffix(f"-{source}")
    return bare if origin is not None and origin.region == target else f"{bare}-{target}"


def reference_in(reference: str, source: str, target: str, origin: Origin | None) -> str:
    """Return a stack reference with the stack of the other region."""
    folder, slash, name = reference.rpartition("/")
    return f"{folder}{slash}{stack_in(name, source, target, origin)}"


def file_of(path: Path, stack: str) -> Path:
    """Return the file of a stack next to another stack file."""
    return path.with_name(f"Pulumi.{stack}.yaml" if path.name.startswith("Pulumi.") else f"{stack}.yaml")
