"""B: the speed of the node, compared with the figures of its machine type. B2, B4 and B5 take seconds and are required; B3 runs on request.

The floors come from the machine's record (`floors`), which gives the source of each figure.
"""

from __future__ import annotations

import math
import re
from typing import Any, Mapping

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened
from .base import Check, is_number, listed, result_of
from .conditions import exporter, fabric, gpus, has_floor, mig

PLUGINS = {
    # aws-ofi-nccl: `AWS Libfabric` up to 1.7, `Libfabric` since.
    "efa": ("AWS Libfabric", "Libfabric"),
    # `IB` is built into NCCL; nccl-rdma-sharp-plugins appends the version of NCCL's plugin interface: IBext_v8, IBext_v11.
    "infiniband": ("IB", "IBext", "IBext_v*"),
    # `IB` is not accepted: NCCL's built-in `IB` also works over Google's RoCE devices, without the plugin.
    "gib": ("gIB",),
    "tcpxo": ("FasTrak",),
    "tcpx": ("GPUDirectTCPX", "GPUDirectTCPX_v*"),
}
"""Maps each fabric to NCCL's names for its network plugin. `_v*` is any version number. `Socket` is never a valid name."""


GIB = 1 << 30
SAME_SIZE = 0.01
"""Relative difference between the size of a test and the size of its floor that makes no difference: an all-gather rounds to whole ranks."""


def is_plugin(name: object, provider: str) -> bool:
    """Return True if the network that NCCL names is a plugin of the fabric."""
    return isinstance(name, str) and any(
        re.sub(r"_v\d{1,3}$", "_v*", name) == one or name == one for one in PLUGINS[provider]
    )


def nccl_result(answers: Answers, probe: str = "nccl", schema: str = "gpuinfra.nccl/1") -> dict[str, Any]:
    """Return the JSON object that `node.pyz nccl` or `node.pyz pair` prints."""
    return result_of(answers, probe, schema, "the output of the all-reduce")


def judge_collective(found: dict[str, Any], ranks: int, machine: Machine, check: str) -> CheckOutcome:
    """Judge one all-reduce or all-gather by its number of ranks, its result and its bandwidth. Another size or collective has another rate."""
    least, entry = floor(machine, check), floor_entry(machine, check) or {}
    wanted = (entry.get("collective", "all-reduce"), entry.get("gib"))
    size = found.get("bytes")
    measured = (found.get("collective", "all-reduce"), size / GIB if is_number(size) else None)
    if measured[0] != wanted[0] or (wanted[1] and (not measured[1] or abs(measured[1] / wanted[1] - 1) > SAME_SIZE)):
        raise Unreadable(
            "the test is an %s of %s GiB, but the floor is for an %s of %s GiB"
            % tuple(shortened(str(value), 20) for value in (*measured, *wanted)),
            "repeat the test without --gib",
        )
    bandwidth, wrong = found.get("busbw_gb_s"), found.get("wrong")
    if not is_number(bandwidth) or not isinstance(wrong, int):
        raise Unreadable("the test reports no bandwidth or no number of wrong bytes")
    if found.get("ranks") != ranks:
        seen = shortened(str(found.get("ranks")), 12)
        return failed(seen, ranks, "the test ran over %s of %d GPUs" % (seen, ranks), "GPUs")
    if wrong:
        hint = "drain the node immediately: it computes wrong results"
        return failed(wrong, 0, "%d bytes of the result are wrong" % wrong, "bytes", hint)
    if not least <= bandwidth < math.inf:
        why = "%.1f GB/s, but a healthy machine reaches %g GB/s" % (bandwidth, least)
        return failed(round(bandwidth, 1), least, why, "GB/s")
    return passed(round(bandwidth, 1), least, "GB/s")


def floor_entry(machine: Machine, check: str) -> Mapping[str, Any] | None:
    """Return the entry of the machine's record for a check, or None if no machine was measured."""
    for entry in machine.floors:
        if isinstance(entry, Mapping) and entry.get("check") == check:
            value = entry.get("at_least")
            if is_number(value) and value > 0:
                return entry
    return None


def known_floor(machine: Machine, check: str) -> float | None:
    """Return the lowest figure that a healthy machine of this type reaches, or None if no machine was measured."""
    entry = floor_entry(machine, check)
    return float(entry["at_least"]) if entry else None


def floor(machine: Machine, check: str) -> float:
    """Return the floor for a check that requires one."""
    bandwidth = known_floor(machine, check)
    if bandwidth is None:
        raise Unreadable(
            "the machine's record has no floor for %s" % check,
            "measure a healthy machine and add its figure to the record",
        )
    return bandwidth


class Metrics(Check):
    """The DCGM exporter reports every GPU."""

    id, name = "M1", "metrics"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (exporter,)
    probes = ("metrics",)
    hint = "run systemctl restart nvidia-dcgm nvidia-dcgm-exporter; to install the exporter, set software.gpu_metrics in the declaration"
    source = "NVIDIA/dcgm-exporter: README.md"

    def parse(self, answers: Answers, machine: Machine) -> int | None:
        """Return the number of GPUs with a temperature, or None if no exporter responds. MIG instances count as one GPU."""
        if answers.raw("metrics").exit != 0:
            return None
        return len(set(re.findall(r'^DCGM_FI_DEV_GPU_TEMP\{gpu="(\d+)"', answers.text("metrics"), re.MULTILINE)))

    def judge(self, found: int | None, machine: Machine) -> CheckOutcome:
        if found is None:
            return failed("no answer", machine.gpus, "no exporter responds on port 9400", "GPUs")
        return equal(found, machine.gpus, "GPUs", "the exporter reports %d of %d GPUs" % (found, machine.gpus))


