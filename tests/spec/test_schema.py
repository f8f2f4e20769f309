from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from gpuinfra.reference.schema import FILE
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, declaration

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(FILE.read_text())


def _errors(stack: object) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(stack)]


def _stack(spec: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"gpuinfra:cluster": spec}}


@pytest.mark.parametrize("path", sorted((ROOT / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_shipped_stacks_match_the_schema(path: Path) -> None:
    """The shipped stacks are valid under the schema."""
    assert _errors(YAML(typ="safe").load(path.read_text())) == []


def test_accepted_declarations_match_the_schema() -> None:
    """The schema accepts every declaration that the models and rules accept."""
    count = 0
    for case in (case for cases in ACCEPTED.values() for case in cases):
        spec = declaration(case)
        if any(finding.level == "error" for finding in check(parse_spec(spec), TODAY)):
            continue  # accepted by its own rule, rejected by another
        count += 1
        assert _errors(_stack(spec)) == [], case
    assert count > 100


@pytest.mark.parametrize("rule", ["region_is_known", "machine_is_known"])
def test_schema_rejects_unknown_regions_and_machine_types(rule: str) -> None:
    """The schema rejects regions and machine types that the cloud does not have."""
    for case in REJECTED[rule]:
        refused = any(one.rule == rule and one.level == "error" for one in check(parse_spec(declaration(case)), TODAY))
        if refused and "pools.0.fallback" not in case[1]:
            assert _errors(_stack(declaration(case))), case


def test_schema_rejects_capacity_that_a_cloud_does_not_sell() -> None:
    """The schema rejects a Capacity Block on Azure and flex-start on AWS."""
    for case in REJECTED["capacity_kind_is_offered"][:2]:
        assert _errors(_stack(declaration(case))), case
