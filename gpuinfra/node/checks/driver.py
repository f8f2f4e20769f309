"""D: the driver - loaded module, user space, DKMS, holds, persistence, related modules."""

from __future__ import annotations

import re
from typing import Mapping

from ..answer import Answers
from ..cause import Cause
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened, warned
from ..table import GpuTable
from .base import Check, GpuTableCheck, all_same, by_gpu, listed, on_some
from .conditions import gpus
from .platform import loaded_modules

_MODULE = re.compile(r"^NVRM version: NVIDIA UNIX (.*?)\s(\d{3,}\.\d+(?:\.\d+)?)(?:\s|$)", re.MULTILINE)


def loaded_driver(answers: Answers) -> tuple[str, bool]:
    """Return (version, True if open) of the loaded kernel module."""
    answer = answers.raw("driver-version")
    if "No such file or directory" in answer.stderr and not answer.stdout.strip():
        return "", False
    match = _MODULE.search(answers.text("driver-version"))
    if match is None or "Kernel Module" not in match.group(1):
        raise Unreadable("/proc/driver/nvidia/version contains no kernel module version")
    return match.group(2), "Open Kernel Module" in match.group(1)


class KernelModule(Check):
    """The loaded NVIDIA kernel module has the pinned version and the variant (open or proprietary) that the GPU requires."""

    id, name = "D1", "kernel_module"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    rank = 6
    probes = ("driver-version",)
    hint = "rerun the driver step; reboot if an older module is still loaded"
    source = "aws/aws-parallelcluster-cookbook#2654"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, bool]:
        return loaded_driver(answers)

    def judge(self, found: tuple[str, bool], machine: Machine) -> CheckOutcome:
        version, is_open = found
        if not version:
            return failed(
                None,
                "a loaded module",
                "the NVIDIA kernel module is not loaded",
                hint="run dkms status and modprobe nvidia, then rerun the driver step",
            )
        wanted = machine.version("driver")
        if wanted is None:
            machine.inside_range("driver", version)
            wanted = version
        wants_open = machine.open_module
        words = [
            "%s %s" % (one, "open" if flavour else "proprietary")
            for one, flavour in ((version, is_open), (wanted, wants_open))
        ]
        return equal(
            words[0], words[1], reason="the loaded module is %s, but this machine needs %s" % (words[0], words[1])
        )


class DriverVersion(Check):
    """Every GPU responds through user-space libraries of the pinned driver version."""

    id, name = "D2", "driver_version"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    rank = 5
    probes = ("nvidia-smi-csv", "nvidia-smi-xml")
    hint = "drain and reboot the node; if the version is still wrong, reinstall the pinned driver and hold its packages"
    source = "nvidia-smi(1) of driver 550.163.01; canonical/nvidia-graphics-drivers#78: driver/library version mismatch"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        rows = answers.csv("nvidia-smi-csv").rows
        versions = [row.get("driver_version") for row in rows]
        if any(not re.match(r"^\d{3,}\.\d+(\.\d+)?$", version) for version in versions):
            raise Unreadable("nvidia-smi printed an invalid driver version: %s" % listed(versions))
        log = answers.xml().driver_version
        if versions and log != versions[0]:
            raise Unreadable(
                "the nvidia-smi table reports driver %s, but its XML output reports %s" % (versions[0], log)
            )
        return versions

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        wanted = machine.version("driver")
        if wanted is None:
            if not found:
                return failed([], machine.gpus, "no GPU answers", "GPUs")
            machine.inside_range("driver", found[0])
            wanted = found[0]
        if len(found) != machine.gpus:
            return failed(
                on_some(found, len(found), machine.gpus),
                wanted,
                "%d of %d GPUs respond" % (len(found), machine.gpus),
                cause=Cause.FEWER_GPUS,
            )
        return equal(
            all_same(found),
            wanted,
            reason="the user-space driver is %s, but the pinned version is %s" % (listed(sorted(set(found))), wanted),
        )


