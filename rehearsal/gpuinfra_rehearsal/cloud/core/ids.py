"""Parts of IDs that all clouds share. IDs have the format of the real cloud and are clearly synthetic.

Counters generate the digits, so IDs are never reused: `vpc-00000000000000001`, `i-00000000000000002`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Count = Callable[[str], int]
"""Returns the next number of a series."""


def hexa(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def kebab(name: str) -> str:
    """Convert `NatGateway` to `nat-gateway`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def package(token: str) -> str:
    """Return `aws` for `aws:ec2/vpc:Vpc`."""
    return token.split(":", 1)[0]


def module(token: str) -> str:
    """Return `ec2` for `aws:ec2/vpc:Vpc`."""
    return token.split(":")[1].split("/")[0]


def class_name(token: str) -> str:
    """Return `Vpc` for `aws:ec2/vpc:Vpc`."""
    return token.rsplit(":", 1)[1]


def last(path: str) -> str:
    """Return the last segment of a path."""
    return path.rsplit("/", 1)[-1]


def inside(id: str, parent: str) -> bool:
    """Return whether an ID is nested below another ID. The comparison ignores case."""
    return id.lower().startswith(parent.lower().rstrip("/") + "/")


def plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch")) else "s")


def fill(shape: str, inputs: Mapping[str, Any]) -> str:
    """Fill in a template: `{name}` stands for that input. A missing input becomes an empty string."""
    values = {key: "" if value is None else str(value) for key, value in inputs.items()}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], ""), shape)


def counted(token: str, count: Count) -> str:
    """Return the generic ID: the type's name and a number."""
    series = kebab(class_name(token))
    return f"{series}-{hexa(count(series), 17)}"