class AllReduce(Check):
    """An all-reduce over all GPUs in the node returns the correct result and reaches the machine's bandwidth."""

    id, name = "B2", "all_reduce"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (has_floor("B2"),)
    skips = ((mig, "NCCL does not run on several MIG instances of a node"),)
    action = Action.REBOOT
    fault = FaultyPart.SLOW_NVLINK
    default_gib = 8.0
    """Size of the test on machines whose floor names no size."""
    probes = ("nccl",)
    hint = "compare F3 and G3 with a fast node, reboot and measure again; if the node stays slow, replace it"
    source = (
        "floors by machine type from stas00/ml-engineering: network/README.md, and Azure/azurehpc-health-checks: conf; "
        "`gpuinfra catalog MACHINE` shows the source of each floor"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        return nccl_result(answers)

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        return judge_collective(found, machine.gpus, machine, "B2")


class PairReduce(Check):
    """An all-reduce between this node and another node returns the correct result, uses the fabric's plugin and reaches the machine's bandwidth."""

    id, name = "B3", "pair_all_reduce"
    phase, severity = Phase.SPEED, Severity.DRAIN
    action = Action.REBOOT
    fault = FaultyPart.FABRIC
    default_gib = 2.0
    """Size of the test on machines whose floor names no size."""
    probes = ("pair",)
    hint = (
        "one of the two nodes is weak: test each node with a partner that is known to be good, then drain the weak node"
    )
    source = "floors by machine type from public NCCL logs of two nodes; `gpuinfra catalog MACHINE` shows the source of each floor"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        return nccl_result(answers, "pair", "gpuinfra.pair/1")

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        provider = machine.fabric_provider
        wanted = PLUGINS.get(provider)
        names = found.get("network")
        if wanted is None or not isinstance(names, list) or not names:
            raise Unreadable("NCCL did not report the network between the nodes")
        if not all(is_plugin(name, provider) for name in names):
            shown = [shortened(str(name), 40) for name in names]
            return failed(shown, list(wanted), "NCCL uses %s between the nodes" % listed(shown))
        return judge_collective(found, 2 * machine.gpus, machine, "B3")


class NetworkPlugin(Check):
    """NCCL loads the fabric's plugin and uses every fabric device that the plugin lists. With sockets, a job runs at a twentieth of the speed."""

    id, name = "B4", "network_plugin"
    phase, severity = Phase.SPEED, Severity.BLOCK
    is_installation = True
    when = (gpus, fabric)
    skips = ((mig, "NCCL does not run on several MIG instances of a node"),)
    probes = ("nccl-network",)
    hint = (
        "rerun the fabric step; look for variables that select another network in /etc/nccl.conf, ~/.nccl.conf and "
        "/etc/profile.d; NCCL_DEBUG=INFO shows why a plugin was not loaded"
    )
    source = (
        "NVIDIA/nccl v2.28.9: src/init.cc, src/plugin/net.cc, src/transport/net_ib.cc (log lines); "
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 5"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, Any]:
        result = nccl_result(answers, "nccl-network")
        names = result.get("network")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise Unreadable("NCCL did not report its network")
        return result

    def judge(self, found: dict[str, Any], machine: Machine) -> CheckOutcome:
        provider = machine.fabric_provider
        wanted = PLUGINS.get(provider)
        if wanted is None:
            raise Unreadable("no plugin is known for fabric %s" % shortened(provider, 40))
        names = [shortened(name, 40) for name in found["network"]]
        log = found.get("network_log")
        lines = [shortened(str(line), 160) for line in log] if isinstance(log, list) else []
        if not all(is_plugin(name, provider) for name in names):
            return failed(names, list(wanted), "; ".join(["NCCL uses %s" % listed(names), *_reasons(lines)]))
        absent = [line for line in lines if line.startswith("Could not open XML topology file")]
        if absent:
            return failed(names, list(wanted), listed(absent))
        devices, kind = found.get("network_devices"), DEVICES.get(provider, "")
        count = devices.get(kind) if isinstance(devices, dict) else None
        expected = machine.fabric_devices
        if isinstance(count, int) and count != expected:
            return failed(count, expected, "NCCL uses %d of %d devices" % (count, expected), "devices")
        return passed(names, list(wanted))


DEVICES = {"efa": "efa", "infiniband": "IB"}
"""Maps each fabric to its entry in `network_devices`. The log lines in which Google's plugins list devices are not known."""
_EXPLAINS = re.compile(
    r"Could not find|cannot open|Failed to|No device|No eligible|set by environment|not found", re.IGNORECASE
)


def _reasons(lines: list[str]) -> list[str]:
    return [line for line in lines if _EXPLAINS.search(line)][:6]
