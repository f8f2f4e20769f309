"""G: the GPUs themselves - count, model, link, memory health, clocks, temperature, power, recovery, MIG, left-over
processes."""

from __future__ import annotations

import re
from typing import Any

from ..answer import Answers
from ..expectation import Machine
from ..table import Row, Table, absent, failure, label
from ..words import Outcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from .base import Check, all_same, by_gpu, gpu_rows, listed
from .platform import pci_gpus

_LISTED = re.compile(r"^GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]{36})\)$")


class GpuCount(Check):
    """Every GPU the machine is sold with answers the driver."""

    id, name = "G1", "gpu_count"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    probes = ("nvidia-smi-list", "nvidia-smi-xml", "lspci")
    hint = (
        "drain the node and look at journalctl -k -b for the address that is missing; reboot once, then "
        "replace the node"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[int, list[str]]:
        uuids = []
        for line in answers.lines("nvidia-smi-list"):
            match = _LISTED.match(line.strip())
            if match:
                uuids.append(match.group(3))
            elif not line.strip().startswith("MIG "):
                raise Unreadable("nvidia-smi -L printed a line that is no GPU: %s" % shortened(line, 80))
        log = answers.xml()
        described = [gpu.get("uuid") for gpu in log.gpus]
        if sorted(described) != sorted(uuids) or log.attached_gpus != len(uuids) or len(set(uuids)) != len(uuids):
            raise Unreadable(
                "nvidia-smi contradicts itself: -L lists %d GPUs, -q -x describes %d and says %d are attached"
                % (len(uuids), len(described), log.attached_gpus)
            )
        seen = {_address(gpu.pci) for gpu in log.gpus}
        return len(uuids), [address for address, _ in pci_gpus(answers) if _address(address) not in seen]

    def judge(self, found: tuple[int, list[str]], machine: Machine) -> Outcome:
        count, unseen = found
        if count == machine.gpus and not unseen:
            return passed(count, machine.gpus, "GPUs")
        why = "the driver lists %d of %d GPUs" % (count, machine.gpus)
        if unseen:
            why += "; on the PCI bus and not listed: GPU at %s" % ", ".join(unseen)
        return failed(count, machine.gpus, why, "GPUs")


class GpuModel(Check):
    """All GPUs are the model and have the memory that the machine is sold with."""

    id, name = "G2", "gpu_model"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    probes = ("nvidia-smi-csv",)
    hint = "replace the node: a GPU of another model, or one that lost memory, slows or breaks every job on it"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        name, memory = machine.need("gpu_name", str), machine.need("gpu_memory_mib", float)
        expected = "%s, %d MiB" % (name, memory)
        seen = []
        for row in found.rows:
            model, size = row.get("name"), row.number("memory.total")
            wrong = None
            if model != name:
                wrong = "is a %s" % model
            elif size is None or abs(size - memory) > 0.01 * memory:
                wrong = "has %s MiB of memory" % ("unknown" if size is None else "%d" % size)
            seen.append((row, "%s, %s MiB" % (model, "?" if size is None else "%d" % size), wrong))
        return by_gpu(seen, expected)


class PcieLink(Check):
    """Each GPU's PCIe link can do, and has trained to, the machine's generation and width.

    The width and the highest generation must always be the machine's.
    An idle GPU may lower its current generation to save power, so a lower one counts only while the GPU is not idle.
    """

    id, name = "G3", "pcie_link"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = "drain, reboot once and compare again; a link that stays narrow or slow means replace the node"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        gen, width = machine.need("pcie_gen", int), machine.need("pcie_width", int)
        seen, resting = [], 0
        for row in found.rows:
            now_gen, top_gen = _needed(row, "pcie.link.gen.current"), _needed(row, "pcie.link.gen.max")
            now_width, top_width = _needed(row, "pcie.link.width.current"), _needed(row, "pcie.link.width.max")
            wrong = []
            if now_width != width or top_width != width:
                wrong.append("x%d of x%d lanes (the slot allows x%d)" % (now_width, width, top_width))
            if top_gen != gen:
                wrong.append("the link can do gen %d, the machine has gen %d" % (top_gen, gen))
            elif now_gen != gen:
                if now_gen < gen and _clock_reasons(row) & 0x1:
                    resting += 1
                else:
                    wrong.append("gen %d of %d while it is not idle" % (now_gen, gen))
            seen.append((row, "gen %d x%d" % (now_gen, now_width), ", ".join(wrong) or None))
        outcome = by_gpu(seen, "gen %d x%d" % (gen, width))
        if outcome.outcome == "pass" and resting:
            return Outcome(
                "pass",
                outcome.found,
                outcome.expected,
                reason="%d idle GPUs have lowered their link generation, as they may" % resting,
            )
        return outcome


class EccMode(Check):
    """ECC is on and stays on after the next reset."""

    id, name = "G4", "ecc_mode"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("nvidia-smi-csv",)
    hint = "nvidia-smi -e 1, then reset the GPUs or reboot the node"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        wanted = "Enabled" if machine.need("ecc", bool) else "Disabled"
        seen = []
        for row in found.rows:
            modes = (_word(row, "ecc.mode.current"), _word(row, "ecc.mode.pending"))
            good = modes == (wanted, wanted) or (wanted == "Disabled" and all(absent(mode) for mode in modes))
            seen.append(
                (
                    row,
                    modes[0] if modes[0] == modes[1] else "%s, pending %s" % modes,
                    None if good else "ECC is %s, pending %s" % modes,
                )
            )
        return by_gpu(seen, wanted)


class EccErrors(Check):
    """No uncorrectable memory error since the driver was loaded, and none in SRAM ever."""

    id, name = "G5", "ecc_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = (
        "drain, reset the GPU (reboot the node where it cannot be reset), and replace the node if the count "
        "rises again; SRAM errors mean replace"
    )

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen = []
        for row in found.rows:
            volatile = row.number("ecc.errors.uncorrected.volatile.total")
            sram = row.number("ecc.errors.uncorrected.aggregate.sram")
            if volatile is None or sram is None:
                if machine.need("ecc", bool):
                    raise Unreadable("%s does not count ECC errors" % row.label, "turn ECC on, see G4")
                volatile, sram = volatile or 0, sram or 0
            wrong = []
            if volatile != 0:
                wrong.append("%d uncorrectable since the driver was loaded" % volatile)
            if sram != 0:
                wrong.append("%d uncorrectable in SRAM in its life" % sram)
            seen.append((row, int(volatile + sram), ", ".join(wrong) or None))
        return by_gpu(seen, 0, "errors")


