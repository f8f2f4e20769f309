"""X: the kernel log for this boot - Xid lines for GPUs, SXid lines for NVSwitches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..answer import Answers
from ..cause import Action, Cause, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from ..xids import ACTIONS_OF_154, BENIGN_SXIDS, TO_DO, Bucket, nvlink5, sxid_action, xid_of
from .base import Check, is_number, listed, result_of, strongest
from .conditions import every_node, gpus, nvswitch

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: [^)]*)?\): (\d+)(?:,|:|$)(.*)$")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+), (.*)$")


def kernel_log(answers: Answers) -> list[str]:
    """Return the lines about GPUs in this boot. Raises `Unreadable` if the text is not a kernel log."""
    lines = answers.lines("kernel-log")
    if not any(_TIMED.match(line) for line in lines):
        raise Unreadable("the kernel log contains no line with a time stamp, so it cannot be judged")
    return lines


_TIMED = re.compile(r"^(?:\d{4}-\d\d-\d\dT\S+ |\[[^\]]*\d\])")


@dataclass(frozen=True)
class LogLimits:
    """The limitations of a result."""

    starts: str
    """The time of the first line of a rotated log, which does not contain the start of the boot. Empty for a complete log."""
    repeated: int
    """Number of lines that were only counted."""


def limits(answers: Answers) -> LogLimits:
    """Return the limitations of a result from the kernel log."""
    lines = kernel_log(answers)
    rotated = not any("Linux version" in line for line in lines)
    return LogLimits(shortened(lines[0].split(" ")[0], 40) if rotated else "", answers.raw("kernel-log").repeated)


def with_limits(outcome: CheckOutcome, limited: LogLimits) -> CheckOutcome:
    """Add the limitations of a result to its reason. A pass on a rotated log is a warning."""
    notes = [outcome.reason] if outcome.reason else []
    if limited.starts:
        notes.append("the log was rotated: it starts after the boot, at %s" % limited.starts)
    if limited.repeated:
        notes.append("%d more lines of the same kinds were counted" % limited.repeated)
    if not limited.starts and not limited.repeated:
        return outcome
    reason = "; ".join(notes)
    word = "warn" if outcome.outcome == "pass" and limited.starts else outcome.outcome
    return CheckOutcome(
        word, outcome.found, outcome.expected, outcome.unit, reason, outcome.hint, outcome.cause or Cause.UNREADABLE
    )


class Xids(Check):
    """In this boot, no GPU reported an Xid error that requires a drain. The table is `gpuinfra/node/xids.py`."""

    id, name = "X1", "xid"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.GPU
    may_warn = True
    rank = 1
    probes = ("kernel-log",)
    hint = "drain the node and follow the table's action for this Xid"
    source = (
        "NVIDIA: Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, retrieved 2026-11; "
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 0"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[tuple[int, str, str]], LogLimits]:
        seen = []
        for line in kernel_log(answers):
            if "NVRM: Xid" not in line:
                continue
            match = _XID.search(line)
            if match is None:
                raise Unreadable("cannot parse an Xid line: %s" % shortened(line, 120))
            seen.append((int(match.group(2)), match.group(1), match.group(3).strip()))
            # The line of a removed channel contains the Xid that caused it. The line of that Xid can be older than the log.
            cause = re.search(r"caused by previous Xid (\d+)", match.group(3))
            if cause:
                seen.append((int(cause.group(1)), match.group(1), ""))
        return seen, limits(answers)

    def judge(self, found: tuple[list[tuple[int, str, str]], LogLimits], machine: Machine) -> CheckOutcome:
        return with_limits(_judge_xids(found[0], machine.replacing_xids), found[1])


def _judge_xids(found: list[tuple[int, str, str]], replacing: list[Any]) -> CheckOutcome:
    drain, warn, hints, required = [], [], [], []
    for number, where, text in found:
        entry = xid_of(number, replacing)
        severity, do, action = entry.severity, entry.do, entry.action
        if entry.bucket is Bucket.XID_154:
            parts = (re.match(r"[^()]*\(([^()]*)\)", part) for part in re.split(r"\bto ", text)[1:])
            requested = next((ACTIONS_OF_154.get(part.group(1)) for part in parts if part), None)
            if requested is Action.NOTHING:
                continue
            if requested:
                do, action = requested, TO_DO[requested]
        elif entry.bucket is Bucket.WORKFLOW_NVLINK5:
            bucket = nvlink5(text)
            severity, do, action = bucket.severity, bucket.do, TO_DO[bucket.do]
        text = "Xid %d on GPU %s (%s)" % (number, where, entry.meaning)
        if severity == "drain":
            drain.append(text)
            hints.append(action)
            required.append(Cause.requiring(do))
        elif severity == "warn":
            warn.append(text)
    numbers = sorted({number for number, _, _ in found})
    if drain:
        hint = "; ".join(dict.fromkeys(hints))
        return failed(numbers, [], listed(list(dict.fromkeys(drain))), "Xids", hint, strongest(required))
    if warn:
        return warned(numbers, [], listed(list(dict.fromkeys(warn))), "Xids")
    return passed(numbers, [], "Xids")


class SwitchErrors(Check):
    """No NVSwitch reported an error in this boot that stops traffic. The table is `gpuinfra/node/xids.py`.

    The driver logs an error in up to three lines: `Fatal` or `Non-fatal` with the link, `Severity`, and `Data`. These lines form one event for each
    switch, number and second. The check ignores SXid 22013, because healthy switches report it at boot.
    """

    id, name = "X2", "sxid"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (nvswitch,)
    action = Action.REBOOT
    fault = FaultyPart.NVLINK
    may_warn = True
    rank = 2
    probes = ("kernel-log",)
    hint = "reboot the node, and replace it if the error returns"
    source = (
        "leptonai/gpud: components/accelerator/nvidia/sxid/README.md; "
        "NVIDIA: fabric manager user guide, https://docs.nvidia.com/datacenter/tesla/pdf/fabric-manager-user-guide.pdf, NVSwitch errors"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[SwitchError], LogLimits]:
        seen = []
        for line in kernel_log(answers):
            if "SXid" not in line:
                continue
            match = _SXID.search(line)
            if match is None:
                raise Unreadable("cannot parse an SXid line: %s" % shortened(line, 120))
            # The first word of a log line is its time; a fraction of a second differs between the lines of one event.
            at = re.sub(r"[.,]\d+", "", line.strip("[ ").split(" ")[0])
            seen.append(SwitchError(match.group(1), int(match.group(2)), at, match.group(3)))
        return seen, limits(answers)

    def judge(self, found: tuple[list[SwitchError], LogLimits], machine: Machine) -> CheckOutcome:
        return with_limits(_judge_switches(found[0]), found[1])


def _judge_switches(found: list[SwitchError]) -> CheckOutcome:
    numbers = sorted({one.number for one in found})
    # A detail line decides only if the log has no `Fatal` or `Non-fatal` line for this switch and number.
    stated = {(one.switch, one.number) for one in found if not one.is_detail}
    deciding = [one for one in found if not one.is_detail or (one.switch, one.number) not in stated]
    wanted = [(sxid_action(one.number, is_fatal=not one.is_harmless), one) for one in deciding]
    faults = {"SXid %d on NVSwitch %s: %s" % (one.number, one.switch, shortened(one.text, 80)): action
              for action, one in wanted if action.drains}  # fmt: skip
    if faults:
        hint = "; ".join(dict.fromkeys(TO_DO[action] for action in faults.values()))
        cause = strongest(Cause.requiring(action) for action in faults.values())
        return failed(numbers, [], listed(list(faults)), "SXids", hint, cause)
    events = {(one.switch, one.number, one.at) for one in found if one.number not in BENIGN_SXIDS}
    if events:
        return warned(numbers, [], "%d non-fatal events" % len(events), "SXids")
    return passed(numbers, [], "SXids")


@dataclass(frozen=True)
class SwitchError:
    """One SXid line."""

    switch: str
    number: int
    at: str
    """The time of the line, in seconds."""
    text: str

    @property
    def is_detail(self) -> bool:
        """True for a line that describes an event of another line."""
        return bool(re.match(r"(?:Severity \d|Data \{)", self.text))

    @property
    def is_harmless(self) -> bool:
        """True if the line states that the event is not fatal. All other lines count."""
        return bool(re.match(r"(?i)non-?fatal\b|Severity 0\b", self.text))


@dataclass(frozen=True)
class _Symptom:
    """Lines of the kernel about the host, and what they require."""

    pattern: re.Pattern[str]
    what: str
    action: Action
    at_least: int = 1


_SYMPTOMS = (
    _Symptom(re.compile(r"^(?:(?!NVRM).)*NVRM.*(?:fallen off the bus|GPU is lost|probe routine failed)"), "GPU lost", Action.REBOOT),
    _Symptom(
        re.compile(r"(?i)^(?:(?!Hardware Error\]).)*Hardware Error\].*(?:severity: (?:fatal|recoverable)|uncorrect|context corrupt)"),
        "uncorrected CPU error", Action.REPLACE,
    ),
    _Symptom(re.compile(r"(?:AER: |PCIe Bus Error: severity=)Uncorrect"), "uncorrected PCIe error", Action.REBOOT),
    _Symptom(re.compile(r"(?:AER: |PCIe Bus Error: severity=)Correct"), "corrected PCIe errors", Action.LOOK, 100),
    _Symptom(re.compile(r"Hardware Error"), "CPU or memory error", Action.LOOK),
    _Symptom(re.compile(r"Out of memory"), "process killed because host memory was full", Action.LOOK),
)  # fmt: skip
"""In this order: a line counts for the first pattern that it matches. A pattern of two parts starts at the first one, so that its time is
linear. The number of corrected PCIe errors is gpuinfra's own value: single ones are normal."""


