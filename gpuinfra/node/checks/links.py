"""N: the speed of each fabric device."""

from __future__ import annotations

import math
from typing import Any, Mapping

from ..answer import Answers
from ..cause import Action, FaultyPart
from ..expectation import Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, shortened
from .base import Check, is_number, judged, result_of
from .conditions import fabric_of
from .speed import known_floor

SHARE = 0.8
"""Fraction of the node's median rate below which a device is weak if the machine has no floor. gpuinfra's own value: the devices in one node are identical."""


class LinkSpeed(Check):
    """Each fabric device reaches the machine's floor in a loopback test.

    If no floor is known, no device is much slower than the other devices."""

    id, name = "N5", "link_speed"
    phase, severity = Phase.SPEED, Severity.DRAIN
    when = (fabric_of("infiniband"),)
    action = Action.REBOOT
    fault = FaultyPart.FABRIC
    probes = ("links",)
    hint = "compare lspci -vv (LnkSta) and the counters of that device with the other devices; reboot, measure again, then redeploy the node"
    source = (
        "Azure/azurehpc-health-checks: check_ib_bw_gdr (ib_write_bw with GPU memory per adapter); "
        "awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 6 (fi_pingpong per EFA domain)"
    )

    def parse(self, answers: Answers, machine: Machine) -> list[dict[str, Any]]:
        document = result_of(answers, "links", "gpuinfra.links/1", "the output of the link test", "devices")
        for device in document["devices"]:
            rate = device.get("gbps") if isinstance(device, Mapping) else None
            if not isinstance(device, Mapping) or not isinstance(device.get("device"), str):
                raise Unreadable("the link test reports an entry without a device name")
            if rate is not None and not (is_number(rate) and 0 <= rate < math.inf):
                raise Unreadable("%s has an invalid rate" % shortened(device["device"], 40))
        return document["devices"]

    def judge(self, found: list[dict[str, Any]], machine: Machine) -> CheckOutcome:
        wanted = machine.fabric_devices
        if len(found) != wanted or not found:
            return failed(len(found), wanted, "%d of %d devices were measured" % (len(found), wanted), "devices")
        rates = sorted(one["gbps"] for one in found if one["gbps"] is not None)
        least = known_floor(machine, "N5")
        if least is None:
            least = round(SHARE * rates[len(rates) // 2], 2) if rates else 0.0
        wrong = []
        for device in found:
            name = shortened(device["device"], 40)
            counters = device.get("counters") or {}
            if device["gbps"] is None or device.get("problem"):
                wrong.append("%s: %s" % (name, shortened(str(device.get("problem") or "no rate"), 160)))
            elif device["gbps"] < least or least <= 0:
                wrong.append("%s: %.1f Gb/s" % (name, device["gbps"]))
            elif counters:
                wrong.append("%s: counters increased: %s" % (name, shortened(str(counters), 80)))
        slowest = rates[0] if rates else None
        return judged(slowest, least, wrong, "Gb/s")
