"""The inputs that replace an AWS resource, compared with the provider's source (`replacements.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuinfra.clouds.aws.resources import RESOURCES
from gpuinfra_rehearsal.cloud.core.diff import diff
from gpuinfra_rehearsal.cloud.core.replace import inputs
from gpuinfra_rehearsal.cloud.core.sdk import sdk

FACTS: dict[str, dict[str, Any]] = YAML(typ="safe").load(
    (Path(__file__).parent / "replacements.yaml").read_text(encoding="utf-8")
)
WHEN = [(token, *one) for token, fact in FACTS.items() for one in fact.get("when", ())]


def test_each_type_has_facts() -> None:
    """Each AWS type that gpuinfra creates is in the table, with properties that the installed SDK declares."""
    assert set(FACTS) == {row.type for row in RESOURCES if row.type.startswith("aws:")}
    for token, fact in FACTS.items():
        declared = sdk("aws").resource(token).inputs
        listed = [*fact["always"], *fact.get("in_place", ())]
        assert {name for name in listed if name not in declared} == set(), token


@pytest.mark.parametrize("token", FACTS)
def test_the_stand_in_replaces_what_the_provider_replaces(token: str) -> None:
    """Each input that the provider cannot change replaces the resource, and each other input changes in place."""
    fact = FACTS[token]
    ours = inputs(token)
    regional = {"region"} if "region" in sdk("aws").resource(token).inputs else set()
    assert {*fact["always"], *regional} - ours == set(), "only the provider replaces"
    sometimes = {path.split(".")[0] for path, *_ in fact.get("when", ())}
    assert {name.split(".")[0] for name in ours} - {
        *fact["always"],
        *regional,
        *sometimes,
        *fact.get("unread", ()),
    } == set(), "only the stand-in replaces"


@pytest.mark.parametrize(
    ("token", "path", "old", "new", "expected"), WHEN, ids=lambda value: str(value).rpartition(":")[2]
)
def test_the_stand_in_replaces_when_the_provider_does(
    token: str, path: str, old: Any, new: Any, expected: bool
) -> None:
    """Whether the change of such an input replaces the resource depends on the old and the new value."""
    (change,) = diff(token, _at(path, old), _at(path, new))
    assert (change.path, change.replace) == (path, expected)


def _at(path: str, value: Any) -> dict[str, Any]:
    """Inputs with one value."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value