_DKMS_WAITING = re.compile(r"^nvidia(?:-open)?[/,]\s*[\w.]+: (?:added|built)$")
_DKMS = re.compile(r"^nvidia(?:-open)?[/,]\s*([\w.]+),\s*([\w.+~-]+),\s*\w+:\s*(\w+)")


class ModuleKept(Check):
    """The pinned module is installed for the running kernel, so that it is still available after a reboot.

    If DKMS builds the module, DKMS must report `installed`; with `added` or `built`, the module would be missing after a reboot. If the
    distribution ships the module, it must be in this kernel's module folder, have the pinned version and be built for this kernel.
    """

    id, name = "D3", "dkms_installed"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    probes = ("dkms", "uname", "driver-version", "module")
    hint = (
        "install the headers for the running kernel, then run dkms autoinstall; if it fails, read "
        "/var/lib/dkms/nvidia/*/build/make.log; without DKMS, install linux-modules-nvidia-...-$(uname -r)"
    )
    source = "Rushmore75/amd-passthrough-fix#4: a module that DKMS added but did not install"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str, list[tuple[str, str, str]], dict[str, str]]:
        builds = []
        for line in answers.lines("dkms") if answers.installed("dkms") else []:
            match = _DKMS.match(line)
            if match:
                builds.append((match.group(1), match.group(2), match.group(3)))
            elif line.startswith("nvidia") and not _DKMS_WAITING.match(line):
                raise Unreadable("cannot parse a line of dkms status: %s" % shortened(line, 80))
        fields: dict[str, str] = {}
        answer = answers.raw("module")
        for line in answer.stdout.splitlines():
            name, colon, value = line.partition(":")
            if colon and name in ("filename", "version", "vermagic"):
                fields.setdefault(name, value.strip())
        if not fields and not re.search(r"Module nvidia not found", answer.stderr):
            raise Unreadable("modinfo neither describes the nvidia module nor reports that it is missing")
        return answers.text("uname").strip(), loaded_driver(answers)[0], builds, fields

    def judge(
        self, found: tuple[str, str, list[tuple[str, str, str]], dict[str, str]], machine: Machine
    ) -> CheckOutcome:
        kernel, loaded, builds, module = found
        pinned = machine.version("driver") or loaded
        file = module.get("filename", "")
        if not builds and file and "/dkms/" not in file:
            wanted = "nvidia %s for %s, prebuilt" % (pinned, kernel)
            built_for = module.get("vermagic", "").split(" ")[0]
            shown = "nvidia %s for %s, prebuilt" % (
                module.get("version", "of unknown version"),
                built_for or "an unknown kernel",
            )
            if shown != wanted or not re.match(r"^(?:/usr)?/lib/modules/%s/" % re.escape(kernel), file):
                return failed(shown, wanted, "the module on disk is %s: %s" % (shown, shortened(file, 120)))
            return passed(shown, wanted)
        wanted = "nvidia/%s for %s: installed" % (pinned, kernel)
        shown = ["nvidia/%s for %s: %s" % build for build in builds]
        if wanted in shown:
            if module.get("version", pinned) != pinned:
                why = "DKMS installed %s, but the next boot would load %s from %s" % (pinned, module["version"], file)
                return failed(module["version"], pinned, why)
            return passed(wanted, wanted)
        return failed(
            all_same(shown) if shown else None, wanted, "DKMS reports %s" % (listed(shown) or "no nvidia module")
        )


