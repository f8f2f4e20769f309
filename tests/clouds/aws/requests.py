"""The API calls for resources, to validate them with the request models of AWS.

Each resource type has a function from inputs to the calls that the provider makes. An input that no function reads is an error,
so every argument is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.clouds.recorder import ACCOUNT, Registered

NO_CALL = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "adopts the default group of the VPC and revokes its rules; none of our inputs is sent",
    "gpuinfra:index:NodesReady": "a resource of the gpuinfra provider; its requests are tested there",
}
"""Types without a mapping, with the reason."""


@dataclass(frozen=True)
class Call:
    """One request."""

    service: str
    operation: str
    params: dict[str, Any]


class Inputs:
    """Inputs of a resource; `left` contains those that no call has read."""

    def __init__(self, resource: Registered) -> None:
        self.name = resource.name
        self.left = {key: value for key, value in whole(resource.inputs).items() if value is not None}
        self.left.pop("region", None)

    def take(self, key: str, default: Any = None) -> Any:
        """An input, or the default."""
        return self.left.pop(key, default)

    def some(self, **names: str) -> dict[str, Any]:
        """Inputs that keep their shape, under the API's names: `some(CidrBlock="cidrBlock")`."""
        return {api: pascal(self.left.pop(ours)) for api, ours in names.items() if ours in self.left}

    def tags(self) -> list[dict[str, str]]:
        """Tags as a list of pairs."""
        return [{"Key": key, "Value": value} for key, value in self.take("tags", {}).items()]

    def tagged(self, kind: str) -> dict[str, Any]:
        """Tags as a TagSpecification of EC2."""
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
    """The requests for a resource. Fails if no request reads an input."""
    inputs = Inputs(resource)
    made = list(MAPPERS[resource.type](inputs))
    assert not inputs.left, f"{resource.type} {resource.name}: no call takes {sorted(inputs.left)}"
    return made


def whole(value: Any) -> Any:
    """Whole numbers as integers: the engine has floats only."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def pascal(value: Any) -> Any:
    """Keys in PascalCase, recursively."""
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: pascal(item) for key, item in value.items() if item is not None}
    return [pascal(item) for item in value] if isinstance(value, list) else value


def flag(text: str) -> bool:
    """A boolean that the SDK requires as text."""
    assert text in ("true", "false"), text
    return text == "true"


ACCOUNT_ID = ACCOUNT
