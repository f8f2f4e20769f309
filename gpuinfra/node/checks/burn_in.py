"""B: burn-in - DCGM diagnostics by level, and a stress test until the temperatures are steady.

Every verification runs the quick level. The other levels take minutes to hours and run only if `burn_in` is set.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..dcgm import LEVELS, PERSISTENCE_MODE, TESTS, DcgmStatus, results, test_name
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from .base import Check, is_number, judged, result_of, strongest
from .conditions import burn_in, gpus, mig

PROBES = {1: "dcgm", 2: "dcgm-medium", 3: "dcgm-long", 4: "dcgm-extra-long"}
"""Maps each level to the probe that runs it."""


def level(expectation: Mapping[str, Any]) -> int:
    """Return the requested level. Default: 1."""
    requested = expectation.get("burn_in")
    return requested if isinstance(requested, int) and not isinstance(requested, bool) and requested in PROBES else 1


def _outcome(code: int, found: list[DcgmStatus], level: int, gpus: int) -> CheckOutcome:
    """Judge one run. It passes if each test of the level passed on each GPU, no other test failed, and the exit code is 0."""
    run = [one for one in found if one.status.lower() not in ("skip", "not run", "notrun")]
    if not run:
        raise Unreadable("dcgmi ran no tests")
    failing = [one for one in run if not one.is_pass]
    # D5 reports this setting. Because of it, DCGM fails the test on each GPU and in the summary.
    setting = {(one.test, one.where) for one in failing if one.where and set(one.errors) == {PERSISTENCE_MODE}}
    tests_with_setting = {test for test, _ in setting}
    # A test's summary repeats the results for its GPUs. It counts only if no GPU has a result.
    named = {one.test for one in failing if one.where}
    wrong = [
        "%s%s: %s%s"
        % (
            one.test or "a test",
            " on " + one.where if one.where else "",
            "%s with an error" % one.status if one.serious and one.status.lower() == "pass" else one.status,
            ", " + one.warnings if one.warnings else "",
        )
        for one in failing
        if (one.where or one.test not in named) and (one.test, one.where) not in setting
    ]
    failed_tests = {
        test_name(one.test)
        for one in failing
        if (one.where or one.test not in named) and (one.test, one.where) not in setting
    }
    for name in TESTS[level]:
        passing = {one.where for one in run if test_name(one.test) == name and one.where.startswith("GPU ")
                   and (one.is_pass or (one.test, one.where) in setting)}  # fmt: skip
        if len(passing) != gpus and name not in failed_tests:
            wrong.append("%s passed on %d of %d GPUs%s" % (name, len(passing), gpus, _skipped(name, found)))
    if code != 0 and not wrong and not setting:
        wrong.append("dcgmi exited with code %d" % code)
    if not wrong and setting:
        return warned(
            len(tests_with_setting), 0, "persistence mode is disabled on %d GPUs, see D5" % len(setting), "tests"
        )
    causes = [cause for result in failing if (result.test, result.where) not in setting for cause in result.causes]
    return judged(len(wrong), 0, wrong, "tests", cause=strongest(causes))


def _skipped(name: str, found: list[DcgmStatus]) -> str:
    skipped = any(test_name(one.test) == name and one.status.lower() == "skip" for one in found)
    return ": it was skipped, so its plugin package may be missing" if skipped else ""


class Diagnostics(Check):
    """NVIDIA's quick diagnostics run on every GPU and find no problems."""

    id, name = "B1", "dcgm_diagnostics"
    phase, severity = Phase.SPEED, Severity.BLOCK
    when = (gpus,)
    skips = ((mig, "NVIDIA's diagnostics test whole GPUs only"),)
    burn_in = (1,)
    fault = FaultyPart.GPU
    may_warn = True
    probes = ("dcgm",)
    hint = "read the test's warning in the output of dcgmi diag -r 1; DCGM's error severity shows whether to reset, isolate or replace"
    source = "NVIDIA: dcgmi diag, https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-diag.html, retrieved 2026-11"

    def parse(self, answers: Answers, machine: Machine) -> tuple[int, list[DcgmStatus]]:
        answer = answers.raw("dcgm")
        return answer.exit, results(answer.stdout)

    def judge(self, found: tuple[int, list[DcgmStatus]], machine: Machine) -> CheckOutcome:
        return _outcome(*found, 1, machine.gpus)


