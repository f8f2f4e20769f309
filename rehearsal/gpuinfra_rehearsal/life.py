"""`gpuinfra rehearse life`: the life cycle of a cluster as a series of steps, each with an expected effect.

The steps are preview, up, up again, add a node, drift, replace a node, repair a node, destroy, adopt, and up after destroy. A step without the expected
effect stops the run, because the later steps would report the same defect.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from gpuinfra.clouds.adopt import Key, Retained
from gpuinfra.inventory import handovers_of, nodes_of
from gpuinfra.node.probes import REPAIR
from gpuinfra.spec.monitoring import CONTROL_POOL
from gpuinfra_rehearsal.actions import RehearsalResult, errors_of, finish, perform
from gpuinfra_rehearsal.engine import OperationResult
from gpuinfra_rehearsal.events import kind_of, name_of
from gpuinfra_rehearsal.folder import edit_stack
from gpuinfra_rehearsal.report import changes_text
from gpuinfra_rehearsal.retained import recorded
from gpuinfra_rehearsal.session import Session

DRIFT_TAG = "changed-by-hand"
REPLACE_TIMEOUT_S = 60.0
REPAIR_TIMEOUT_S = 420.0
BROKEN = "remap-failed"
"""A fault of a GPU that only a replacement fixes."""


class StepFailed(Exception):
    """Raised if a step does not have the expected effect."""


def run_life(session: Session) -> RehearsalResult:
    """Run the steps and write the report."""
    life = _Life(session)
    problems: list[str] = []
    rows: list[dict[str, Any]] = []
    for name, step in life.steps():
        begun = time.monotonic()
        try:
            text, ok = step(), True
        except StepFailed as error:
            text, ok = str(error), False
        rows.append({"step": name, "ok": ok, "found": text, "seconds": round(time.monotonic() - begun, 1)})
        session.view.line(f"{'ok    ' if ok else 'FAILED'} {name}: {text}")
        if not ok:
            problems.append(f"{name}: {text}")
            break
    return finish(session, "life", ok=not problems, problems=tuple(problems), extra={"life": rows})


class _Life:
    """The steps of one life cycle."""

    def __init__(self, session: Session) -> None:
        plan = session.plan()
        self.session = session
        # A layer below the cluster has no nodes. A declaration in Python is assumed to have nodes.
        self.declares_nodes = plan is None or bool(plan.pools)
        self.rehearses_nodes = session.cloud.nodes_available()[0]
        repair = plan.monitoring.repair if plan and plan.monitoring else None
        self.repairs = repair is not None and repair.replaces
        self.retained: list[Retained] = []
        """The resources that `destroy` retained."""
        self.imported: set[Key] = set()
        """Types and names of the resources that `adopt` imported. Resources that a create operation finds and takes over, such
        as IAM members, are not imported."""

    def steps(self) -> list[tuple[str, Callable[[], str]]]:
        """Return the name and function of each step that applies to this stack."""
        steps = [("preview", self.preview), ("up", self.up), ("up again", self.up_again)]
        if self.declares_nodes:
            steps.append(("add a node", self.add_node))
        steps.append(("drift", self.drift))
        if self.declares_nodes and self.rehearses_nodes:
            steps.append(("replace a node", self.replace_node))
        if self.repairs and self.rehearses_nodes:
            steps.append(("repair a node", self.repair_node))
        return [*steps, ("destroy", self.destroy), ("adopt", self.adopt), ("up after destroy", self.up_after_destroy)]

    def preview(self) -> str:
        before = len(self.session.cloud.resources())
        operation = self._perform("preview")
        after = len(self.session.cloud.resources())
        if after != before:
            raise StepFailed(f"preview changed the cloud from {before} to {after} resources")
        return f"{operation.progress.done.get('create', 0)} to create, the cloud is unchanged"

    def up(self) -> str:
        operation = self._perform("up")
        return f"{operation.progress.done.get('create', 0)} created; {self._verified()}"

    def up_again(self) -> str:
        before = self._journals()
        operation = self._perform("up")
        if operation.progress.changes:
            raise StepFailed(f"the second up changed {changes_text(operation.progress.changed)}")
        if self._journals() != before:
            raise StepFailed("the second up changed the journal or the boot of a node")
        return f"no changes to resources or nodes; {self._verified()}"

    def add_node(self) -> str:
        if self.session.loaded is None:
            return "not rehearsed: the declaration is not in the stack file"
        before = self._journals()
        edit_stack(self.session.folder, _add_node)
        self.session.reload()
        self._perform("up")
        after = self._journals()
        touched = [name for name, journal in before.items() if after.get(name) != journal]
        if touched:
            raise StepFailed(f"adding a node changed other nodes: {', '.join(touched)}")
        if len(after) != len(before) + 1 and self.rehearses_nodes:
            raise StepFailed(
                f"the number of nodes changed from {len(before)} to {len(after)}; expected {len(before) + 1}"
            )
        return f"the number of nodes changed from {len(before)} to {len(after)}, and the existing nodes are unchanged; {self._verified()}"

    def drift(self) -> str:
        target = _taggable(self.session.pulumi.resources())
        if target is None:
            raise StepFailed("the state has no resource with tags or labels")
        outputs = target.get("outputs") or {}
        field = "labels" if _has_map(target, "labels") else "tags"
        tags = {**(outputs.get(field) or {}), DRIFT_TAG: "yes"}
        # The provider computes `tagsAll` from the tags, as in the cloud.
        change = {name: tags for name in (field, "tagsAll") if name == field or name in outputs}
        self.session.cloud.ask("drift", {"type": target["type"], "id": target["id"], "set": change})
        urn = str(target["urn"])
        refresh = self._perform("refresh")
        if urn not in [changed for _, changed in refresh.progress.changed]:
            raise StepFailed(f"refresh did not report the changed tags of {name_of(urn)}")
        up = self._perform("up")
        if urn not in [changed for _, changed in up.progress.changed]:
            raise StepFailed(f"up did not restore the tags of {name_of(urn)}")
        return f"refresh reported {changes_text(refresh.progress.changed)}; up restored the tags"

    def replace_node(self) -> str:
        cloud = self.session.cloud
        nodes = self._running()
        victim = nodes[0]
        cloud.ask("terminate", {"instance_id": victim["instance_id"]})
        limit = time.monotonic() + REPLACE_TIMEOUT_S
        while True:
            now = {n["instance_id"] for n in self._running()}
            if len(now) >= len(nodes) and victim["instance_id"] not in now:
                break
            if time.monotonic() > limit:
                raise StepFailed(
                    f"the group of {victim['label']} did not replace the node within {REPLACE_TIMEOUT_S:.0f} s"
                )
            time.sleep(0.2)
        self._perform("refresh")
        # If the new node is already verified, the engine reports no change, because NodesReady compares inputs. The state is up to date in both cases.
        if victim["instance_id"] in {node.id for node in nodes_of(self.session.pulumi.resources())}:
            raise StepFailed("refresh did not remove the replaced node from the state")
        self._perform("up")
        text = self._verified()
        here = {node.id for node in nodes_of(self.session.pulumi.resources())}
        if victim["instance_id"] in here or not now & here:
            raise StepFailed("the handover still counts the terminated node")
        return f"{victim['label']} ({victim['instance_id']}) terminated; refresh removed it from the state; {text}"

    def repair_node(self) -> str:
        """Break a GPU of a node, which the control node replaces, and then one of a second node, which exceeds `at_most`."""
        if missing := [
            name
            for name in ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
            if shutil.which(name) is None
        ]:
            return f"not rehearsed: {' and '.join(missing)} is not installed"
        cloud = self.session.cloud
        first, second = [one for one in self._running() if one["pool"] != CONTROL_POOL][:2]
        broken = datetime.now(UTC).strftime("%H:%M:%S")
        cloud.ask("break", {"instance_id": first["instance_id"], "faults": [BROKEN]})
        alert = self._alerted(first)
        event = self._repaired("verified", first)
        self._perform("refresh")
        self._perform("up")
        text = self._verified()
        cloud.ask("break", {"instance_id": second["instance_id"], "faults": [BROKEN]})
        limited = self._repaired("limited", second)
        if second["instance_id"] not in {one["instance_id"] for one in self._running()}:
            raise StepFailed(f"{second['label']} does not run any more, although the limit is reached")
        return (
            f"{first['label']}: broken {broken}, alert received {alert}, {event}; {second['label']}: {limited}; {text}"
        )

    def _alerted(self, node: Mapping[str, Any]) -> str:
        """Wait until the receiver of alerts has a message about a node under repair. Return the time of the message."""
        limit = time.monotonic() + REPAIR_TIMEOUT_S
        while True:
            names = {str(one["node"]) for one in self._repairs() if one["instance_id"] == node["instance_id"]}
            for alert in self.session.cloud.alerts():
                if any(re.search(rf"\b{re.escape(name)}\b", json.dumps(alert["body"])) for name in names):
                    return datetime.fromtimestamp(float(alert["at"]), UTC).strftime("%H:%M:%S")
            if time.monotonic() > limit:
                raise StepFailed(f"no alert about {node['label']} reached its receiver after {REPAIR_TIMEOUT_S:.0f} s")
            time.sleep(0.5)

    def _repaired(self, event: str, node: Mapping[str, Any]) -> str:
        """Wait for an event about a node, and return the chain of its events with their times."""
        limit = time.monotonic() + REPAIR_TIMEOUT_S
        while True:
            chain = [one for one in self._repairs() if one["instance_id"] == node["instance_id"]]
            if event in [one["event"] for one in chain]:
                return ", ".join(f"{one['event']} {str(one['at'])[11:19]}" for one in chain)
            if time.monotonic() > limit:
                seen = ", ".join(str(one["event"]) for one in chain) or "no event"
                raise StepFailed(f"{node['label']} has no event {event!r} after {REPAIR_TIMEOUT_S:.0f} s: {seen}")
            time.sleep(0.5)

    def _repairs(self) -> list[dict[str, Any]]:
        """Return the events in the status of the control node."""
        for node in self._running():
            root = self.session.folder.base / "nodes" / str(node["instance_id"]) / "root"
            status = root / REPAIR.lstrip("/")
            if node["pool"] == CONTROL_POOL and status.is_file():
                return list(json.loads(status.read_text(encoding="utf-8"))["events"])
        return []

    def destroy(self) -> str:
        self._perform("destroy")
        self.retained = recorded(self.session.folder)
        allowed = {(one.type, one.id) for one in self.retained}
        left = [r for r in self.session.cloud.resources() if (str(r["type"]), str(r["id"])) not in allowed]
        if left:
            names = ", ".join(str(r.get("name") or r["id"]) for r in left[:8])
            raise StepFailed(f"destroy left resources that the plan does not retain: {names}")
        if state := self.session.pulumi.resources():
            raise StepFailed(f"the state still has {len(state)} resources")
        if nodes := self._running():
            raise StepFailed(f"{len(nodes)} nodes are still running")
        for resource in self.retained:
            self.session.view.line(f"retained: {resource.name} ({resource.type}, {resource.id})")
        return f"{len(self.retained)} resources retained, everything else deleted"

    def adopt(self) -> str:
        count = self.session.adopt()
        self.imported = {(str(r["type"]), name_of(str(r["urn"]))) for r in self.session.pulumi.resources()}
        if self.retained and not count:
            raise StepFailed("`gpuinfra adopt` found no retained resources")
        return f"{count} of {len(self.retained)} retained resources imported"

    def up_after_destroy(self) -> str:
        operation = self._perform("up")
        state = {(str(r["type"]), str(r.get("id"))) for r in self.session.pulumi.resources()}
        lost = sorted(one.name for one in self.retained if (one.type, one.id) not in state)
        if lost:
            raise StepFailed(f"up replaced retained resources: {', '.join(lost)}")
        changed = [one for one in operation.progress.changed if (kind_of(one[1]), name_of(one[1])) in self.imported]
        replaced = [one for one in changed if one[0] != "update"]
        if replaced:
            raise StepFailed(f"up replaced imported resources: {changes_text(replaced)}")
        # An import cannot read every input of the program, so the next `up` updates the resource in place.
        updated = f"{len(changed)} imported resources updated in place" if changed else "imported resources unchanged"
        return f"{len(self.retained)} retained resources in the state, {updated}; {self._verified()}"

    def _perform(self, action: str) -> OperationResult:
        """Run one engine action, which must succeed."""
        operation = perform(self.session, action)
        if not operation.ok:
            raise StepFailed("\n".join(errors_of(operation)))
        return operation

    def _running(self) -> list[dict[str, Any]]:
        return [n for n in self.session.cloud.nodes() if n.get("state") == "running"]

    def _nodes_ready(self) -> Mapping[str, Any]:
        resources = handovers_of(self.session.pulumi.resources())
        return resources[0].get("outputs") or {} if resources else {}

    def _verified(self) -> str:
        """Return the handover's summary, which must report all nodes as verified."""
        if not self.declares_nodes:
            return "no nodes are declared"
        if not self.rehearses_nodes:
            return "this system cannot run stand-in nodes"
        outputs = self._nodes_ready()
        if outputs.get("ready") is not True:
            raise StepFailed(f"the nodes are not ready: {outputs.get('summary', 'the state has no NodesReady')}")
        return str(outputs.get("summary", ""))

    def _journals(self) -> dict[str, str]:
        """Return the journal of each running node by instance ID. It changes when a step runs or the node boots."""
        folder = self.session.folder.base / "nodes"
        journals: dict[str, str] = {}
        for node in self._running():
            journal = folder / str(node["instance_id"]) / "root" / "var" / "lib" / "gpuinfra" / "state.json"
            journals[str(node["instance_id"])] = journal.read_text(encoding="utf-8") if journal.is_file() else ""
        return journals


def _add_node(declaration: dict[str, Any]) -> None:
    """Add one to the count of the last capacity entry in the first pool."""
    pool = declaration["pools"][0]
    entry = pool["capacity"][-1] if isinstance(pool.get("capacity"), list) else pool.get("capacity")
    if isinstance(entry, dict) and "count" in entry:
        entry["count"] += 1
    else:
        pool["count"] = int(pool.get("count", 1)) + 1


_PREFERRED = (
    "aws:ec2/vpc:Vpc",
    "aws:ec2/securityGroup:SecurityGroup",
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketV2:BucketV2",
    "azure-native:network:VirtualNetwork",
    "gcp:storage/bucket:Bucket",
)
"""Types whose tags can change without affecting nodes."""


def _taggable(resources: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the resource whose tags the drift step changes."""
    tagged = [r for r in resources if r.get("custom") and (_has_map(r, "tags") or _has_map(r, "labels"))]
    return next((r for kind in _PREFERRED for r in tagged if r["type"] == kind), tagged[0] if tagged else None)


def _has_map(resource: Mapping[str, Any], field: str) -> bool:
    return isinstance((resource.get("inputs") or {}).get(field), dict)
