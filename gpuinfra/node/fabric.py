"""The protocol of the fabric test: the nodes of a pool find each other, measure pairs in rounds, and find the slow node or path.

The module is pure. Its only port is a store of small objects that are written once, read, and listed by prefix. `run` is a generator: it
yields what the node does next (`Pause`, `Measure`), and the caller resumes it when that is done. `fabric_run.py` is the caller
on a node, and `tests/node/fabric_world.py` is the caller for a simulated pool.

The name of an object carries membership and outcomes, so one list request returns the state of all nodes, and the number of requests per
node grows with the number of rounds. Each name contains its writer, always at the same position: a store that lets a node write only below its own
name also accepts longer names, and these are skipped.

    member/00/<name>/<incarnation>         a process joins; a restarted node has another incarnation
    member/00/<name>/<incarnation>-left    the process leaves before the verdict
    plan/03/<leader>/plan                  the pairs of round 3
    plan/04/<leader>/verdict               the verdict, which ends the test
    result/03/<name>/<outcome>/<partner>   the outcome of round 3 on this node, which also shows that the node is alive

The node with the first name is the leader. It publishes the plan of a round when every node of the previous round has an outcome or
missed the deadline. A process that has left, or whose node has joined again, has no further outcome, so its outcome is not waited for. If the leader
dies, the next node of the plan takes over. If two leaders publish plans for one round, some partners do not arrive, and these pairs are measured in a
later round.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Generator, Iterable, Iterator, Mapping, Protocol, Sequence, Union

from .cloud import CloudError
from .console import MissingPrerequisite
from .fabric_plan import RoundPlan, plan_of
from .outcome import shortened
from .pairs import PairResult, next_round, verdict

MAX_NODES = 1000
"""Maximum number of nodes in one test. The simulation in the tests has this size. If the number of nodes is unknown, the other nodes end at once (`TestEnded`),
and their services start another test."""
MAX_BYTES = 1 << 20
"""Maximum size of an object that a node reads."""
MAX_ROUNDS = 64
VERDICT = "verdict"
"""Last part of the key of the plan that contains the verdict."""
MAX_REASONS = 16
"""Maximum number of failed outcomes whose reason the leader reads."""
PASS, FAIL, ABSENT, BYE = "pass", "fail", "absent", "bye"
"""Outcomes of one round on one node. `absent`: the partner did not arrive. `bye`: the node had no partner in this round."""
LEFT = "-left"
"""End of the incarnation with which a process leaves. The result is greater than the incarnation of the process, and less than that of a later process."""
QUIET_S = 10.0
"""Time without a new node after which the first round starts, in seconds. A node that joins later takes part from the next
round on, so a longer time delays all nodes for a few more pairs."""
STALE_S = 1800.0
"""Age of a process that does not take part in the first round if the number of nodes is unknown, because it can have died without leaving. A process
waits only minutes for the first round. If it is alive, it takes part from the second round on."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 2.0, 60.0
"""First and longest wait between two polls, in seconds. The longest wait is shorter than the time for which a node waits for its partner.
If the number of nodes is unknown, these waits and `_JOIN_PAUSE_S` shrink in proportion to a shorter `Settings.quiet_s`."""
_JOIN_PAUSE_S = 10.0
"""Longest wait between two polls before the first round, if the number of nodes is unknown."""
_STANDBY = 3
"""Number of nodes after the leader that examine at each poll whether the nodes before them have left or joined again.
The others wait for the time limit of the round."""
_TURN_S = 60.0
"""Time after which it is the next node's turn to publish the first plan, if the number of nodes is unknown."""


class FabricStore(Protocol):
    """The objects of one run. Other nodes write some of them, so their content is not trusted."""

    def put(self, key: str, data: bytes) -> bool:
        """Write an object once. Return False if it already exists."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return an object, up to `MAX_BYTES`, or None if it does not exist."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Return all keys that start with this prefix."""
        ...


