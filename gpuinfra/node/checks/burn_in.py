"""B: burn-in - DCGM's diagnostics by level, and stress until the temperatures are steady.

Every verification runs the quick level. The other levels take minutes to hours and run only if `burn_in` is set.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..answer import Answers
from ..dcgm import LEVELS, Result, results
from ..expectation import Machine
from ..outcome import Outcome, Phase, Severity, Unreadable, failed, passed, shortened
from .base import Check, listed, result_of

PROBES = {1: "dcgm", 2: "dcgm-medium", 3: "dcgm-long", 4: "dcgm-extra-long"}
"""Level -> the probe that runs it."""


def level(expectation: Mapping[str, Any]) -> int:
    """The requested level; 1 by default."""
    requested = expectation.get("burn_in")
    return requested if isinstance(requested, int) and not isinstance(requested, bool) and requested in PROBES else 1


def _outcome(found: list[Result]) -> Outcome:
    run = [one for one in found if one.status.lower() not in ("skip", "not run", "notrun")]
    # The summary of a test repeats the results of its GPUs; it counts only if no GPU has a result.
    named = {one.test for one in run if one.where and one.status.lower() != "pass"}
    wrong = [
        "%s%s: %s%s"
        % (
            one.test or "a test",
            " on " + one.where if one.where else "",
            one.status,
            ", " + one.warnings if one.warnings else "",
        )
        for one in run
        if one.status.lower() != "pass" and (one.where or one.test not in named)
    ]
    if not run:
        raise Unreadable("dcgmi ran no tests")
    return failed(len(wrong), 0, listed(wrong), "tests") if wrong else passed(0, 0, "tests")


class Diagnostics(Check):
    """NVIDIA's quick diagnostics find no problem. Their JSON has no stable schema, so every status in it counts."""

    id, name = "B1", "dcgm_diagnostics"
    phase, severity = Phase.SPEED, Severity.BLOCK
    probes = ("dcgm",)
    hint = (
        "read the test's warning in dcgmi diag -r 1; DCGM's error severity shows whether to reset, isolate or replace"
    )
    source = "NVIDIA: dcgmi diag, https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-diag.html, read 2026-11"

    def parse(self, answers: Answers, machine: Machine) -> list[Result]:
        return results(answers.raw("dcgm").stdout)

    def judge(self, found: list[Result], machine: Machine) -> Outcome:
        return _outcome(found)


class BurnIn(Check):
    """NVIDIA's diagnostics of the requested level find no problem: level 2 takes minutes, 3 a quarter of an hour, 4 hours."""

    id, name = "B6", "burn_in"
    phase, severity = Phase.SPEED, Severity.BLOCK
    probes = ("dcgm-medium", "dcgm-long", "dcgm-extra-long")
    hint = (
        "read the test's warning; reset or reboot once and run the same level again (gpuinfra check --burn-in N), then "
        "replace the node"
    )
    source = "NVIDIA: dcgmi diag, https://docs.nvidia.com/datacenter/dcgm/latest/reference/command-line-reference/dcgmi/dcgmi-diag.html, read 2026-11"

    def probes_for(self, expectation: Mapping[str, Any]) -> tuple[str, ...]:
        return (PROBES[max(2, level(expectation))],)

    def parse(self, answers: Answers, machine: Machine) -> list[Result]:
        return results(answers.raw(PROBES[max(2, level({"burn_in": machine.get("burn_in", 0)}))]).stdout)

    def judge(self, found: list[Result], machine: Machine) -> Outcome:
        requested = machine.need("burn_in", int)
        if requested not in LEVELS or requested < 2:
            raise Unreadable("the machine's record requests burn-in level %s; allowed: 2, 3, 4" % requested)
        return _outcome(found)


class SteadyHeat(Check):
    """Under stress every GPU reaches a steady temperature, without a hardware slowdown and without a memory error."""

    id, name = "B7", "steady_heat"
    phase, severity = Phase.SPEED, Severity.DRAIN
    probes = ("heat",)
    hint = "let the GPU cool down and stress it once more; a second slowdown means a cooling or power fault: replace the node"
    source = (
        "Azure/azurehpc-health-checks: customTests/azure_gpu_clock_throttling.nhc; nvidia-ml-py 13.615.71: pynvml.py; "
        "hardware bits 0x8, 0x40, 0x80 are bad"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        return result_of(answers, "heat", "gpuinfra.heat/1", "the output of the stress test", "gpus")

    def judge(self, found: dict[str, Any], machine: Machine) -> Outcome:
        gpus = found["gpus"]
        if len(gpus) != machine.gpus:
            return failed(len(gpus), machine.gpus, "%d of %d GPUs were measured" % (len(gpus), machine.gpus), "GPUs")
        wrong = []
        for gpu in gpus:
            if not isinstance(gpu, Mapping) or not re.match(r"^0x[0-9a-f]{16}$", str(gpu.get("reasons"))):
                raise Unreadable("the stress test describes a GPU in an unknown format")
            bits, errors, busy, hot = (
                int(gpu["reasons"], 16),
                gpu.get("new_errors"),
                gpu.get("busy_percent"),
                gpu.get("highest_c"),
            )
            if (
                isinstance(busy, bool)
                or isinstance(hot, bool)
                or not isinstance(busy, (int, float))
                or not isinstance(hot, (int, float))
            ):
                raise Unreadable("the stress test reports no utilization or temperature of a GPU")
            if bits & 0xC8:
                wrong.append(
                    "GPU %s was slowed down at %g C (reasons %s)"
                    % (shortened(str(gpu.get("index")), 8), hot, gpu["reasons"])
                )
            if errors not in (0, None) or (errors is None and machine.need("ecc", bool)):
                wrong.append(
                    "GPU %s counted %s memory errors"
                    % (shortened(str(gpu.get("index")), 8), shortened(str(errors), 20))
                )
            if not 50 <= busy <= 100:
                wrong.append("GPU %s was busy only %g %% of the time" % (shortened(str(gpu.get("index")), 8), busy))
        if wrong:
            return failed(len(wrong), 0, listed(wrong), "findings")
        if found.get("steady") is not True:
            why = "no steady temperature within %s s" % shortened(str(found.get("seconds")), 12)
            ended = found.get("ended")
            return failed(
                "not steady",
                "steady",
                why + ("; the load ended with exit code %s" % shortened(str(ended), 12) if ended is not None else ""),
            )
        return passed("steady at %g C" % max(gpu["highest_c"] for gpu in gpus), "steady")


CHECKS = (Diagnostics, BurnIn, SteadyHeat)
