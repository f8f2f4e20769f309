"""The API calls that resources become, so that AWS's own request models can be asked about them.

One entry per resource type: a function from the resource's inputs to the calls that the provider makes for it.
Every input has to be taken by its function: what nobody takes fails, so that no argument escapes the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.clouds.recorder import ACCOUNT, Registered

NO_CALL = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "adopts a group that AWS made with the VPC; emptying it revokes what is there, and nothing of ours is sent",
    "gpuinfra:index:NodesReady": "our own provider's resource; what it asks AWS is tested with it",
}
"""Types without a mapping, each with its reason."""


@dataclass(frozen=True)
class Call:
    """One request."""

    service: str
    operation: str
    params: dict[str, Any]


class Inputs:
    """A resource's inputs; what is taken is remembered, and `left` is what nobody took."""

    def __init__(self, resource: Registered) -> None:
        self.name = resource.name
        self.left = {key: value for key, value in whole(resource.inputs).items() if value is not None}
        self.left.pop("region", None)

    def take(self, key: str, default: Any = None) -> Any:
        """An input, or what stands for it."""
        return self.left.pop(key, default)

    def some(self, **names: str) -> dict[str, Any]:
        """Inputs that keep their shape, under the API's names: `some(CidrBlock="cidrBlock")`."""
        return {api: pascal(self.left.pop(ours)) for api, ours in names.items() if ours in self.left}

    def tags(self) -> list[dict[str, str]]:
        """Tags as a list of pairs."""
        return [{"Key": key, "Value": value} for key, value in self.take("tags", {}).items()]

    def tagged(self, kind: str) -> dict[str, Any]:
        """Tags as EC2 takes them when it makes something."""
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": self.tags()}]}


Mapper = Callable[[Inputs], Iterable[Call]]
MAPPERS: dict[str, Mapper] = {}


def mapper(token: str) -> Callable[[Mapper], Mapper]:
    """Register the calls of one type, by its token without the package."""

    def remember(function: Mapper) -> Mapper:
        MAPPERS[f"aws:{token}"] = function
        return function

    return remember


def calls(resource: Registered) -> list[Call]:
    """The requests that a resource becomes. Fails where an input is left over."""
    inputs = Inputs(resource)
    made = list(MAPPERS[resource.type](inputs))
    assert not inputs.left, f"{resource.type} {resource.name}: no call takes {sorted(inputs.left)}"
    return made


def whole(value: Any) -> Any:
    """Numbers as the API takes them: the engine's are floats."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def pascal(value: Any) -> Any:
    """Keys with a capital, all the way down."""
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: pascal(item) for key, item in value.items() if item is not None}
    return [pascal(item) for item in value] if isinstance(value, list) else value


def flag(text: str) -> bool:
    """A boolean that the SDK wants as text."""
    assert text in ("true", "false"), text
    return text == "true"


ACCOUNT_ID = ACCOUNT