class RemappedRows(Check):
    """No row of memory waits for a reset to be remapped, and none could not be remapped."""

    id, name = "G6", "remapped_rows"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = "pending: drain and reset the GPU; failure: the spare rows are used up, replace the node"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen = []
        for row in found.rows:
            pending, broken = _word(row, "remapped_rows.pending"), _word(row, "remapped_rows.failure")
            hidden_by_mig = absent(pending) and absent(broken) and row.get("mig.mode.current") == "Enabled"
            if not hidden_by_mig and not {pending, broken} <= {"Yes", "No"}:
                raise Unreadable("%s says %s and %s about remapped rows" % (row.label, pending, broken))
            wrong = []
            if pending == "Yes":
                wrong.append("a remapping is pending until the next reset")
            if broken == "Yes":
                wrong.append("a remapping failed")
            seen.append((row, "pending %s, failure %s" % (pending, broken), ", ".join(wrong) or None))
        return by_gpu(seen, "pending No, failure No")


class Throttling(Check):
    """No GPU is slowed down by heat or power."""

    id, name = "G7", "throttling"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = "look at temperatures (G8) and power limits (G9); a hardware slowdown that stays means drain and replace"
    source = "nodes.md 7.3: hardware bits 0x8, 0x40, 0x80 are bad, 0x20 is worth a look"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen, warm = [], []
        for row in found.rows:
            bits = _clock_reasons(row)
            names = [name for bit, name in _SLOWDOWNS if bits & bit]
            seen.append((row, "0x%x" % bits, ", ".join(names) or None))
            if bits & 0x20:
                warm.append(row.label)
        outcome = by_gpu(seen, "none of 0x8, 0x40, 0x80")
        if outcome.outcome == "pass" and warm:
            return warned(outcome.found, outcome.expected, "slowed down by software for heat: %s" % listed(warm))
        return outcome


