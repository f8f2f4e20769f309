"""Runs all rules on a declaration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date

from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.machines import zoning_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import (
    capacity,
    files,
    guard,
    logs,
    money,
    monitoring,
    places,
    recovery,
    repair,
    shape,
    software,
    steps,
    storage,
    users,
    workload,
)
from gpuinfra.spec.base import SpecModel
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import Rule
from gpuinfra.spec.shown import shown

COMMON: tuple[Rule, ...] = (
    *places.RULES,
    *shape.RULES,
    *storage.RULES,
    *capacity.RULES,
    *guard.RULES,
    *software.RULES,
    *files.RULES,
    *steps.RULES,
    *users.RULES,
    *money.RULES,
    *recovery.RULES,
    *workload.RULES,
    *monitoring.RULES,
    *repair.RULES,
    *logs.RULES,
)

_ORDER = {Level.ERROR: 0, Level.WARN: 1, Level.INFO: 2}


def check(spec: ClusterSpec, today: date) -> tuple[Finding, ...]:
    """Return the findings from the common rules and the cloud's rules: errors first, then in the order of the rules.

    A field with an error has one finding, because the other findings about it can change when you correct it.
    """
    hidden = _hidden(spec)
    unique = {(one.path, one.message): _redacted(one, hidden) for one in _of_correct_places(spec, today)}
    told = {(one.path, one.rule) for one in unique.values()}
    if not any(one.level is Level.ERROR and one.path == "where.zone" for one in unique.values()):
        for finding in _of_correct_places(_in_chosen_zones(spec), today):
            if finding.level is not Level.INFO and (finding.path, finding.rule) not in told:
                unique[finding.path, finding.message] = _redacted(finding, hidden)
    if not any(one.level is Level.ERROR for one in unique.values()):
        for finding in _of_fallbacks(spec, today):
            unique[finding.path, finding.message] = _redacted(finding, hidden)
    # The machine type determines the valid values of the other fields of a pool, so its errors come first.
    findings = sorted(unique.values(), key=lambda one: (_ORDER[one.level], not one.path.endswith(".machine")))
    return tuple(_without_consequences(findings))


def _of_fallbacks(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Yield an error for each `fallback` entry whose pool would have an error. The declaration itself has no error."""
    for i, pool in enumerate(spec.pools):
        for j, candidate in enumerate(pool.fallback):
            pools = tuple(one.moved(candidate) if one is pool else one for one in spec.pools)
            there = _in_chosen_zones(spec.model_copy(update={"pools": pools}))
            for finding in _found(there, today):
                if finding.level is Level.ERROR:
                    message = f"results in an error: {finding.path} {finding.message}"
                    yield replace(finding, path=f"pools[{i}].fallback[{j}]", message=message)
                    break


def _of_correct_places(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Yield the findings of all rules. If a zone or the address range is wrong, yield only the error about it and the findings
    that also apply without the wrong value."""
    findings = list(_found(spec, today))
    wrong = {one.path for one in findings if one.level is Level.ERROR and _PLACE.fullmatch(one.path)}
    left = {(one.path, one.rule) for one in _found(_without_places(spec, wrong), today)} if wrong else set()
    for finding in findings:
        if not wrong or finding.path in wrong or (finding.path, finding.rule) in left:
            yield finding


_PLACE = re.compile(r"where\.zone|pools\[\d+\]\.zone|network\.cidr")


def _without_places(spec: ClusterSpec, paths: set[str]) -> ClusterSpec:
    """Return the declaration without these zones and with the default address range instead of a wrong one."""
    pools = [
        pool.model_copy(update={"zone": None}) if f"pools[{i}].zone" in paths else pool
        for i, pool in enumerate(spec.pools)
    ]
    where = spec.where.model_copy(update={"zone": None}) if "where.zone" in paths else spec.where
    network = spec.network
    if "network.cidr" in paths:
        network = network.model_copy(update={"cidr": type(network).model_fields["cidr"].default})
    return spec.model_copy(update={"where": where, "pools": pools, "network": network})


def _without_consequences(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first error of each field, and the warnings and notes about fields without errors. Errors come first."""
    refused: list[str] = []
    for finding in findings:
        if any(_overlap(finding.path, path) for path in refused):
            continue
        if finding.level is Level.ERROR:
            refused.append(_section(finding.path))
        yield finding


def _section(path: str) -> str:
    """Return the section that you must rewrite because of an error: the kind of an entry and the machine type of a pool determine their other fields."""
    section, _, field = path.rpartition(".")
    return section if field in ("kind", "machine") else path


def _overlap(path: str, other: str) -> bool:
    """Return whether two paths are equal or one of them contains the other. The empty path, which is the document, overlaps only itself."""
    short, long = sorted((path, other), key=len)
    return short == long or (bool(short) and long.startswith((f"{short}.", f"{short}[")))


def _found(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    for rule in (*COMMON, *cloud_rules(spec.cloud)):
        for finding in rule(spec, today):
            yield replace(finding, rule=rule.__name__)


def _in_chosen_zones(spec: ClusterSpec) -> ClusterSpec:
    """Return the declaration with the zones that the plan chooses, so that they pass the same rules as declared zones."""
    cloud = profile_of(spec.cloud)
    if spec.where.zone or not spec.pools or not cloud.is_region(spec.where.region):
        return spec
    zoning = zoning_of(spec)
    if cloud.region_of_zone(zoning.default, spec.where.region) is None:
        return spec  # The cloud chooses the zone.
    pools = [pool.model_copy(update={"zone": zoning.by_pool[pool.name]}) for pool in spec.pools]
    where = spec.where.model_copy(update={"zone": zoning.default})
    return spec.model_copy(update={"where": where, "pools": pools})


def cloud_rules(cloud: str) -> tuple[Rule, ...]:
    """Return the rules that apply only to this cloud."""
    return cloud_of(cloud).rules


def all_rules() -> dict[str, Rule]:
    """Return the rules of all clouds by name, for `gpuinfra explain` and the tests."""
    rules = [*COMMON, *(rule for cloud in CLOUDS for rule in cloud_rules(cloud))]
    return {rule.__name__: rule for rule in rules}


def _hidden(spec: ClusterSpec) -> dict[str, str]:
    """Return the strings in the declaration that messages must not show, longest first, with their replacements.

    Messages quote the declaration. This function protects secrets when a rule does not use `shown`.
    """
    texts = {text for text in _texts(spec) if len(text) > 3 and shown(text) != repr(text)}
    return {text: shown(text) for text in sorted(texts, key=len, reverse=True)}


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a declaration. The name of a field, such as `secret`, is not one of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, SpecModel):
        for _, item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _redacted(finding: Finding, hidden: dict[str, str]) -> Finding:
    message, hint = finding.message, finding.hint
    for text, replacement in hidden.items():
        message, hint = message.replace(text, replacement), hint.replace(text, replacement)
    if (message, hint) == (finding.message, finding.hint):
        return finding
    return replace(finding, message=message, hint=hint)
