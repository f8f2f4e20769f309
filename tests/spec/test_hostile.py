"""Random and hostile declarations yield findings or a plan: no traceback, no slow parse and no secret in a message."""

from __future__ import annotations

import contextlib
import copy
import random
import string
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuinfra.base.errors import SpecError
from gpuinfra.cost import price
from gpuinfra.plan.make import build_plan
from gpuinfra.report.plan_json import plain
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from gpuinfra.spec.document import parse
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, declaration

SECRET = "AKIAQ7T3ZK2M9PLX4W8N"
# A hang limit, not a measure of speed: a usual declaration takes milliseconds, but in a process that has run thousands of
# tests, one garbage collection takes seconds on a busy machine.
HANG_S = 60.0

_BASES = [declaration(case) for cases in (ACCEPTED, REJECTED) for listed in cases.values() for case in listed]

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=40),
    st.sampled_from(
        [
            SECRET, "", " ", "\x00", "\u202e", "💥" * 20, "a" * 5000, "../../etc/passwd", "p4d.24xlarge", "us-east-1", "use1-az4", "auto",
            "0.0.0.0/0", "10.0.0.0/99", "999999999999999999999999", "2026-02-30T00:00:00Z", "${jndi:x}", "{{7*7}}", "<script>", "-1", "1e309",
        ]
    ),
)  # fmt: skip
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)),
    max_leaves=12,
)


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _paths(item, (*here, key))
    return found


@st.composite
def _hostile(draw: st.DrawFn) -> Any:
    """A declaration that is valid or nearly valid, with a few values replaced, removed or swapped."""
    if draw(st.integers(0, 19)) == 0:
        return draw(_values)
    spec = copy.deepcopy(draw(st.sampled_from(_BASES)))
    for _ in range(draw(st.integers(1, 4))):
        paths = _paths(spec)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        owner = spec
        for part in path[:-1]:
            owner = owner[part]
        action = draw(st.sampled_from(["change", "change", "remove", "add", "secret", "swap"]))
        if action == "change":
            owner[path[-1]] = draw(_values)
        elif action == "remove":
            del owner[path[-1]]
        elif action == "secret":
            owner[path[-1]] = SECRET
        elif action == "add" and isinstance(owner, dict):
            owner[draw(st.one_of(st.just(SECRET), st.text(max_size=12)))] = draw(_values)
        elif action == "swap":
            other = draw(st.sampled_from(paths))
            value: Any = spec
            for part in other:
                try:
                    value = value[part]
                except (KeyError, IndexError, TypeError):
                    value = None
                    break
            owner[path[-1]] = copy.deepcopy(value)
    return spec


def _check_declaration(spec: Any) -> None:
    """Assert that a declaration yields findings or a plan in time, without a secret in a message."""
    start = time.process_time()
    messages = ""
    rejected: SpecError | None = None
    try:
        parsed = parse_spec(spec)
        found = check(parsed, TODAY)
        messages = "\n".join(str(finding) for finding in found)
        if not any(finding.level == "error" for finding in found):
            plan = build_plan(parsed, TODAY)
            price(plan, TODAY).as_dict()
            plain(plan)
    except SpecError as error:
        rejected = error
    if rejected is not None:
        messages = str(rejected)
        assert rejected.findings
        assert all("\n" not in str(finding) for finding in rejected.findings)
    assert SECRET not in messages
    assert "\x00" not in messages
    assert "\u202e" not in messages
    assert time.process_time() - start < HANG_S


# Hostile declarations are large, rarely complete and slow to generate on purpose.
SUPPRESSED = [
    HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much,
]  # fmt: skip


@settings(max_examples=700, deadline=None, derandomize=True, suppress_health_check=SUPPRESSED)
@given(_hostile())
def test_hostile_declarations_yield_findings_or_a_plan(spec: Any) -> None:
    """700 hostile declarations with a fixed seed yield findings or a plan."""
    _check_declaration(spec)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None, suppress_health_check=SUPPRESSED)
@given(_hostile())
def test_ten_thousand_hostile_declarations(spec: Any) -> None:
    """10,000 hostile declarations with a new seed yield findings or a plan."""
    _check_declaration(spec)


def test_random_text_is_parsed_or_rejected() -> None:
    """Random text is parsed as YAML or rejected with one message, in time."""
    dice = random.Random(11)
    alphabet = string.printable + "&*!|>%@`\u2028é💥"
    for _ in range(300):
        text = "".join(dice.choice(alphabet) for _ in range(dice.randrange(200)))
        start = time.process_time()
        with contextlib.suppress(SpecError):
            _check_declaration(parse(text, "x.yaml").value)
        assert time.process_time() - start < HANG_S