@dataclass(frozen=True)
class Settings:
    """Who takes part, and how long to wait."""

    name: str
    """Name of this node. It is unique in the pool."""
    incarnation: str
    """Name of this process. A later process on the same node has a greater incarnation."""
    nodes: int = 0
    """Number of nodes that take part. The first round starts when they have joined, or after `join_s`. If it is 0, the number is unknown: the first
    round starts when two nodes have joined and no other node has joined for `quiet_s`. A node that joins later takes part from the next round on."""
    quiet_s: float = QUIET_S
    join_s: float = 900.0
    """Maximum wait for other nodes."""
    round_s: float = 1260.0
    """Maximum duration of one round. It is longer than the time limits of a pair together."""
    limit_s: float = 4 * 3600.0
    """Maximum duration of the run."""


class Alone(MissingPrerequisite):
    """No other node joined in time."""


class TestEnded(MissingPrerequisite):
    """The test ended before this node took part in a round, has no place for this node, or none of its nodes continues it."""

    def __init__(self, text: str, leader: str = "") -> None:
        super().__init__(text)
        self.leader = leader
        """The node that ended the test without this node. Empty if no node did."""


@dataclass(frozen=True)
class Pause:
    """Wait for this number of seconds."""

    seconds: float


@dataclass(frozen=True)
class Measure:
    """Run the all-reduce with this partner. The caller resumes with an `AllReduceOutcome`."""

    run: str
    """Name that both nodes of the pair use for this all-reduce."""
    partner: str
    place: int


@dataclass(frozen=True)
class AllReduceOutcome:
    """The outcome of one all-reduce on this node."""

    word: str
    reason: str = ""


def main_rounds(count: int) -> int:
    """Return log2 of the number of nodes, rounded up."""
    return max(0, count - 1).bit_length()


