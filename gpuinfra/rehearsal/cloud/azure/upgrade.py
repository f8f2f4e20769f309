"""How machines of a scale set come to another model: one by one where they are, or not at all.

Azure's own rules, read 2026-11-21 (https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-upgrade-policy,
.../virtual-machine-scale-sets-configure-rolling-upgrades, https://learn.microsoft.com/azure/virtual-machines/custom-data):

- Manual changes nobody, Automatic everybody at once, Rolling a batch, and the next one when the batch is healthy.
- A machine gets a new disk only for another image, disk or size; its custom data are those of its disk's day.
- The agent on a machine runs a script extension once for each setting that the machine gets, the first one included, after cloud-init.
- A machine's upgrade is over when its extensions are: what it answers before its new script ended is an answer about its old model.
- Health is what the machine itself answers, where the model asks; a machine that does not answer is Unknown, which is not healthy.

Here a machine that is not healthy after PATIENCE_S stops the upgrade where the policy's share is passed; Azure waits longer.
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
from gpuinfra.rehearsal.cloud.azure.model import brought_to, disk_of, model_hash, provisioned
from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.interfaces import Instance
from gpuinfra.rehearsal.nodes import endpoints

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource, Store

PATIENCE_S = 120.0
SCRIPT_LIMIT_S = 900.0
_ASK_S = 1.0
"""How often a machine is asked how it is."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_running: set[str] = set()
_asked: dict[str, float] = {}


def tend(cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
    """One look at a scale set's machines."""
    for one in have:
        _agent(cloud, one)
        _ask(cloud, one)
    _roll(cloud, group, [cloud.store.get("instance", one["id"]) or one for one in have])


def problems(store: Store, group: Resource) -> list[tuple[str, str, float]]:
    """(code, text, when) of an upgrade that stopped."""
    mark = store.get("azure-upgrade", group.id)
    return [(mark["code"], mark["message"], mark["at"])] if mark and mark.get("code") else []


def _roll(cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
    inputs = wire.plain(group.inputs)
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
        for one in old:
            bring(cloud, group, one)
        return
    rules = policy.get("rollingUpgradePolicy") or {}
    begun = mark["at"] if mark else time.time()
    if mark is None:
        cloud.store.put("azure-upgrade", group.id, {"model": wanted, "at": begun})
    done = [one for one in have if one["model"] == wanted and one.get("brought", 0) >= begun]
    waiting = [one for one in done if not _well(cloud, one)]
    late = [one for one in waiting if _late(one)]
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
    for one in old[:size]:
        bring(cloud, group, one)


def bring(cloud: Cloud, group: Resource, one: Instance) -> None:
    """Bring one machine to the set's model, with a new disk where that is needed."""
    inputs = wire.plain(group.inputs)
    fresh = one["disk"] != disk_of(inputs)
    with cloud.store.change():
        now = cloud.store.get("instance", one["id"])
        if now is None or now["state"] == "terminated":
            return
        now |= brought_to(inputs) | {"brought": time.time(), "health": "Unknown"}
        now["tags"] = {key: str(value) for key, value in (inputs.get("tags") or {}).items()}
        if fresh:
            now |= provisioned(inputs) | {"agent": None}
        cloud.store.put("instance", one["id"], now)
        cloud.store.log("reimage" if fresh else "upgrade", group.type, f"{group.id}/virtualMachines/{one['index']}", "")
    if fresh:
        cloud.fleet.reimage(one["id"])


def _well(cloud: Cloud, one: Instance) -> bool:
    """Whether an upgrade may go on after this machine; where nobody asks, or nothing runs, there is nothing to wait for."""
    return cloud.fleet.host is None or (_given(one) and (not one["reports_health"] or one.get("health") == "Healthy"))


def _late(one: Instance) -> bool:
    """Whether an upgrade waits no longer for this machine: its script never ended, or it is ill after it."""
    if not _given(one):
        return time.time() - one["brought"] > SCRIPT_LIMIT_S
    begun = max(one["brought"], (one.get("agent") or {}).get("at", 0.0))
    return one.get("health") == "Unhealthy" or time.time() - begun > PATIENCE_S


def _given(one: Instance) -> bool:
    """Whether the machine has what its model's script brings, well or not."""
    return not one["script"] or (one.get("agent") or {}).get("script") == _mark(one["script"])


def _mark(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


def _agent(cloud: Cloud, one: Instance) -> None:
    """Run the script that the machine's model wants and that this machine was not given yet."""
    if cloud.fleet.host is None or not one["script"] or one["id"] in _running:
        return
    mark = _mark(one["script"])
    if (one.get("agent") or {}).get("script") == mark:
        return
    _running.add(one["id"])
    threading.Thread(target=_run, args=(cloud, one["id"], one["script"], mark), daemon=True).start()


def _run(cloud: Cloud, id: str, script: str, mark: str) -> None:
    try:
        try:
            text = base64.b64decode(script, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            _told(cloud.store, id, mark, 1, f"settings.script is not base64 of a text: {error}")
            return
        try:
            code, said = cloud.fleet.host.run(id, ["bash", "-c", text], SCRIPT_LIMIT_S)  # pyright: ignore[reportOptionalMemberAccess]
        except KeyError:
            return
        except (RuntimeError, OSError) as error:
            # The machine is not up yet, or went down in the middle; the agent gives a script to a machine once.
            if "does not run now" in str(error):
                time.sleep(0.5)
                return
            code, said = 1, str(error)
        _told(cloud.store, id, mark, code, said)
    finally:
        _running.discard(id)
        with contextlib.suppress(Exception):
            cloud.wake()


def _told(store: Store, id: str, mark: str, code: int, said: str) -> None:
    with store.change():
        now = store.get("instance", id)
        if now is not None:
            agent = {"script": mark, "code": code, "said": said[-2000:], "at": time.time()}
            store.put("instance", id, {**now, "agent": agent, "health": "Unknown"})
    _asked.pop(id, None)


def _ask(cloud: Cloud, one: Instance) -> None:
    """What the health extension does: ask the machine itself."""
    if cloud.fleet.host is None or not one["reports_health"] or time.time() - _asked.get(one["id"], 0.0) < _ASK_S:
        return
    _asked[one["id"]] = time.time()
    health = _answer(cloud, one["id"])
    if health == one.get("health"):
        return
    with cloud.store.change():
        now = cloud.store.get("instance", one["id"])
        if now is not None and now["state"] != "terminated":
            cloud.store.put("instance", one["id"], {**now, "health": health})


def _answer(cloud: Cloud, id: str) -> str:
    address = endpoints.health_address(cloud.endpoint, id)
    try:
        with _OPENER.open(f"http://{address}:{PORT}{PATH}", timeout=1) as answer:
            said: Any = json.loads(answer.read(4096))
    except (OSError, ValueError):
        return "Unknown"
    state = said.get("ApplicationHealthState") if isinstance(said, dict) else None
    return state if state in ("Healthy", "Unhealthy") else "Unknown"
