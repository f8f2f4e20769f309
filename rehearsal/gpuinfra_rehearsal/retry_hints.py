"""Hints on what to do before you rerun a failed rehearsal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuinfra.cli.rehearsals import DEFAULT_FOLDER
from gpuinfra_rehearsal.folder import Folder

_TRANSIENT = re.compile(
    r"StatusCode: 5\d\d|ServiceUnavailable|InternalError|InternalFailure|Throttl|RequestLimitExceeded|TooManyRequests"
    r"|timed? ?out|timeout|connection reset|connection refused",
    re.IGNORECASE,
)
"""Matches the messages of temporary cloud failures."""

_CONTINUES = "created resources remain, and the next run continues with the other resources. If it fails again, read engine.log next to the report"


def hint_for(error: str) -> str:
    """Return the hint for an error that concerns one resource. Created resources remain in the state, so the same command continues."""
    if _TRANSIENT.search(error):
        return (
            "the failure may be temporary: run the same command again; created resources remain, and the run continues from "
            "there. If it fails again, check the status page of the cloud's service and read engine.log next to the report"
        )
    if "VirtualMachineScaleSet" in error:
        # Azure reports the failure on the scale set itself. On other clouds, the groups stay empty, and the handover
        # reports the reason.
        from gpuinfra.clouds.azure.handover.ports import REFUSALS
        from gpuinfra.handover.causes import CapacityCause

        if (refusal := REFUSALS.of(error)).cause is not CapacityCause.UNKNOWN:
            return f"{refusal.hint}; {_CONTINUES}"
    return f"fix the cause in the error above and run the same command again; {_CONTINUES}"


def broken_nodes(folder: Folder, rehearsals: Path, nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return one line if failed nodes have faults from `--fault`, because another `up` without the fault also fails."""
    broken = []
    for node in nodes:
        faults = faults_of(folder, str(node["instance_id"])) if node["outcome"] != "verified" else []
        if faults:
            broken.append(f"{node['label']} ({', '.join(faults)})")
    if not broken:
        return ()
    stack = shlex.quote(folder.stack)
    where = "" if rehearsals == DEFAULT_FOLDER else f" --folder {shlex.quote(str(rehearsals))}"
    line = (
        f"these nodes stay broken until they are replaced, as with real hardware: {', '.join(broken)}; to get new nodes, run "
        f"gpuinfra rehearse destroy {stack}{where}, then gpuinfra rehearse up {stack}{where} without the fault"
    )
    return (line,)


_REFUSING = ("cloud:no-capacity", "cloud:no-quota", "cloud:limited", "cloud:refused")
"""Faults that last until a run does not have them."""


def refused_nodes(folder: Folder, rehearsals: Path, faults: Iterable[str]) -> tuple[str, ...]:
    """Return one line if a failed run had faults with which the cloud refuses nodes. Hints of the handover are about a cloud without capacity."""
    given = [f"--fault {fault}" for fault in faults if fault.startswith(_REFUSING)]
    if not given:
        return ()
    where = "" if rehearsals == DEFAULT_FOLDER else f" --folder {shlex.quote(str(rehearsals))}"
    line = (
        f"the stand-in cloud refused nodes because of {' '.join(given)}; to continue with these resources, run "
        f"gpuinfra rehearse up {shlex.quote(folder.stack)}{where} without the fault"
    )
    return (line,)


def faults_of(folder: Folder, instance_id: str) -> list[str]:
    """Return the faults of a stand-in node. The result is empty if the node's folder no longer exists."""
    try:
        state = json.loads((folder.base / "nodes" / instance_id / "standin.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    faults = state.get("faults") if isinstance(state, dict) else None
    return [str(fault) for fault in faults] if isinstance(faults, list) else []


def ineffective_faults(folder: Folder, rehearsals: Path, faults: Iterable[str]) -> tuple[str, ...]:
    """Return the problem with faults that had no effect. A node gets its faults when it is launched, and the cloud refuses only new requests."""
    missed = list(faults)
    if not missed:
        return ()
    stack = shlex.quote(folder.stack)
    where = "" if rehearsals == DEFAULT_FOLDER else f" --folder {shlex.quote(str(rehearsals))}"
    problem = (
        f"--fault {', --fault '.join(missed)} had no effect, because the rehearsal already had the nodes and resources\n"
        f"  what to do: run gpuinfra rehearse destroy {stack}{where}, then the same command again"
    )
    return (problem,)
