"""`gpuinfra rehearse life`: a whole life of a cluster, each step with what has to be seen.

up, up again, one node more, drift, a replaced node, destroy, up again. A step that does not show what it has to ends the
life: what follows would only tell about the same defect again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuinfra.handover import wire
from gpuinfra.inventory import handovers_of, nodes_of
from gpuinfra.rehearsal.engine import Operation
from gpuinfra.rehearsal.folder import edit_stack
from gpuinfra.rehearsal.report import changes_text
from gpuinfra.rehearsal.retained import remembered
from gpuinfra.rehearsal.run import Result, finish, perform, problems_of
from gpuinfra.rehearsal.session import Session

DRIFT_TAG = "changed-by-hand"
REPLACE_TIMEOUT_S = 60.0


class Broken(Exception):
    """A step did not show what it has to."""


@dataclass
class _Life:
    session: Session
    steps: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def declares_nodes(self) -> bool:
        """Whether there is a handover: a layer below the cluster has none, and what Python declares is taken to have one."""
        plan = self.session.plan()
        return plan is None or bool(plan.pools)

    def step(self, name: str, do: Callable[[], str]) -> None:
        """Do one step and write down what was seen."""
        begun = time.monotonic()
        try:
            found, ok = do(), True
        except Broken as error:
            found, ok = str(error), False
        self.steps.append({"step": name, "ok": ok, "found": found, "seconds": round(time.monotonic() - begun, 1)})
        self.session.view.line(f"{'ok    ' if ok else 'FAILED'} {name}: {found}")
        if not ok:
            self.problems.append(f"{name}: {found}")
            raise Broken

    def engine(self, action: str) -> Operation:
        """One action of the engine that has to succeed."""
        operation = perform(self.session, action)
        if not operation.ok:
            raise Broken("\n".join(problems_of(operation)))
        return operation


def live(session: Session) -> Result:
    """The life, and its report."""
    life = _Life(session)
    rehearsed = session.cloud.nodes_available()[0]
    steps: list[tuple[str, Callable[[], str]]] = [
        ("preview", lambda: _preview(life)),
        ("up", lambda: _up(life)),
        ("up again", lambda: _up_again(life)),
    ]
    if life.declares_nodes:
        steps.append(("one node more", lambda: _one_more(life)))
    steps.append(("drift made by hand", lambda: _drift(life)))
    if rehearsed and life.declares_nodes:
        steps.append(("a node replaced by its group", lambda: _replaced(life)))
    steps += [("destroy", lambda: _destroy(life)), ("up again after destroy", lambda: _up_after_destroy(life))]
    try:
        for name, do in steps:
            life.step(name, do)
    except Broken:
        pass
    ok = not life.problems
    return finish(session, "life", ok=ok, problems=tuple(life.problems), extra={"life": life.steps})


def _preview(life: _Life) -> str:
    before = len(life.session.cloud.resources())
    operation = life.engine("preview")
    held = len(life.session.cloud.resources())
    if held != before:
        raise Broken(f"a preview changed the cloud: {before} resources before, {held} after")
    counts = operation.progress.summary or {}
    return f"{counts.get('create', 0)} to create, nothing was made"


def _up(life: _Life) -> str:
    operation = life.engine("up")
    return f"{(operation.progress.summary or {}).get('create', 0)} created; {_verified(life)}"


def _up_again(life: _Life) -> str:
    before = _journals(life)
    operation = life.engine("up")
    if operation.progress.changes:
        raise Broken(f"the second up changed something: {changes_text(operation.progress.changed)}")
    if _journals(life) != before:
        raise Broken("the second up touched a node: its journal or boot changed")
    return f"no changes, no node touched; {_verified(life)}"


def _one_more(life: _Life) -> str:
    if life.session.loaded is None:
        return "not rehearsed: the declaration is not in the stack file"
    before = _journals(life)
    edit_stack(life.session.folder, _add_node)
    life.session.reload()
    life.engine("up")
    after = _journals(life)
    touched = [name for name, journal in before.items() if after.get(name) != journal]
    if touched:
        raise Broken(f"a node more touched the nodes that were there: {', '.join(touched)}")
    if len(after) != len(before) + 1 and life.session.cloud.nodes_available()[0]:
        raise Broken(f"there were {len(before)} nodes, now there are {len(after)}")
    return f"{len(before)} nodes became {len(after)}, the others untouched; {_verified(life)}"


def _add_node(declaration: dict[str, Any]) -> None:
    """One more in the last capacity entry of the first pool."""
    pool = declaration["pools"][0]
    entry = pool["capacity"][-1] if isinstance(pool.get("capacity"), list) else pool.get("capacity")
    if isinstance(entry, dict) and "count" in entry:
        entry["count"] += 1
    else:
        pool["count"] = int(pool.get("count", 1)) + 1


def _drift(life: _Life) -> str:
    target = _taggable(life.session.pulumi.resources())
    if target is None:
        raise Broken("no resource with tags or labels was found to change by hand")
    outputs = target.get("outputs") or {}
    field = "labels" if _marked(target, "labels") else "tags"
    marks = {**(outputs.get(field) or {}), DRIFT_TAG: "yes"}
    # What the provider adds of its own beside them moves along, as in the cloud.
    change = {name: marks for name in (field, "tagsAll") if name == field or name in outputs}
    life.session.cloud.ask("drift", {"type": target["type"], "id": target["id"], "set": change})
    refresh = life.engine("refresh")
    urn = str(target["urn"])
    if urn not in [changed for _, changed in refresh.progress.changed]:
        raise Broken(f"refresh did not find that {urn.split('::')[3]} was changed by hand")
    mended = life.engine("up")
    if urn not in [changed for _, changed in mended.progress.changed]:
        raise Broken(f"up did not put {urn.split('::')[3]} back")
    return f"refresh found {changes_text(refresh.progress.changed)}; up put it back"


def _taggable(resources: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A resource that a hand may change without moving a node: the network's own, or a bucket."""
    preferred = (
        "aws:ec2/vpc:Vpc",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
        "azure-native:network:VirtualNetwork",
        "gcp:storage/bucket:Bucket",
    )
    tagged = [r for r in resources if r.get("custom") and (_marked(r, "tags") or _marked(r, "labels"))]
    return next((r for kind in preferred for r in tagged if r["type"] == kind), tagged[0] if tagged else None)