class HostErrors(Check):
    """In this boot, the kernel logged no uncorrected error of CPU, memory or PCIe, and no GPU was lost without an Xid.

    Corrected errors, and processes that were killed because memory was full, result in a warning."""

    id, name = "X3", "host_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (every_node,)
    action = Action.REBOOT
    fault = FaultyPart.HOST
    may_warn = True
    probes = ("kernel-log",)
    hint = "drain the node and read journalctl -k -b; replace the node if the error returns after a reboot"
    source = (
        "torvalds/linux: drivers/firmware/efi/cper.c (event severity), drivers/pci/pcie/aer.c, mm/oom_kill.c; "
        "NVIDIA/NVSentinel#155 (2025-10-25): a GPU that fell off the bus at probe without an Xid"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[dict[_Symptom, int], LogLimits]:
        seen: dict[_Symptom, int] = {}
        for line in kernel_log(answers):
            if "NVRM: Xid" not in line:
                symptom = next((one for one in _SYMPTOMS if one.pattern.search(line)), None)
                if symptom:
                    seen[symptom] = seen.get(symptom, 0) + 1
        return seen, limits(answers)

    def judge(self, found: tuple[dict[_Symptom, int], LogLimits], machine: Machine) -> CheckOutcome:
        seen = {one: count for one, count in found[0].items() if count >= one.at_least}
        shown = listed(["%s (%d lines)" % (one.what, count) for one, count in seen.items()])
        required = [one.action for one in seen if one.action.drains]
        if required:
            cause = strongest(Cause.requiring(action) for action in required)
            return with_limits(failed(len(seen), 0, shown, "kinds", cause=cause), found[1])
        return with_limits(warned(len(seen), 0, shown, "kinds") if seen else passed(0, 0, "kinds"), found[1])


_MOST = {"fatal": 0, "nonfatal": 100, "correctable": 10**4}
"""Errors of a device since boot that drain a node: gpuinfra's own values. The link corrects the correctable ones, and devices report single nonfatal
ones while the kernel searches for devices."""
_FEW = 100
"""Number of corrected errors below which there is no warning, as in check X3."""


class PcieErrors(Check):
    """No network interface, GPU, disk or bridge counts PCIe errors (AER).

    A few are a warning. The kernel log can lose such errors; the counters do not."""

    id, name = "X4", "pcie_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.HOST
    may_warn = True
    probes = ("pcie",)
    hint = "find the device with lspci -s; reboot, and replace the node if its counters rise again"
    source = "torvalds/linux: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats, drivers/pci/pcie/aer.c"

    def parse(self, answers: Answers, machine: Machine) -> list[dict[str, Any]]:
        devices = result_of(answers, "pcie", "gpuinfra.pcie/1", "the list of PCIe errors", "devices")["devices"]
        for device in devices:
            if not isinstance(device, dict) or not isinstance(device.get("device"), str):
                raise Unreadable("the list of PCIe errors contains an invalid entry")
            if any(not is_number(device.get(kind, 0)) for kind in _MOST):
                raise Unreadable("%s has an invalid error counter" % shortened(device["device"], 40))
        return devices

    def judge(self, found: list[dict[str, Any]], machine: Machine) -> CheckOutcome:
        shown = [
            "%s: %d %s" % (shortened(one["device"], 40), one[kind], kind)
            for one in found
            for kind in _MOST
            if one.get(kind)
        ]
        many = [one for one in found if any(one.get(kind, 0) > most for kind, most in _MOST.items())]
        if many:
            return failed(len(many), 0, listed(shown), "devices")
        few = [one for one in found if one.get("nonfatal") or one.get("correctable", 0) >= _FEW]
        return warned(len(few), 0, listed(shown), "devices") if few else passed(0, 0, "devices")
