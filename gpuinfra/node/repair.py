"""Decides what the control node does with a node that was verified and fails a check. Pure: state, reading and time determine the decision.

The state is written before each request to the cloud, so a service that is killed between two steps continues where it was. One node is repaired at a
time, and the repair of the next one starts after the new node is verified. What is not known is never a reason: a node whose metrics are missing, old or
of an earlier boot is neither healthy nor faulty.
`repair_service.py` reads the metrics, stores the state and sends the requests.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional

from .advice import advise
from .cause import Action, Cause
from .notices import iso
from .orders import SCHEMA, NodeOrder, OrderKind, dumped, order_of
from .outcome import CheckResult, Unreadable, shortened

WINDOW_S = 86_400.0
"""Period in which at most `at_most` nodes are taken out of use."""
SHARE = 4
"""No node is taken out of use while more nodes than `at_most`, and more than one in four, are faulty: they have one cause, such as a driver, a file
system or a metric, which a replacement does not remove."""
CONFIRM_S = 120.0
"""Time for which each reading must show that a node is faulty."""
GRACE_S = 300.0
"""Time between the signal to the jobs of a node and the reboot or the replacement. A checkpoint of many nodes takes minutes."""
ABSENT_S = 900.0
"""Time after which a node that has no metrics does not exist any more."""
UNCONFIRMED_S = 600.0
"""Time after which an instance ID that is not confirmed is reported. A new machine can get the address of a deleted one, which Prometheus finds under the
old name for up to 5 minutes on Azure."""
MOST_EVENTS, SHOWN_EVENTS = 200, 20
"""Events to keep, and events in the evidence of the control node."""


class RepairMode(str, Enum):
    """What happens to a faulty node."""

    OFF = "off"
    REPORT = "report"
    HOLD = "hold"
    REPLACE = "replace"


class RepairStep(str, Enum):
    """The step of the repair of one node."""

    DRAIN = "drain"
    REQUEST = "request"
    """The cloud is asked for the replacement."""
    WAIT = "wait"
    """The new node, or the node after its reboot, is not verified yet."""
    FAILED = "failed"
    """The repair stops until the node is verified after all, or the operator releases the node."""


class RepairEvent(str, Enum):
    """What happened."""

    REPORTED = "reported"
    """A node is faulty, and the mode takes no node out of use."""
    LIMITED = "limited"
    """A node is faulty, and stays as it is, because `at_most` nodes were taken out of use, or an earlier repair failed."""
    HALTED = "halted"
    """A node is faulty, and stays as it is, because too many nodes are faulty."""
    UNCONFIRMED = "unconfirmed"
    """A node states an instance ID that is not confirmed as its own, so nothing happens to it, nor to the machine with this ID."""
    DRAINING = "draining"
    HELD = "held"
    REBOOTING = "rebooting"
    REPLACING = "replacing"
    ESCALATED = "escalated"
    """The node fails its checks after the reboot, so it is replaced."""
    VERIFIED = "verified"
    FAILED = "failed"
    RECOVERED = "recovered"
    """The node passed its checks before anything was done."""
    RELEASED = "released"
    """The operator, or planned work, ended the hold or the drain."""
    GONE = "gone"
    """A node that was held, or that did not return from its reboot, does not exist any more."""


@dataclass(frozen=True)
class RepairSettings:
    """What the declaration and the plan decide."""

    mode: RepairMode
    at_most: int
    deadline_s: float
    """Time within which a replacement must be verified."""
    pools: tuple[str, ...]
    alerts: Mapping[str, Action]
    """Alert -> the action that it requires."""
    grace_s: float = GRACE_S
    confirm_s: float = CONFIRM_S
    window_s: float = WINDOW_S


@dataclass(frozen=True)
class Failure:
    """A failed check of a node, or an alert about it."""

    name: str
    """ID of the check, or name of the alert."""
    cause: str
    """Cause of the check, or Xid of the alert."""
    action: Action


@dataclass(frozen=True)
class NodeReading:
    """What the metrics say about one node."""

    name: str
    """The label `instance`."""
    pool: str
    instance_id: str = ""
    boot: str = ""
    verified: Optional[bool] = None
    """None if no checks of this boot have ended."""
    was_verified: bool = False
    """Whether the node was verified at any time."""
    leaving: bool = False
    """Whether the cloud takes the machine back, which needs no repair."""
    failures: tuple[Failure, ...] = ()
    doubt: str = ""
    """Why the instance ID that the node states is not confirmed. It is then neither faulty nor healthy."""

    @property
    def action(self) -> Action:
        """The strongest action that the failures require."""
        return max((one.action for one in self.failures), key=lambda action: action.strength, default=Action.NOTHING)

    @property
    def faulty(self) -> bool:
        """Whether a node that was in use must not get new work."""
        return self.was_verified and not self.leaving and bool(self.boot) and self.action.drains and not self.doubt

    @property
    def healthy(self) -> bool:
        """Whether the node passed its checks in this boot."""
        return self.verified is True and not self.action.drains and not self.doubt

    @property
    def why(self) -> str:
        """The failures that require the action, for people."""
        named = [
            one.name + (" (%s)" % one.cause if one.cause else "") for one in self.failures if one.action is self.action
        ]
        return ", ".join(sorted(set(named)))

    @property
    def basis(self) -> str:
        """What a decision depends on: it changes if the node boots, or if other checks fail."""
        return "%s %s %s" % (self.boot, self.action.value, self.why)


@dataclass(frozen=True)
class Reading:
    """The metrics of all nodes at one time."""

    nodes: Mapping[str, NodeReading]
    """The nodes with usable metrics, by name."""
    known: frozenset[str]
    """The names of all nodes that Prometheus found, also those that do not respond."""


def failure_of(check: str, cause: str, outcome: str) -> Failure:
    """Return a failed check with the action that `gpuinfra nodes` and `gpuinfra replace` also derive from its cause."""
    typed = Cause(cause) if cause in [one.value for one in Cause] else None
    result: Any = {"id": check, "outcome": outcome, "cause": typed, "reason": None, "hint": ""}
    checks: List[CheckResult] = [result]
    return Failure(check, cause, advise(checks).action)


@dataclass(frozen=True)
class Maintenance:
    """Planned work on a node, and nodes that the operator released."""

    silenced: tuple[tuple[str, float], ...] = ()
    """Names or instance IDs, and the time until which nothing happens to the node."""
    released: tuple[tuple[str, float], ...] = ()
    """Names or instance IDs, and the time of the release."""

    def covers(self, name: str, instance_id: str, now: float) -> bool:
        """Whether a node has planned work now."""
        return any(node in (name, instance_id) and now < until for node, until in self.silenced)

    def ended(self, order: NodeOrder) -> bool:
        """Whether the operator released a node after an order."""
        return any(node in (order.node, order.instance_id) and at >= order.since for node, at in self.released)


@dataclass(frozen=True)
class CurrentRepair:
    """The repair of one node that has not ended."""

    order: NodeOrder
    pool: str
    action: Action
    step: RepairStep
    why: str
    deadline: float
    """End of the drain, or the time until which the new node must be verified."""
    before: Dict[str, str]
    """The nodes of the pool and their boots when the repair began."""
    problem: str = ""
    """Why the last request failed."""


@dataclass
class RepairState:
    """The state of the repair of a cluster."""

    orders: List[NodeOrder] = field(default_factory=list)
    current: Optional[CurrentRepair] = None
    taken: List[float] = field(default_factory=list)
    """The times at which nodes were taken out of use."""
    suspects: Dict[str, List[Any]] = field(default_factory=dict)
    """Faulty node -> the basis, and the time since which it is the same."""
    told: Dict[str, str] = field(default_factory=dict)
    """Node -> the basis and the event of its last event without an action, so that it has one event."""
    released: Dict[str, str] = field(default_factory=dict)
    """Node -> the basis with which the operator released it."""
    absent: Dict[str, float] = field(default_factory=dict)
    doubted: Dict[str, float] = field(default_factory=dict)
    """Node whose instance ID is not confirmed -> the time since then."""
    events: List[Dict[str, Any]] = field(default_factory=list)
    number: int = 0
    """Number of the last event."""
    sent: int = 0
    """Number of the last event that was uploaded."""
    writer: str = ""
    """The control node that wrote the state."""
    written: float = 0.0

    def dumped(self) -> bytes:
        """Return the state as JSON."""
        current = None
        if self.current:
            changed = {"action": self.current.action.value, "step": self.current.step.value}
            current = {**asdict(self.current), "order": dumped([self.current.order])[0], **changed}
        document = {**self.__dict__, "schema": SCHEMA, "orders": dumped(self.orders), "current": current}
        return (json.dumps(document, sort_keys=True) + "\n").encode()


def state_in(data: bytes) -> RepairState:
    """Return a stored state. Raises `Unreadable` if it has a different form: a repair must not begin again without its history."""
    try:
        document = json.loads(data)
        if document.pop("schema") != SCHEMA:
            raise Unreadable("the schema is not %s" % SCHEMA)
        current = document["current"]
        if current:
            made = {
                "order": order_of(current["order"]),
                "action": Action(current["action"]),
                "step": RepairStep(current["step"]),
            }
            document["current"] = CurrentRepair(**{**current, **made})
        document["orders"] = [order_of(one) for one in document["orders"]]
        return RepairState(**document)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the state of the repair cannot be read: %s" % shortened(repr(error), 80)) from None


class RepairRound:
    """One round of decisions, which changes the state."""

    def __init__(
        self, state: RepairState, settings: RepairSettings, reading: Reading, maintenance: Maintenance, now: float
    ) -> None:
        self._state, self._settings, self._reading = state, settings, reading
        self._maintenance, self._now = maintenance, now

    def decide(self) -> None:
        """Advance the current repair, and decide about the other faulty nodes."""
        state, now = self._state, self._now
        state.taken = [at for at in state.taken if now - at < self._settings.window_s]
        self._note_absent()
        self._end_holds()
        if state.current is not None:
            self._advance(state.current)
        confirmed = self._confirmed()
        self._report_doubts()
        if self._settings.mode is RepairMode.REPORT:
            for node in confirmed:
                self._tell(RepairEvent.REPORTED, node, "the mode is report")
        elif self._settings.mode in (RepairMode.HOLD, RepairMode.REPLACE):
            self._take_out(confirmed)

    def _confirmed(self) -> List[NodeReading]:
        """Return the nodes that were faulty in each reading of the last minutes, in the order in which they were found."""
        state, busy = self._state, {one.node for one in self._state.orders}
        faulty = {
            node.name: node
            for node in self._reading.nodes.values()
            if node.faulty
            and node.name not in busy
            and not self._maintenance.covers(node.name, node.instance_id, self._now)
            and state.released.get(node.name) != node.basis
        }
        state.suspects = {
            name: before
            if (before := state.suspects.get(name)) and before[0] == node.basis
            else [node.basis, self._now]
            for name, node in sorted(faulty.items())
        }
        for name in [
            name for name in (*state.told, *state.released) if (node := self._reading.nodes.get(name)) and node.healthy
        ]:
            state.told.pop(name, None)
            state.released.pop(name, None)
        ready = [one for one in faulty.values() if self._now - state.suspects[one.name][1] >= self._settings.confirm_s]
        return sorted(ready, key=lambda node: (state.suspects[node.name][1], node.name))

    def _report_doubts(self) -> None:
        """Record once that a node states an instance ID that is not confirmed. The statement is the node's, so it does not decide how often."""
        doubted = {
            node.name: node
            for node in self._reading.nodes.values()
            if node.doubt and not self._maintenance.covers(node.name, node.instance_id, self._now)
        }
        self._state.doubted = {name: self._state.doubted.get(name, self._now) for name in sorted(doubted)}
        for name, since in self._state.doubted.items():
            if self._now - since >= UNCONFIRMED_S:
                self._tell(RepairEvent.UNCONFIRMED, doubted[name], doubted[name].doubt, basis="")

    def _take_out(self, confirmed: List[NodeReading]) -> None:
        """Take nodes out of use, as far as the limits allow."""
        state, settings = self._state, self._settings
        too_many = max(settings.at_most, len(self._reading.nodes) // SHARE)
        if len(state.suspects) > too_many:
            for node in confirmed:
                what = "%d nodes are faulty, and at most %d can be: look for one cause" % (
                    len(state.suspects),
                    too_many,
                )
                self._tell(RepairEvent.HALTED, node, what)
            return
        for node in confirmed:
            holds = settings.mode is RepairMode.HOLD or node.action is Action.CONFIGURE
            if state.current is not None and state.current.step is RepairStep.FAILED:
                self._tell(RepairEvent.LIMITED, node, "the repair of %s failed" % state.current.order.node)
            elif len(state.taken) >= settings.at_most:
                what = "%d of %d nodes were taken out of use in the last %d hours"
                numbers = (len(state.taken), settings.at_most, settings.window_s // 3600)
                self._tell(RepairEvent.LIMITED, node, what % numbers)
            elif holds:
                self._order(node, hold=True)
                self._event(RepairEvent.HELD, node, "its jobs are signaled, and it accepts no new ones")
            elif state.current is None:
                order = self._order(node, hold=False)
                pool = {one.name: one.boot for one in self._reading.nodes.values() if one.pool == node.pool}
                state.current = CurrentRepair(
                    order, node.pool, node.action, RepairStep.DRAIN, node.why, order.deadline, pool
                )
                self._event(
                    RepairEvent.DRAINING, node, "its jobs are signaled, and have until %s" % iso(order.deadline)
                )

    def _order(self, node: NodeReading, *, hold: bool) -> NodeOrder:
        state, now = self._state, self._now
        what = "the control node %s this node: %s" % ("holds" if hold else "drains", node.why)
        id_ = "repair %s %s" % (node.instance_id, iso(now))
        deadline = now + self._settings.grace_s
        order = NodeOrder(id_, OrderKind.DRAIN, node.instance_id, what, now, deadline, node.name, node.boot, hold)
        state.orders.append(order)
        state.taken.append(now)
        state.suspects.pop(node.name, None)
        return order

    def _advance(self, current: CurrentRepair) -> None:
        """Continue the repair of one node."""
        node = self._reading.nodes.get(current.order.node)
        same = node is not None and node.boot == current.order.boot
        if current.step is RepairStep.DRAIN:
            if self._maintenance.covers(current.order.node, current.order.instance_id, self._now):
                self._end(RepairEvent.RELEASED, current, "planned work began")
            elif self._settings.mode is not RepairMode.REPLACE:
                self._end(RepairEvent.RELEASED, current, "the mode is now %s" % self._settings.mode.value)
            elif same and node is not None and node.healthy:
                self._end(RepairEvent.RECOVERED, current, "the node passes its checks again")
            elif self._now >= current.deadline:
                self._act(current)
        elif current.step is RepairStep.REQUEST:
            if node is not None and node.boot and not same:
                # The service was killed after the request. The node was moved and keeps its name.
                requested(self._state)
            elif self._now >= current.deadline:
                self._fail(current, "the cloud did not accept the request: %s" % current.problem)
        else:
            self._await(current, node)

    def _act(self, current: CurrentRepair) -> None:
        """The time of the jobs is over: reboot or replace the node."""
        until = self._now + self._settings.deadline_s
        if current.action is Action.REPLACE:
            self._now_is(replace(current, step=RepairStep.REQUEST, deadline=until))
            self._record(RepairEvent.REPLACING, current, current.why)
            return
        order = replace(current.order, kind=OrderKind.REBOOT)
        self._state.orders = [order if one.id == order.id else one for one in self._state.orders]
        self._now_is(replace(current, order=order, step=RepairStep.WAIT, deadline=until))
        self._record(RepairEvent.REBOOTING, current, current.why)

    def _await(self, current: CurrentRepair, node: Optional[NodeReading]) -> None:
        """Wait until the node in place of the faulty one is verified."""
        rebooted = node is not None and bool(node.boot) and node.boot != current.order.boot
        if current.action is Action.REPLACE:
            gone = current.order.node not in self._reading.known or rebooted
            new = [
                one
                for one in self._reading.nodes.values()
                if one.pool == current.pool and one.boot and current.before.get(one.name) != one.boot and one.healthy
            ]
            if gone and new:
                self._end(RepairEvent.VERIFIED, current, "%s is verified" % new[0].name)
                return
        elif rebooted and node is not None and not node.doubt and not self._is_another(current.order):
            if node.healthy:
                self._end(RepairEvent.VERIFIED, current, "the node is verified after its reboot")
                return
            if node.verified is False and node.action.drains:
                self._record(RepairEvent.ESCALATED, current, "after the reboot: %s" % node.why)
                order = replace(current.order, kind=OrderKind.DRAIN, boot=node.boot)
                self._state.orders = [order if one.id == order.id else one for one in self._state.orders]
                until = self._now + self._settings.deadline_s
                before = {**current.before, node.name: node.boot}
                self._now_is(
                    replace(current, order=order, action=Action.REPLACE, step=RepairStep.REQUEST, deadline=until, before=before, why=node.why)
                )  # fmt: skip
                return
        absent = self._now - self._state.absent.get(current.order.node, self._now) >= ABSENT_S
        if absent and (current.action is not Action.REPLACE or current.pool not in self._settings.pools):
            # It cannot be verified any more. A replacement waits for a new node of its pool, unless the stack has no such pool.
            self._end(RepairEvent.GONE, current, "the node does not exist any more")
        elif current.step is RepairStep.WAIT and self._now >= current.deadline:
            self._fail(current, "no verified node after %d minutes" % (self._settings.deadline_s // 60))
        elif current.step is RepairStep.FAILED and self._maintenance.ended(current.order):
            self._end(RepairEvent.RELEASED, current, "the operator released the node")

    def _end_holds(self) -> None:
        """End the holds of nodes that are gone, verified in a later boot, or released."""
        state = self._state
        for order in [one for one in state.orders if one.hold]:
            node = self._reading.nodes.get(order.node)
            if self._maintenance.ended(order):
                event, what = RepairEvent.RELEASED, "the operator released the node"
                if node is not None:
                    state.released[order.node] = node.basis
            elif self._now - state.absent.get(order.node, self._now) >= ABSENT_S:
                event, what = RepairEvent.GONE, "the node does not exist any more"
            elif node is not None and node.boot and node.boot != order.boot and node.healthy:
                event, what = RepairEvent.VERIFIED, "the node is verified in a later boot"
            else:
                continue
            state.orders = [one for one in state.orders if one.id != order.id]
            self._add(event, order.node, order.instance_id, "", Action.NOTHING, what)

    def _note_absent(self) -> None:
        """Note since when nodes are missing, and forget those for which only an event is left.

        A node that Prometheus does not find can appear again, for example after a restart of Prometheus. The state of a destroyed stack is that of the
        next one with its name, so nothing in it may depend on a node that never appears again.
        """
        state = self._state
        missing = {*(one.node for one in state.orders), *state.told, *state.released} - self._reading.known
        missing |= {one.node for one in state.orders if self._is_another(one)}
        state.absent = {name: state.absent.get(name, self._now) for name in sorted(missing)}
        for name, since in state.absent.items():
            if self._now - since >= ABSENT_S:
                state.told.pop(name, None)
                state.released.pop(name, None)

    def _is_another(self, order: NodeOrder) -> bool:
        """Return whether another machine has the name of the node of an order."""
        node = self._reading.nodes.get(order.node)
        return node is not None and not node.doubt and node.instance_id not in ("", order.instance_id)

    def _now_is(self, current: Optional[CurrentRepair]) -> None:
        self._state.current = current

    def _fail(self, current: CurrentRepair, what: str) -> None:
        self._now_is(replace(current, step=RepairStep.FAILED))
        self._record(RepairEvent.FAILED, current, what)

    def _end(self, event: RepairEvent, current: CurrentRepair, what: str) -> None:
        self._state.orders = [one for one in self._state.orders if one.id != current.order.id]
        self._now_is(None)
        self._record(event, current, what)

    def _record(self, event: RepairEvent, current: CurrentRepair, what: str) -> None:
        self._add(event, current.order.node, current.order.instance_id, current.pool, current.action, what)

    def _event(self, event: RepairEvent, node: NodeReading, what: str) -> None:
        why = "; ".join(text for text in (node.why, what) if text)
        self._add(event, node.name, node.instance_id, node.pool, node.action, why)

    def _tell(self, event: RepairEvent, node: NodeReading, what: str, basis: Optional[str] = None) -> None:
        """Record once that a faulty node stays as it is."""
        told = "%s %s" % (event.value, node.basis if basis is None else basis)
        if self._state.told.get(node.name) != told:
            self._state.told[node.name] = told
            self._event(event, node, what)

    def _add(self, event: RepairEvent, name: str, instance_id: str, pool: str, action: Action, what: str) -> None:
        state = self._state
        state.number += 1
        record = {
            "number": state.number, "at": iso(self._now), "event": event.value, "node": name, "instance_id": instance_id,
            "pool": pool, "action": action.value, "reason": shortened(what, 300),
        }  # fmt: skip
        state.events = [*state.events, record][-MOST_EVENTS:]


@dataclass(frozen=True)
class RepairStatus:
    """What the evidence of a control node says about the repair."""

    mode: RepairMode
    at_most: int
    taken: int
    """Number of nodes that were taken out of use within the last day."""
    node: str
    """The node whose repair has not ended, or an empty string."""
    step: str
    problem: str
    """Why the last request to the cloud failed."""
    held: tuple[str, ...]
    events: tuple[tuple[str, str, str, str, str], ...]
    """Time, event, node, instance ID and reason of the newest events, oldest first."""


def status(state: RepairState, settings: RepairSettings) -> str:
    """Return the status of the repair as JSON, for the evidence of the control node."""
    current = state.current
    document = {
        "schema": SCHEMA, "mode": settings.mode.value, "at_most": settings.at_most, "taken": len(state.taken),
        "node": current.order.node if current else "", "step": current.step.value if current else "", "problem": current.problem if current else "",
        "held": [one.node for one in state.orders if one.hold], "events": state.events[-SHOWN_EVENTS:],
    }  # fmt: skip
    return json.dumps(document, sort_keys=True) + "\n"


def status_in(text: str) -> RepairStatus:
    """Return the status in the evidence of a control node. Raises `Unreadable` if it has a different form."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise Unreadable("the schema is not %s" % SCHEMA)
        names = ("at", "event", "node", "instance_id", "reason")
        return RepairStatus(
            mode=RepairMode(document["mode"]),
            at_most=int(document["at_most"]),
            taken=int(document["taken"]),
            node=shortened(str(document["node"]), 128),
            step=RepairStep(document["step"]).value if document["step"] else "",
            problem=shortened(str(document["problem"]), 300),
            held=tuple(shortened(str(one), 128) for one in document["held"]),
            events=tuple(_texts(one, names) for one in document["events"][-SHOWN_EVENTS:]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the status of the repair cannot be read: %s" % shortened(repr(error), 80)) from None


def _texts(record: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, str, str, str, str]:
    at, event, node, instance_id, reason = (shortened(str(record[name]), 300) for name in names)
    return at, RepairEvent(event).value, node, instance_id, reason


def requested(state: RepairState) -> None:
    """The cloud accepted the request for the replacement, or the node does not exist any more."""
    if state.current is not None:
        state.current = replace(state.current, step=RepairStep.WAIT, problem="")


def refused(state: RepairState, problem: str) -> None:
    """The request failed. It is repeated until the deadline."""
    if state.current is not None:
        state.current = replace(state.current, problem=shortened(problem, 300))


def ticket(cluster: str, cloud: str, event: Mapping[str, Any]) -> str:
    """Return the text of a report about an event. `gpuinfra replace --report-only` adds the evidence and the steps for the provider."""
    lines = (
        "Faulty node in cluster %s on %s" % (cluster, cloud),
        "Time (UTC): %s" % event["at"],
        "Node: %s (%s), pool %s" % (event["node"], event["instance_id"], event["pool"]),
        "Reason: %s" % event["reason"],
        "Required action: %s" % event["action"],
        "Decision: %s" % event["event"],
        "For the evidence and the report to the provider, run: gpuinfra replace STACK %s --report-only"
        % event["instance_id"],
    )
    return "\n".join(lines) + "\n"
