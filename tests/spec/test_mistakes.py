"""More than 200 wrong declarations in YAML, and the same mistakes in Python: one finding for each mistake."""

from __future__ import annotations

import gc
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML, YAMLError

from gpuinfra import Aws, Azure, Block, ClusterSpec, Flex, Gcp, Home, Lustre, OnDemand, Pool, Reserved, Spot, check
from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, Level
from gpuinfra.rules import load_stack
from tests.rules.cases import TODAY
from tests.spec.mistakes import MISTAKES, TEXTS, Mistake

HANG_S = 300.0
"""Limit for one declaration. It takes some hundredths of a second on an idle machine."""
CPU_S = 2.0
"""Processor time for one declaration, which does not depend on the load of the machine."""
CLOUDS: dict[str, type[Any]] = {"aws": Aws, "azure": Azure, "gcp": Gcp}
KINDS: dict[str, type[Any]] = {
    "on_demand": OnDemand,
    "spot": Spot,
    "reserved": Reserved,
    "block": Block,
    "flex": Flex,
    "lustre": Lustre,
    "home": Home,
}


def _title(one: Mistake) -> str:
    return f"{one.cloud}: {one.right} -> {one.wrong}".replace("\n", "~")[:100]


def _of_file(path: Path) -> tuple[Finding, ...]:
    try:
        return load_stack(path, TODAY).findings
    except SpecError as error:
        return error.findings


@cache
def _usual(cloud: str) -> frozenset[tuple[str, str]]:
    """Rule and path of the findings about the declaration without the mistake."""
    return frozenset((one.rule, one.path) for one in check(parsed(TEXTS[cloud]), TODAY))


def test_the_table_has_200_different_mistakes() -> None:
    """The table has more than 200 rows, each a different declaration, over all clouds."""
    assert len({(one.cloud, one.text) for one in MISTAKES}) == len(MISTAKES) > 200
    assert {one.cloud for one in MISTAKES} == set(TEXTS)


@pytest.mark.parametrize("cloud", TEXTS)
def test_the_declaration_without_a_mistake_has_no_error(cloud: str) -> None:
    """The declarations that the table changes are correct."""
    assert all(one.level is not Level.ERROR for one in check(parsed(TEXTS[cloud]), TODAY))


def parsed(text: str) -> ClusterSpec:
    """The declaration of a text without mistakes in its fields."""
    return ClusterSpec.model_validate(YAML(typ="safe").load(text))


@pytest.mark.parametrize("mistake", MISTAKES, ids=_title)
def test_a_mistake_in_a_file_has_one_finding(mistake: Mistake, tmp_path: Path) -> None:
    """A wrong file has one finding: its line, the field, the value and the allowed values, and what to change."""
    path = tmp_path / "cluster.yaml"
    path.write_text(mistake.text, encoding="utf-8")
    # A collection of the garbage of all earlier tests takes seconds in a long-lived process.
    gc.disable()
    try:
        began, used = time.monotonic(), time.process_time()
        found = [one for one in _of_file(path) if (one.rule, one.path) not in _usual(mistake.cloud)]
        spent = time.process_time() - used
    finally:
        gc.enable()
    assert spent < CPU_S
    assert time.monotonic() - began < HANG_S
    text = "\n".join(map(str, found))
    assert len(found) == 1, text
    (one,) = found
    assert (one.level, one.path) == (Level.ERROR, mistake.path), text
    assert one.line, text
    assert one.hint or "allowed: " in one.message, text
    assert all(word in text for word in mistake.words), text


def _built(mistake: Mistake) -> ClusterSpec | None:
    """The declaration built from classes, or None if the mistake cannot be made in Python: in the syntax or in the name of a class."""
    try:
        value = YAML(typ="safe").load(mistake.text)
    except YAMLError:
        return None
    sections = [value.get("where"), *(value.get("pools") or ()), *(value.get("storage") or ())]
    entries = [entry for entry in sections if isinstance(entry, dict) and "capacity" in entry]
    sections += [one for entry in entries for one in _listed(entry["capacity"])]
    if not all(isinstance(one, dict) for one in sections):
        return None
    names = {**CLOUDS, **KINDS}
    if any(one.get(key) not in names for one in sections for key in ("cloud", "kind") if key in one):
        return None
    if "cloud" not in sections[0] or any("kind" not in one for one in value.get("storage") or ()):
        return None
    value["where"] = _section(value["where"])
    for pool in value.get("pools") or ():
        if "capacity" in pool:
            if any("kind" not in one for one in _listed(pool["capacity"])):
                return None
            pool["capacity"] = [_section(one) for one in _listed(pool["capacity"])]
    if "pools" in value:
        value["pools"] = [Pool(**pool) for pool in value["pools"]]
    if "storage" in value:
        value["storage"] = [_section(one) for one in value["storage"]]
    return ClusterSpec(**value)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _section(fields: dict[str, Any]) -> Any:
    """An object of the class that `cloud` or `kind` selects."""
    rest = dict(fields)
    return {**CLOUDS, **KINDS}[rest.pop("cloud", None) or rest.pop("kind")](**rest)


def _of_program(mistake: Mistake) -> list[Finding] | None:
    """Return the findings of the declaration built from classes, or None if the mistake cannot be made in Python."""
    try:
        spec = _built(mistake)
    except SpecError as error:
        return list(error.findings)
    return spec and [one for one in check(spec, TODAY) if (one.rule, one.path) not in _usual(mistake.cloud)]


def test_a_mistake_in_a_program_has_one_finding() -> None:
    """More than 200 of the mistakes are possible in Python, and each has one finding with the same fix, and no other exception."""
    tried, wrong = 0, []
    for mistake in MISTAKES:
        if not mistake.in_python or (found := _of_program(mistake)) is None:
            continue
        tried += 1
        text = "\n".join(map(str, found))
        fixed = all(one.level is Level.ERROR and (one.hint or "allowed: " in one.message) for one in found)
        if len(found) != 1 or not fixed or not all(word in text for word in mistake.words):
            wrong.append(f"{_title(mistake)}:\n{text}")
    assert wrong == []
    assert tried > 200
