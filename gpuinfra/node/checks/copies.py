"""B: copies between host memory and GPUs, between GPUs, and within the memory of a GPU.

nvbandwidth measures them. It is part of the diagnostics of DCGM 4.4.1 and later.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, shortened
from .base import Check, judged
from .conditions import gpu_memory_is_comparable, has_floor, mig, nvswitch
from .speed import floor, known_floor

SHARE = 0.9
"""Share of the node's median below which a copy is slow if the machine has no floor. gpuinfra's own value: the GPUs of a node are identical,
and the highest published difference between two of them is 5 % (p2pBandwidthLatencyTest of eight A100 and of eight H100)."""
_ONE_INSTANCE = ((mig, "the test sees only one instance of a GPU with MIG"),)


def copies(answers: Answers, probe: str) -> dict[str, list[list[float | None]]]:
    """Return each test case of nvbandwidth with its matrix in GB/s. None is a pair that was not measured."""
    try:
        # Notices can precede the document.
        text = answers.text(probe)
        cases = json.loads(text[max(text.find("{"), 0) :])["nvbandwidth"]["testcases"]
        figures = {}
        for case in cases:
            if case["status"] != "Passed":
                raise Unreadable(
                    "nvbandwidth: %s is %s" % (shortened(str(case["name"]), 60), shortened(str(case["status"]), 40))
                )
            figures[str(case["name"])] = [
                [None if cell == "N/A" else float(cell) for cell in row] for row in case["bandwidth_matrix"]
            ]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise Unreadable("nvbandwidth printed no readable result") from None
    return figures


def _measured(matrix: "list[list[float | None]]") -> list[float]:
    return [rate for row in matrix for rate in row if rate is not None]


def _judge(rates: dict[str, float], least: float) -> CheckOutcome:
    slow = ["%s: %.1f GB/s" % (what, rate) for what, rate in rates.items() if not least <= rate < math.inf]
    return judged(round(min(rates.values()), 1), least, slow, "GB/s")


def _least(machine: Machine, check: str, rates: list[float]) -> float:
    """Return the floor of the machine type, or the share of the node's median."""
    bandwidth = known_floor(machine, check)
    return round(SHARE * sorted(rates)[len(rates) // 2], 1) if bandwidth is None else bandwidth


class HostCopy(Check):
    """Each GPU copies data to and from host memory at the machine's rate."""

    id, name = "B5", "host_copy"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (has_floor("B5"),)
    skips = _ONE_INSTANCE
    action = Action.REBOOT
    fault = FaultyPart.SLOW_GPU
    probes = ("nvbandwidth",)
    hint = "compare G3 (link width and generation) and NUMA binding; reboot and measure again; if the copies stay slow, replace the node"
    source = (
        "NVIDIA/DCGM: nvvs/plugin_src/nvbandwidth (installed with the diagnostics of DCGM 4.4.1 and later); "
        "`gpuinfra catalog MACHINE` shows the source of each floor"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, list[float]]:
        return {name: _measured(matrix) for name, matrix in copies(answers, "nvbandwidth").items()}

    def judge(self, found: dict[str, list[float]], machine: Machine) -> CheckOutcome:
        rates = {}
        for name in ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce"):
            case = found.get(name, [])
            if len(case) != machine.gpus:
                return failed(
                    len(case), machine.gpus, "%s measured %d of %d GPUs" % (name, len(case), machine.gpus), "GPUs"
                )
            rates.update(("GPU %d: %s" % (gpu, name.split("_memcpy")[0]), rate) for gpu, rate in enumerate(case))
        return _judge(rates, floor(machine, "B5"))


class GpuCopy(Check):
    """Each GPU reads from the memory of every other GPU over NVLink at the machine's rate.

    If no floor is known, no pair is much slower than the other pairs."""

    id, name = "B9", "gpu_copy"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (nvswitch,)
    skips = _ONE_INSTANCE
    action = Action.REBOOT
    fault = FaultyPart.SLOW_NVLINK
    probes = ("gpu-copies",)
    hint = "compare F3, F4 and F5: one GPU in all slow pairs points to that GPU; reboot and measure again; if the copies stay slow, replace the node"
    source = (
        "Azure/azurehpc-health-checks: customTests/azure_gpu_bandwidth.nhc (device_to_device_memcpy_read_ce of each pair); "
        "`gpuinfra catalog MACHINE` shows the source of each floor"
    )

    def parse(self, answers: Answers, machine: Machine) -> Any:
        return copies(answers, "gpu-copies").get("device_to_device_memcpy_read_ce", [])

    def judge(self, found: "list[list[float | None]]", machine: Machine) -> CheckOutcome:
        pairs = {(a, b): rate for a, row in enumerate(found) for b, rate in enumerate(row) if rate is not None}
        wanted = machine.gpus * (machine.gpus - 1)
        if len(pairs) != wanted or any(a == b for a, b in pairs) or not pairs:
            return failed(len(pairs), wanted, "%d of %d pairs of GPUs were measured" % (len(pairs), wanted), "pairs")
        rates = {"GPU %d from GPU %d" % (b, a): rate for (a, b), rate in pairs.items()}
        return _judge(rates, _least(machine, "B9", list(pairs.values())))


class GpuMemoryCopy(Check):
    """Each GPU copies data within its own memory at the rate of its model.

    If no floor is known, no GPU is much slower than the other GPUs."""

    id, name = "B10", "gpu_memory_copy"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (gpu_memory_is_comparable,)
    skips = _ONE_INSTANCE
    action = Action.RESET
    fault = FaultyPart.SLOW_GPU
    probes = ("gpu-memory",)
    hint = "compare G6 (remapped rows), G7 and the memory clock with the other GPUs; reset the GPU and measure again; if it stays slow, replace the node"
    source = (
        "NVIDIA/nvbandwidth: device_local_copy; its figure is the copied bytes, and the memory also reads them (issue 48); "
        "`gpuinfra catalog MACHINE` shows the source of each floor"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[float]:
        return _measured(copies(answers, "gpu-memory").get("device_local_copy", []))

    def judge(self, found: list[float], machine: Machine) -> CheckOutcome:
        if len(found) != machine.gpus or not found:
            return failed(len(found), machine.gpus, "%d of %d GPUs were measured" % (len(found), machine.gpus), "GPUs")
        return _judge({"GPU %d" % gpu: rate for gpu, rate in enumerate(found)}, _least(machine, "B10", found))
