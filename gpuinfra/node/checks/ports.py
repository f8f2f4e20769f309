"""N: ports and interfaces of the fabric - InfiniBand on Azure, RoCE and gVNIC on Google Cloud."""

from __future__ import annotations

import re
from typing import Any

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, equal, failed, passed, shortened, skipped, warned
from .base import Check, judged, listed, result_of
from .conditions import fabric_of, several_gvnics
from .kernel_log import kernel_log

MAX_FLAPS = 5
_LOST = re.compile(r"(?i)\b(?:lost carrier|link (?:is )?down)\b")
_DEVICE = re.compile(
    r"(?i)(?=\b([a-z][a-z0-9_.]{1,15})(?: \([^)]*\))?: (?:[\w-]+: )?(?:nic |device )?(?:lost carrier|link))"
)
"""Matches at each name, because the word before a colon can also be the program: `kernel: ib3: lost carrier`."""


_INTERFACES = {
    "infiniband": re.compile(r"^(?:ib\d+|ibp\w+|mlx5_\w+)$"),
    "gib": re.compile(r"^(?:gpu\d+rdma\d+|roce\w+|mlx5_\w+)$"),
    # The interface on bus 0, eth0 or enp0s12, is the host's own.
    **dict.fromkeys(("tcpx", "tcpxo"), re.compile(r"^(?:eth[1-9]\d*|en[ps][1-9]\w*)$")),
}
"""Maps each fabric to its interface names. eth0, docker0 and the veth interfaces of containers can lose their carrier during normal operation."""


def rdma_ports(answers: Answers) -> list[dict[str, Any]]:
    """Return all RDMA ports, as the node program reads them from sysfs."""
    ports = result_of(answers, "ports", "gpuinfra.ports/1", "the list of RDMA ports", "ports")["ports"]
    for port in ports:
        if not isinstance(port, dict) or not isinstance(port.get("device"), str):
            raise Unreadable("the list of RDMA ports contains an invalid entry")
        if any(not (port.get(name) is None or isinstance(port[name], str)) for name in _TEXTS):
            raise Unreadable("port %s has a field that is not text" % shortened(port["device"], 40))
    return ports


_TEXTS = ("state", "physical", "rate", "layer", "link_downed", "key_0", "key_1")


def _judge_ports(found: list[dict[str, Any]], machine: Machine, unit: str) -> CheckOutcome:
    """Judge that every port is active, physically up and at its full rate."""
    wanted, rate = machine.fabric_devices, machine.fabric_device_gbps
    wrong = []
    for port in found:
        speed = re.match(r"^(\d+(?:\.\d+)?) Gb/sec", port.get("rate") or "")
        state, physical = (port.get(name) or "unknown" for name in ("state", "physical"))
        if (state, physical) != ("4: ACTIVE", "5: LinkUp"):
            wrong.append("%s is %s, %s" % (port["device"], shortened(state, 40), shortened(physical, 40)))
        elif speed is None or float(speed.group(1)) < rate:
            wrong.append("%s runs at %s of %g Gb/s" % (port["device"], shortened(port.get("rate") or "?", 40), rate))
    good = len(found) - len(wrong)
    if not wrong and len(found) != wanted:
        wrong.append("%d of %d %s are present" % (len(found), wanted, unit))
    return judged(good, wanted, wrong, unit)


