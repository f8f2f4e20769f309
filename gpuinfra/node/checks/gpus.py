"""G: the GPUs - count, model, link, MIG, leftover processes. `gpu_health.py` checks their health."""

from __future__ import annotations

import re
from typing import Any

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..mig import instances
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened, warned
from ..table import GpuTable, label
from .base import Check, GpuTableCheck, all_gpu_rows, all_same, by_gpu, clock_reasons, judged, listed, mode, needed
from .conditions import gpus, mig
from .platform import pci_gpus

_LISTED = re.compile(r"^GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]{36})\)$")


class GpuCount(Check):
    """The driver lists every GPU of the machine type."""

    id, name = "G1", "gpu_count"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.MISSING_GPU
    rank = 4
    probes = ("nvidia-smi-list", "nvidia-smi-xml", "lspci")
    hint = "drain the node and search journalctl -k -b for the missing address; reboot once, then replace the node"
    source = "Azure/azurehpc-health-checks: check_gpu_count"

    def parse(self, answers: Answers, machine: Machine) -> tuple[int, list[str]]:
        uuids = []
        for line in answers.lines("nvidia-smi-list"):
            match = _LISTED.match(line.strip())
            if match:
                uuids.append(match.group(3))
            elif not line.strip().startswith("MIG "):
                raise Unreadable("cannot parse a line of nvidia-smi -L: %s" % shortened(line, 80))
        log = answers.xml()
        described = [gpu.get("uuid") for gpu in log.gpus]
        if sorted(described) != sorted(uuids) or log.attached_gpus != len(uuids) or len(set(uuids)) != len(uuids):
            raise Unreadable(
                "nvidia-smi contradicts itself: -L lists %d GPUs, -q -x describes %d and reports %d attached"
                % (len(uuids), len(described), log.attached_gpus)
            )
        seen = {_address(gpu.pci) for gpu in log.gpus}
        return len(uuids), [address for address, _ in pci_gpus(answers) if _address(address) not in seen]

    def judge(self, found: tuple[int, list[str]], machine: Machine) -> CheckOutcome:
        count, unseen = found
        if count == machine.gpus and not unseen:
            return passed(count, machine.gpus, "GPUs")
        why = "the driver lists %d of %d GPUs" % (count, machine.gpus)
        if unseen:
            why += "; on the PCI bus but not listed: GPU at %s" % ", ".join(unseen)
        return failed(count, machine.gpus, why, "GPUs")


class GpuModel(GpuTableCheck):
    """All GPUs have the model and the memory size of the machine type."""

    id, name = "G2", "gpu_model"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (gpus,)
    action = Action.REPLACE
    fault = FaultyPart.GPU
    hint = "replace the node: a GPU that is a different model or has less memory slows down or breaks every job on the node"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/captures (H100 and H200, driver 590.48.01, 2026-07-14)"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        name, memory = machine.gpu_name, machine.gpu_memory_mib
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


class PcieLink(GpuTableCheck):
    """The PCIe link of each GPU has the generation and width that the machine type specifies.

    The width must always reach the machine's width, and the maximum generation must match the machine's generation.
    An idle GPU may lower its current generation to save power, so a lower generation is a problem only while the GPU is busy.
    """

    id, name = "G3", "pcie_link"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.REBOOT
    fault = FaultyPart.SLOW_GPU
    hint = "drain the node, reboot it once and compare again; if the link is still narrow or slow, replace the node"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/captures (H100 and H200, driver 590.48.01, 2026-07-14); stas00/ml-engineering"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        gen, width = machine.pcie_gen, machine.pcie_width
        seen, resting = [], 0
        for row in found.rows:
            now_gen, top_gen = needed(row, "pcie.link.gen.current"), needed(row, "pcie.link.gen.max")
            now_width, top_width = needed(row, "pcie.link.width.current"), needed(row, "pcie.link.width.max")
            wrong = []
            if min(now_width, top_width) < width:
                wrong.append("x%d of x%d lanes (the slot allows x%d)" % (now_width, width, top_width))
            if top_gen != gen:
                wrong.append("the link supports gen %d, but the machine type has gen %d" % (top_gen, gen))
            elif now_gen != gen:
                if 0 < now_gen < gen and clock_reasons(row) & 0x1:
                    resting += 1
                else:
                    wrong.append("gen %d of %d while busy" % (now_gen, gen))
            seen.append((row, "gen %d x%d" % (now_gen, now_width), ", ".join(wrong) or None))
        outcome = by_gpu(seen, "gen %d x%d" % (gen, width))
        if outcome.outcome == "pass" and resting:
            return CheckOutcome(
                "pass",
                outcome.found,
                outcome.expected,
                reason="%d idle GPUs have lowered their link generation, which is normal" % resting,
            )
        return outcome


