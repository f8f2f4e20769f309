"""Upgrades of a scale set's machines to a new model, in place.

Azure's own rules, retrieved 2026-11-21
(https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-upgrade-policy,
.../virtual-machine-scale-sets-configure-rolling-upgrades,
https://learn.microsoft.com/azure/virtual-machines/custom-data):

- `Manual` does not upgrade any machine, `Automatic` upgrades all machines at once, and `Rolling` upgrades one batch
  at a time, after the previous batch is healthy.
- A machine gets a new disk only if the image, disk or size changes. Custom data is read when the disk is created.
- The agent on a machine runs a script extension once for each version of its settings, including the first version,
  after cloud-init.
- The upgrade of a machine ends when its extensions finish. Health that the machine reports earlier applies to its old
  model.
- If the model has the health extension, the machine reports its health. A machine that does not respond is `Unknown`,
  which is not healthy.

Here, a machine that is not healthy after PATIENCE_S counts as unhealthy. Azure waits longer.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import threading
import time
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.node.health import PATH, PORT
from gpuinfra_rehearsal.cloud.azure.model import brought_to, disk_of, model_hash, provisioned
from gpuinfra_rehearsal.cloud.core.interfaces import Instance
from gpuinfra_rehearsal.nodes import endpoints
from gpuinfra_rehearsal.nodes.node import NotRunning

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

PATIENCE_S = 120.0
SCRIPT_LIMIT_S = 900.0
_ASK_S = 1.0
"""Interval between two reads of a machine's health."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_running: set[str] = set()
_asked: dict[str, float] = {}


