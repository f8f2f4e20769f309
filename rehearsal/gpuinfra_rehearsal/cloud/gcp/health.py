"""Health checks of managed instance groups: the probes, and the condition for which a rolling update waits.

Descriptions of `autoHealingPolicies` and `maxUnavailable` in the Compute Engine API discovery document, retrieved
2026-11-22: with a health check on the group, an instance is available when its health was HEALTHY at least once.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from ipaddress import IPv4Network, ip_network
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core.interfaces import Instance
from gpuinfra_rehearsal.cloud.gcp.ids import path_of
from gpuinfra_rehearsal.nodes import endpoints

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

CHECK = "gcp:compute/healthCheck:HealthCheck"
_FIREWALL = "gcp:compute/firewall:Firewall"
_PROBERS = (IPv4Network("35.191.0.0/16"), IPv4Network("130.211.0.0/22"))
_ASK_S = 1.0
"""Interval between two probes of a machine."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_asked: dict[str, float] = {}


def available(cloud: Cloud, group: Resource, instance: Instance) -> bool:
    """Return whether a rolling update counts a machine as available."""
    return cloud.fleet.host is None or not group.plain.get("autoHealingPolicies") or bool(instance.get("healthy"))


def probe(cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
    """Probe the machines of a group that were never healthy."""
    policy = group.plain.get("autoHealingPolicies") or {}
    check = cloud.store.find(CHECK, path_of(str(policy.get("healthCheck") or ""))) if policy else None
    http = (check.plain.get("httpHealthCheck") or {}) if check else {}
    if cloud.fleet.host is None or not http:
        return
    port = int(http.get("port") or 80)
    for instance in have:
        if instance.get("healthy") or time.time() - _asked.get(instance["id"], 0.0) < _ASK_S:
            continue
        _asked[instance["id"]] = time.time()
        if not _admitted(cloud.store, instance, port) or not _answers(
            cloud, instance["id"], port, str(http.get("requestPath"))
        ):
            continue
        with cloud.store.change():
            now = cloud.store.get("instance", instance["id"])
            if now is not None and now["state"] != "terminated":
                cloud.store.put("instance", instance["id"], {**now, "healthy": True})


def _admitted(store: Store, instance: Instance, port: int) -> bool:
    """Return whether firewall rules allow the probes: an ingress rule for both source ranges, this port and this
    machine's account."""
    return any(
        all(_covers(rule.get("sourceRanges") or [], prober) for prober in _PROBERS)
        and any(
            allow.get("protocol") == "tcp" and str(port) in (allow.get("ports") or [str(port)])
            for allow in rule.get("allows") or []
        )
        and instance["account"] in (rule.get("targetServiceAccounts") or [instance["account"]])
        for rule in (found.plain for found in store.list(_FIREWALL))
        if rule.get("direction") == "INGRESS"
    )


def _covers(ranges: Sequence[Any], prober: IPv4Network) -> bool:
    return any(prober.subnet_of(network) for one in ranges if isinstance(network := ip_network(str(one)), IPv4Network))


def _answers(cloud: Cloud, id: str, port: int, path: str) -> bool:
    address = endpoints.health_address(cloud.endpoint, id)
    try:
        with _OPENER.open(f"http://{address}:{port}{path}", timeout=1) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False