class InfinibandPorts(Check):
    """Every InfiniBand port in the machine is active, physically up and at its full rate."""

    id, name = "N2", "infiniband_ports"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (fabric_of("infiniband"),)
    action = Action.REBOOT
    fault = FaultyPart.PORT
    probes = ("ports",)
    hint = "compare ibstat with a healthy node and reboot once; if a port stays down, the host is faulty: redeploy the node"
    source = (
        "Azure/azurehpc-health-checks: conf; leptonai/gpud: components/accelerator/nvidia/infiniband/threshold_default.go, and pull "
        "request 752: ibstat stops at a device that it cannot read"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[dict[str, Any]]:
        return [port for port in rdma_ports(answers) if port["layer"] == "InfiniBand"]

    def judge(self, found: list[dict[str, Any]], machine: Machine) -> CheckOutcome:
        if machine.fabric_provider != "infiniband":
            return skipped("the machine's fabric is not InfiniBand")
        return _judge_ports(found, machine, "ports")


class RdmaDevices(Check):
    """Every RDMA device of an A3 Ultra or A4 is present, and its port is active and at its full rate."""

    id, name = "N7", "rdma_devices"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (fabric_of("gib"),)
    action = Action.REBOOT
    fault = FaultyPart.PORT
    probes = ("ports",)
    hint = (
        "compare with lspci -d 15b3: and the MRDMA interfaces of the instance template; reboot once; "
        "if a port stays down, the host is faulty: recreate the instance"
    )
    source = (
        "Google: network bandwidth, https://docs.cloud.google.com/compute/docs/gpus/gpu-network-bandwidth; "
        "RDMA network profiles, https://docs.cloud.google.com/vpc/docs/rdma-network-profiles: eight MRDMA interfaces in one RoCE network"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[dict[str, Any]]:
        return [port for port in rdma_ports(answers) if port["layer"] == "Ethernet"]

    def judge(self, found: list[dict[str, Any]], machine: Machine) -> CheckOutcome:
        if machine.fabric_provider != "gib":
            return skipped("the machine's fabric is not RDMA over Ethernet")
        return _judge_ports(found, machine, "devices")


class EfaPorts(Check):
    """The port of every EFA device is active. libfabric also lists devices whose port is not."""

    id, name = "N11", "efa_ports"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (fabric_of("efa"),)
    action = Action.REBOOT
    fault = FaultyPart.PORT
    probes = ("ports",)
    hint = "read dmesg for efa lines and reboot once; if a port stays down, replace the node"
    source = "torvalds/linux: drivers/infiniband/hw/efa/efa_verbs.c, efa_query_port: a working device reports ACTIVE; its link layer is Unspecified"

    def parse(self, answers: Answers, machine: Machine) -> list[dict[str, Any]]:
        return [port for port in rdma_ports(answers) if port["layer"] not in ("InfiniBand", "Ethernet")]

    def judge(self, found: list[dict[str, Any]], machine: Machine) -> CheckOutcome:
        if machine.fabric_provider != "efa":
            return skipped("the machine's fabric is not EFA")
        wanted = machine.fabric_devices
        wrong = ["%s is %s" % (shortened(port["device"], 40), shortened(port["state"] or "unknown", 40))
                 for port in found if port["state"] != "4: ACTIVE"]  # fmt: skip
        good = len(found) - len(wrong)
        if not wrong and len(found) < wanted:
            wrong.append("%d of %d ports are present" % (len(found), wanted))
        return judged(good, wanted, wrong, "ports")


class NicFirmware(Check):
    """All RDMA adapters of the fabric have the same firmware."""

    id, name = "N12", "nic_firmware"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    when = (fabric_of("infiniband", "gib"),)
    probes = ("ports",)
    hint = "report the difference to the cloud's support: adapters with different firmware can differ in speed and behavior"
    source = "torvalds/linux: Documentation/ABI/stable/sysfs-class-infiniband (fw_ver); the same on all adapters of each recorded machine (tests/recordings)"

    def parse(self, answers: Answers, machine: Machine) -> list[Any]:
        layer = "InfiniBand" if machine.fabric_provider == "infiniband" else "Ethernet"
        return [port.get("firmware") for port in rdma_ports(answers) if port["layer"] == layer]

    def judge(self, found: list[Any], machine: Machine) -> CheckOutcome:
        if machine.fabric_provider not in ("infiniband", "gib"):
            return skipped("the machine's fabric has no adapters with firmware versions")
        if not found or not all(one is None or isinstance(one, str) for one in found):
            raise Unreadable("the list of RDMA ports contains no firmware versions")
        versions = sorted({shortened(one or "not reported", 40) for one in found})
        return judged(versions, "one version", [listed(versions)] if len(versions) > 1 else [])


class GoogleInterfaces(Check):
    """Every gVNIC in the machine type is on the PCI bus. TCPX and TCPXO send over four or eight gVNICs."""

    id, name = "N8", "gvnics"
    phase, severity = Phase.PRESENCE, Severity.BLOCK
    when = (several_gvnics,)
    action = Action.REBOOT
    fault = FaultyPart.PORT
    probes = ("gvnics",)
    hint = "compare with the network interfaces of the instance template; interfaces can be added only when an instance is created, so recreate it"
    source = "Google: network bandwidth, https://docs.cloud.google.com/compute/docs/gpus/gpu-network-bandwidth"

    def parse(self, answers: Answers, machine: Machine) -> list[str]:
        addresses = []
        for line in answers.raw("gvnics").stdout.splitlines():
            match = re.match(r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*\[(1ae0:[0-9a-f]{4})\]", line)
            if match is None:
                raise Unreadable("cannot parse a line of lspci: %s" % shortened(line, 80))
            if match.group(2) == "1ae0:0042":
                addresses.append(match.group(1))
        if not addresses:
            answers.text("gvnics")  # an empty list counts only if lspci succeeded
        return addresses

    def judge(self, found: list[str], machine: Machine) -> CheckOutcome:
        wanted = machine.gvnics
        where = ", ".join(found) or "none"
        return equal(
            len(found), wanted, "gVNICs", "%d of %d gVNICs are on the PCI bus: %s" % (len(found), wanted, where)
        )


class PartitionKeys(Check):
    """Every InfiniBand port has its tenant's partition key, and all ports have the same key.

    NCCL does not require the key, but MPI and UCX do. A port without the key cannot communicate.
    """

    id, name = "N9", "partition_keys"
    phase, severity = Phase.CORRECTNESS, Severity.WARN
    is_installation = True
    when = (fabric_of("infiniband"),)
    probes = ("ports",)
    hint = (
        "restart waagent and read /sys/class/infiniband/*/ports/1/pkeys; redeploy the node if a port still has no key"
    )
    source = "Azure: set up MPI, https://learn.microsoft.com/azure/virtual-machines/setup-mpi: one entry is 0x7fff, the other one has its highest bit set"

    def parse(self, answers: Answers, machine: Machine) -> dict[str, list[str]]:
        keys = {}
        for port in rdma_ports(answers):
            if port["layer"] == "InfiniBand":
                keys[port["device"]] = [key for key in (port["key_0"], port["key_1"]) if key is not None]
        return keys

    def judge(self, found: dict[str, list[str]], machine: Machine) -> CheckOutcome:
        if machine.fabric_provider != "infiniband":
            return skipped("the machine's fabric is not InfiniBand")
        wanted = machine.fabric_devices
        tenants: dict[str, str] = {}
        for device, keys in found.items():
            for key in keys:
                if not re.match(r"^0x[0-9a-f]{4}$", key):
                    raise Unreadable("%s has an invalid partition key: %s" % (device, shortened(key, 40)))
                if int(key, 16) & 0x8000 and key != "0xffff":
                    tenants[device] = key
        without = [device for device in found if device not in tenants]
        shown = sorted(set(tenants.values()))
        if without or len(found) != wanted:
            why = (
                "no tenant key on %s" % listed(without)
                if without
                else "%d of %d ports have a key" % (len(found), wanted)
            )
            return failed(len(tenants), wanted, why, "ports")
        if len(shown) != 1:
            return failed(len(shown), 1, "ports have different tenant keys: %s" % listed(shown), "keys")
        return passed(len(tenants), wanted, "ports")


class LinkFlaps(Check):
    """No fabric device has lost its link more than five times since boot."""

    id, name = "N6", "link_flaps"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (fabric_of("infiniband", "gib", "tcpx", "tcpxo"),)
    action = Action.REPLACE
    fault = FaultyPart.FABRIC
    probes = ("ports", "link-log", "kernel-log")
    hint = "drain the node and redeploy it: a flapping link slows down every job that uses it"
    source = (
        "Azure/azurehpc-health-checks: customTests/azure_ib_link_flapping.nhc; "
        "it counts per 24 hours, this check per boot, because the judge has no clock; "
        "the port's own counter is read as well as the logs, because logs may be rotated"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, int]:
        flaps: dict[str, int] = {}
        log = answers.lines("link-log")
        for line in log:
            if not re.match(r"^(?:-- |\d{4}-\d\d-\d\dT)", line):
                raise Unreadable("cannot parse a line of journalctl: %s" % shortened(line, 80))
        of_the_fabric = _INTERFACES.get(machine.fabric_provider)
        for line in [*kernel_log(answers), *log]:
            names = _DEVICE.findall(line) if _LOST.search(line) else []
            for name in dict.fromkeys(name for name in names if of_the_fabric and of_the_fabric.match(name)):
                flaps[name] = flaps.get(name, 0) + 1
        # Azure's Ethernet function goes down and up during host maintenance, so only the fabric's ports count.
        layer = "InfiniBand" if machine.fabric_provider == "infiniband" else "Ethernet"
        for port in rdma_ports(answers):
            count = port["link_downed"]
            if count is not None and port["layer"] == layer:
                if not re.match(r"^\d{1,20}$", count):
                    raise Unreadable(
                        "%s has an invalid link_downed counter: %s" % (port["device"], shortened(count, 40))
                    )
                flaps[port["device"]] = max(flaps.get(port["device"], 0), int(count))
        return flaps

    def judge(self, found: dict[str, int], machine: Machine) -> CheckOutcome:
        worst = max(found.values(), default=0)
        wrong = ["%s %d times" % (device, count) for device, count in sorted(found.items()) if count > MAX_FLAPS]
        if wrong:
            return failed(worst, MAX_FLAPS, "link lost: %s" % listed(wrong), "at most")
        return passed(worst, MAX_FLAPS, "at most")


class RdmaErrors(Check):
    """No fabric device counts errors: time-outs and retransmissions of EFA and RoCE, symbol errors and recoveries of InfiniBand. A few are a warning."""

    id, name = "N10", "rdma_errors"
    phase, severity = Phase.CORRECTNESS, Severity.DRAIN
    when = (fabric_of("efa", "infiniband", "gib"),)
    action = Action.REPLACE
    fault = FaultyPart.FABRIC
    may_warn = True
    probes = ("ports",)
    hint = "compare the counters of all nodes (rdma statistic show); replace the node if they rise on one node only"
    source = (
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 6 (retrans_timeout_events must be 0); "
        "a public incident with 1,011 and 1,832 time-outs on two EFA devices, in which bulk writes failed (retrieved 2026-11)"
    )

    def parse(self, answers: Answers, machine: Machine) -> dict[str, dict[str, int]]:
        errors_of_device: dict[str, dict[str, int]] = {}
        for port in rdma_ports(answers):
            errors = port.get("errors")
            if not isinstance(errors, dict):
                raise Unreadable("port %s has no list of errors" % shortened(port["device"], 40))
            for name, value in errors.items():
                if not isinstance(value, str) or not re.match(r"^\d{1,20}$", value):
                    raise Unreadable(
                        "%s has an invalid counter %s" % (shortened(port["device"], 40), shortened(name, 40))
                    )
                errors_of_device.setdefault(port["device"], {})[name] = int(value)
        return errors_of_device

    def judge(self, found: dict[str, dict[str, int]], machine: Machine) -> CheckOutcome:
        many = ["%s: %s %d" % (device, shortened(name, 40), count) for device, errors in sorted(found.items())
                for name, count in errors.items() if count > _MAX_ERRORS.get(name, 10**5)]  # fmt: skip
        if many:
            return failed(len(many), 0, listed(many), "counters")
        few = ["%s: %s %d" % (device, shortened(name, 40), count) for device, errors in sorted(found.items())
               for name, count in errors.items()]  # fmt: skip
        return warned(len(few), 0, listed(few), "counters") if few else passed(0, 0, "counters")


_MAX_ERRORS = {
    "retrans_timeout_events": 500, "unresponsive_remote_events": 500, "retrans_pkts": 10**4, "local_ack_timeout_err": 500,
    "link_error_recovery": MAX_FLAPS, "symbol_error": 500,
}  # fmt: skip
"""Numbers since boot that drain a node: gpuinfra's own values, half of the lowest ones of the incident. Jobs that end abruptly leave a few time-outs."""