def tend(cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
    """Run one round over a scale set's machines."""
    for instance in have:
        _run_agent(cloud, instance)
        _read_health(cloud, instance)
    _roll(cloud, group, [cloud.store.get("instance", one["id"]) or one for one in have])


def problems(store: Store, group: Resource) -> list[tuple[str, str, float]]:
    """Return (code, message, time) of a stopped upgrade."""
    mark = store.get("azure-upgrade", group.id)
    return [(mark["code"], mark["message"], mark["at"])] if mark and mark.get("code") else []


def _roll(cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
    inputs = group.plain
    wanted = model_hash(inputs)
    old = [one for one in have if one["model"] != wanted]
    mark = cloud.store.get("azure-upgrade", group.id)
    if mark and mark["model"] != wanted:
        cloud.store.drop("azure-upgrade", group.id)
        mark = None
    policy = inputs.get("upgradePolicy") or {}
    mode = policy.get("mode", "Manual")
    if not old or mode == "Manual" or (mark and mark.get("code")):
        return
    if mode == "Automatic":
        for instance in old:
            bring(cloud, group, instance)
        return
    rules = policy.get("rollingUpgradePolicy") or {}
    begun = mark["at"] if mark else time.time()
    if mark is None:
        cloud.store.put("azure-upgrade", group.id, {"model": wanted, "at": begun})
    done = [one for one in have if one["model"] == wanted and one.get("brought", 0) >= begun]
    waiting = [one for one in done if not _is_healthy(cloud, one)]
    late = [one for one in waiting if _is_late(one)]
    if waiting and len(late) < len(waiting):
        return
    share = int(rules.get("maxUnhealthyUpgradedInstancePercent", 20))
    if late and len(late) * 100 > share * len(done):
        text = (
            f"Rolling Upgrade failed after exceeding the MaxUnhealthyUpgradedInstancePercent value defined in the RollingUpgradePolicy: "
            f"{len(late)} of {len(done)} upgraded instances are unhealthy, allowed are {share} percent."
        )
        failed = {"model": wanted, "at": time.time(), "message": text}
        cloud.store.put("azure-upgrade", group.id, {**failed, "code": "MaxUnhealthyUpgradedInstancePercentExceededInRollingUpgrade"})  # fmt: skip
        return
    size = max(1, len(have) * int(rules.get("maxBatchInstancePercent", 20)) // 100)
    if rules.get("prioritizeUnhealthyInstances"):
        old.sort(key=lambda one: (one.get("health") == "Healthy", one["index"]))
    for instance in old[:size]:
        bring(cloud, group, instance)


def bring(cloud: Cloud, group: Resource, instance: Instance) -> None:
    """Upgrade one machine to the set's model, with a new disk if required."""
    inputs = group.plain
    fresh = instance["disk"] != disk_of(inputs)
    with cloud.store.change():
        now = cloud.store.get("instance", instance["id"])
        if now is None or now["state"] == "terminated":
            return
        now |= brought_to(inputs) | {"brought": time.time(), "health": "Unknown"}
        now["tags"] = {key: str(value) for key, value in (inputs.get("tags") or {}).items()}
        if fresh:
            now |= provisioned(inputs) | {"agent": None, "new_disk": True}
        cloud.store.put("instance", instance["id"], now)
        cloud.store.log(
            "reimage" if fresh else "upgrade", group.type, f"{group.id}/virtualMachines/{instance['index']}", ""
        )
    if fresh:
        cloud.fleet.reimage(instance["id"])


def _is_healthy(cloud: Cloud, instance: Instance) -> bool:
    """Return whether an upgrade can continue after this machine. Always true without a health extension or without
    nodes."""
    return cloud.fleet.host is None or (
        _script_ended(instance) and (not instance["reports_health"] or instance.get("health") == "Healthy")
    )


def _is_late(instance: Instance) -> bool:
    """Return whether an upgrade stops waiting for this machine, because its script did not exit or the machine is
    unhealthy afterward."""
    if not _script_ended(instance):
        return time.time() - instance["brought"] > SCRIPT_LIMIT_S
    begun = max(instance["brought"], (instance.get("agent") or {}).get("at", 0.0))
    return instance.get("health") == "Unhealthy" or time.time() - begun > PATIENCE_S


def _script_ended(instance: Instance) -> bool:
    """Return whether the model's script has ended on the machine, with any result."""
    return not instance["script"] or (instance.get("agent") or {}).get("script") == _mark(instance["script"])


def _mark(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


def _run_agent(cloud: Cloud, instance: Instance) -> None:
    """Run the script of the machine's model, unless it has already run on this machine."""
    if cloud.fleet.host is None or not instance["script"] or instance["id"] in _running:
        return
    mark = _mark(instance["script"])
    if (instance.get("agent") or {}).get("script") == mark:
        return
    _running.add(instance["id"])
    threading.Thread(target=_run, args=(cloud, instance["id"], instance["script"], mark), daemon=True).start()


def _run(cloud: Cloud, id: str, script: str, mark: str) -> None:
    try:
        try:
            text = base64.b64decode(script, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            _record_result(cloud.store, id, mark, 1, f"settings.script is not base64-encoded text: {error}")
            return
        try:
            code, output = cloud.fleet.host.run(id, ["bash", "-c", text], SCRIPT_LIMIT_S)  # pyright: ignore[reportOptionalMemberAccess]
        except KeyError:
            return
        except NotRunning:
            # The machine is not yet up, or went down in the meantime. The agent runs a script once per machine.
            time.sleep(0.5)
            return
        except (RuntimeError, OSError) as error:
            code, output = 1, str(error)
        _record_result(cloud.store, id, mark, code, output)
    finally:
        _running.discard(id)
        with contextlib.suppress(Exception):
            cloud.wake()


def _record_result(store: Store, id: str, mark: str, code: int, output: str) -> None:
    with store.change():
        now = store.get("instance", id)
        if now is not None:
            agent = {"script": mark, "code": code, "output": output[-2000:], "at": time.time()}
            store.put("instance", id, {**now, "agent": agent, "health": "Unknown"})
    _asked.pop(id, None)


def _read_health(cloud: Cloud, instance: Instance) -> None:
    """Read the machine's health, as the health extension does."""
    if (
        cloud.fleet.host is None
        or not instance["reports_health"]
        or time.time() - _asked.get(instance["id"], 0.0) < _ASK_S
    ):
        return
    _asked[instance["id"]] = time.time()
    health = _answer(cloud, instance["id"])
    if health == instance.get("health"):
        return
    with cloud.store.change():
        now = cloud.store.get("instance", instance["id"])
        if now is not None and now["state"] != "terminated":
            cloud.store.put("instance", instance["id"], {**now, "health": health})


def _answer(cloud: Cloud, id: str) -> str:
    address = endpoints.health_address(cloud.endpoint, id)
    try:
        with _OPENER.open(f"http://{address}:{PORT}{PATH}", timeout=1) as answer:
            health: Any = json.loads(answer.read(4096))
    except (OSError, ValueError):
        return "Unknown"
    state = health.get("ApplicationHealthState") if isinstance(health, dict) else None
    return state if state in ("Healthy", "Unhealthy") else "Unknown"