_SLOWDOWNS = ((0x8, "hardware slowdown"), (0x40, "hardware slowdown for heat"), (0x80, "external power brake"))


class Temperature(Check):
    """No GPU is near its limits."""

    id, name = "G8", "temperature"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("nvidia-smi-csv",)
    hint = "look at the node's load and its neighbours; a GPU that is hot while idle means replace the node"
    source = "nodes.md section 8: A100 slows down at 89 C, HBM at 95 C; newer GPUs show the degrees left"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen = []
        for row in found.rows:
            core, left, memory = (
                row.number("temperature.gpu"),
                row.number("temperature.gpu.tlimit"),
                row.number("temperature.memory"),
            )
            if core is None:
                raise Unreadable("%s shows no temperature" % row.label)
            wrong = []
            if not 0 < core < 85:
                wrong.append("%g C" % core)
            if left is not None and left <= 5:
                wrong.append("%g C left before it slows down" % left)
            if memory is not None and not 0 < memory < 95:
                wrong.append("memory at %g C" % memory)
            seen.append((row, int(core), ", ".join(wrong) or None))
        return by_gpu(seen, "below 85", "C")


class PowerLimit(Check):
    """No GPU is capped below its default power limit."""

    id, name = "G9", "power_limit"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("nvidia-smi-csv",)
    hint = "nvidia-smi -pl <default> on that GPU, and find out who lowered it"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen, defaults = [], []
        for row in found.rows:
            limit, default = row.number("power.limit"), row.number("power.default_limit")
            if limit is None or default is None:
                raise Unreadable("%s shows no power limit" % row.label)
            defaults.append(default)
            seen.append((row, limit, None if limit == default else "limited to %g W of %g W" % (limit, default)))
        return by_gpu(seen, all_same(defaults), "W")


class RecoveryAction(Check):
    """The driver asks for no recovery action."""

    id, name = "G10", "recovery_action"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = "do what the driver asks for after draining the node"
    source = "nodes.md 7.3, gpu_recovery_action"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen, hints = [], []
        for row in found.rows:
            action = row.get("gpu_recovery_action")
            if absent(action) or failure(action):
                raise Unreadable("%s does not say whether it needs recovery: %s" % (row.label, action or "nothing"))
            seen.append((row, action, None if action == "None" else "the driver asks for: %s" % action))
            hints += [hint for word, hint in _RECOVERY if word in action.lower()][:1]
        return by_gpu(seen, "None", hint=hints[0] if hints else None)


_RECOVERY = (
    ("drain and reset", "drain the node, let running work end, then nvidia-smi --gpu-reset on that GPU"),
    ("drain p2p", "drain jobs that use peer-to-peer traffic of that GPU, then reset it"),
    ("imex", "restart the IMEX domain of the rack"),
    ("bus reset", "drain the node and reboot it: the GPU needs a bus reset"),
    ("reboot", "drain the node and reboot it"),
    (
        "reset",
        "drain the node and run nvidia-smi --gpu-reset on that GPU, or reboot where it cannot be reset alone "
        "(A100 with NVSwitch: all GPUs together)",
    ),
)


class InfoRom(Check):
    """Each GPU's infoROM is whole."""

    id, name = "G11", "inforom"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv",)
    hint = "replace the node: an infoROM is not repaired in the field"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        seen = []
        for row in found.rows:
            word = row.get("inforom.checksum_validation")
            seen.append((row, word, None if word == "valid" else "checksum validation says %s" % (word or "nothing")))
        return by_gpu(seen, "valid")


