"""Detects drift in a deployed stack: compares the resources in the cloud with the state, and the nodes with their expectation.

`engine/refresh.py` compares the resources. For nodes, this module compares the evidence: versions, services, held packages, the bundle, and
the age of the evidence. Failed hardware is not drift; `judged.py` evaluates it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.engine.refresh import CloudChange
from gpuinfra.node.cause import Cause
from gpuinfra.node.checks import ALL
from gpuinfra.node.expectation import Machine
from gpuinfra.node.outcome import Broken, Unreadable
from gpuinfra.verification.judged import Judged
from gpuinfra.verification.read import NO_EVIDENCE, Absent

CLOUD, NODE = "cloud", "node"
INSTALLATION = frozenset(check.id for check in ALL.values() if check.is_installation)
"""Checks of software and settings. If one of them does not pass after the handover, the node has changed."""

NO_DRIFT = frozenset({Cause.NOT_REBOOTED, Cause.POOL_DIFFERS})
"""Causes of warnings that are no differences from the deployment: of each new node, and of nodes that `_versions` compares."""

EPOCH = re.compile(r"^\d+:")
"""The epoch in a Debian version. Ranges contain no epochs."""
STEPS = "sudo python3 /opt/gpuinfra/current/node.pyz steps --again && sudo systemctl start gpuinfra-recheck.service"
"""Reinstalls the bundle's software and uploads new evidence (`bootstrap/units/`)."""
RECHECK = "sudo systemctl start gpuinfra-recheck.service"


@dataclass(frozen=True, kw_only=True)
class FixCommands:
    """The commands that fix a difference. They contain the stack name."""

    restore: str
    """Restores the stack's cloud resources and waits for its nodes."""
    on_node: str
    """Runs a command on a node, with the placeholders `{node}` and `{command}`."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between the current state of a stack and what was deployed."""

    area: str
    """`cloud` or `node`."""
    name: str
    """Logical name of the resource, or label of the node."""
    id: str
    """ID of the resource or instance in the cloud."""
    kind: str
    """`changed` or `deleted` for a resource; `version`, `setting`, `refused`, `no evidence` or `not launched` for a node."""
    what: str
    """Property, package or check that differs."""
    recorded: str
    """Value that was deployed. Empty if there is none."""
    found: str
    """Current value. Empty if there is none."""
    reason: str
    fix: str
    """Command that fixes the difference."""


def of_cloud(
    changes: Iterable[CloudChange], commands: FixCommands, *, except_types: Iterable[str]
) -> Iterator[Difference]:
    """Return the differences in cloud resources. `except_types` are compared elsewhere."""
    skipped = frozenset(except_types)
    for change in changes:
        if change.type in skipped:
            continue
        common = {"area": CLOUD, "name": change.name, "id": change.id, "fix": commands.restore}
        if change.deleted:
            reason = f"the resource does not exist in the cloud ({change.type})"
            yield Difference(kind="deleted", what=change.type, recorded=change.id, found="", reason=reason, **common)
        for changed in change.properties:
            recorded, now_is = changed.recorded or "", changed.found or ""
            how = "was added" if not recorded else "was removed" if not now_is else "has a different value"
            yield Difference(
                kind="changed", what=changed.path, recorded=recorded, found=now_is,
                reason=f"{changed.path} {how} outside the stack ({change.type})", **common,
            )  # fmt: skip


def of_nodes(nodes: Iterable[Judged], absent: Iterable[Absent], commands: FixCommands) -> Iterator[Difference]:
    """Return the differences in nodes."""
    judged = tuple(nodes)
    usual = _usual_versions(judged)
    for node in judged:
        yield from _versions(node, usual, commands)
        yield from _settings(node, commands)
    for missing in absent:
        yield _without_evidence(missing, commands)


def _versions(node: Judged, usual: Mapping[tuple[str, str], str], commands: FixCommands) -> Iterator[Difference]:
    machine = Machine(node.expectation, None)
    locked = node.expectation.get("software")
    pins = {name: str(entry.get("pin") or "") for name, entry in locked.items()} if isinstance(locked, Mapping) else {}
    for package, version in _recorded(node).items():
        pin, others = pins.get(package), usual.get((_pool(node), package), version)
        # A pin such as 13.0 accepts each 13.0.x.
        if pin is not None and version != pin and not version.startswith(f"{pin}."):
            try:
                machine.inside_range(package, EPOCH.sub("", version))
            except (Broken, Unreadable) as problem:
                yield _difference(node, "version", package, pin, version, str(problem), commands)
                continue
        if version != others and (pin is not None or package == "kernel"):
            reason = f"{package} is {version}, but {others} on most nodes of the pool"
            yield _difference(node, "version", package, others, version, reason, commands)


def _settings(node: Judged, commands: FixCommands) -> Iterator[Difference]:
    """Return the checks of the installation that did not pass. Checks with the same reason are one difference."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for check in node.checks:
        if check["cause"] in NO_DRIFT:
            continue
        if check["id"] in INSTALLATION and check["outcome"] in ("warn", "fail", "error"):
            groups.setdefault(str(check.get("reason") or ""), []).append(check)
    for reason, checks in groups.items():
        what = " ".join([*(str(check["id"]) for check in checks), str(checks[0]["name"])])
        text = reason or str(checks[0].get("hint") or "")
        expected, shown = (_plain(checks[0].get(key)) for key in ("expected", "found"))
        yield _difference(node, "setting", what, expected, shown, text, commands)


def _difference(
    node: Judged, kind: str, what: str, recorded: str, found: str, reason: str, commands: FixCommands
) -> Difference:
    return Difference(
        area=NODE, name=node.evidence.label, id=node.instance_id, kind=kind, what=what, recorded=recorded, found=found,
        reason=reason, fix=commands.on_node.format(node=node.evidence.label, command=STEPS),
    )  # fmt: skip


def _without_evidence(absent: Absent, commands: FixCommands) -> Difference:
    here = bool(absent.instance_id) and absent.outcome == NO_EVIDENCE
    fix = commands.on_node.format(node=absent.name, command=RECHECK) if here else commands.restore
    return Difference(
        area=NODE, name=absent.name, id=absent.instance_id, kind=absent.outcome, what="evidence", recorded="", found="",
        reason=f"{absent.reason}; {absent.hint}", fix=fix,
    )  # fmt: skip


def _usual_versions(nodes: Iterable[Judged]) -> dict[tuple[str, str], str]:
    """Return the most common version of each package in each pool."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for node in nodes:
        for package, version in _recorded(node).items():
            counts.setdefault((_pool(node), package), Counter())[version] += 1
    return {place: max(sorted(found), key=found.__getitem__) for place, found in counts.items()}


def _recorded(node: Judged) -> dict[str, str]:
    state = node.evidence.document.get("state")
    recorded = state.get("recorded") if isinstance(state, Mapping) else None
    return {str(k): v for k, v in recorded.items() if isinstance(v, str)} if isinstance(recorded, Mapping) else {}


def _pool(node: Judged) -> str:
    return str(node.evidence.document.get("pool") or "")


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)
