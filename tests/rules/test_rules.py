from __future__ import annotations

import copy
import inspect
from functools import cache

import pytest
from _pytest.mark import ParameterSet

from gpuinfra.base.findings import Finding, Level
from gpuinfra.rules import check
from gpuinfra.rules.run import COMMON, all_rules, cloud_rules
from gpuinfra.spec import ClusterSpec, parse_spec
from gpuinfra.spec.rule import Rule
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, Case, declaration


def _rules(cloud: str) -> tuple[Rule, ...]:
    return (*COMMON, *cloud_rules(cloud))


def _of(rule: str, spec: ClusterSpec) -> list[Finding]:
    return [one for function in _rules(spec.cloud) if function.__name__ == rule for one in function(spec, TODAY)]


def _each(cases: dict[str, list[Case]]) -> list[ParameterSet]:
    return [
        pytest.param(rule, case, id=f"{rule} {number}")
        for rule, listed in cases.items()
        for number, case in enumerate(listed)
    ]


def _one_for_each_cloud() -> list[ParameterSet]:
    """The case of each rule and cloud with the most fields: one that the rule accepts, if there is one."""
    chosen: dict[tuple[str, str], Case] = {}
    for cases in (REJECTED, ACCEPTED):
        for rule, listed in cases.items():
            for case in sorted(listed, key=lambda case: len(case[1])):
                chosen[rule, case[0]] = case
    return [pytest.param(rule, case, id=f"{rule} {cloud}") for (rule, cloud), case in sorted(chosen.items())]


@cache
def _usual(cloud: str) -> set[tuple[str, str]]:
    """Rule and path of the findings about a cloud's usual declaration."""
    return {(one.rule, one.path) for one in check(parse_spec(declaration((cloud, {}))), TODAY)}


@pytest.mark.parametrize(("rule", "case"), _each(ACCEPTED))
def test_rule_accepts_valid_declarations(rule: str, case: Case) -> None:
    """A valid declaration gets no finding of the rule."""
    assert [str(finding) for finding in _of(rule, parse_spec(declaration(case)))] == []


@pytest.mark.parametrize(("rule", "case"), _each(REJECTED))
def test_rule_rejects_invalid_declarations(rule: str, case: Case) -> None:
    """A declaration with one mistake gets a finding of the rule with a path, a message and a hint, one error, and no warning or note about the same field."""
    spec = parse_spec(declaration(case))
    told = _of(rule, spec)
    assert told, f"{rule} is silent"
    for finding in told:
        assert finding.path
        assert finding.message
        assert finding.hint or finding.level == "info"
    new = [one for one in check(spec, TODAY) if (one.rule, one.path) not in _usual(case[0])]
    errors = [one for one in new if one.level is Level.ERROR]
    assert len(errors) <= 1, "\n".join(map(str, errors))
    if errors:
        (wrong,) = errors
        same = [str(one) for one in new if one.path == wrong.path and one is not wrong]
        assert not same, same


@pytest.mark.parametrize(("rule", "case"), _one_for_each_cloud())
def test_misspelled_value_gives_one_finding(rule: str, case: Case) -> None:
    """An unknown region or machine type gives findings of one rule only."""
    right = declaration(case)
    spec = parse_spec(right)
    told = {(rule.__name__, finding.path) for rule in _rules(spec.cloud) for finding in rule(spec, TODAY)}
    for field in ("region", "machine"):
        wrong = copy.deepcopy(right)
        if field == "region":
            wrong["where"]["region"] = "nowhere-1"
        for pool in wrong.get("pools", []) if field == "machine" else ():
            pool["machine"] = "nothing.48xlarge"
        more = {(finding.rule, finding.path) for finding in check(parse_spec(wrong), TODAY)} - told
        assert {name for name, _ in more} <= {f"{field}_is_known"}


@pytest.mark.parametrize(
    ("cloud", "declared", "level"),
    [
        ("aws", 4700, "info"),
        ("aws", 600, "warn"),
        ("azure", 8000, "info"),
        ("azure", 1000, "warn"),
        ("gcp", 17000, "info"),
        ("gcp", 1000, "warn"),
    ],
)
def test_a_size_that_multiplies_the_price_is_a_warning(cloud: str, declared: int, level: str) -> None:
    """A size that is rounded up to more than one and a half times itself causes a warning, and a smaller difference a note."""
    spec = parse_spec(declaration((cloud, {"storage": [{"kind": "lustre", "capacity_gib": declared}]})))
    (found,) = [one for one in check(spec, TODAY) if one.path == "storage[0].capacity_gib"]
    assert (found.level.value, "GiB is billed" in found.message) == (level, True)


@pytest.mark.parametrize(("declared", "level"), [(100, "warn"), (1500, "info")])
def test_a_netapp_size_that_multiplies_the_price_is_a_warning(declared: int, level: str) -> None:
    """A volume of Azure NetApp Files that is billed for more than one and a half times its size causes a warning, as for Lustre."""
    home = {"kind": "home", "service": "netapp", "capacity_gib": declared}
    spec = parse_spec(declaration(("azure", {"storage": [home]})))
    (found,) = [one for one in check(spec, TODAY) if one.path == "storage[0].capacity_gib"]
    assert (found.level.value, "GiB is billed" in found.message) == (level, True)


def test_every_rule_has_accepted_and_rejected_cases() -> None:
    """Every rule has declarations that it accepts and declarations that it rejects."""
    rules = set(all_rules())
    assert set(ACCEPTED) == rules
    assert set(REJECTED) == rules
    # Each shipped cloud supports a second region and each kind of storage. `test_a_second_region_is_refused_without_components`
    # in tests/clouds/test_adding_a_cloud.py and tests/spec/test_kinds.py test these rules with a cloud that does not.
    untested = {rule for rule, cases in REJECTED.items() if not cases}
    assert untested == {"recovery_is_supported", "storage_kind_is_supported"}
    assert all(ACCEPTED.values())


def test_rule_docstrings_are_one_paragraph() -> None:
    """The docstring of a rule is one paragraph, which `gpuinfra explain` shows."""
    for name, rule in all_rules().items():
        text = inspect.getdoc(rule) or ""
        assert text.endswith("."), name
        assert "\n\n" not in text, name


def test_all_findings_are_returned_errors_first() -> None:
    """One run returns all findings, errors before warnings."""
    wrong = declaration(
        ("aws", {"pools.0.machine": "p4x", "where.region": "us-esat-1", "budget": None, "network.cidr": "8.8.0.0/16"})
    )
    found = check(parse_spec(wrong), TODAY)
    assert {"machine_is_known", "region_is_known", "cidr_is_private", "budget_has_recipients"} <= {
        f.rule for f in found
    }
    levels = [finding.level.value for finding in found]
    assert levels == sorted(levels, key=["error", "warn", "info"].index)


def test_a_message_can_name_a_field_that_looks_like_a_secret() -> None:
    """Texts of the declaration that look like secrets are described. The name of the field `secret` is not such a text."""
    spec = parse_spec(declaration(("gcp", {"monitoring": {"receivers": [{"kind": "slack", "secret": "/my/token"}]}})))
    (finding,) = [one for one in check(spec, TODAY) if one.rule == "monitoring_names_secrets_of_the_cloud"]
    assert "the name of a secret in Secret Manager" in finding.message
    assert "/my/token" not in finding.message
