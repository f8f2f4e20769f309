"""The API calls that resources become, so that Google's own discovery documents can be asked about them.

One entry per resource type: a function from the resource's inputs to the calls that the provider makes for it.
Every input has to be taken by its function: what nobody takes fails, so that no argument escapes the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.clouds.recorder import Registered

NO_CALL = {
    "gcp:lustre/instance:Instance": "Managed Lustre has no discovery document among the bundled ones; its names, forms and sizes are held by test_names.py, the rules and the oracle",
    "gpuinfra:index:NodesReady": "our own provider's resource; what it asks Google is tested with it",
}
"""Types without a mapping, each with its reason."""

PROVIDER_ONLY = ("deletionPolicy", "disableOnDestroy", "waitForInstances", "forceDestroy", "deletionProtectionReason")
"""Inputs that tell the provider what to do and are sent to nobody."""


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
    """A resource's inputs; what is taken is remembered, and `left` is what nobody took."""

    name: str
    left: dict[str, Any] = field(default_factory=dict)

    def take(self, key: str, default: Any = None) -> Any:
        """An input, or what stands for it."""
        return self.left.pop(key, default)

    def some(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Inputs that keep their shape, under their own names or the API's: `some("name", IPProtocol="protocol")`."""
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
    """The requests that a resource becomes. Fails where an input is left over."""
    given = {k: v for k, v in whole(resource.inputs).items() if v is not None and k not in PROVIDER_ONLY}
    inputs = Inputs(resource.name, given)
    made = list(MAPPERS[resource.type](inputs))
    assert not inputs.left, f"{resource.type} {resource.name}: no call takes {sorted(inputs.left)}"
    return made


def whole(value: Any) -> Any:
    """Numbers as the API takes them: the engine's are floats."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def policy(role: str, member: str, condition: dict[str, Any] | None = None) -> dict[str, Any]:
    """An IAM policy with one binding, which is what a member adds."""
    binding: dict[str, Any] = {"role": role, "members": [member]}
    return {"version": 3, "bindings": [{**binding, "condition": condition} if condition else binding]}


def link(path: str) -> str:
    """A path as the link that Compute Engine's bodies hold."""
    return path if path.startswith("https://") else f"https://www.googleapis.com/compute/v1/{path}"
