"""X: the kernel log of this boot - Xid lines of the GPUs, SXid lines of the NVSwitches."""

from __future__ import annotations

import re

from ..answer import Answers
from ..expectation import Machine
from ..outcome import Outcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from ..xids import ACTIONS_OF_154, TO_DO, UNKNOWN, XIDS
from .base import Check, listed

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: [^)]*)?\): (\d+)(?:,|:|$)(.*)$")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+), (.*)$")


def kernel_log(answers: Answers) -> list[str]:
    """Lines about GPUs in this boot. Raises `Unreadable` if the log is incomplete."""
    lines = answers.lines("kernel-log")
    if not any("Linux version" in line for line in lines):
        raise Unreadable(
            "the kernel log does not contain the start of this boot, so no result can be concluded from it"
        )
    return lines


class Xids(Check):
    """No GPU reported an Xid error in this boot that requires a drain. The table is `gpuinfra/node/xids.py`."""

    id, name = "X1", "xid"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("kernel-log",)
    hint = "drain the node and follow the table's action for this Xid"
    source = (
        "NVIDIA: Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read 2026-11; "
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 0"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[tuple[int, str, str]]:
        seen = []
        for line in kernel_log(answers):
            if "NVRM: Xid" not in line:
                continue
            match = _XID.search(line)
            if match is None:
                raise Unreadable("cannot parse an Xid line: %s" % shortened(line, 120))
            seen.append((int(match.group(2)), match.group(1), match.group(3).strip()))
        return seen

    def judge(self, found: list[tuple[int, str, str]], machine: Machine) -> Outcome:
        drain, warn, hints = [], [], []
        for number, where, text in found:
            entry = XIDS.get(number, UNKNOWN)
            severity, action = entry.severity, entry.action
            if number == 154:
                if re.search(r"\bto [^()]*\(None\)", text):
                    continue
                action = next((TO_DO[word] for words, word in ACTIONS_OF_154 if words in text), action)
            elif 144 <= number <= 150 and "Nonfatal" not in text and re.search(r"\bFatal\b", text):
                severity = "drain"
            text = "Xid %d on GPU %s (%s)" % (number, where, entry.meaning)
            if severity == "drain":
                drain.append(text)
                hints.append(action)
            elif severity == "warn":
                warn.append(text)
        numbers = sorted({number for number, _, _ in found})
        if drain:
            return failed(numbers, [], listed(list(dict.fromkeys(drain))), "Xids", "; ".join(dict.fromkeys(hints)))
        if warn:
            return warned(numbers, [], listed(list(dict.fromkeys(warn))), "Xids")
        return passed(numbers, [], "Xids")


class SwitchErrors(Check):
    """No NVSwitch reported a fatal error in this boot."""

    id, name = "X2", "sxid"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    probes = ("kernel-log",)
    hint = "drain and replace the node: the switch is faulty, and a reboot rarely fixes it"
    source = "leptonai/gpud: components/accelerator/nvidia/sxid/README.md"

    def parse(self, answers: Answers, machine: Machine) -> list[tuple[str, str, str]]:
        seen = []
        for line in kernel_log(answers):
            if "SXid" not in line:
                continue
            match = _SXID.search(line)
            if match is None:
                raise Unreadable("cannot parse an SXid line: %s" % shortened(line, 120))
            seen.append((match.group(2), match.group(1), match.group(3)))
        return seen

    def judge(self, found: list[tuple[str, str, str]], machine: Machine) -> Outcome:
        numbers = sorted({int(number) for number, _, _ in found})
        # Only "Non-fatal" clears a line; anything else counts.
        fatal = [
            "SXid %s on NVSwitch %s: %s" % (number, where, shortened(text, 80))
            for number, where, text in found
            if not re.match(r"(?i)non-?fatal\b", text)
        ]
        if fatal:
            return failed(numbers, [], listed(fatal), "SXids")
        if found:
            return warned(numbers, [], "%d non-fatal lines" % len(found), "SXids")
        return passed([], [], "SXids")