class DriverAfterReboot(Check):
    """The driver that passed in an earlier boot is also loaded in this boot.

    A driver that was installed during this boot has not been verified after a reboot yet, so it results in a warning."""

    id, name = "D7", "driver_after_reboot"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (gpus,)
    may_warn = True
    probes = ("driver-version", "boot-id")
    hint = "reboot the node when it is idle; the checks run again after the reboot"
    source = "GoogleCloudPlatform/compute-gpu-installation#10: the driver was missing after a restart"

    def parse(self, answers: Answers, machine: Machine) -> tuple[str, str, object]:
        boot = answers.text("boot-id").strip()
        if not re.match(r"^[0-9a-f-]{32,36}$", boot):
            raise Unreadable("the kernel's boot ID is invalid: %s" % shortened(boot, 40))
        steps = machine.journal.get("steps") if machine.journal is not None else None
        entry = (
            next((step for step in steps if isinstance(step, Mapping) and step.get("id") == "30-driver"), None)
            if isinstance(steps, list)
            else None
        )
        if entry is None or not isinstance(entry.get("boot_id"), str):
            raise Unreadable("the journal does not record the boot in which the driver step ran", "rerun the bootstrap")
        recorded = machine.journal.get("recorded") if machine.journal is not None else None
        installed_in = recorded.get("driver_boot") if isinstance(recorded, Mapping) else None
        return boot, loaded_driver(answers)[0], installed_in

    def judge(self, found: tuple[str, str, object], machine: Machine) -> CheckOutcome:
        boot, loaded, installed_in = found
        recorded = machine.version("driver")
        if loaded != recorded:
            why = "the recorded driver is %s, but this boot loaded %s" % (recorded, loaded or "no driver")
            return failed(loaded or None, recorded, why)
        # This boot loaded the driver in the image. Only a driver that the step installed is not verified yet.
        if installed_in == boot:
            why = "the driver was installed during the current boot and has not been verified after a reboot"
            return warned(loaded, recorded, why, cause=Cause.NOT_REBOOTED)
        return passed(loaded, recorded)


