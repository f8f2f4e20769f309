"""Running every rule over a declaration."""

from __future__ import annotations

from datetime import date

from gpuinfra.clouds import CLOUDS, profile_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.rules import common, money, software
from gpuinfra.rules.finding import Finding, Level
from gpuinfra.spec.model import ClusterSpec

COMMON: tuple[Rule, ...] = (*common.RULES, *software.RULES, *money.RULES)

_ORDER = {Level.ERROR: 0, Level.WARN: 1, Level.INFO: 2}


def run(spec: ClusterSpec, today: date) -> tuple[Finding, ...]:
    """Findings of the common rules and of the cloud's own, errors first."""
    found = [finding for rule in (*COMMON, *profile_of(spec.cloud).rules()) for finding in rule(spec, today)]
    unique = {(finding.path, finding.message): finding for finding in found}
    return tuple(sorted(unique.values(), key=lambda finding: _ORDER[finding.level]))


def all_rules() -> dict[str, Rule]:
    """Every rule of every cloud by name, for `gpuinfra explain` and the tests."""
    rules = [*COMMON, *(rule for cloud in CLOUDS for rule in profile_of(cloud).rules())]
    return {rule.__name__: rule for rule in rules}
