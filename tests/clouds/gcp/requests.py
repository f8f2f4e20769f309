"""The API calls that the provider makes for resources, for validation by Google's discovery documents.

Each resource type has a function from its inputs to its calls. The function must read all inputs, so that all arguments are validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.clouds.recorder import Registered

NO_CALL = {
    "gcp:lustre/instance:Instance": "Managed Lustre has no document among the bundled ones; test_names.py, the rules and the oracle test its names and sizes",
    "gpuinfra:index:NodesReady": "a resource of the gpuinfra provider, whose requests have tests of their own",
}
"""Types without a mapping, each with its reason."""

PROVIDER_ONLY = ("deletionPolicy", "disableOnDestroy", "waitForInstances", "forceDestroy", "deletionProtectionReason")
"""Inputs for the provider, which it does not send to Google."""


@dataclass(frozen=True)
class Call:
    """One request: a method of a document, its parameters, its body."""

    api: str
    """Name and version: `compute.v1`."""
    method: str
    """`instanceTemplates.insert`."""
    params: dict[str, Any]
    body: Any = None


@dataclass
class Inputs:
    """The inputs of a resource; `left` are those that its function did not read yet."""

    name: str
    left: dict[str, Any] = field(default_factory=dict)

    def take(self, key: str, default: Any = None) -> Any:
        """An input, or the default."""
        return self.left.pop(key, default)

    def some(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Inputs that are sent unchanged, under the same name or the name in the API: `some("name", IPProtocol="protocol")`."""
        names = {**{key: key for key in keys}, **renamed}
        return {api: self.left.pop(ours) for api, ours in names.items() if ours in self.left}


Mapper = Callable[[Inputs], Iterable[Call]]
MAPPERS: dict[str, Mapper] = {}


def mapper(token: str) -> Callable[[Mapper], Mapper]:
    """Register the calls of one type, by its token without the package."""

    def remember(function: Mapper) -> Mapper:
        MAPPERS[f"gcp:{token}"] = function
        return function

    return remember


def calls(resource: Registered) -> list[Call]:
    """The requests of a resource. Fails if an input is not read."""
    given = {k: v for k, v in whole(resource.inputs).items() if v is not None and k not in PROVIDER_ONLY}
    inputs = Inputs(resource.name, given)
    made = list(MAPPERS[resource.type](inputs))
    assert not inputs.left, f"{resource.type} {resource.name}: no call reads {sorted(inputs.left)}"
    return made


def whole(value: Any) -> Any:
    """Integers for the API; the engine has floats."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def policy(role: str, member: str, condition: dict[str, Any] | None = None) -> dict[str, Any]:
    """An IAM policy with the one binding of a member."""
    binding: dict[str, Any] = {"role": role, "members": [member]}
    return {"version": 3, "bindings": [{**binding, "condition": condition} if condition else binding]}


def link(path: str) -> str:
    """A path as a link of Compute Engine."""
    return path if path.startswith("https://") else f"https://www.googleapis.com/compute/v1/{path}"
