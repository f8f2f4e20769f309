"""What a person does after a rehearsal that failed, before trying again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuinfra.rehearsal.folder import Folder

DEFAULT_FOLDER = Path(".rehearsal")
_PASSING = re.compile(
    r"StatusCode: 5\d\d|ServiceUnavailable|InternalError|InternalFailure|Throttl|RequestLimitExceeded|TooManyRequests"
    r"|timed? ?out|timeout|connection reset|connection refused",
    re.IGNORECASE,
)
"""What clouds say of a failure that is theirs and passes."""


_GOES_ON = "what is made stays, and it goes on from there. If it repeats, engine.log beside the report holds all that the engine said"


def what_to_do(text: str) -> str:
    """The advice under an error about one resource: what is made stays in the state, so the same command goes on from there."""
    if _PASSING.search(text):
        return (
            "this failure may pass: run the same command again; what is made stays, and it goes on from there. "
            "If it repeats, look at the health of the cloud's service and at the end of engine.log beside the report"
        )
    if "VirtualMachineScaleSet" in text:
        # Azure fails the set itself, where other clouds' groups come up empty and the handover says why.
        from gpuinfra.handover.azure import classify
        from gpuinfra.handover.explain import PROBLEM_HINTS

        if (kind := classify(text)) != "other":
            return f"{PROBLEM_HINTS[kind]}; {_GOES_ON}"
    return f"mend what the text above names, then run the same command again; {_GOES_ON}"


def broken_nodes(folder: Folder, place: Path, nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """One line where nodes that failed were made broken by `--fault`: without it, a person would wait for them to mend."""
    broken = []
    for node in nodes:
        faults = faults_of(folder, str(node["instance_id"])) if node["outcome"] != "verified" else []
        if faults:
            broken.append(f"{node['label']} ({', '.join(faults)})")
    if not broken:
        return ()
    stack = shlex.quote(folder.stack)
    where = "" if place == DEFAULT_FOLDER else f" --folder {shlex.quote(str(place))}"
    line = (
        f"broken by --fault, and broken until replaced, as hardware is: {', '.join(broken)}; for new nodes: "
        f"gpuinfra rehearse destroy {stack}{where}, then gpuinfra rehearse up {stack}{where} without that --fault"
    )
    return (line,)


def faults_of(folder: Folder, instance_id: str) -> list[str]:
    """What a stand-in node was made with; nothing for one whose folder is gone."""
    try:
        state = json.loads((folder.ground / "nodes" / instance_id / "standin.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    faults = state.get("faults") if isinstance(state, dict) else None
    return [str(fault) for fault in faults] if isinstance(faults, list) else []
