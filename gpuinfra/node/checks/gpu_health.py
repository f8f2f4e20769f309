"""G: GPU health - ECC, remapped rows, clocks, temperature, power, recovery action, infoROM, error tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..answer import Answers
from ..cause import Action, Cause, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, shortened, warned
from ..table import GpuTable, absent, denied, failure
from .base import (
    Check,
    GpuTableCheck,
    all_gpu_rows,
    all_same,
    by_gpu,
    clock_reasons,
    judged,
    listed,
    mode,
    strongest,
    word,
)
from .conditions import gpus

if TYPE_CHECKING:
    from .. import nvsmi


class EccMode(GpuTableCheck):
    """ECC is enabled and stays enabled after the next reset."""

    id, name = "G4", "ecc_mode"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (gpus,)
    hint = "run nvidia-smi -e 1, then reset the GPUs or reboot the node"
    source = "imbue-ai/cluster-health"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        wanted = "Enabled" if machine.ecc else "Disabled"
        seen = []
        for row in found.rows:
            modes, good = mode(row, "ecc", wanted)
            shown = modes[0] if modes[0] == modes[1] else "%s, pending %s" % modes
            seen.append((row, shown, None if good else "ECC is %s, pending %s" % modes))
        return by_gpu(seen, wanted)


class EccErrors(GpuTableCheck):
    """No GPU has uncorrectable memory errors since the driver was loaded, or uncorrectable SRAM errors in its lifetime."""

    id, name = "G5", "ecc_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.RESET
    fault = FaultyPart.GPU
    hint = (
        "drain the node and reset the GPU (reboot the node if the GPU cannot be reset); replace the node if the count "
        "rises again or if the errors are in SRAM"
    )
    source = "Azure/azurehpc-health-checks: customTests/azure_gpu_ecc.nhc; GoogleCloudPlatform/cluster-toolkit: docs/CHS-Slurm.md"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen, cause = [], None
        for row in found.rows:
            volatile = row.number("ecc.errors.uncorrected.volatile.total")
            sram = row.number("ecc.errors.uncorrected.aggregate.sram")
            if volatile is None or sram is None:
                if machine.ecc:
                    raise Unreadable("%s reports no ECC error counts" % row.label, "enable ECC, see G4")
                volatile, sram = volatile or 0, sram or 0
            wrong = []
            if volatile != 0:
                wrong.append("%d uncorrectable errors since the driver was loaded" % volatile)
            if sram != 0:
                cause = Cause.SRAM_ERRORS
                wrong.append("%d uncorrectable SRAM errors in its lifetime" % sram)
            seen.append((row, int(volatile + sram), ", ".join(wrong) or None))
        return by_gpu(seen, 0, "errors", cause=cause)


class RemappedRows(GpuTableCheck):
    """No memory row is waiting for a reset to be remapped, and no remapping failed."""

    id, name = "G6", "remapped_rows"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.RESET
    fault = FaultyPart.GPU
    hint = "if a remapping is pending, drain the node and reset the GPU; if a remapping failed, the spare rows are used up: replace the node"
    source = "Azure/azurehpc-health-checks: customTests/azure_gpu_ecc.nhc; utkuozdemir/nvidia_gpu_exporter: internal/captures"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen, cause = [], None
        for row in found.rows:
            pending, broken = word(row, "remapped_rows.pending"), word(row, "remapped_rows.failure")
            hidden_by_mig = absent(pending) and absent(broken) and row.get("mig.mode.current") == "Enabled"
            if not hidden_by_mig and not {pending, broken} <= {"Yes", "No"}:
                raise Unreadable("%s reports %s and %s for remapped rows" % (row.label, pending, broken))
            wrong = []
            if pending == "Yes":
                wrong.append("a remapping is pending until the next reset")
            if broken == "Yes":
                cause = Cause.REMAPPING_FAILED
                wrong.append("a remapping failed")
            seen.append((row, "pending %s, failure %s" % (pending, broken), ", ".join(wrong) or None))
        return by_gpu(seen, "pending No, failure No", cause=cause)


class Throttling(GpuTableCheck):
    """No GPU is throttled by heat or power."""

    id, name = "G7", "throttling"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.SLOW_GPU
    may_warn = True
    hint = "check temperatures (G8) and power limits (G9); if a hardware slowdown persists, drain and replace the node"
    source = (
        "Azure/azurehpc-health-checks: customTests/azure_gpu_clock_throttling.nhc; nvidia-ml-py 13.615.71: pynvml.py; "
        "hardware bits 0x8, 0x40, 0x80 are faults, 0x20 is a warning"
    )

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen, warm = [], []
        for row in found.rows:
            bits = clock_reasons(row)
            names = [name for bit, name in _SLOWDOWNS if bits & bit]
            seen.append((row, "0x%x" % bits, ", ".join(names) or None))
            if bits & 0x20:
                warm.append(row.label)
        outcome = by_gpu(seen, "none of 0x8, 0x40, 0x80")
        if outcome.outcome == "pass" and warm:
            return warned(outcome.found, outcome.expected, "software thermal slowdown: %s" % listed(warm))
        return outcome


_SLOWDOWNS = ((0x8, "hardware slowdown"), (0x40, "hardware thermal slowdown"), (0x80, "external power brake"))


class Temperature(GpuTableCheck):
    """No GPU is near its temperature limits."""

    id, name = "G8", "temperature"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    when = (gpus,)
    hint = "check the load of the node and its neighbors; if a GPU is hot while idle, replace the node"
    source = (
        "influxdata/telegraf: plugins/inputs/nvidia_smi/testdata/a100-sxm4-v12.xml: A100 slows down at 89 C, HBM at 95 C; "
        "newer GPUs report how many degrees remain"
    )

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen = []
        # Older GPUs report no limit or no memory temperature; if one GPU of a node reports it, all must.
        shown = [name for name in _SOME_SHOW if any(row.number(name) is not None for row in found.rows)]
        for row in found.rows:
            core, left, memory = (
                row.number("temperature.gpu"),
                row.number("temperature.gpu.tlimit"),
                row.number("temperature.memory"),
            )
            if core is None:
                raise Unreadable("%s reports no temperature" % row.label)
            for name in shown:
                if row.number(name) is None:
                    raise Unreadable("%s reports no %s, but other GPUs do" % (row.label, name))
            wrong = []
            if not 0 < core < 85:
                wrong.append("%g C" % core)
            if left is not None and left <= 5:
                wrong.append("%g C left before it slows down" % left)
            if memory is not None and not 0 < memory < 95:
                wrong.append("memory at %g C" % memory)
            seen.append((row, int(core), ", ".join(wrong) or None))
        return by_gpu(seen, "below 85", "C")


_SOME_SHOW = ("temperature.gpu.tlimit", "temperature.memory")


class PowerLimit(GpuTableCheck):
    """No GPU has a power limit below its default."""

    id, name = "G9", "power_limit"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    when = (gpus,)
    hint = "run nvidia-smi -pl <default> for that GPU, and find out what lowered the limit"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/captures (H100 and H200, driver 590.48.01, 2026-07-14)"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen, defaults = [], []
        for row in found.rows:
            limit, default = row.number("power.limit"), row.number("power.default_limit")
            if limit is None or default is None:
                raise Unreadable("%s reports no power limit" % row.label)
            defaults.append(default)
            seen.append((row, limit, None if limit == default else "limited to %g W of %g W" % (limit, default)))
        return by_gpu(seen, all_same(defaults), "W")


class RecoveryAction(GpuTableCheck):
    """The driver requests no recovery action."""

    id, name = "G10", "recovery_action"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.RESET
    fault = FaultyPart.GPU
    hint = "drain the node, then take the action that the driver requests"
    source = "nvidia-ml-py 13.615.71: pynvml.py, gpu_recovery_action"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen, hints, causes = [], [], []
        for row in found.rows:
            action = row.get("gpu_recovery_action")
            if absent(action) or failure(action):
                raise Unreadable("%s reports no valid recovery action: %s" % (row.label, action or "nothing"))
            seen.append((row, action, None if action == "None" else "the driver requests: %s" % action))
            for words, cause, hint in _RECOVERY:
                if words in action.lower():
                    hints.append(hint)
                    causes.append(cause)
                    break
        return by_gpu(seen, "None", hint=hints[0] if hints else None, cause=strongest(causes))


_RECOVERY = (
    (
        "drain and reset",
        Cause.RESET_REQUIRED,
        "drain the node, wait for running work to end, then run nvidia-smi --gpu-reset on that GPU",
    ),
    (
        "drain p2p",
        Cause.RESET_REQUIRED,
        "drain jobs that use peer-to-peer traffic with that GPU, then reset the GPU",
    ),
    ("imex", Cause.RESET_REQUIRED, "restart the IMEX domain of the rack"),
    ("bus reset", Cause.REBOOT_REQUIRED, "drain the node and reboot it: the GPU needs a bus reset"),
    ("reboot", Cause.REBOOT_REQUIRED, "drain the node and reboot it"),
    (
        "reset",
        Cause.RESET_REQUIRED,
        (
            "drain the node and run nvidia-smi --gpu-reset on that GPU, or reboot if it cannot be reset alone "
            "(A100 with NVSwitch: reset all GPUs together)"
        ),
    ),
)


class InfoRom(GpuTableCheck):
    """The infoROM of each GPU is valid."""

    id, name = "G11", "inforom"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REPLACE
    fault = FaultyPart.GPU
    hint = "replace the node: an infoROM cannot be repaired"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/captures (H100 and H200, driver 590.48.01, 2026-07-14)"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen = []
        for row in found.rows:
            word = row.get("inforom.checksum_validation")
            seen.append(
                (row, word, None if word == "valid" else "checksum validation reports %s" % (word or "nothing"))
            )
        return by_gpu(seen, "valid")


def _described(answers: Answers, machine: Machine) -> "tuple[nvsmi.SmiGpu, ...]":
    """Return the GPUs of `nvidia-smi -q -x`. Raises `Unreadable` if not every GPU of the machine is in it."""
    described = answers.xml().gpus
    if len(described) != machine.gpus:
        raise Unreadable("nvidia-smi -q -x describes %d of %d GPUs, see G1" % (len(described), machine.gpus))
    return described


class ErrorTokens(Check):
    """No GPU field contains an error token. nvidia-smi prints these tokens with exit code 0.

    `Insufficient Permissions` in the XML is not a GPU error: every Blackwell GPU prints this text for power smoothing, even for root.
    """

    id, name = "G13", "error_tokens"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.GPU
    probes = ("nvidia-smi-csv", "nvidia-smi-xml")
    hint = "drain the node and read journalctl -k -b; reset the GPU or reboot the node, and replace the node if the token returns"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/nvidiasmi/transform_test.go"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        bad = []
        for row in all_gpu_rows(answers, machine).rows:
            for column, cell in row.cells.items():
                if failure(cell) and column != "name":
                    bad.append("%s: %s is %s" % (row.label, column, shortened(cell, 60)))
        for gpu in _described(answers, machine):
            for path, text in gpu.fields.items():
                if failure(text) and path != "product_name" and not denied(text):
                    bad.append("%s: %s is %s" % (gpu.label, path, shortened(text, 60)))
        return bad

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        return judged(len(found), 0, found, "cells")


class PendingRepairs(Check):
    """No GPU waits for a reset that repairs a memory channel or a processing cluster. Until then, the GPU works with the damaged part."""

    id, name = "G16", "pending_repairs"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.RESET
    fault = FaultyPart.GPU
    probes = ("nvidia-smi-xml",)
    hint = "drain the node and reset the GPU, or reboot the node; replace it if the repair is still pending"
    source = (
        "nvidia-smi -q -x of driver 595 (influxdata/telegraf and NVIDIA/k8s-test-infra, tests/recordings): channel_repair_pending, "
        "tpc_repair_pending. Older drivers do not print them"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        return [
            "%s: %s is %s" % (gpu.label, path.rpartition("/")[2], shortened(text, 40))
            for gpu in _described(answers, machine)
            for path, text in gpu.fields.items()
            if path.endswith("_repair_pending") and text not in ("No", "N/A")
        ]

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        return judged(len(found), 0, found, "repairs")


class GpuFirmware(Check):
    """All GPUs of the node have the same VBIOS and the same firmware.

    Different ones are a replaced part or an interrupted update."""

    id, name = "G17", "gpu_firmware"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    when = (gpus,)
    probes = ("nvidia-smi-xml",)
    hint = "report the difference to the cloud's support: GPUs with different firmware can differ in speed and behavior"
    source = "nvidia-smi -q -x: vbios_version, gsp_firmware_version; the same on all GPUs of each recorded machine (tests/recordings)"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, list[str]]:
        rows = _described(answers, machine)
        return {name: sorted({gpu.find(name) for gpu in rows}) for name in ("vbios_version", "gsp_firmware_version")}

    def judge(self, found: dict[str, list[str]], machine: Machine) -> CheckOutcome:
        wrong = ["%s: %s" % (name, listed(values)) for name, values in found.items() if len(values) > 1]
        # The handover compares the versions of all nodes of a pool (`gpuinfra.handover.uniform`).
        return judged(
            ["%s %s" % (name, value) for name, values in found.items() for value in values], "one version", wrong
        )


MAX_REPLAYS = 1000
"""PCIe replays of a GPU since the driver was loaded above which its link is faulty. gpuinfra's own value: the highest number on the recorded healthy
machines is 174 (eight H100, tests/recordings), and each replay was corrected."""


class PcieReplays(Check):
    """No GPU repeats many transfers over PCIe, and its counter of repetitions did not overflow."""

    id, name = "G18", "pcie_replays"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.SLOW_GPU
    probes = ("nvidia-smi-xml",)
    hint = "compare G3 and B5 with the other GPUs; reboot, and replace the node if the number rises again"
    source = "nvidia-smi -q -x: pci/replay_counter and pci/replay_rollover_counter (man nvidia-smi); NVIDIA/DCGM: health watch of PCIe"

    def parse(self, answers: Answers, machine: Machine) -> "list[tuple[str, str, str]]":
        return [
            (gpu.label, gpu.find("pci/replay_counter"), gpu.find("pci/replay_rollover_counter"))
            for gpu in _described(answers, machine)
        ]

    def judge(self, found: "list[tuple[str, str, str]]", machine: Machine) -> CheckOutcome:
        wrong, worst = [], 0
        for label, replays, overflows in found:
            for name, text, most in (("replays", replays, MAX_REPLAYS), ("overflows", overflows, 0)):
                if absent(text):
                    continue
                if not re.match(r"^\d{1,20}$", text):
                    raise Unreadable("%s reports %s PCIe %s" % (label, shortened(text, 40), name))
                worst = max(worst, int(text) if name == "replays" else 0)
                if int(text) > most:
                    wrong.append("%s: %s PCIe %s" % (label, text, name))
        return judged(worst, MAX_REPLAYS, wrong, "replays at most")
