"""N: the fabric between nodes - EFA, Google's plugins, locked memory. `ports.py` checks ports and interfaces."""

from __future__ import annotations

import re

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened, skipped
from .base import Check
from .conditions import fabric, fabric_of

_16_GIB_IN_KIB = 16 * 1024 * 1024


class EfaDevices(Check):
    """libfabric lists one EFA domain for each EFA device in the machine."""

    id, name = "N1", "efa_devices"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (fabric_of("efa"),)
    action = Action.REBOOT
    fault = FaultyPart.PORT
    rank = 8
    probes = ("efa",)
    hint = (
        "compare with lspci -d 1d0f: and the network interfaces of the launch template; rerun the EFA step, "
        "reboot, then replace the node"
    )
    source = "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 6"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        answer = answers.raw("efa")
        if answer.exit != 0 and re.search(r"fi_getinfo: -61|No data available", answer.stdout + answer.stderr):
            return []
        if not answers.text("efa").endswith("\n"):
            raise Unreadable("the output of fi_info ends in the middle of a line")
        blocks: list[dict[str, str]] = []
        for line in answers.lines("efa"):
            match = re.match(r"^\s*(provider|fabric|domain|version|type|protocol): (\S+)$", line)
            if match is None or (match.group(1) != "provider" and not blocks):
                raise Unreadable("cannot parse a line of fi_info: %s" % shortened(line, 80))
            if match.group(1) == "provider":
                blocks.append({})
            blocks[-1][match.group(1)] = match.group(2)
        # Each fabric of the provider (efa, efa-direct) lists every device, so each domain is counted only once.
        domains = set()
        for block in blocks:
            if (block["provider"], block.get("type")) != ("efa", "FI_EP_RDM") or not {"domain", "protocol"} <= set(
                block
            ):
                raise Unreadable("fi_info describes an incomplete EFA endpoint: %s" % sorted(block.items()))
            domains.add(block["domain"])
        return sorted(domains)

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        wanted = machine.fabric_devices
        if machine.fabric_provider != "efa":
            return skipped("the machine's fabric is not EFA")
        return equal(
            len(found),
            wanted,
            "EFA devices",
            "libfabric sees %d of %d EFA devices: %s" % (len(found), wanted, ", ".join(found) or "none"),
        )


class FabricLibraries(Check):
    """On Google Cloud, the NCCL network plugin for the machine's GPUDirect variant is installed on the host."""

    id, name = "N3", "fabric_libraries"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    is_installation = True
    when = (fabric_of("gib", "tcpxo"),)
    probes = ("fabric-libraries",)
    hint = "rerun the fabric step; without the plugin, NCCL silently falls back to sockets"
    source = "GoogleCloudPlatform/cluster-toolkit: examples/machine-learning/a3-megagpu-8g and a3-ultragpu-8g"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        # find exits with 1 because some of the paths are always missing.
        answer = answers.raw("fabric-libraries")
        if answer.exit not in (0, 1):
            raise Unreadable("find exited with code %d" % answer.exit)
        return answer.stdout.splitlines()

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        provider = machine.fabric_provider
        if provider not in FABRIC_LIBRARIES:
            return skipped("no host library is required for %s" % shortened(provider, 40))
        wanted = FABRIC_LIBRARIES[provider]
        if wanted in found:
            return passed(wanted, wanted)
        return failed(found, wanted, "%s does not exist" % wanted)


FABRIC_LIBRARIES = {"gib": "/usr/local/gib/scripts/set_nccl_env.sh", "tcpxo": "/var/lib/tcpxo/lib64"}
"""Maps each fabric to a file that its packages install. TCPX runs in containers."""


class LockedMemory(Check):
    """The memlock limits let a job's user lock as much memory as RDMA registers."""

    id, name = "N4", "locked_memory"
    phase, severity = Phase.CORRECTNESS, Severity.BLOCK
    is_installation = True
    when = (fabric,)
    probes = ("memlock",)
    hint = "rerun the prepare step, which writes memlock limits for all users to /etc/security/limits.d"
    source = (
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 2; "
        "Azure/azhpc-images: components/hpc-tuning.sh"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, int]:
        """Return the soft and hard limits for all users. Later lines take precedence, as in PAM."""
        answer = answers.raw("memlock")
        limits: dict[str, int] = {}
        for line in answer.stdout.splitlines():
            words = line.split("#")[0].split()
            if len(words) != 4 or words[2] != "memlock":
                raise Unreadable("cannot parse a limits line: %s" % shortened(line, 80))
            if words[0] != "*":
                continue
            if not re.match(r"^(unlimited|infinity|-1|\d+)$", words[3]) or words[1] not in ("soft", "hard", "-"):
                raise Unreadable("cannot parse a limits line: %s" % shortened(line, 80))
            value = int(words[3]) if words[3].isdigit() else -1
            for kind in ("soft", "hard") if words[1] == "-" else (words[1],):
                limits[kind] = value
        return limits

    def judge(self, found: dict[str, int], machine: Machine) -> CheckOutcome:
        expected = "unlimited, or at least 16 GiB"
        for kind in ("soft", "hard"):
            if kind not in found:
                return failed(None, expected, "no %s memlock limit is set for all users" % kind)
            if found[kind] != -1 and found[kind] < _16_GIB_IN_KIB:
                shown = "%d KiB" % found[kind]
                return failed(shown, expected, "the %s memlock limit is %s" % (kind, shown))
        return passed("unlimited" if found["soft"] == -1 else "%d KiB" % found["soft"], expected)
