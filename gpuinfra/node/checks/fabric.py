"""F: the fabric inside the node - fabric manager, NVLink, topology."""

from __future__ import annotations

import math
import re

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import (
    Broken,
    CheckOutcome,
    Phase,
    Severity,
    Unreadable,
    equal,
    failed,
    passed,
    shortened,
    skipped,
    warned,
)
from ..table import GpuTable, absent
from .base import Check, GpuTableCheck, all_gpu_rows, all_same, by_gpu, judged, listed, on_some
from .conditions import ampere, before_blackwell, gpus, mig, nvlinks, nvswitch
from .driver import loaded_driver, unit_state
from .platform import loaded_modules

_GPU_LINE = re.compile(r"^GPU (\d+): .+ \(UUID: GPU-[0-9a-f-]{36}\)$")
_LINK = re.compile(r"^Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|<inactive>)$")
_COUNTER = re.compile(r"^Link (\d+): ([A-Z][A-Za-z0-9 /-]*?): (\S+)$")
_COUNT = re.compile(r"^\d{1,20}$")
_RATE = re.compile(r"^\d+(?:\.\d+)?(?:e-?\d+)?$")
_ERRORS = frozenset((
    # Up to NVLink 4.
    "Replay Errors", "Recovery Errors", "CRC Errors", "CRC FLIT Errors", "CRC Data Errors", "ECC Errors",
    # NVLink 5.
    "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors",
    "Local link integrity Errors", "Tx discards", "Link recovery successful events", "Link recovery failed events",
    "Effective Errors", "Symbol Errors", "PLR Xmit Retry Blocks",
))  # fmt: skip
"""Counters that are zero on a healthy link."""
_INFORMATION = re.compile(
    r"^(?:[TR]x (?:packets|bytes)|Total link recovery events|(?:Effective|Symbol) BER|Raw (?:BER|Errors) (?:Lane \d+|Total)|"
    r"FEC Errors - \d+|PLR (?!Xmit Retry Blocks).+)$"
)
"""Counters that can be above zero on a healthy link: traffic, rates, and errors that the link corrects. `Raw` counts before any
correction, and bucket 0 of `FEC Errors` counts code words without an error."""
_RECOVERIES = {"Link recovery successful events": 50, "Link recovery failed events": 0}
"""Events of one link above which it is dying. The limit for successful recoveries is gpuinfra's own value: a healthy link has none."""
RATE_SHARE = 0.94
"""nvidia-smi prints the link rate with or without the encoding overhead, depending on the driver: 53.125 or 50 GB/s on NVLink 5."""


class FabricManager(Check):
    """The fabric manager is running and has exactly the version of the loaded driver. It does not work with any other version."""

    id, name = "F1", "fabric_manager"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (nvswitch,)
    rank = 7
    probes = ("fabric-manager", "fabric-manager-version", "driver-version")
    hint = (
        "install the nvidia-fabricmanager package in exactly the driver's version, then run systemctl enable --now "
        "nvidia-fabricmanager; without it, CUDA fails with error 802"
    )
    source = "NVIDIA/gpu-operator#544: the service refuses to start with another driver version"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str, str]:
        state = unit_state(answers, "fabric-manager")
        answer = answers.raw("fabric-manager-version")
        match = re.search(
            r"(?i)fabric manager version is\s*:\s*(\d{3,}\.\d+(?:\.\d+)?)\s*$", answer.stdout, re.MULTILINE
        )
        if match is None:
            raise Unreadable(
                "nv-fabricmanager --version printed no version: %s" % shortened(answer.stdout + answer.stderr, 80)
            )
        return state, match.group(1), loaded_driver(answers)[0]

    def judge(self, found: tuple[str, str, str], machine: Machine) -> CheckOutcome:
        if not machine.nvswitch:
            return skipped("the machine has no NVSwitch")
        state, version, driver = found
        wanted = "active, %s" % (driver or "the driver's version")
        shown = "%s, %s" % (state, version)
        if state != "active":
            return failed(shown, wanted, "nvidia-fabricmanager is %s" % state)
        return equal(
            shown, wanted, reason="the fabric manager is %s, but the loaded driver is %s" % (version, driver or "none")
        )


