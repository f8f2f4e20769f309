from __future__ import annotations

import copy
import inspect

import pytest

from gpuinfra.findings import Finding
from gpuinfra.rules import check
from gpuinfra.rules.run import all_rules
from gpuinfra.spec import parse_spec
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, Case, declaration


def _of(rule: str, case: Case) -> list[Finding]:
    spec = parse_spec(declaration(case))
    return [finding for finding in check(spec, TODAY) if finding.rule == rule]


def _ids(cases: dict[str, list[Case]]) -> list[tuple[str, Case]]:
    return [(rule, case) for rule, listed in cases.items() for case in listed]


@pytest.mark.parametrize(("rule", "case"), _ids(ACCEPTED), ids=lambda value: value if isinstance(value, str) else "")
def test_a_rule_accepts_what_is_right(rule: str, case: Case) -> None:
    """A declaration that keeps a rule's sentence gets no finding of that rule."""
    assert [str(finding) for finding in _of(rule, case)] == []


@pytest.mark.parametrize(("rule", "case"), _ids(REJECTED), ids=lambda value: value if isinstance(value, str) else "")
def test_a_rule_rejects_what_breaks_it(rule: str, case: Case) -> None:
    """A declaration that breaks a rule's sentence gets a finding with a path, what was given and what to change."""
    found = _of(rule, case)
    assert found, f"{rule} is silent"
    for finding in found:
        assert finding.path
        assert finding.message
        assert finding.hint or finding.level == "info"


@pytest.mark.parametrize("field", ["region", "machine"])
@pytest.mark.parametrize(("rule", "case"), [*_ids(ACCEPTED), *_ids(REJECTED)], ids=str)
def test_nothing_follows_from_a_misspelt_word(rule: str, case: Case, field: str) -> None:
    """A region or machine type that does not exist is told once; no rule says more about a declaration because of it."""
    right = declaration(case)
    wrong = copy.deepcopy(right)
    if field == "region":
        wrong["where"]["region"] = "nowhere-1"
    else:
        for pool in wrong.get("pools", []):
            pool["machine"] = "nothing.48xlarge"
    told = {(finding.rule, finding.path) for finding in check(parse_spec(right), TODAY)}
    more = {(finding.rule, finding.path) for finding in check(parse_spec(wrong), TODAY)} - told
    assert {name for name, _ in more} <= {f"{field}_is_known"}


def test_every_rule_has_both_cases() -> None:
    """No rule can be added without a declaration that it accepts and one that it rejects."""
    rules = set(all_rules())
    assert set(ACCEPTED) == rules
    assert set(REJECTED) == rules


def test_every_rule_is_one_sentence() -> None:
    """A rule's docstring is the sentence it defends, which `gpuinfra explain` shows."""
    for name, rule in all_rules().items():
        text = inspect.getdoc(rule) or ""
        assert text.endswith("."), name
        assert "\n\n" not in text, name


def test_findings_come_all_at_once_and_errors_first() -> None:
    """One run tells everything that is wrong, errors before warnings."""
    wrong = declaration(
        ("aws", {"pools.0.machine": "p4x", "where.region": "us-esat-1", "budget": None, "network.cidr": "8.8.0.0/16"})
    )
    found = check(parse_spec(wrong), TODAY)
    assert {"machine_is_known", "region_is_known", "cidr_is_private", "budget_has_recipients"} <= {
        f.rule for f in found
    }
    levels = [finding.level.value for finding in found]
    assert levels == sorted(levels, key=["error", "warn", "info"].index)
