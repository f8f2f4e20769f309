"""The judge, which turns recorded tool output and a machine's expectation into outcomes. It is pure and the only judge.

It runs on the node, inside `NodesReady` during `pulumi up`, and in the verification commands, always on raw output;
results that a node reports about itself are not trusted.
Output that cannot be parsed results in `error`; unknown output never passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from .answer import Answers
from .cause import Cause
from .checks import ALL
from .checks.base import LAST, Check
from .checks.gpus import GpuCount
from .expectation import Machine
from .outcome import Broken, CheckOutcome, CheckResult, Phase, Severity, Unreadable, escaped, shortened

OUTCOMES = ("pass", "warn", "fail", "skip", "error")


@dataclass(frozen=True)
class Verdict:
    """Whether a node is verified, and what prevents it."""

    verified: bool
    blockers: tuple[CheckResult, ...]
    """Checks with severity block or drain that did not pass, and required checks that did not run, with root causes
    first."""
    missing: tuple[str, ...]
    """Required checks without an outcome."""


def judge(
    probes: Mapping[str, Any],
    expectation: Mapping[str, object],
    *,
    journal: Mapping[str, Any] | None = None,
    phases: Iterable[str] | None = None,
) -> list[CheckResult]:
    """Judge every check that the machine requires or skips, in order of phase and ID.

    `journal` is the node's `state.json`, or None, for example on a machine that gpuinfra did not bootstrap.
    `phases` limits the checks. The verdict then lists the other checks as missing.
    """
    required, skips = _required_and_skipped(expectation)
    answers = Answers(probes)
    machine = Machine(expectation, journal if journal is None or isinstance(journal, Mapping) else {})
    allowed = None if phases is None else {str(getattr(phase, "value", phase)) for phase in phases}
    results = []
    for check in ALL.values():
        if check.id not in required and check.id not in skips:
            continue
        if allowed is not None and check.phase.value not in allowed:
            continue
        if check.id in skips:
            results.append(_record(check, CheckOutcome("skip", reason=skips[check.id])))
        else:
            results.append(_record(check, _outcome(check, answers, machine)))
    results += [_unknown_check(name) for name in required if name not in ALL]
    return results


def verdict(checks: Iterable[CheckResult], expectation: Mapping[str, object]) -> Verdict:
    """Decide if a node is verified. All required checks must have run, and each check with severity block or drain must have passed or been skipped
    as the machine's record lists. A warning of a check that may warn does not block; an error of any check does."""
    required, skips = _required_and_skipped(expectation)
    by_id = {check["id"]: check for check in checks}
    blockers, missing = [], [name for name in required if name not in by_id]
    for name, check in by_id.items():
        outcome, severity = check["outcome"], check["severity"]
        if outcome == "pass" or (outcome == "skip" and name in skips):
            continue
        if outcome == "warn" and (
            severity in (Severity.WARN.value, Severity.INFO.value) or (name in ALL and ALL[name].may_warn)
        ):
            continue
        blockers.append(check)
    blockers.sort(key=root_cause_order)
    return Verdict(not blockers and not missing, tuple(blockers), tuple(missing))


def root_cause_order(check: CheckResult) -> tuple[int, int]:
    """Sort failures before errors, and causes before consequences."""
    name = check["id"]
    return 0 if check["outcome"] == "fail" else 1, ALL[name].rank if name in ALL else LAST


def causes_of(blockers: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the failed checks that can be the cause of the others, such as a missing GPU. Empty if no failed check can."""
    ranked = [
        check
        for check in blockers
        if check["outcome"] == "fail" and check["id"] in ALL and ALL[check["id"]].rank != LAST
    ]
    counted = any(check["id"] == GpuCount.id for check in ranked)
    return tuple(check for check in ranked if not (counted and check.get("cause") == Cause.FEWER_GPUS))


def not_checked(expectation: Mapping[str, object]) -> list[str]:
    """Return the checks that this machine neither requires nor skips. Reports list them."""
    required, skips = _required_and_skipped(expectation)
    return [name for name in ALL if name not in required and name not in skips]


def _required_and_skipped(expectation: Mapping[str, object]) -> tuple[list[str], dict[str, str]]:
    required, skips = expectation.get("required"), expectation.get("skips", {})
    if not isinstance(required, (list, tuple)) or not required or not all(isinstance(name, str) for name in required):
        raise ValueError("the expectation lists no required checks")
    if not isinstance(skips, Mapping) or not all(isinstance(why, str) and why for why in skips.values()):
        raise ValueError("a skip in the expectation has no reason")
    return [name for name in required if name not in skips], dict(skips)


def _outcome(check: Check, answers: Answers, machine: Machine) -> CheckOutcome:
    try:
        value = check.parse(answers, machine)
        result = check.judge(value, machine)
    except Broken as error:
        return CheckOutcome("fail", reason=error.reason, hint=error.hint, cause=error.cause)
    except Unreadable as error:
        return _error(error.reason, error.hint)
    except Exception as error:  # malformed output must not stop the other checks
        return _error("%s in the check: %s" % (type(error).__name__, error))
    return result if result.outcome in OUTCOMES else _error("the check returned no valid outcome")


def _error(reason: str, hint: str | None = None) -> CheckOutcome:
    return CheckOutcome("error", reason=reason, hint=hint, cause=Cause.UNREADABLE)


def _record(check: Check, outcome: CheckOutcome) -> CheckResult:
    word = outcome.outcome
    if word == "fail" and check.severity in (Severity.WARN, Severity.INFO):
        word = "warn"
    return {
        "id": check.id,
        "name": check.name,
        "phase": check.phase.value,
        "severity": check.severity.value,
        "outcome": word,
        "found": _scalar(outcome.found),
        "expected": _scalar(outcome.expected),
        "unit": outcome.unit,
        "hint": escaped(outcome.hint or check.hint),
        "reason": None if outcome.reason is None else shortened(outcome.reason, 1000),
        "cause": outcome.cause,
    }


class _UnknownCheck(Check):
    name, phase, severity = "unknown", Phase.PRESENCE, Severity.BLOCK
    hint = "rebuild the bundle with a matching version of gpuinfra"


def _unknown_check(name: str) -> CheckResult:
    check = _UnknownCheck()
    check.id = shortened(name, 20)
    return _record(check, _error("this version of the node program has no check %s" % check.id))


def _scalar(value: Any) -> Any:
    """Return a JSON scalar or a list of scalars that is safe to print."""
    if isinstance(value, (list, tuple)):
        return [_scalar(one) for one in list(value)[:64]]
    if isinstance(value, str):
        return shortened(value, 200)
    return value if value is None or isinstance(value, (bool, int, float)) else shortened(str(value), 200)
