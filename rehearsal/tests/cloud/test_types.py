"""The stand-in's tables contain only types that gpuinfra creates, or whose resources of a program it reads. Other types have generic behavior."""

from __future__ import annotations

import ast
import importlib
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra_rehearsal.cloud.aws.replacements import TABLE
from gpuinfra_rehearsal.cloud.core import behaviors, registry
from gpuinfra_rehearsal.cloud.core.behavior import BEHAVIORS

SOURCES = Path(registry.__file__).parents[1]
TOKEN = re.compile(r"[\w-]+:[\w/-]+:[A-Z]\w+")
READ = {
    "aws:ec2/capacityReservation:CapacityReservation": "a `Reserved` capacity uses a reservation of the program",
    "azure-native:compute:CapacityReservation": "a `Reserved` capacity uses a reservation of the program",
    "gcp:compute/reservation:Reservation": "a `Reserved` capacity uses a reservation of the program",
    "gcp:compute/image:Image": "nodes start from an image of the program",
}
"""Types that only a program creates, with the declaration that reads their resources."""


def created(cloud: str) -> set[str]:
    """The types that the components of a cloud create. tests/clouds/test_resource_table.py compares the table with the components."""
    return {row.type for row in importlib.import_module(f"{CLOUDS[cloud]}.resources").RESOURCES}


CREATED = {token for cloud in CLOUDS for token in created(cloud)}


def in_tables() -> set[str]:
    """The types in the stand-in's modules and in its table of replacements."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py")]
    words = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {word for word in words if isinstance(word, str) and TOKEN.fullmatch(word)} | {
        *json.loads(TABLE.read_text(encoding="utf-8"))["types"]
    }


def test_each_type_in_the_tables_is_created_or_read() -> None:
    """No table has a type that neither a component creates nor a declaration reads."""
    assert in_tables() - CREATED == set(READ)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_behavior_and_pattern_is_of_such_a_type(cloud: str) -> None:
    """Each behavior belongs to a type that is created or read, and each pattern of text fields matches a type that is created."""
    behaviors.of(min(created(cloud)))  # loads all behaviors of the cloud
    package = registry.of_cloud(cloud).package
    assert {token for token in BEHAVIORS if token.startswith(f"{package}:")} - CREATED - set(READ) == set()
    patterns = {text.types for text in registry.of_cloud(cloud).texts}
    assert [one for one in patterns if not any(fnmatchcase(token, one) for token in CREATED)] == []
