"""How long the providers wait, compared with durations that others reported (`timeouts.yaml`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuinfra.base.registry import CLOUDS
from tests.clouds.gcp.variants import BASE, VARIANTS
from tests.clouds.recorder import Registered
from tests.clouds.stacks import recording_of, recording_of_spec, shipped_stacks

FACTS: dict[str, dict[str, Any]] = YAML(typ="safe").load(
    (Path(__file__).parent / "timeouts.yaml").read_text(encoding="utf-8")
)


def _resources(token: str) -> list[Registered]:
    """The resources of a type in the shipped stacks, and in one with home directories on Google Cloud.
    A short token of Azure stands for all of its API versions."""
    programs = [recording_of(stack) for stack in shipped_stacks(_cloud_of(token))]
    programs += [recording_of_spec({**BASE, **VARIANTS["home directories"]})] * ("filestore" in token)
    kind = token.rpartition(":")[2]
    return [
        one
        for program in programs
        for one in program.custom
        if one.type == token or (token.startswith("azure-native:") and one.type.rpartition(":")[2] == kind)
    ]


def _cloud_of(token: str) -> str:
    (cloud,) = (one for one in CLOUDS if token.startswith(one))
    return cloud


def _minutes(text: str) -> int:
    found = re.fullmatch(r"(\d+)m", text)
    assert found is not None, f"{text} is not a number of minutes"
    return int(found[1])


@pytest.mark.parametrize("token", FACTS)
def test_the_wait_covers_reported_durations(token: str) -> None:
    """The wait of each resource covers the longest reported duration, and is never below the default."""
    fact = FACTS[token]
    resources = _resources(token)
    assert resources, f"no stack has {token}"
    for one in resources:
        waits = {**fact["default"], **{name: _minutes(text) for name, text in one.timeouts.items()}}
        for operation, minutes in fact.get("took", {}).items():
            assert waits[operation] >= minutes, (one.name, operation)
        for operation in fact.get("exceeded", ()):
            assert waits[operation] > fact["default"][operation], (one.name, operation)
        for operation, minutes in fact["default"].items():
            assert waits[operation] >= minutes, (one.name, operation)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_own_wait_has_a_fact(cloud: str) -> None:
    """A type with a wait of its own is in the table, with the reason for it."""
    for stack in shipped_stacks(cloud):
        own = {one.type for one in recording_of(stack).custom if one.timeouts}
        assert own - set(FACTS) - {"gpuinfra:index:NodesReady"} == set(), stack