class DriverLibrary(Check):
    """Programs load libcuda from the driver, not from a forward-compatibility package. These packages are for hosts
    with an older driver; with this driver, they cause CUDA error 804."""

    id, name = "D8", "driver_library"
    phase, severity = Phase.PRESENCE, Severity.WARN
    is_installation = True
    when = (gpus,)
    probes = ("libcuda",)
    hint = (
        "remove the cuda-compat packages and the files in /etc/ld.so.conf.d that list their folder, then run ldconfig"
    )
    source = (
        "NVIDIA: forward compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, retrieved 2026-11; "
        "gpustack/gpustack#1254: error 804"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        """Return the paths of libcuda.so.1, in the loader's search order."""
        places = []
        for line in answers.lines("libcuda"):
            name, _, rest = line.partition(" (")
            if not (line[:1].isspace() and name.strip() and ") => /" in rest) and not re.match(
                r"^\d+ libs found in cache |^Cache generated by: ", line
            ):
                # The probe keeps the first lines of the list unfiltered. They also contain libraries.
                raise Unreadable("cannot parse a line of ldconfig: %s" % shortened(line, 80))
            match = re.match(r"^\s+libcuda\.so\.1 \(([^)]*)\) => (/\S+)$", line)
            if match and ("x86-64" in match.group(1) or "AArch64" in match.group(1)):
                places.append(match.group(2))
        return places

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        wanted = "the driver's own"
        if not found:
            return failed(None, wanted, "the loader finds no libcuda.so.1")
        if "/compat/" in found[0] or "/cuda-compat" in found[0]:
            return failed(
                found[0], wanted, "the loader uses libcuda.so.1 from a forward-compatibility package: %s" % found[0]
            )
        return passed(found[0], wanted)


class Holds(Check):
    """The driver, fabric manager, running kernel and NCCL packages are held, so no upgrade replaces them on a running node."""

    id, name = "D4", "holds"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (gpus,)
    probes = ("holds", "uname")
    hint = "rerun the holds step, which runs apt-mark hold for the driver, fabric manager, kernel and NCCL packages"
    source = (
        "Azure/azhpc-images: components/install_nvidiagpudriver.sh; awslabs/amazon-eks-ami: install-nvidia-driver.sh"
    )

    def parse(self, answers: Answers, machine: Machine) -> tuple[list[str], str]:
        names = [line.strip() for line in answers.lines("holds")]
        if any(not re.match(r"^[a-z0-9][a-z0-9+.:-]+$", name) for name in names):
            raise Unreadable("apt-mark showhold printed an invalid package name")
        # The name of a package for a foreign architecture has the architecture as a suffix.
        return [name.partition(":")[0] for name in names], answers.text("uname").strip()

    def judge(self, found: tuple[list[str], str], machine: Machine) -> CheckOutcome:
        names, kernel = found
        wanted = {
            "driver": r"(?:nvidia-open|cuda-drivers)(?:-\d+)?|nvidia-(?:driver|dkms)-\d+(?:-server)?(?:-open)?|"
            r"libnvidia-compute-\d+(?:-server)?|linux-modules-nvidia-\d+(?:-server)?(?:-open)?-" + re.escape(kernel),
            "kernel": r"linux-image-(?:unsigned-)?" + re.escape(kernel),
            "nccl": r"libnccl2",
        }
        if machine.nvswitch:
            wanted["fabric manager"] = r"nvidia-fabric-?manager(?:-\d+)?"
        missing = [what for what, pattern in wanted.items() if not any(re.fullmatch(pattern, name) for name in names)]
        if missing:
            return failed(sorted(names), sorted(wanted), "not held: %s" % ", ".join(missing))
        return passed(len(names), len(wanted), "held packages")


class Persistence(GpuTableCheck):
    """Persistence mode is enabled on every GPU, so the driver stays initialized between jobs."""

    id, name = "D5", "persistence_mode"
    phase, severity = Phase.PRESENCE, Severity.WARN
    is_installation = True
    when = (gpus,)
    hint = (
        "run nvidia-smi -pm 1; to keep the mode after a reboot, remove --no-persistence-mode, which the package sets, from the "
        "nvidia-persistenced unit, then run systemctl enable --now nvidia-persistenced"
    )
    source = "NVIDIA/nvidia-persistenced: init/systemd/nvidia-persistenced.service.template; Azure/azhpc-images: configure_nvidia_persistence.sh"

    def judge(self, found: GpuTable, machine: Machine) -> CheckOutcome:
        modes = [(row, row.get("persistence_mode")) for row in found.rows]
        return by_gpu(
            [(row, mode, None if mode == "Enabled" else "persistence mode is %s" % mode) for row, mode in modes],
            "Enabled",
        )


class DriverModules(Check):
    """nvidia_uvm is loaded, which CUDA requires."""

    id, name = "D6", "driver_modules"
    phase, severity = Phase.PRESENCE, Severity.WARN
    is_installation = True
    when = (gpus,)
    probes = ("modules",)
    hint = "load the missing module with modprobe and add it to /etc/modules-load.d"
    source = (
        "Azure/azhpc-images writes /etc/modules-load.d/nvidia-peermem.conf; "
        "NVIDIA/cloud-native-docs: gpu-operator/gpu-operator-rdma.rst"
    )

    def parse(self, answers: Answers, machine: Machine) -> frozenset[str]:
        return loaded_modules(answers)

    def judge(self, found: frozenset[str], machine: Machine) -> CheckOutcome:
        wanted = ["nvidia", "nvidia_uvm"]
        missing = [module for module in wanted if module not in found]
        if missing:
            return failed(
                [module for module in wanted if module in found], wanted, "not loaded: %s" % ", ".join(missing)
            )
        return passed(wanted, wanted)


def unit_state(answers: Answers, probe: str) -> str:
    """Return the state that `systemctl is-active` prints. Its exit code is 0 only for active states."""
    answer = answers.raw(probe)
    word = answer.stdout.strip()
    if word not in (
        "active",
        "inactive",
        "failed",
        "activating",
        "deactivating",
        "reloading",
        "unknown",
        "maintenance",
        "refreshing",
    ):
        raise Unreadable("systemctl is-active printed no known state: %s" % (word or answer.stderr.strip())[:80])
    if (word in ("active", "reloading", "refreshing")) != (answer.exit == 0):
        raise Unreadable("systemctl is-active printed %s with exit code %d" % (word, answer.exit))
    return word
