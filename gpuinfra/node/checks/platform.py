"""P: the machine below the driver - PCI devices, kernel and headers, disk, Secure Boot, nouveau."""

from __future__ import annotations

import re

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened
from .base import Check, listed
from .conditions import every_node, gpus, local_disks

_PCI = re.compile(
    r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: "
    r".*\[(10de:[0-9a-f]{4})\](?: \(rev [0-9a-f]+\))?(?: \(prog-if .*\))?$"
)
_GPU_CLASSES = ("0300", "0302")


def pci_gpus(answers: Answers) -> list[tuple[str, str]]:
    """Return (address, vendor:device) of each NVIDIA display or 3D controller on the PCI bus."""
    gpus = []
    for line in answers.lines("lspci"):
        match = _PCI.match(line)
        if match is None:
            raise Unreadable("cannot parse a line of lspci: %s" % line[:80])
        if match.group(2) in _GPU_CLASSES:
            gpus.append((match.group(1), match.group(3)))
    return gpus


class PciGpus(Check):
    """Every GPU of the machine type is on the PCI bus and has the right model."""

    id, name = "P1", "pci_gpus"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (gpus,)
    action = Action.REPLACE
    fault = FaultyPart.MISSING_GPU
    rank = 3
    probes = ("lspci",)
    hint = "replace the node: it needs different hardware"
    source = "awslabs/amazon-eks-ami: nvidia-kmod-load.sh; device ids: NVIDIA/open-gpu-kernel-modules, README.md"

    def parse(self, answers: Answers, machine: Machine) -> list[tuple[str, str]]:
        return pci_gpus(answers)

    def judge(self, found: list[tuple[str, str]], machine: Machine) -> CheckOutcome:
        wanted = [one.lower() for one in machine.pci_ids]
        strange = ["%s is a %s" % (address, device) for address, device in found if device not in wanted]
        if strange:
            return failed(
                len(found),
                machine.gpus,
                "not a GPU of this machine type: %s" % listed(strange),
                "GPUs",
                "check that the instance has the pool's machine type",
            )
        where = ", ".join(address for address, _ in found) or "none"
        return equal(
            len(found), machine.gpus, "GPUs", "%d of %d GPUs are on the PCI bus: %s" % (len(found), machine.gpus, where)
        )


class KernelHeaders(Check):
    """The running kernel is the kernel that the bootstrap locked, and its headers are installed for the next module
    build."""

    id, name = "P2", "kernel_headers"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (every_node,)
    probes = ("uname", "kernel-headers")
    hint = (
        "install linux-headers-$(uname -r), or reboot into the locked kernel; then run apt-mark hold on the kernel "
        "packages"
    )
    source = "GoogleCloudPlatform/compute-gpu-installation#28: the package mirror no longer has the headers of the running kernel"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, bool]:
        lines = answers.lines("uname")
        if len(lines) != 1 or not re.match(r"^\d+\.\d[\w.+~-]*$", lines[0]):
            raise Unreadable("uname -r printed no kernel release")
        folders = answers.raw("kernel-headers").stdout.splitlines()
        return lines[0], "/lib/modules/%s/build" % lines[0] in folders

    def judge(self, found: tuple[str, bool], machine: Machine) -> CheckOutcome:
        kernel, headers = found
        locked = kernel
        if machine.journal is not None:
            recorded = machine.journal.get("recorded") or {}
            locked = recorded.get("kernel")
            if not isinstance(locked, str) or not locked:
                return failed(kernel, None, "no bootstrap step recorded the locked kernel")
        if kernel != locked:
            return failed(kernel, locked, "the running kernel is %s, but the bootstrap locked %s" % (kernel, locked))
        if not headers:
            return failed(kernel, locked, "/lib/modules/%s/build contains no headers" % kernel)
        return passed(kernel, locked)


class RootSpace(Check):
    """The root disk has enough free space for the bootstrap and the first job."""

    id, name = "P3", "root_space"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (every_node,)
    probes = ("disk",)
    hint = "free space on / or set a larger root disk for the pool"
    source = "an estimate for toolkit, driver and images; Google builds its images on 100 GB (GoogleCloudPlatform/compute-gpu-installation)"

    def parse(self, answers: Answers, machine: Machine) -> float:
        lines = [line.strip() for line in answers.lines("disk")]
        if len(lines) != 2 or lines[0].lower() not in ("avail", "available") or not lines[1].isdigit():
            raise Unreadable("df printed no number of available bytes")
        return int(lines[1]) / 2**30

    def judge(self, found: float, machine: Machine) -> CheckOutcome:
        wanted = machine.root_free_gib
        if found < wanted:
            return failed(
                round(found, 1), wanted, "%.1f GiB are free on /, at least %g GiB are required" % (found, wanted), "GiB"
            )
        return passed(round(found, 1), wanted, "GiB")


_DISABLED, _UNSIGNED, _SIGNED = "disabled", "enabled, module unsigned", "enabled, module signed"
"""What `SecureBoot` finds."""