def _marked(resource: Mapping[str, Any], field: str) -> bool:
    """Whether it carries tags, or labels as Google calls them."""
    return isinstance((resource.get("inputs") or {}).get(field), dict)


def _replaced(life: _Life) -> str:
    cloud = life.session.cloud
    nodes = [n for n in cloud.nodes() if n.get("state") == "running"]
    victim = nodes[0]
    cloud.ask("terminate", {"instance_id": victim["instance_id"]})
    limit = time.monotonic() + REPLACE_TIMEOUT_S
    while time.monotonic() < limit:
        now = {n["instance_id"] for n in cloud.nodes() if n.get("state") == "running"}
        if len(now) >= len(nodes) and victim["instance_id"] not in now:
            break
        time.sleep(0.2)
    else:
        raise Broken(f"the group of {victim['label']} did not replace it within {REPLACE_TIMEOUT_S:.0f} s")
    refresh = life.engine("refresh")
    if not any(wire.TYPE in urn for _, urn in refresh.progress.changed):
        raise Broken("refresh did not show the replaced node as drift")
    life.engine("up")
    text = _verified(life)
    here = {node.id for node in nodes_of(life.session.pulumi.resources())}
    if victim["instance_id"] in here or not now & here:
        raise Broken("the handover still counts the node that is gone")
    return f"{victim['label']} ({victim['instance_id']}) was lost; refresh showed it, its replacement earned its place; {text}"


def _destroy(life: _Life) -> str:
    life.engine("destroy")
    kept = remembered(life.session.folder)
    allowed = {(t.type, t.id) for t in kept}
    left = [r for r in life.session.cloud.resources() if (str(r["type"]), str(r["id"])) not in allowed]
    if left:
        raise Broken(
            f"destroy left what is not on the keep list: {', '.join(str(r.get('name') or r['id']) for r in left[:8])}"
        )
    state = life.session.pulumi.resources()
    if state:
        raise Broken(f"the state still holds {len(state)} resources")
    nodes = [n for n in life.session.cloud.nodes() if n.get("state") == "running"]
    if nodes:
        raise Broken(f"{len(nodes)} nodes still run")
    for thing in kept:
        life.session.view.line(f"kept on purpose: {thing.name} ({thing.type}, {thing.id})")
    return f"nothing is left but {len(kept)} things that are kept on purpose"


def _up_after_destroy(life: _Life) -> str:
    kept = {(t.type, t.id) for t in remembered(life.session.folder)}
    life.engine("up")
    state = {(str(r["type"]), str(r.get("id"))) for r in life.session.pulumi.resources()}
    lost = kept - state
    if lost:
        raise Broken(f"not taken back: {', '.join(identity for _, identity in sorted(lost))}")
    return f"{len(kept)} kept things taken back; {_verified(life)}"


def _gate(life: _Life) -> Mapping[str, Any]:
    gates = handovers_of(life.session.pulumi.resources())
    return gates[0].get("outputs") or {} if gates else {}


def _verified(life: _Life) -> str:
    """The handover's own word, which has to be that all are verified."""
    if not life.declares_nodes:
        return "no nodes are declared"
    gate = _gate(life)
    if not life.session.cloud.nodes_available()[0]:
        return "the nodes are not rehearsed on this system"
    if gate.get("ready") is not True:
        raise Broken(f"the nodes are not ready: {gate.get('summary', 'there is no NodesReady in the state')}")
    return str(gate.get("summary", ""))


def _journals(life: _Life) -> dict[str, str]:
    """Instance id -> boot id and journal of a running node, to see whether anybody touched it."""
    folder = life.session.folder.ground / "nodes"
    found: dict[str, str] = {}
    for node in life.session.cloud.nodes():
        if node.get("state") == "running":
            journal = folder / str(node["instance_id"]) / "root" / "var" / "lib" / "gpuinfra" / "state.json"
            found[str(node["instance_id"])] = journal.read_text(encoding="utf-8") if journal.is_file() else ""
    return found