class MigMode(Check):
    """MIG is as the pool wants it, and no change waits for a reset."""

    id, name = "G12", "mig_mode"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    probes = ("nvidia-smi-csv",)
    hint = "nvidia-smi -mig 0 (or 1), then reset the GPU or reboot the node"

    def parse(self, answers: Answers, machine: Machine) -> Table:
        return gpu_rows(answers)

    def judge(self, found: Table, machine: Machine) -> Outcome:
        wanted = "Enabled" if machine.get("mig", False) is True else "Disabled"
        seen = []
        for row in found.rows:
            modes = (_word(row, "mig.mode.current"), _word(row, "mig.mode.pending"))
            good = modes == (wanted, wanted) or (wanted == "Disabled" and all(absent(mode) for mode in modes))
            seen.append((row, modes[0], None if good else "MIG is %s, pending %s" % modes))
        return by_gpu(seen, wanted)


class ErrorTokens(Check):
    """No cell of any GPU holds an error token: nvidia-smi prints them with exit code 0."""

    id, name = "G13", "error_tokens"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("nvidia-smi-csv", "nvidia-smi-xml")
    hint = "drain the node, look at journalctl -k -b, reset or reboot; replace it if the token returns"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        bad = []
        for row in gpu_rows(answers).rows:
            for column, cell in row.cells.items():
                if failure(cell) and column != "name":
                    bad.append("%s: %s is %s" % (row.label, column, shortened(cell, 60)))
        for gpu in answers.xml().gpus:
            for path, text in gpu.fields.items():
                if failure(text) and path != "product_name":
                    bad.append("%s: %s is %s" % (gpu.label, path, shortened(text, 60)))
        return bad

    def judge(self, found: list[str], machine: Machine) -> Outcome:
        if found:
            return failed(len(found), 0, listed(found), "cells")
        return passed(0, 0, "cells")


class NoProcesses(Check):
    """Nobody else's process is on the GPUs of a node that is handed over."""

    id, name = "G14", "no_processes"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    probes = ("nvidia-smi-apps",)
    hint = "end the process, or drain the node and reboot it"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        return [
            "%s (pid %s)" % (row.get("process_name"), row.get("pid")) for row in answers.csv("nvidia-smi-apps").rows
        ]

    def judge(self, found: list[str], machine: Machine) -> Outcome:
        if found:
            return failed(len(found), 0, listed(found), "processes")
        return passed(0, 0, "processes")


def gpu_list(answers: Answers) -> list[dict[str, Any]]:
    """What the evidence says about each GPU, for inventories; empty when nvidia-smi cannot be read."""
    return [
        {
            "index": gpu.index,
            "uuid": gpu.find("uuid"),
            "serial": gpu.find("serial"),
            "pci": gpu.pci,
            "label": label(gpu.index, gpu.pci),
        }
        for gpu in answers.xml().gpus
    ]


def _address(pci: str) -> str:
    """The same address from nvidia-smi (00000000:10:1C.0) and lspci (0000:10:1c.0)."""
    domain, _, rest = pci.lower().partition(":")
    return "%x:%s" % (int(domain, 16) if re.match(r"^[0-9a-f]+$", domain) else -1, rest)


def _needed(row: Row, column: str) -> int:
    value = row.number(column)
    if value is None:
        raise Unreadable("%s shows no %s" % (row.label, column))
    return int(value)


def _word(row: Row, column: str) -> str:
    cell = row.get(column)
    if failure(cell):
        raise Unreadable("%s: %s is %s" % (row.label, column, cell))
    return cell


def _clock_reasons(row: Row) -> int:
    cell = row.get("clocks_event_reasons.active")
    if not re.match(r"^0x[0-9a-fA-F]{1,16}$", cell):
        raise Unreadable("%s shows clock event reasons %r" % (row.label, shortened(cell, 40)))
    return int(cell, 16)


CHECKS = (
    GpuCount,
    GpuModel,
    PcieLink,
    EccMode,
    EccErrors,
    RemappedRows,
    Throttling,
    Temperature,
    PowerLimit,
    RecoveryAction,
    InfoRom,
    MigMode,
    ErrorTokens,
    NoProcesses,
)
