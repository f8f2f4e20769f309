"""The protocol of `node.pyz fabric`: the nodes of a pool find each other in a shared folder, measure pairs in rounds, and find the slow node or path.

The module is pure. Its only port is a store of small objects that are written once, read, and listed by prefix. `run` is a generator: it
yields what the node does next (`Pause`, `Measure`), and the caller resumes it when that is done. `fabric_run.py` is the caller
on a node, and `tests/node/fabric_world.py` is the caller for a simulated pool.

The name of an object carries membership and outcomes, so one list request returns the state of all nodes, and the number of requests per
node grows with the number of rounds. The nodes trust each other. In the handover, which does not trust them, the operator's command selects the pairs
(`fabric_relay.py`).

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
"""Maximum number of nodes in one test. The simulation in the tests has this size."""
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
_FIRST_PAUSE_S, _LAST_PAUSE_S = 2.0, 60.0
"""First and longest wait between two polls, in seconds. The longest wait is shorter than the time for which a node waits for its partner."""
_STANDBY = 3
"""Number of nodes after the leader that examine at each poll whether the nodes before them have left or joined again.
The others wait for the time limit of the round."""


class FabricStore(Protocol):
    """The objects of one run."""

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
    nodes: int
    """Number of nodes that take part. The first round starts when they have joined, or after `join_s`. A node that joins later takes part from the next
    round on."""
    join_s: float = 900.0
    """Maximum wait for other nodes."""
    round_s: float = 1260.0
    """Maximum duration of one round. It is longer than the time limits of a pair together."""
    limit_s: float = 4 * 3600.0
    """Maximum duration of the run."""


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


def run(settings: Settings, store: FabricStore, clock: Callable[[], float]) -> Generator[Step, Any, RoundPlan]:
    """Take part until the verdict is final, and return the last plan.

    Raises `MissingPrerequisite` if this node cannot take part.

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

    def run(self) -> Generator[Step, Any, RoundPlan]:
        self._join(self._incarnation)
        while True:
            was_member = self._takes_part()
            self._plan = plan = yield from self._next_plan()
            other = plan.members.get(self._name, self._incarnation)
            if other > self._incarnation or (plan.verdict is not None and other != self._incarnation):
                raise MissingPrerequisite(
                    "another process takes part under the name %s, or this test already has a verdict; give each node its own name, and each test its own name"
                    % self._name
                )
            if plan.verdict is not None:
                return plan
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
        begun, pause = self._clock(), _FIRST_PAUSE_S
        while True:
            plan = self._newest() or self._lead(self._clock() - begun)
            if plan is not None:
                return plan
            if self._clock() - self._started > self._settings.limit_s:
                raise MissingPrerequisite("the fabric test has no verdict after %d s" % self._settings.limit_s)
            yield Pause(pause)
            pause = min(pause * 1.5, _LAST_PAUSE_S)

    def _gone(self, newest: Mapping[str, str]) -> set[str]:
        """Return the nodes of the last plan whose process has left, or whose node has joined again."""
        members = {} if self._plan is None else self._plan.members
        return {name for name, one in members.items() if newest.get(name, one) > one}

    def _newest(self) -> RoundPlan | None:
        """Return the plan of the latest round that follows this node's round. If a round has two plans, that of the first leader counts."""
        after = -1 if self._plan is None else self._plan.round
        for number, leader, last, key in sorted(self._entries("plan"), key=lambda one: (-one[0], one[1])):
            if number > after and key not in self._invalid:
                data = self._store.get(key)
                plan = None if data is None else plan_of(number, leader, data)
                if plan is not None and (plan.verdict is not None) == (last == VERDICT):
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
        if turn and waited < (1 + turn) * patience:
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

        if self._turn and waited < due():
            return None
        joined = present(incarnations(self._store))
        if joined.get(self._name) != self._incarnation:
            return None
        self._turn = sum(name < self._name for name in joined)
        complete = not self._turn and len(joined) >= settings.nodes
        return self._publish(0, joined, {}) if complete or waited >= due() else None

    def _publish(self, number: int, joined: Mapping[str, str], absent: dict[str, str]) -> RoundPlan | None:
        if len(joined) > MAX_NODES:
            raise MissingPrerequisite(
                "%d nodes take part; the fabric test supports at most %d" % (len(joined), MAX_NODES)
            )
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
            "expected": self._settings.nodes,
            "good": list(ruling.good),
            "slow": dict(ruling.slow),
            "slow_paths": [list(path) for path in ruling.slow_paths],
            "unknown": list(ruling.unknown),
        }


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