class SecureBoot(Check):
    """Secure Boot is disabled, or the NVIDIA module is signed."""

    id, name = "P4", "secure_boot"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    probes = ("secure-boot", "module-signer")
    hint = "sign the module with an enrolled key, or start the instance without Secure Boot"
    source = "GoogleCloudPlatform/compute-gpu-installation: linux/README.md, signed modules for Secure Boot"

    def parse(self, answers: Answers, machine: Machine) -> str:
        state = answers.raw("secure-boot")
        text = (state.stdout + state.stderr).lower()
        byte = re.match(r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+([01])\s*$", state.stdout)
        if state.argv[0] == "od" and ("no such file" in text or (byte and byte.group(1) == "0")):
            return _DISABLED
        if "secureboot disabled" in text or "efi variables are not supported" in text:
            return _DISABLED
        if "secureboot enabled" not in text and not (state.argv[0] == "od" and byte):
            raise Unreadable("mokutil reports neither enabled nor disabled: %s" % text.strip()[:80])
        signer = answers.text("module-signer").strip()
        if not signer:
            return _UNSIGNED
        if not re.match(r"^[\w .:,'()/@-]{1,200}$", signer):
            raise Unreadable("modinfo reports an invalid signer: %s" % shortened(signer, 60))
        return _SIGNED

    def judge(self, found: str, machine: Machine) -> CheckOutcome:
        if found == _UNSIGNED:
            return failed(
                found, "disabled, or a signed module", "Secure Boot is enabled, but the nvidia module is not signed"
            )
        return passed(found, "disabled, or a signed module")


class NoNouveau(Check):
    """The nouveau driver is not loaded."""

    id, name = "P5", "no_nouveau"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    probes = ("modules",)
    hint = "rerun the driver step, which blacklists nouveau and rebuilds the initramfs, then reboot"
    source = "NVIDIA: driver installation guide, https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/, retrieved 2026-11"

    def parse(self, answers: Answers, machine: Machine) -> bool:
        return "nouveau" in loaded_modules(answers)

    def judge(self, found: bool, machine: Machine) -> CheckOutcome:
        return equal(found, False, reason="the nouveau module is loaded")


def loaded_modules(answers: Answers) -> frozenset[str]:
    """Return the names of the loaded kernel modules, from lsmod."""
    lines = answers.lines("modules")
    if not lines or not lines[0].startswith("Module"):
        raise Unreadable("lsmod printed no module table")
    names = []
    for line in lines[1:]:
        if not re.match(r"^\w[\w-]*\s+\d+\s+-?\d+", line):
            raise Unreadable("cannot parse a line of lsmod: %s" % line[:60])
        names.append(line.split()[0])
    return frozenset(names)


MEMORY_SHARE = 0.9
"""Least share of the nominal memory that the kernel manages. The kernel and the host keep a part: 98.4 % on six Azure sizes and 93.3 % on
ND96amsr A100 v4 (Azure/azurehpc-health-checks: conf, check_hw_physmem, 2026-05)."""


class HostMemory(Check):
    """The kernel manages at least 90 % of the memory that the machine type is sold with."""

    id, name = "P7", "host_memory"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (every_node,)
    action = Action.REPLACE
    fault = FaultyPart.HOST
    probes = ("memory",)
    hint = "look for mem= and crashkernel= in /proc/cmdline; without them, replace the node: memory modules are missing or disabled"
    source = "Azure/azurehpc-health-checks: conf, check_hw_physmem; procps-ng: man free"

    def parse(self, answers: Answers, machine: Machine) -> float:
        match = re.search(r"^Mem:\s+(\d{1,20})\s", answers.text("memory"), re.MULTILINE)
        if match is None:
            raise Unreadable("free printed no total of the memory")
        return int(match.group(1)) / 2**30

    def judge(self, found: float, machine: Machine) -> CheckOutcome:
        wanted = round(MEMORY_SHARE * machine.memory_gib, 1)
        if found < wanted:
            why = "%.1f GiB of memory, but the machine type has %g GiB" % (found, machine.memory_gib)
            return failed(round(found, 1), wanted, why, "GiB")
        return passed(round(found, 1), wanted, "GiB")


class CpuCount(Check):
    """The kernel lists every vCPU of the machine type, also those that are offline."""

    id, name = "P8", "cpu_count"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (every_node,)
    action = Action.REPLACE
    fault = FaultyPart.HOST
    probes = ("cpus",)
    hint = "look for maxcpus= and nr_cpus= in /proc/cmdline; without them, replace the node, or correct the vcpus of a machine type that you declared"
    source = "Azure/azurehpc-health-checks: conf, check_hw_cpuinfo; GNU coreutils: nproc --all counts the installed processors"

    def parse(self, answers: Answers, machine: Machine) -> int:
        text = answers.text("cpus").strip()
        if not re.match(r"^\d{1,6}$", text):
            raise Unreadable("nproc printed no number")
        return int(text)

    def judge(self, found: int, machine: Machine) -> CheckOutcome:
        return equal(found, machine.vcpus, "vCPUs", "%d of %d vCPUs are present" % (found, machine.vcpus))


class LocalDisks(Check):
    """Every local NVMe disk of the machine type is present."""

    id, name = "P9", "local_disks"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (local_disks,)
    action = Action.REPLACE
    fault = FaultyPart.HOST
    probes = ("disk-models",)
    hint = "compare lsblk and journalctl -k -b; replace the node, because the scratch file system lost the data of the missing disk"
    source = "Azure/azurehpc-health-checks: customTests/azure_nvme_count.nhc; bootstrap step 80-scratch counts the disks only when it runs"

    def parse(self, answers: Answers, machine: Machine) -> int:
        try:
            model = re.compile(machine.local_disk_model)
        except re.error:
            raise Unreadable("the pattern of the local disks is invalid") from None
        return sum(1 for line in answers.lines("disk-models") if model.fullmatch(line.strip()))

    def judge(self, found: int, machine: Machine) -> CheckOutcome:
        return equal(
            found, machine.local_disks, "disks", "%d of %d local disks are present" % (found, machine.local_disks)
        )
