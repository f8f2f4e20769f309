"""The decisions of the control node about faulty nodes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuinfra.monitoring.alerts import ALERTS
from gpuinfra.node.cause import Action, Cause
from gpuinfra.node.notices import moment
from gpuinfra.node.orders import OrderKind, orders_in
from gpuinfra.node.outcome import Unreadable
from gpuinfra.node.repair import (
    ABSENT_S,
    CONFIRM_S,
    GRACE_S,
    UNCONFIRMED_S,
    Failure,
    Maintenance,
    NodeReading,
    Reading,
    RepairMode,
    RepairRound,
    RepairSettings,
    RepairState,
    RepairStep,
    failure_of,
    refused,
    requested,
    state_in,
    ticket,
)
from gpuinfra.node.repair_service import NotRead, reading_of


def at_of(event: dict[str, Any]) -> float:
    """The time of an event."""
    at = moment(event["at"])
    assert at is not None
    return at


START = 1_800_000_000.0
ROUND = 30.0
DEADLINE = 3600.0
BAD = Failure("G10", "remapping-failed", Action.REPLACE)
RESET = Failure("X1", "reset-required", Action.RESET)
UNKNOWN = Failure("G5", "unreadable", Action.CONFIGURE)


@dataclass
class Fleet:
    """A cluster, its metrics, and a control node that is killed after any write if `kills` says so."""

    settings: RepairSettings
    nodes: dict[str, NodeReading] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    stored: bytes | None = None
    now: float = START
    replaced: list[str] = field(default_factory=list)
    maintenance: Maintenance = field(default_factory=Maintenance)
    works: bool = True
    """Whether the cloud accepts requests."""
    launched: int = 0

    def round(self, killed_after: int = 9) -> RepairState:
        """One round of the service, as `RepairService` does it. It is killed after a number of writes and requests."""
        state = RepairState() if self.stored is None else state_in(self.stored)
        usable = {name: one for name, one in self.nodes.items() if name not in self.down}
        reading = Reading(nodes=usable, known=frozenset(self.nodes))
        RepairRound(state, self.settings, reading, self.maintenance, self.now).decide()
        steps = 0
        if killed_after > steps:
            self.stored = state.dumped()
        current = state.current
        if current is not None and current.step is RepairStep.REQUEST:
            steps += 1
            if killed_after > steps:
                if self.works:
                    self._replace(current.order.node)
                    requested(state)
                else:
                    refused(state, "429 Throttling")
            steps += 1
            if killed_after > steps:
                self.stored = state.dumped()
        self.now += ROUND
        return state

    def _replace(self, name: str) -> None:
        if name in self.nodes:
            self.replaced.append(name)
            pool = self.nodes.pop(name).pool
            self.launched += 1
            new = f"new-{self.launched}"
            self.nodes[new] = NodeReading(name=new, pool=pool, instance_id=new, boot=f"boot of {new}")

    def until(self, event: str, node: str = "", limit_s: float = 4 * DEADLINE) -> dict[str, Any]:
        """Rounds until an event happened."""
        end = self.now + limit_s
        while self.now < end:
            state = self.round()
            for one in state.events:
                if one["event"] == event and node in ("", one["node"]):
                    return one
        pytest.fail(f"no event {event}; events: {self.events()}")

    def events(self) -> list[tuple[str, str]]:
        """All events with their nodes."""
        state = RepairState() if self.stored is None else state_in(self.stored)
        return [(str(one["event"]), str(one["node"])) for one in state.events]

    def fail(self, name: str, *failures: Failure) -> None:
        self.nodes[name] = replace(self.nodes[name], verified=False, failures=failures or (BAD,))

    def heal(self, name: str, **facts: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], verified=True, was_verified=True, failures=(), **facts)

    def rounds(self, seconds: float) -> None:
        for _ in range(int(seconds // ROUND)):
            self.round()


def fleet(mode: str = "replace", at_most: int = 1, nodes: int = 4) -> Fleet:
    """A healthy cluster."""
    settings = RepairSettings(RepairMode(mode), at_most, DEADLINE, ("gpu",), {})
    made = Fleet(settings)
    for number in range(1, nodes + 1):
        name = f"i-{number}"
        made.nodes[name] = NodeReading(
            name=name, pool="gpu", instance_id=name, boot=f"boot of {name}", verified=True, was_verified=True
        )
    return made


def test_a_faulty_node_is_drained_replaced_and_verified_before_the_budget_is_used_up() -> None:
    """The drain lasts for the grace time, the request follows once, and the second fault on the same day is reported and not touched."""
    world = fleet()
    world.fail("i-1")
    drained = world.until("draining", "i-1")
    assert at_of(drained) >= START + CONFIRM_S
    (order,) = orders_in(world.stored or b"")
    assert (order.kind, order.instance_id, order.hold) == (OrderKind.DRAIN, "i-1", False)
    assert order.deadline == at_of(drained) + GRACE_S
    replaced = world.until("replacing", "i-1")
    assert at_of(replaced) >= order.deadline
    assert world.replaced == ["i-1"]
    world.rounds(600)
    assert world.replaced == ["i-1"]
    world.heal("new-1")
    world.until("verified", "i-1")
    assert orders_in(world.stored or b"") == ()
    world.fail("i-2")
    limited = world.until("limited", "i-2")
    assert limited["action"] == "replace"
    world.rounds(6000)
    assert world.replaced == ["i-1"]
    assert world.events().count(("limited", "i-2")) == 1
    assert "gpuinfra replace STACK i-2 --report-only" in ticket("train", "aws", limited)


def test_a_node_that_was_added_is_not_the_replacement() -> None:
    """While the faulty node still exists, a verified new node of the pool does not end the repair."""
    world = fleet()
    world.fail("i-1")
    world._replace = lambda name: world.replaced.append(name)  # type: ignore[method-assign]
    world.until("replacing")
    world.nodes["added"] = replace(world.nodes["i-2"], name="added", instance_id="added", boot="added")
    world.rounds(600)
    assert ("verified", "i-1") not in world.events()
    del world.nodes["i-1"]
    world.until("verified", "i-1")


def test_the_budget_is_available_again_after_a_day() -> None:
    """A node that was only reported is repaired when the first repair is older than the window."""
    world = fleet()
    world.fail("i-1")
    world.until("replacing")
    world.heal("new-1")
    world.until("verified")
    world.fail("i-2")
    world.until("limited")
    world.now += 86_400
    world.until("draining", "i-2")


def test_the_next_repair_waits_for_the_verified_replacement() -> None:
    """With a budget of two, the second node is drained only after the first replacement is verified."""
    world = fleet(at_most=2, nodes=12)
    world.fail("i-1")
    world.fail("i-2")
    world.until("replacing", "i-1")
    world.rounds(1800)
    assert ("draining", "i-2") not in world.events()
    world.heal("new-1")
    world.until("draining", "i-2")
    names = [event for event, _ in world.events()]
    assert names.index("verified") < len(names) - 1 - names[::-1].index("draining")


def test_a_replacement_that_is_not_verified_stops_the_repair() -> None:
    """After the deadline no further node is touched, until the node is verified after all or the operator releases it."""
    world = fleet(at_most=3, nodes=12)
    world.fail("i-1")
    world.until("replacing")
    world.until("failed", "i-1")
    world.fail("i-2")
    assert "repair of i-1 failed" in world.until("limited", "i-2")["reason"]
    world.rounds(7200)
    assert world.replaced == ["i-1"]
    late = replace(world, nodes=dict(world.nodes))
    late.heal("new-1")
    late.until("draining", "i-2")
    world.maintenance = Maintenance(released=(("i-1", world.now),))
    world.until("released", "i-1")
    world.until("draining", "i-2")


def test_too_many_faulty_nodes_have_one_cause() -> None:
    """No node is drained while more nodes than the limit and than a quarter are faulty. A single one is repaired when the others passed again."""
    world = fleet(nodes=8)
    for number in (1, 2, 3):
        world.fail(f"i-{number}")
    world.until("halted", "i-3")
    world.rounds(3600)
    assert {event for event, _ in world.events()} == {"halted"}
    assert [node for _, node in world.events()] == ["i-1", "i-2", "i-3"]
    world.heal("i-1")
    world.until("draining", "i-2")


@pytest.mark.parametrize("mode", ["report", "hold"])
def test_a_weaker_mode_sends_no_request(mode: str) -> None:
    """`report` records the fault, `hold` also orders the drain and keeps the node."""
    world = fleet(mode)
    world.fail("i-1")
    world.until({"report": "reported", "hold": "held"}[mode])
    world.rounds(7200)
    orders = orders_in(world.stored or b"")
    assert [one.hold for one in orders] == ([] if mode == "report" else [True])
    assert world.replaced == []
    assert len(world.events()) == 1


@pytest.mark.parametrize("end", ["gone", "verified", "released"])
def test_a_hold_ends(end: str) -> None:
    """A node is held until it is gone, verified in a later boot, or released. A released node is not held again for the same failure."""
    world = fleet("hold", at_most=3)
    world.fail("i-1")
    world.until("held")
    if end == "gone":
        del world.nodes["i-1"]
    elif end == "verified":
        world.heal("i-1", boot="later")
    else:
        world.maintenance = Maintenance(released=(("i-1", world.now),))
    at = world.now
    ended = world.until(end, "i-1")
    assert end != "gone" or at_of(ended) - at >= ABSENT_S - ROUND
    world.rounds(3600)
    assert orders_in(world.stored or b"") == ()
    assert world.events().count(("held", "i-1")) == 1


def test_a_reboot_is_tried_before_a_replacement() -> None:
    """A failure that a reboot fixes is not replaced. If the checks fail after the reboot, the node is replaced, within the same budget."""
    world = fleet()
    world.fail("i-1", RESET)
    world.until("rebooting")
    (order,) = orders_in(world.stored or b"")
    assert order.kind is OrderKind.REBOOT
    again = replace(world, nodes=dict(world.nodes))
    world.heal("i-1", boot="second")
    world.until("verified")
    assert world.replaced == []
    again.fail("i-1", RESET)
    again.nodes["i-1"] = replace(again.nodes["i-1"], boot="second")
    again.until("escalated")
    assert again.replaced == ["i-1"]
    again.heal("new-1")
    again.until("verified")


def test_a_node_that_does_not_return_from_its_reboot_stops_the_repair() -> None:
    """Without a reading, the node is not replaced."""
    world = fleet()
    world.fail("i-1", RESET)
    world.until("rebooting")
    world.down.add("i-1")
    world.until("failed")
    assert world.replaced == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_node_that_disappears_during_its_reboot_ends_the_repair(failed: bool) -> None:
    """A person or the group replaced its instance, so it never appears again. The next faulty node is repaired without a release."""
    world = fleet(at_most=3)
    world.fail("i-1", RESET)
    world.until("rebooting")
    if failed:
        world.down.add("i-1")
        world.until("failed")
    del world.nodes["i-1"]
    at = world.now
    gone = world.until("gone", "i-1", limit_s=2 * ABSENT_S)
    assert at_of(gone) - at >= ABSENT_S - ROUND
    assert (("failed", "i-1") in world.events()) is failed
    assert orders_in(world.stored or b"") == ()
    world.fail("i-2")
    world.until("draining", "i-2")


def test_a_replacement_continues_until_new_nodes_are_healthy() -> None:
    """That the replaced node is gone does not end the repair, unless its pool was removed from the declaration."""
    world = fleet()
    world.fail("i-1")
    world.until("failed")
    world.rounds(2 * ABSENT_S)
    assert ("gone", "i-1") not in world.events()
    world.settings = replace(world.settings, pools=("other",))
    world.until("gone", "i-1", limit_s=ROUND)


@pytest.mark.parametrize("mode", ["report", "replace"])
def test_a_reported_node_that_is_gone_is_forgotten(mode: str) -> None:
    """Otherwise the alert about it would never end. A node that Prometheus does not find for a short time has one event."""
    world = fleet(mode, nodes=8)
    for number in (1, 2, 3):
        world.fail(f"i-{number}")
    event = {"report": "reported", "replace": "halted"}[mode]
    world.until(event, "i-3")
    away = world.nodes.pop("i-1")
    world.rounds(300)
    world.nodes["i-1"] = away
    world.rounds(300)
    assert world.events().count((event, "i-1")) == 1
    del world.nodes["i-2"]
    world.rounds(ABSENT_S + 2 * ROUND)
    assert "i-2" not in world.round().told


@pytest.mark.parametrize("failures", [(RESET,), (UNKNOWN,)])
def test_an_order_ends_if_its_name_belongs_to_another_machine(failures: tuple[Failure, ...]) -> None:
    """On Azure, a machine of a new stack of the same name can have the name of an earlier one, whose order is not for it."""
    world = fleet()
    world.fail("i-1", *failures)
    world.until("rebooting" if failures == (RESET,) else "held")
    new = replace(world.nodes["i-1"], instance_id="new", boot="new", was_verified=False)
    world.nodes["i-1"] = replace(new, doubt="it states the same instance ID as i-2")
    world.rounds(2 * ABSENT_S)
    assert ("gone", "i-1") not in world.events()
    world.nodes["i-1"] = new
    world.until("gone", "i-1", limit_s=2 * ABSENT_S)
    assert "escalated" not in [event for event, _ in world.events()]
    assert orders_in(world.stored or b"") == ()


def test_an_unreadable_state_of_the_hardware_is_held_and_not_replaced() -> None:
    """An output that cannot be read does not show that the hardware is faulty."""
    world = fleet()
    world.fail("i-1", UNKNOWN)
    world.until("held")
    world.rounds(7200)
    assert world.replaced == []


def test_a_node_without_metrics_is_not_faulty() -> None:
    """A node that does not respond is not drained, and a fault must be in each reading of two minutes."""
    world = fleet()
    world.down = {"i-1", "i-2"}
    world.rounds(7200)
    assert world.events() == []
    world.down = set()
    for _ in range(20):
        world.fail("i-1")
        world.rounds(90)
        world.heal("i-1")
        world.rounds(60)
    assert world.events() == []


def test_a_new_node_and_a_node_that_leaves_are_not_repaired() -> None:
    """A node that was never verified belongs to the handover, and the cloud replaces a node that it takes back."""
    world = fleet()
    world.fail("i-1")
    world.nodes["i-1"] = replace(world.nodes["i-1"], was_verified=False)
    world.fail("i-2")
    world.nodes["i-2"] = replace(world.nodes["i-2"], leaving=True)
    world.rounds(7200)
    assert world.events() == []


def test_planned_work_silences_the_repair() -> None:
    """Nothing happens to a node until the work ends, and a drain that began before it is taken back."""
    world = fleet()
    world.maintenance = Maintenance(silenced=(("i-1", START + 3600),))
    world.fail("i-1")
    world.rounds(3600)
    assert world.events() == []
    world.until("draining", "i-1")
    world.maintenance = Maintenance(silenced=(("i-1", world.now + 3600),))
    world.until("released", "i-1")
    assert orders_in(world.stored or b"") == ()
    assert world.replaced == []


def test_a_node_that_recovers_during_the_drain_is_kept() -> None:
    """The order ends, and the node is not replaced."""
    world = fleet()
    world.fail("i-1")
    world.until("draining")
    world.heal("i-1")
    world.until("recovered")
    world.rounds(3600)
    assert world.replaced == []


def test_a_refused_request_is_repeated_until_the_deadline() -> None:
    """A throttled cloud delays the replacement. A cloud that never accepts it stops the repair."""
    world = fleet()
    world.works = False
    world.fail("i-1")
    world.until("replacing")
    world.rounds(600)
    refused_ = replace(world, nodes=dict(world.nodes))
    world.works = True
    world.rounds(60)
    assert world.replaced == ["i-1"]
    refused_.until("failed")
    assert "429 Throttling" in refused_.until("failed")["reason"]


@pytest.mark.parametrize("seed", range(16))
def test_a_service_that_is_killed_between_any_two_steps_replaces_each_node_once(seed: int) -> None:
    """In random histories of faults, kills, failed readings and refused requests, no node is replaced twice, no more nodes than the budget are replaced
    within a day, and no repair begins before the last replacement is verified."""
    chance = random.Random(seed)
    world = fleet(at_most=chance.choice((1, 2, 3)), nodes=chance.choice((4, 8, 16)))
    for _ in range(400):
        if chance.random() < 0.02:
            name = chance.choice(sorted(world.nodes))
            if world.nodes[name].was_verified:
                world.fail(name, chance.choice((BAD, RESET)))
        if chance.random() < 0.1 and (new := [name for name, one in world.nodes.items() if not one.was_verified]):
            world.heal(chance.choice(new))
        world.down = {name for name in world.nodes if chance.random() < 0.01}
        world.works = chance.random() < 0.8
        world.round(chance.choice((0, 1, 2, 9, 9, 9, 9)))
        waiting = [name for name, one in world.nodes.items() if name.startswith("new-") and not one.was_verified]
        assert len(waiting) <= 1
        assert len(state_in(world.stored).orders if world.stored else ()) <= 1
    assert len(set(world.replaced)) == len(world.replaced)
    assert len(world.replaced) <= world.settings.at_most


def test_a_damaged_state_is_not_a_new_state() -> None:
    """Without its history, the repair could exceed its budget, so it does nothing."""
    world = fleet()
    world.fail("i-1")
    world.until("draining")
    assert world.stored is not None
    assert state_in(world.stored).dumped() == world.stored
    for data in (b"", b"{}", b"[]", world.stored[:-20], world.stored.replace(b"repair/1", b"repair/2")):
        with pytest.raises(Unreadable):
            state_in(data)


def test_the_action_is_the_one_that_other_commands_advise() -> None:
    """The action follows from the cause, or from the check if the cause leaves it open. A warning takes no node out of use."""
    assert failure_of("G10", Cause.REMAPPING_FAILED.value, "fail").action is Action.REPLACE
    assert failure_of("G1", Cause.GPU_LOST.value, "fail").action is Action.REBOOT
    assert failure_of("G1", Cause.GPU_LOST.value, "warn").action is Action.LOOK
    assert failure_of("a later check", "a later cause", "fail").action is Action.CONFIGURE


SERIES = {"job": "node", "pool": "gpu", "instance": "i-1"}


def series(*more: tuple[dict[str, str], float], age: float = 10, up: float = 1) -> list[tuple[dict[str, str], float]]:
    """The series of one verified node."""
    return [
        ({"__name__": "up", **SERIES}, up),
        ({"__name__": "node_textfile_mtime_seconds", "file": "/var/lib/gpuinfra-metrics/gpuinfra.prom", **SERIES}, START - age),
        ({"__name__": "gpuinfra_node_info", "instance_id": "i-1", "boot_id": "b", **SERIES}, 1),
        ({"__name__": "gpuinfra_node_first_verified_timestamp_seconds", **SERIES}, START - 9000),
        *more,
    ]  # fmt: skip


FAILED = ({"__name__": "gpuinfra_check_failed", "check": "G10", "cause": "remapping-failed", "outcome": "fail", "blocks": "true", **SERIES}, 1.0)  # fmt: skip
SETTINGS = RepairSettings(RepairMode.REPLACE, 1, DEADLINE, ("gpu",), {"GpuXidDrain": Action.RESET})


def test_a_reading_leaves_out_what_is_not_known() -> None:
    """A node that does not respond, or whose facts are old, has no reading. Without any node, there is no decision."""
    node = reading_of(series(FAILED), SETTINGS, START).nodes["i-1"]
    assert node.faulty
    assert (node.boot, node.instance_id, node.action) == ("b", "i-1", Action.REPLACE)
    for bad in (series(FAILED, age=700), series(FAILED, up=0)):
        reading = reading_of(bad, SETTINGS, START)
        assert (reading.nodes, reading.known) == ({}, frozenset({"i-1"}))
    with pytest.raises(NotRead):
        reading_of(series(FAILED)[1:], SETTINGS, START)
    other = [({**labels, "pool": "monitoring"}, value) for labels, value in series(FAILED)]
    with pytest.raises(NotRead):
        reading_of(other, SETTINGS, START)
    warned = ({**FAILED[0], "blocks": "false"}, 1.0)
    assert not reading_of(series(warned), SETTINGS, START).nodes["i-1"].faulty


def renamed(
    name: str, id_: str, *more: tuple[dict[str, str], float], age: float = 10
) -> list[tuple[dict[str, str], float]]:
    """The series of a verified node with a name, which states an instance ID."""
    changed: list[tuple[dict[str, str], float]] = []
    for labels, value in series(*more, age=age):
        stated = {"instance_id": id_} if "instance_id" in labels else {}
        changed.append(({**labels, "instance": name, **stated}, value))
    return changed


def test_a_node_that_states_the_id_of_another_one_is_not_acted_upon() -> None:
    """The instance ID comes from the service discovery. A node that states another ID is in doubt, and the node that has this ID is not."""
    nodes = reading_of([*renamed("i-1", "i-2", FAILED), *renamed("i-2", "i-2")], SETTINGS, START).nodes
    assert (nodes["i-1"].instance_id, nodes["i-1"].faulty, nodes["i-1"].healthy) == ("i-1", False, False)
    assert nodes["i-1"].doubt == "it states the instance ID of another machine"
    assert (nodes["i-2"].instance_id, nodes["i-2"].doubt) == ("i-2", "")
    both = [*renamed("i-1", "i-1", FAILED), *renamed("i-1", "i-2")]
    assert reading_of(both, SETTINGS, START).nodes["i-1"].doubt == "it states 2 instance IDs"


@pytest.mark.parametrize("age", [10, 700])
def test_two_nodes_with_one_id_are_in_doubt(age: float) -> None:
    """If the discovery does not find the instance ID, neither of two nodes that state the same ID is acted upon, also if the facts of one are old."""
    every = [*renamed("gpu_1", "a", FAILED), *renamed("gpu_2", "a", age=age), *renamed("gpu_3", "c", FAILED)]
    nodes = reading_of(every, SETTINGS, START, ids_are_names=False).nodes
    assert (nodes["gpu_1"].faulty, nodes["gpu_1"].instance_id) == (False, "gpu_1")
    assert nodes["gpu_1"].doubt == "it states the same instance ID as gpu_2"
    assert (nodes["gpu_3"].faulty, nodes["gpu_3"].instance_id) == (True, "c")


def test_a_node_in_doubt_is_reported_once_and_never_drained() -> None:
    """The event follows after 10 minutes, because a new machine can have the address of a deleted one until the discovery is repeated."""
    world = fleet()
    world.fail("i-1")
    world.nodes["i-1"] = replace(world.nodes["i-1"], doubt="it states the instance ID of another machine")
    reported = world.until("unconfirmed", "i-1")
    assert at_of(reported) >= START + UNCONFIRMED_S
    for boot in range(100):
        world.nodes["i-1"] = replace(world.nodes["i-1"], boot=str(boot))
        world.round()
    assert world.events() == [("unconfirmed", "i-1")]
    assert list(world.round().told) == ["i-1"]
    world.nodes["i-1"] = replace(world.nodes["i-1"], doubt="")
    world.until("draining", "i-1")


def test_an_alert_has_the_action_of_its_xid() -> None:
    """Only the alerts in the settings count, and the number of the Xid can require more."""
    firing = {"__name__": "ALERTS", "alertstate": "firing", **SERIES}
    other = ({**firing, "alertname": "NodeNotice"}, 1.0)
    assert not reading_of(series(other), SETTINGS, START).nodes["i-1"].faulty
    for number, action in (("48", Action.RESET), ("140", Action.RESET), ("79", Action.REBOOT)):
        alert = ({**firing, "alertname": "GpuXidDrain", "err_code": number}, 1.0)
        assert reading_of(series(alert), SETTINGS, START).nodes["i-1"].action is action
    pending = ({**firing, "alertname": "GpuXidDrain", "alertstate": "pending", "err_code": "48"}, 1.0)
    assert not reading_of(series(pending), SETTINGS, START).nodes["i-1"].faulty


def test_only_alerts_about_one_node_require_an_action() -> None:
    """An alert about a pool or a file system is no reason to take a node out of use, and a missing metric is none either."""
    for alert in ALERTS:
        if alert.repair is not None:
            assert alert.repair.drains
            assert "instance" in json.dumps(alert.expression)
            assert "absent" not in alert.expression
            assert alert.severity.value == "page"