class FabricState(GpuTableCheck):
    """Each GPU has joined the NVLink fabric."""

    id, name = "F2", "fabric_state"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    when = (gpus, nvswitch)
    skips = ((ampere, "GPUs of the Ampere generation report no fabric state; the field is N/A"),)
    action = Action.REBOOT
    fault = FaultyPart.NVLINK
    hint = (
        "run systemctl restart nvidia-fabricmanager and wait up to 300 s; if the state does not change, read "
        "journalctl -u nvidia-fabricmanager"
    )
    source = "nvidia-ml-py 13.615.71: pynvml.py, fabric state; utkuozdemir/nvidia_gpu_exporter: internal/captures"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        seen = []
        for row in found.rows:
            state, status = row.get("fabric.state"), row.get("fabric.status")
            # Older drivers have no health column, and GPUs before Blackwell show N/A.
            health = row.cells.get("fabric.health.summary", "N/A")
            wrong = []
            if (state, status) != ("Completed", "Success"):
                wrong.append("state %s, status %s" % (state, status))
            if not absent(health) and health != "Healthy":
                wrong.append("health %s" % health)
            seen.append((row, "%s, %s" % (state, status), ", ".join(wrong) or None))
        return by_gpu(seen, "Completed, Success")


def refuse_mig(text: str) -> None:
    """Raise `Broken` for a GPU in MIG mode. It reports no links, which is a finding and not unreadable output."""
    if "not supported for Devices in MIG mode" in text:
        raise Broken(
            "a GPU is in MIG mode and reports no NVLink",
            "see G12; to disable MIG, run nvidia-smi -mig 0 and reset the GPU",
        )


class NvlinkActive(Check):
    """Every NVLink of every GPU is up at the machine's rate."""

    id, name = "F3", "nvlink_active"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (nvlinks,)
    skips = ((mig, "a GPU with MIG reports no NVLink"),)
    action = Action.REBOOT
    fault = FaultyPart.NVLINK
    probes = ("nvlink-status",)
    hint = (
        "drain the node, restart the fabric manager, then reboot; if a link stays down, replace the node (look for "
        "SXid lines: the switch may be at fault)"
    )
    source = "Azure/azurehpc-health-checks: customTests/azure_gpu_nvlink.nhc; utkuozdemir/nvidia_gpu_exporter: internal/captures"

    def parse(self, answers: Answers, machine: Machine) -> dict[int, list[float | None]]:
        refuse_mig(answers.text("nvlink-status"))
        gpus: dict[int, dict[int, float | None]] = {}
        current: dict[int, float | None] | None = None
        for line in answers.lines("nvlink-status"):
            text = line.strip()
            gpu, link = _GPU_LINE.match(text), _LINK.match(text)
            if gpu and int(gpu.group(1)) not in gpus:
                current = gpus.setdefault(int(gpu.group(1)), {})
            elif link and current is not None and int(link.group(1)) not in current:
                current[int(link.group(1))] = float(link.group(2)) if link.group(2) else None
            elif "all links are inActive" in text or "all links are inactive" in text:
                continue
            else:
                raise Unreadable("cannot parse a line of nvidia-smi nvlink -s: %s" % shortened(text, 80))
        return {gpu: list(links.values()) for gpu, links in gpus.items()}

    def judge(self, found: dict[int, list[float | None]], machine: Machine) -> CheckOutcome:
        links, rate = machine.nvlinks_per_gpu, machine.nvlink_gb_s
        if links == 0:
            return skipped("the machine has no NVLink")
        wrong = []
        for gpu, rates in sorted(found.items()):
            up = [one for one in rates if one is not None and one >= RATE_SHARE * rate]
            slow = [one for one in rates if one is not None and one < RATE_SHARE * rate]
            if len(up) != links:
                wrong.append(
                    "GPU %d: %d of %d links are up%s"
                    % (gpu, len(up), links, ", %d slower than %g GB/s" % (len(slow), rate) if slow else "")
                )
        counts = [
            sum(one is not None and one >= RATE_SHARE * rate for one in rates) for _, rates in sorted(found.items())
        ]
        shown = all_same(counts)
        if len(found) != machine.gpus:
            wrong.append("%d of %d GPUs report links" % (len(found), machine.gpus))
            shown = on_some(counts, len(found), machine.gpus)
        return judged(shown, links, wrong, "links per GPU")


