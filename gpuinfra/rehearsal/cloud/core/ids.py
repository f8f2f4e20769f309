"""Parts of ids that every cloud uses. Ids have the shape of the cloud's own and are visibly synthetic.

Counters give the digits, so an id is never used twice: `vpc-00000000000000001`, `i-00000000000000002`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Count = Callable[[str], int]
"""Gives the next number of a series."""


def hexa(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def kebab(name: str) -> str:
    """`NatGateway` as `nat-gateway`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def package(token: str) -> str:
    """`aws` of `aws:ec2/vpc:Vpc`."""
    return token.split(":", 1)[0]


def module(token: str) -> str:
    """`ec2` of `aws:ec2/vpc:Vpc`."""
    return token.split(":")[1].split("/")[0]


def class_name(token: str) -> str:
    """`Vpc` of `aws:ec2/vpc:Vpc`."""
    return token.rsplit(":", 1)[1]


def last(path: str) -> str:
    """The last segment of a path."""
    return path.rsplit("/", 1)[-1]


def inside(id: str, parent: str) -> bool:
    """Whether an id lies below another one. Upper and lower case are the same."""
    return id.lower().startswith(parent.lower().rstrip("/") + "/")


def plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch")) else "s")


def fill(shape: str, inputs: Mapping[str, Any]) -> str:
    """`{name}` in a shape stands for that input; an absent input gives nothing."""
    values = {key: "" if value is None else str(value) for key, value in inputs.items()}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], ""), shape)


def counted(token: str, count: Count) -> str:
    """The generic id: the type's name and a number."""
    series = kebab(class_name(token))
    return f"{series}-{hexa(count(series), 17)}"