class MigMode(GpuTableCheck):
    """The MIG mode matches the pool, and no change is pending."""

    id, name = "G12", "mig_mode"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    action = Action.RESET
    hint = "run nvidia-smi -mig 1 if the pool uses MIG, or nvidia-smi -mig 0 if it does not; then reset the GPU or reboot the node"
    source = "utkuozdemir/nvidia_gpu_exporter: internal/captures (H100 and H200, driver 590.48.01, 2026-07-14)"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        wanted = "Enabled" if machine.mig else "Disabled"
        seen = []
        for row in found.rows:
            modes, good = mode(row, "mig", wanted)
            seen.append((row, modes[0], None if good else "MIG is %s, pending %s" % modes))
        return by_gpu(seen, wanted)


class MigLayout(Check):
    """Each GPU has exactly the MIG instances that the pool declares, and every instance has its own UUID."""

    id, name = "G15", "mig_layout"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (mig,)
    probes = ("nvidia-smi-list", "nvidia-smi-xml")
    hint = "run systemctl restart gpuinfra-mig, which also runs at each boot, or python3 /opt/gpuinfra/current/node.pyz mig"
    source = "nvidia-smi -L of an H100 with MIG, driver 590.48.01"

    def parse(self, answers: Answers, machine: Machine) -> dict[int, list[tuple[str, str]]]:
        cuts = instances(answers.text("nvidia-smi-list"))
        described = {gpu.index: gpu.repeated.get("mig_device", 0) for gpu in answers.xml().gpus}
        listed_ = {gpu: len(cut) for gpu, cut in cuts.items()}
        if described != listed_:
            raise Unreadable(
                "nvidia-smi contradicts itself: -L lists %s instances per GPU, -q -x describes %s"
                % (listed_, described)
            )
        return cuts

    def judge(self, found: dict[int, list[tuple[str, str]]], machine: Machine) -> CheckOutcome:
        wanted = sorted(str(name) for name in machine.mig_profiles)
        if not wanted:
            raise Unreadable("the machine's record declares MIG but no profiles")
        wrong, uuids = [], [uuid for cut in found.values() for _, uuid in cut]
        for gpu, cut in sorted(found.items()):
            names = sorted(name for name, _ in cut)
            if names != wanted:
                wrong.append("GPU %d: %s" % (gpu, ", ".join(names) or "no instance"))
        if len(found) != machine.gpus:
            wrong.append("%d of %d GPUs are listed" % (len(found), machine.gpus))
        if len(set(uuids)) != len(uuids):
            wrong.append("two instances have the same UUID")
        shown = all_same(", ".join(sorted(name for name, _ in cut)) or "none" for _, cut in sorted(found.items()))
        return judged(shown, ", ".join(wanted), wrong, "per GPU")


class NoProcesses(Check):
    """No GPU memory is in use at handover.

    Processes on the GPUs result in a warning. Memory that no process holds is a failure, because no job can use it until the GPU is reset."""

    id, name = "G14", "no_processes"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (gpus,)
    action = Action.RESET
    fault = FaultyPart.GPU
    may_warn = True
    probes = ("nvidia-smi-apps", "nvidia-smi-csv")
    hint = "stop the process; if no process holds the memory, drain the node and reset the GPU, or reboot the node"
    source = "nvidia-smi(1) of driver 550.163.01, --query-compute-apps; real idle GPUs: at most 4 MiB used (tests/recordings)"

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[str], GpuTable]:
        apps = answers.csv("nvidia-smi-apps").rows
        return ["%s (pid %s)" % (row.get("process_name"), row.get("pid")) for row in apps], all_gpu_rows(
            answers, machine
        )

    def judge(self, found: tuple[list[str], GpuTable], machine: Machine) -> CheckOutcome:
        processes, table = found
        if processes:
            return warned(len(processes), 0, listed(processes), "processes")
        seen = []
        for row in table.rows:
            used = needed(row, "memory.used")
            seen.append(
                (row, used, None if 0 <= used <= IDLE_MIB else "%d MiB are in use and no process is listed" % used)
            )
        outcome = by_gpu(seen, "at most %d" % IDLE_MIB, "MiB")
        return outcome if outcome.outcome != "pass" else passed(0, 0, "processes")


IDLE_MIB = 1024
"""MiB of GPU memory that may be in use without a process: the driver and monitoring agents in containers use it."""


def gpu_list(answers: Answers) -> list[dict[str, Any]]:
    """Return the GPU entries of the evidence, for inventories. Raises if nvidia-smi cannot be read."""
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
    """Convert an address from nvidia-smi (00000000:10:1C.0) or lspci (0000:10:1c.0) to a common form."""
    domain, _, rest = pci.lower().partition(":")
    return "%x:%s" % (int(domain, 16) if re.match(r"^[0-9a-f]+$", domain) else -1, rest)