class BurnIn(Check):
    """All of NVIDIA's diagnostics at the requested level pass on every GPU. Level 2 takes minutes, level 3 about 15 minutes, and level 4 hours."""

    id, name = "B6", "burn_in"
    phase, severity = Phase.SPEED, Severity.BLOCK
    when = (gpus, burn_in(2))
    skips = ((mig, "NVIDIA's diagnostics test whole GPUs only"),)
    burn_in = (2, 3, 4)
    fault = FaultyPart.GPU
    may_warn = True
    probes = ("dcgm-medium", "dcgm-long", "dcgm-extra-long")
    hint = (
        "read the test's warning; reset the GPU or reboot the node once and run the same level again (gpuinfra check "
        "--burn-in N); if it fails again, replace the node"
    )
    source = "NVIDIA: dcgmi diag, https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-diag.html, retrieved 2026-11"

    def probes_for(self, expectation: Mapping[str, Any]) -> tuple[str, ...]:
        return (PROBES[max(2, level(expectation))],)

    def parse(self, answers: Answers, machine: Machine) -> tuple[int, list[DcgmStatus]]:
        answer = answers.raw(PROBES.get(max(2, machine.burn_in), PROBES[2]))
        return answer.exit, results(answer.stdout)

    def judge(self, found: tuple[int, list[DcgmStatus]], machine: Machine) -> CheckOutcome:
        requested = machine.burn_in
        if requested not in LEVELS or requested < 2:
            raise Unreadable("the machine's record requests burn-in level %s; allowed: 2, 3, 4" % requested)
        return _outcome(*found, requested, machine.gpus)


class SteadyHeat(Check):
    """Under stress, every GPU reaches a steady temperature without a hardware slowdown or a memory error."""

    id, name = "B7", "steady_heat"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (gpus, burn_in(3))
    skips = ((mig, "NVIDIA's diagnostics test whole GPUs only"),)
    action = Action.REBOOT
    burn_in = (3, 4)
    fault = FaultyPart.SLOW_GPU
    probes = ("heat",)
    hint = "let the GPU cool down and repeat the stress test; a second slowdown means a cooling or power fault: replace the node"
    source = (
        "Azure/azurehpc-health-checks: customTests/azure_gpu_clock_throttling.nhc; nvidia-ml-py 13.615.71: pynvml.py; "
        "hardware bits 0x8, 0x40, 0x80 are faults"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        return result_of(answers, "heat", "gpuinfra.heat/1", "the output of the stress test", "gpus")

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        gpus = found["gpus"]
        if len(gpus) != machine.gpus:
            return failed(len(gpus), machine.gpus, "%d of %d GPUs were measured" % (len(gpus), machine.gpus), "GPUs")
        wrong = []
        for gpu in gpus:
            if not isinstance(gpu, Mapping) or not re.match(r"^0x[0-9a-f]{16}$", str(gpu.get("reasons"))):
                raise Unreadable("the stress test describes a GPU in an unknown format")
            errors, busy, hot = gpu.get("new_errors"), gpu.get("busy_percent"), gpu.get("highest_c")
            if not is_number(busy) or not is_number(hot):
                raise Unreadable("the stress test reports no utilization or no temperature for a GPU")
            label = "GPU %s" % shortened(str(gpu.get("index")), 8)
            if int(gpu["reasons"], 16) & 0xC8:
                wrong.append("%s was slowed down at %g C (reasons %s)" % (label, hot, gpu["reasons"]))
            if errors not in (0, None) or (errors is None and machine.ecc):
                wrong.append("%s counted %s memory errors" % (label, shortened(str(errors), 20)))
            if not 50 <= busy <= 100:
                wrong.append("%s was busy only %g %% of the time" % (label, busy))
        if wrong:
            return judged(len(wrong), 0, wrong, "findings")
        if found.get("steady") is not True:
            why = "no steady temperature within %s s" % shortened(str(found.get("seconds")), 12)
            if found.get("ended") is not None:
                why += "; the load exited with code %s" % shortened(str(found["ended"]), 12)
            return failed("not steady", "steady", why)
        return passed("steady at %g C" % max(gpu["highest_c"] for gpu in gpus), "steady")