def choose(number: int, names: Iterable[str], results: Iterable[PairResult]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a round. In the first log2(n) rounds k, node i measures with node i XOR 2^k; later rounds find the slow node.

    A node without this partner, or with a partner that it already measured, has no partner in this round.
    """
    ordered, done = sorted(names), list(results)
    measured = {one.nodes for one in done}
    for power in range(number, main_rounds(len(ordered))):
        places = ((at, at ^ (1 << power)) for at in range(len(ordered)))
        pairs = tuple((ordered[at], ordered[other]) for at, other in places if at < other < len(ordered))
        fresh = tuple(pair for pair in pairs if frozenset(pair) not in measured)
        if fresh:
            return fresh
    return tuple(next_round(ordered, done))


Step = Union[Pause, Measure]


def incarnations(store: FabricStore) -> dict[str, str]:
    """Return the newest incarnation of each node that joined a test. It ends in `LEFT` if the process has left."""
    newest: dict[str, str] = {}
    for entry in map(entry_of, store.list("member/00/")):
        if entry is not None:
            newest[entry[1]] = max(entry[2], newest.get(entry[1], ""))
    return newest


def present(newest: Mapping[str, str]) -> dict[str, str]:
    """Return the processes that have not left."""
    return {name: one for name, one in newest.items() if not one.endswith(LEFT)}


def joined_at(incarnation: str) -> float:
    """Return the time at which a process joined, in seconds, or 0 if its incarnation does not start with a time."""
    text = incarnation.split("-")[0]
    return float(text) if text.isascii() and text.isdigit() else 0.0


def run(settings: Settings, store: FabricStore, clock: Callable[[], float]) -> Generator[Step, Any, RoundPlan]:
    """Take part until the verdict is final, and return the last plan.

    Raises `MissingPrerequisite` if this node cannot take part: `Alone`, `TestEnded`, or an error.

    After an error, or if the caller closes the generator, the node leaves, so that the other nodes do not wait for it.
    """
    node = _Node(settings, store, clock)
    try:
        return (yield from node.run())
    except BaseException:
        with contextlib.suppress(CloudError, OSError):
            node.leave()
        raise


class _Node:
    def __init__(self, settings: Settings, store: FabricStore, clock: Callable[[], float]) -> None:
        self._settings, self._store, self._clock = settings, store, clock
        self._name, self._incarnation = settings.name, settings.incarnation
        self._started = clock()
        self._plan: RoundPlan | None = None
        """The last plan that this node read."""
        self._words: dict[int, dict[str, tuple[str, str]]] = {}
        """Round -> name -> outcome and partner, for a leader."""
        self._invalid: set[str] = set()
        self._turn = 0
        """Number of nodes whose turn to publish the first plan is earlier."""
        self._seen, self._changed = 0, self._started
        """Number of nodes that have joined, and the time at which this node first saw this number."""
        self._pace = 1.0 if settings.nodes else min(1.0, settings.quiet_s / QUIET_S)

    def run(self) -> Generator[Step, Any, RoundPlan]:
        self._join(self._incarnation)
        while True:
            was_member = self._takes_part()
            self._plan = plan = yield from self._next_plan()
            other, open_end = plan.members.get(self._name, self._incarnation), not self._settings.nodes
            if other > self._incarnation or (plan.verdict is not None and other != self._incarnation and not open_end):
                raise MissingPrerequisite(
                    "another process takes part under the name %s, or this test already has a verdict; give each node its own name, and each test its own name"
                    % self._name
                )
            if plan.verdict is not None:
                if open_end and plan.members.get(self._name) != self._incarnation:
                    raise TestEnded("the test ended before this node joined, or without this node", plan.leader)
                return plan
            if open_end and self._name not in plan.members and len(plan.members) >= MAX_NODES:
                raise TestEnded("the test has its maximum number of %d nodes" % MAX_NODES)
            if self._takes_part():
                yield from self._measure(plan)
            elif was_member or plan.absent.get(self._name) == self._incarnation:
                # The leader saw no outcome of this node in time, or considered it dead. It accepts this node as a new process.
                self._join("%s-%02d" % (self._settings.incarnation, plan.round))

    def _join(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._store.put("member/00/%s/%s" % (self._name, incarnation), b"{}")

    def leave(self) -> None:
        """Write that this process takes no further part."""
        self._store.put("member/00/%s/%s%s" % (self._name, self._incarnation, LEFT), b"{}")

    def _takes_part(self) -> bool:
        return self._plan is not None and self._plan.members.get(self._name) == self._incarnation

    def _measure(self, plan: RoundPlan) -> Generator[Step, Any, None]:
        """Measure with the partner of this round, and store the outcome."""
        pair, outcome = plan.partner(self._name), AllReduceOutcome(BYE)
        if pair is not None:
            # The leader is part of the name, so nodes that follow different plans do not meet.
            outcome = yield Measure("%02d-%s" % (plan.round, plan.leader), *pair)
        key = "result/%02d/%s/%s/%s" % (plan.round, self._name, outcome.word, pair[0] if pair else "-")
        self._store.put(key, json.dumps({"reason": outcome.reason[:400]}).encode("ascii"))

    def _next_plan(self) -> Generator[Step, Any, RoundPlan]:
        """Wait for a later plan, and publish it if it is this node's turn."""
        begun, pause = self._clock(), _FIRST_PAUSE_S * self._pace
        while True:
            plan = self._newest() or self._lead(self._clock() - begun)
            if plan is not None:
                return plan
            if self._clock() - self._started > self._settings.limit_s:
                raise MissingPrerequisite("the fabric test has no verdict after %d s" % self._settings.limit_s)
            if self._is_abandoned(self._clock() - begun):
                raise TestEnded("none of the nodes of this test continues it")
            yield Pause(min(pause, self._until_start() or pause))
            longest = _JOIN_PAUSE_S if self._plan is None and not self._settings.nodes else _LAST_PAUSE_S
            pause = min(pause * 1.5, longest * self._pace)

    def _until_start(self) -> float:
        """Return the time until the leader publishes the first plan if no other node joins, or 0 if it is not known. The other nodes look a little later."""
        left = self._changed + self._settings.quiet_s - self._clock()
        if self._plan is not None or self._settings.nodes or self._seen < 2 or left <= 0:
            return 0.0
        return left + (_FIRST_PAUSE_S * self._pace if self._turn else 0.0)

    def _is_abandoned(self, waited: float) -> bool:
        """Return True if this node waits to take part in a test whose nodes have all left, restarted or died, or do not publish a plan anymore."""
        plan, settings = self._plan, self._settings
        if settings.nodes or plan is None or self._takes_part():
            return False
        gone, now = self._gone(incarnations(self._store)), self._now()
        left = [
            name for name, one in plan.members.items() if name not in gone and now - joined_at(one) <= settings.limit_s
        ]
        # A measurement, and then the turns of the nodes that can take over.
        return not left or waited > 2 * settings.round_s + min(len(left) * self._gap(), settings.round_s)

    def _gone(self, newest: Mapping[str, str]) -> set[str]:
        """Return the nodes of the last plan whose process has left, or whose node has joined again."""
        members = {} if self._plan is None else self._plan.members
        return {name for name, one in members.items() if newest.get(name, one) > one}

    def _gap(self) -> float:
        """Return the time between the turns of two nodes to take over from a dead leader."""
        return self._settings.round_s if self._settings.nodes else 2 * _LAST_PAUSE_S

    def _now(self) -> float:
        """Return the time, as in the incarnations of the nodes."""
        return joined_at(self._settings.incarnation) + self._clock() - self._started

    def _newest(self) -> RoundPlan | None:
        """Return the plan of the latest round that follows this node's round. If a round has two plans, that of the first leader counts."""
        after = -1 if self._plan is None else self._plan.round
        for number, leader, last, key in sorted(self._entries("plan"), key=lambda one: (-one[0], one[1])):
            if number > after and key not in self._invalid:
                data = self._store.get(key)
                plan = None if data is None else plan_of(number, leader, data)
                # A verdict follows a round, unless the nodes are known and only one joined.
                early = plan is not None and plan.verdict is not None and not number and not self._settings.nodes
                if plan is not None and not early and (plan.verdict is not None) == (last == VERDICT):
                    return plan
                if data is not None:
                    self._invalid.add(key)
        return None

    def _lead(self, waited: float) -> RoundPlan | None:
        """Publish the next plan if it is due and this node's turn. If the leader does not publish it, it is the next node's turn."""
        before, patience = self._plan, self._settings.round_s
        if before is None:
            return self._lead_first(waited)
        if not self._takes_part() or (waited < patience and list(before.members).index(self._name) > _STANDBY):
            return None
        newest = incarnations(self._store)
        gone = self._gone(newest) - {self._name}
        turn = [name for name in before.members if name not in gone].index(self._name)
        if turn and waited < patience + turn * self._gap():
            return None
        reported = self._outcomes(before.round)
        late = {name: one for name, one in before.members.items() if name not in reported}
        if late.keys() - gone and waited < patience:
            return None
        left = {**before.absent, **late}
        joined = {name: one for name, one in present(newest).items() if one > left.get(name, "")}
        return self._publish(before.round + 1, joined, {name: one for name, one in left.items() if name not in joined})

    def _lead_first(self, waited: float) -> RoundPlan | None:
        """Publish the first plan when it is this node's turn and all nodes have joined or the time is over."""
        settings = self._settings

        def due() -> float:
            return settings.join_s + self._turn * settings.round_s

        if settings.nodes and self._turn and waited < due():
            return None
        joined, now = present(incarnations(self._store)), self._now()
        if joined.get(self._name) != self._incarnation:
            return None
        others = {} if settings.nodes else {name: one for name, one in joined.items() if name != self._name}
        stale = {name: one for name, one in others.items() if now - joined_at(one) > STALE_S}
        joined = {name: one for name, one in joined.items() if name not in stale}
        self._turn = sum(name < self._name for name in joined)
        if settings.nodes:
            complete = not self._turn and len(joined) >= settings.nodes
            return self._publish(0, joined, {}) if complete or waited >= due() else None
        if len(joined) != self._seen:
            self._seen, self._changed = len(joined), self._clock()
        if len(joined) < 2:
            if waited >= settings.join_s:
                raise Alone("no other node joined within %d s" % settings.join_s)
            return None
        quiet = self._clock() - self._changed
        return self._publish(0, joined, stale) if quiet >= settings.quiet_s + self._turn * _TURN_S else None

    def _publish(self, number: int, joined: Mapping[str, str], absent: dict[str, str]) -> RoundPlan | None:
        if len(joined) > MAX_NODES:
            joined = self._with_a_place(joined)
        for earlier in range(number):
            if earlier not in self._words:
                self._outcomes(earlier)
        members = {name: joined[name] for name in sorted(joined)}
        results = _results(self._words)
        pairs = choose(number, members, results) if number < MAX_ROUNDS else ()
        ruling = None if pairs else self._verdict(members, results)
        plan = RoundPlan(number, self._name, members, pairs, absent, ruling)
        # An object of an earlier process with this name stays, and the next poll reads it.
        last = "plan" if ruling is None else VERDICT
        return plan if self._store.put("plan/%02d/%s/%s" % (number, self._name, last), plan.dumped()) else None

    def _with_a_place(self, joined: Mapping[str, str]) -> dict[str, str]:
        """Return as many nodes as a test can have: those that already take part, then those with the first names."""
        if self._settings.nodes:
            raise MissingPrerequisite(
                "%d nodes take part; the fabric test supports at most %d" % (len(joined), MAX_NODES)
            )
        before = {} if self._plan is None else self._plan.members
        return {name: joined[name] for name in sorted(joined, key=lambda name: (name not in before, name))[:MAX_NODES]}

    def _outcomes(self, number: int) -> dict[str, tuple[str, str]]:
        """Return the outcome and the partner of each node in a round."""
        outcomes: dict[str, tuple[str, str]] = {}
        for _, name, rest, _ in self._entries("result/%02d" % number):
            word, _, partner = rest.partition("/")
            outcomes[name] = (word, partner)
        self._words[number] = outcomes
        return outcomes

    def _entries(self, prefix: str) -> Iterator[tuple[int, str, str, str]]:
        for key in self._store.list(prefix + "/"):
            entry = entry_of(key)
            if entry:
                yield (*entry, key)

    def _verdict(self, members: Mapping[str, str], results: list[PairResult]) -> dict[str, Any]:
        bad = [one for one in results if not one.good]
        read = {one.reason: _reason(self._store.get(one.reason)) for one in bad[:MAX_REASONS]}
        ruling = verdict(list(members), [replace(one, reason=read.get(one.reason, "")) for one in results])
        return {
            "expected": self._settings.nodes or len(members),
            "good": list(ruling.good),
            "slow": dict(ruling.slow),
            "slow_paths": [list(path) for path in ruling.slow_paths],
            "unknown": list(ruling.unknown),
        }


def ends_test(entry: tuple[int, str, str]) -> bool:
    """Return True if an object of an open test is a verdict. A verdict follows at least one round."""
    return entry[0] > 0 and entry[2] == VERDICT


def _results(words: Mapping[int, Mapping[str, tuple[str, str]]]) -> list[PairResult]:
    """Return the pairs that both nodes measured. Until the verdict, the reason of a bad pair is the key of the outcome that states it."""
    measured = []
    for number in sorted(words):
        for name, (word, partner) in sorted(words[number].items()):
            other, back = words[number].get(partner, ("", ""))
            both = {word, other}
            # Without a failure on either side, two nodes that did not meet show nothing about the path.
            if name > partner or back != name or not (FAIL in both or both == {PASS}):
                continue
            failed = name if word == FAIL else partner
            key = "result/%02d/%s/%s/%s" % (number, failed, FAIL, partner if failed == name else name)
            good = both == {PASS}
            measured.append(PairResult(name, partner, good, "" if good else key))
    return measured


def _reason(data: bytes | None) -> str:
    """Return the reason in an outcome."""
    try:
        return shortened(str(json.loads(data or b"")["reason"]), 200)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def entry_of(key: str) -> tuple[int, str, str] | None:
    """Return the round, the writer and the remaining name of an object, or None if the key does not belong to the protocol."""
    match = _KEY.match(key)
    return None if match is None else (int(match.group(1)), match.group(2), match.group(3))


_WRITER = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
_KEY = re.compile(
    r"(?=member/00/[^/]+/[^/]+$|plan/\d\d/[^/]+/(?:plan|verdict)$|result/\d\d/[^/]+/(?:pass|fail|absent|bye)/[^/]+$)"
    r"\w+/(\d\d)/(%s)/([A-Za-z0-9._:/-]{1,200})$" % _WRITER
)
