from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuinfra.reference.explain import explain, known_checks, known_fields, known_rules
from gpuinfra.reference.schema import FILE
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from gpuinfra.spec.model import ClusterSpec
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, declaration

jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is an independent reader of the schema")
ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(FILE.read_text())


def _problems(stack: object) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [problem.message for problem in validator.iter_errors(stack)]


def _stack(spec: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"gpuinfra:cluster": spec}}


@pytest.mark.parametrize("path", sorted((ROOT / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_shipped_stacks_fit_the_schema(path: Path) -> None:
    """An editor that reads the schema marks nothing in the stacks that ship."""
    assert _problems(YAML(typ="safe").load(path.read_text())) == []


def test_accepted_declarations_fit_the_schema() -> None:
    """The schema refuses nothing that the models and rules accept."""
    count = 0
    for case in (case for cases in ACCEPTED.values() for case in cases):
        spec = declaration(case)
        if any(finding.level == "error" for finding in check(parse_spec(spec), TODAY)):
            continue  # right for its own rule, wrong for another
        count += 1
        assert _problems(_stack(spec)) == [], case
    assert count > 100


@pytest.mark.parametrize("rule", ["region_is_known", "machine_is_known"])
def test_the_schema_knows_places_and_machines(rule: str) -> None:
    """An editor marks a region or machine that the cloud does not have."""
    for case in REJECTED[rule]:
        if "pools.0.fallback" not in case[1]:
            assert _problems(_stack(declaration(case))), case


def test_the_schema_refuses_what_a_cloud_cannot_sell() -> None:
    """What a cloud cannot do is not writable for it: no Capacity Block on Azure, no flex-start on AWS."""
    for case in REJECTED["capacity_kind_exists"][:2]:
        assert _problems(_stack(declaration(case))), case


def test_every_field_has_a_description() -> None:
    """The schema describes every field, so an editor explains what it completes."""
    for name, definition in SCHEMA["$defs"].items():
        for field, content in definition.get("properties", {}).items():
            assert content.get("description"), f"{name}.{field}"


def test_explain_knows_every_field_rule_and_check() -> None:
    """Whatever a finding or a declaration names can be explained."""
    for word in (*known_fields(), *known_rules(), *known_checks()):
        assert explain(word)
    assert set(ClusterSpec.model_fields) <= set(known_fields())