class NvlinkErrors(Check):
    """No NVLink reports errors. NVLink 5 counters that are never zero are informational only.

    Errors and unknown counters result in a warning; a link that recovers again and again, or that failed to recover, fails."""

    id, name = "F4", "nvlink_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    action = Action.REPLACE
    fault = FaultyPart.NVLINK
    may_warn = True
    when = (nvlinks,)
    skips = ((mig, "a GPU with MIG reports no NVLink"),)
    probes = ("nvlink-errors",)
    hint = "watch the counters; if they rise, or if a link recovers again and again, drain and replace the node"
    source = (
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 3; "
        "marin-community/marin#9086 (2026-09): of 5,760 links, all have no recovery except one with 505, which died five days later; "
        "NVLink 5 counter names from a p6-b300.48xlarge with driver 595.91.07 (public notes, retrieved 2026-11) and nvidia-smi(1)"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[set[int], list[str], list[str], list[str]]:
        """Return the GPUs with counters, the counted errors, the dying links, and the lines that are not in the tables."""
        refuse_mig(answers.text("nvlink-errors"))
        gpus: set[int] = set()
        current, counted, dying, unknown = None, [], [], {}
        for line in answers.lines("nvlink-errors"):
            text = line.strip()
            counter = _COUNTER.match(text)
            gpu = None if counter else _GPU_LINE.match(text)
            if counter:
                link, name, value = counter.groups()
                if current is None or not _known(name, value):
                    unknown[name] = None
                    continue
                gpus.add(current)
                if name in _ERRORS and int(value):
                    text = "GPU %d link %s: %s %s" % (current, link, value, _short(name))
                    (dying if int(value) > _RECOVERIES.get(name, math.inf) else counted).append(text)
            elif gpu:
                current = int(gpu.group(1))
            else:
                unknown[text] = None
        return gpus, counted, dying, list(unknown)

    def judge(self, found: tuple[set[int], list[str], list[str], list[str]], machine: Machine) -> CheckOutcome:
        gpus, counted, dying, unknown = found
        if len(gpus) != machine.gpus:
            why = "%d of %d GPUs report link counters" % (len(gpus), machine.gpus)
            if unknown:
                why += "; unknown lines: %s" % listed(unknown)
            return warned(len(gpus), machine.gpus, why, "GPUs")
        if dying:
            return judged(len(dying), 0, dying, "links")
        if unknown and not counted:
            return warned(0, 0, "unknown counters in nvidia-smi nvlink -e: %s" % listed(unknown), "counters")
        if counted:
            return warned(len(counted), 0, listed(counted), "counters")
        return passed(0, 0, "counters")


def _known(name: str, value: str) -> bool:
    """Return True if a counter is in the tables and its value is a number. Only rates are not integers: `15e-255`."""
    number = _RATE if name.endswith("BER") else _COUNT
    return bool((name in _ERRORS or _INFORMATION.match(name)) and number.match(value))


def _short(name: str) -> str:
    return re.sub(r" errors?$", "", name.lower())


class Topology(Check):
    """Every pair of GPUs is connected by the full number of NVLinks per GPU."""

    id, name = "F5", "topology"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (nvswitch,)
    skips = ((mig, "a GPU with MIG reports no NVLink"),)
    action = Action.REBOOT
    fault = FaultyPart.NVLINK
    probes = ("topology",)
    hint = "compare the output with nvidia-smi nvlink -s (F3); restart the fabric manager, then reboot; if links are still missing, replace the node"
    source = "Azure/azurehpc-health-checks: check_hw_topology; utkuozdemir/nvidia_gpu_exporter: internal/captures"

    def parse(self, answers: Answers, machine: Machine) -> dict[tuple[int, int], str]:
        # The header contains underline codes, which the probe escapes.
        text = re.sub(r"(?:\x1b|\\x1b)\[[0-9;]*m", "", answers.text("topology"))
        lines = [line for line in text.splitlines() if line.strip()]
        header = re.findall(r"GPU(\d+)(?=\s|$)", lines[0]) if lines else []
        rows = [re.split(r"\s+", line.strip()) for line in lines[1:] if re.match(r"^\s*GPU\d+\s", line)]
        pairs = {}
        for row in rows:
            cells = row[1 : 1 + len(header)]
            if len(cells) != len(header):
                raise Unreadable("a row of nvidia-smi topo -m is too short")
            for other, cell in zip(header, cells):
                if not re.match(r"^(X|SYS|NODE|PHB|PXB|PIX|NV\d+)$", cell):
                    raise Unreadable("nvidia-smi topo -m reports %r between two GPUs" % shortened(cell, 20))
                pairs[int(row[0][3:]), int(other)] = cell
        if not header or len(rows) != len(header):
            raise Unreadable("nvidia-smi topo -m printed %d rows under %d GPU columns" % (len(rows), len(header)))
        return pairs

    def judge(self, found: dict[tuple[int, int], str], machine: Machine) -> CheckOutcome:
        wanted = "NV%d" % machine.nvlinks_per_gpu
        wrong = [
            "GPU %d and GPU %d: %s" % (a, b, cell) for (a, b), cell in sorted(found.items()) if a < b and cell != wanted
        ]
        pairs = machine.gpus * (machine.gpus - 1) // 2
        joined = sum(1 for (a, b), cell in found.items() if a < b and cell == wanted)
        if not wrong and joined != pairs:
            wrong.append("only %d of %d pairs are listed" % (joined, pairs))
        return judged(joined, pairs, wrong, "pairs connected by %s" % wanted)


class SubnetManager(Check):
    """On machines with fourth-generation NVSwitches, the NVLink subnet manager is running, its kernel module is loaded, and every GPU has joined
    the fabric. The fabric manager's start script starts the subnet manager, which does not have a separate unit."""

    id, name = "F6", "nvlink_subnet_manager"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus, nvswitch)
    skips = ((before_blackwell, "only fourth-generation NVSwitch (B200 and later) has an NVLink subnet manager"),)
    probes = ("nvlsm", "modules", "nvidia-smi-csv")
    hint = (
        "add ib_umad to /etc/modules-load.d, load it with modprobe, then run systemctl restart nvidia-fabricmanager and read "
        "journalctl -u nvidia-fabricmanager"
    )
    source = (
        "NVIDIA: fabric manager user guide, https://docs.nvidia.com/datacenter/tesla/pdf/fabric-manager-user-guide.pdf; "
        "systemctl status nvidia-fabricmanager on a node with eight B300 GPUs, 2026-08-27: nvlsm is a process of that unit"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[bool, bool, list[str]]:
        """Return whether nvlsm runs, whether ib_umad is loaded, and the fabric state of each GPU."""
        answer = answers.raw("nvlsm")
        lines = answer.stdout.splitlines()
        if answer.exit not in (0, 1) or (answer.exit == 0) != bool(lines):
            raise Unreadable("pgrep exited with code %d and printed %d lines" % (answer.exit, len(lines)))
        for line in lines:
            if not re.match(r"^\d+ (?:\S*/)?nvlsm(?: |$)", line):
                raise Unreadable("cannot parse a line of pgrep: %s" % shortened(line, 80))
        states = [row.get("fabric.state") for row in all_gpu_rows(answers, machine).rows]
        return bool(lines), "ib_umad" in loaded_modules(answers), states

    def judge(self, found: tuple[bool, bool, list[str]], machine: Machine) -> CheckOutcome:
        running, loaded, states = found
        shown = "nvlsm %s, ib_umad %s, fabric %s" % (
            "running" if running else "not running",
            "loaded" if loaded else "not loaded",
            " and ".join(sorted(set(states))),
        )
        return equal(shown, "nvlsm running, ib_umad loaded, fabric Completed", reason=shown)
