"""A fuzzer: the writes, documents and texts of hostile nodes, and the cases that the tests `test_fuzz*.py` run.

Whatever hostile nodes write, in any order, nothing raises, the verdicts of the other nodes stay, and no output has their characters.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from gpuinfra.handover import gather, wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.watch import WaitOutcome, progress

from .fleet import INSIDE, judge
from .hostile_world import BOOTS, World, document, id_of, signed

HOSTILE = 4
"""The number of the hostile node, which is the last one."""
MOST_POLLS = 3
"""Number of polls after the last write, after which the verdicts are those of an undisturbed world. They stay so in the next poll."""
WRITES = 12
"""Objects that hostile nodes write in one case."""
PARTS = pytest.mark.parametrize("part", [pytest.param(at, marks=pytest.mark.long) for at in range(1, 9)] + [0])
"""Part 0 is short and runs in `make test`. The parts have different seeds, and the workers of `make test-long` share them."""
DIRTY = "".join(
    map(
        chr,
        [
            *range(32),
            *range(0x7F, 0xA0),
            0x61C,
            0x200E,
            0x200F,
            0x2028,
            0x2029,
            *range(0x202A, 0x202F),
            *range(0x2066, 0x206A),
            0xFEFF,
        ],
    )
)
BAD = frozenset(DIRTY) - {"\n", "\t"}


def text(rng: random.Random) -> str:
    """A text that a hostile node may choose."""
    choices = [
        "\x1b]0;title\x07\x1b[2J", "\u202eevil", DIRTY, "\ud800", "<script>alert(1)</script>", "](javascript:x)", "x" * rng.choice((1, 300, 70_000)),
        "'\"&<>", "%s{}\\u0000", "\r\nfake: line", "__proto__", "../../etc/passwd", "", "\N{ZERO WIDTH JOINER}", "NaN", "9" * 400,
    ]  # fmt: skip
    return rng.choice(choices) + (rng.choice(choices) if rng.random() < 0.3 else "")


def value(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value that a hostile node may choose."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return text(rng)
    if kind == 3:
        return rng.choice((0, -1, 10**18, 10**40, 1.5, True, False, None))
    if kind < 6:
        return rng.choice((None, [], {}, "gpuinfra.evidence/1"))
    if kind < 8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {text(rng): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def mutated(rng: random.Random, content: dict[str, Any]) -> bytes:
    """A document with some fields of any value, or with bytes that are not JSON anymore."""
    content = copy.deepcopy(content)
    for _ in range(rng.randrange(1, 5)):
        place: Any = content
        for _ in range(rng.randrange(4)):
            inner = [
                one
                for one in (place.values() if isinstance(place, dict) else place)
                if isinstance(one, dict | list) and one
            ]
            if not inner:
                break
            place = rng.choice(inner)
        if isinstance(place, dict):
            place[rng.choice([*map(str, list(place)[:40]), text(rng)])] = value(rng)
        elif place:
            place[rng.randrange(len(place))] = value(rng)
    data = json.dumps(content, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        at = rng.randrange(len(data))
        junk = (b"\xff\xfe", b"\x00", b"[" * 5000, b'"', b"\\u", b"1e999", b"", data[: 1 + at % 1000])
        data = data[:at] + rng.choice(junk) + data[at + rng.randrange(20) :]
    return data


def key(rng: random.Random, world: World, hostile: int) -> str:
    """The name of an object that the access rules let a hostile node create."""
    number = hostile if world.owner else rng.randrange(1, world.nodes + 1)
    boot = rng.choice((*BOOTS, "0" * 8, "f" * 64, f"{rng.getrandbits(64):016x}"))
    end = rng.choice((".json", ".json", ".proof.json", f".{rng.getrandbits(32):08x}.proof.json", ".txt", ".json/x"))
    part = rng.choice(("", "", "fabric/"))
    name = f"{world.folder(number)}/{boot}/{part}{rng.choice((0, 1, 2, 3, 7, 999999)):06d}{end}"
    if rng.random() < 0.1:
        name = f"{world.folder(number)}/{text(rng)[:200]}".encode("utf-8", "replace").decode()
        name = "".join(letter for letter in name if letter >= " " and letter not in "\x7f\ufffe\uffff")
    return name


def content(rng: random.Random, world: World, hostile: int, name: str) -> bytes:
    """Evidence, a proof or anything else: of the hostile node, of another node, copied, expired or changed."""
    kind = rng.randrange(7)
    existing = [data for data, _ in world.objects.values()]
    if kind == 0:
        return rng.choice(existing)
    if kind == 1:
        return rng.choice((b"", b"[" * 60_000, rng.randbytes(200), b"\xef\xbb\xbf{}", b"null"))
    target = rng.choice(range(1, world.nodes + 1))
    made = document(world.cloud, target, rng.choice(BOOTS), rng.randrange(1, 4), rng.choice((0, 7, 8)))
    if kind < 5 and "proof" not in name:
        return mutated(rng, json.loads(made))
    base = name.partition(".")[0] + ".json"
    about = hashlib.sha256(world.objects[base][0] if base in world.objects else rng.choice(existing)).hexdigest()
    proof = signed(
        world.cloud, id_of(world.cloud, hostile), about if rng.random() < 0.5 else PLANTED, expired=rng.random() < 0.2
    )
    return mutated(rng, json.loads(proof)) if kind == 6 else proof


def pair(rng: random.Random, world: World, hostile: int) -> Iterator[tuple[str, bytes]]:
    """A newer document with a proof: each of them is genuine, copied from another place, of the hostile node, or about another document."""
    number = hostile if world.owner else rng.randrange(1, world.nodes + 1)
    base = f"{world.folder(number)}/{rng.choice((*BOOTS, 'f' * 8))}/{rng.choice(NEWER):06d}"
    documents = [key for key in world.objects if key.endswith(".json") and not key.endswith(".proof.json")]
    proofs = [key for key in world.objects if key.endswith(".proof.json") and world.objects[key][0][:1] == b"{"]
    own = [key for key in proofs if key.startswith(world.folder(number))] or proofs
    claimed = document(world.cloud, number, base.split("/")[-2], int(base[-6:]), rng.choice((0, 8)))
    copied = world.objects[rng.choice(documents)][0] if documents else claimed
    data = rng.choice((claimed, copied, copied, b"x" * 100_000))
    by = id_of(world.cloud, hostile)
    if own and rng.random() < 0.6:
        name = rng.choice(own)
        proof = world.objects[name][0]
        # The document that the copied proof is about.
        about = f"{name[: name.rindex('/')]}/{name.rpartition('/')[2][:6]}.json"
        data = world.objects[about][0] if about in world.objects and rng.random() < 0.6 else data
    else:
        proof = signed(world.cloud, by, hashlib.sha256(data).hexdigest(), expired=rng.random() < 0.3)
    yield f"{base}.json", data
    if rng.random() < 0.9:
        yield f"{base}.{rng.getrandbits(32):08x}.proof.json", proof


NEWER = (900, 901, 950, 998)
"""Numbers of hostile documents that look newer. They are few, so that most signatures are made once for all cases."""
PLANTED = "d" * 64
"""A hash that hostile nodes often sign, because signatures of Azure take long."""


def honest(world: World) -> list[tuple[int, str, int, int]]:
    """What the honest nodes write: node 1 is good, node 2 has seven GPUs, node 3 was bad before its last boot."""
    first, second = BOOTS
    return [(1, first, 1, 8), (2, first, 1, 7), (3, first, 1, 7), (1, first, 2, 8), (3, second, 1, 8)]


def verdicts(verdict: FleetVerdict, hostile: int) -> list[tuple[object, ...]]:
    """What the verdict says about the honest nodes."""
    others = [one for one in verdict.nodes if one.instance_id != id_of(one.cloud, hostile)]
    return [(one.instance_id, one.outcome, one.cause, one.settled, one.reason, one.gpus) for one in others]


def shown(verdict: FleetVerdict) -> str:
    """All that a handover writes: the state, the progress and the reasons."""
    outcome = WaitOutcome(verdict=verdict, ready=False, ended=WaitEnd.SETTLED, seconds=1.0)
    state = wire.from_struct(wire.to_struct(wire.outputs_of(outcome, (), "")))
    return "\n".join(
        [json.dumps(state, ensure_ascii=False), progress(verdict), *reasons(outcome, verdict.nodes[0].cloud)]
    )


@cache
def undisturbed(cloud: str) -> list[tuple[object, ...]]:
    """The verdicts about the honest nodes if the hostile node writes nothing."""
    world = World(cloud, HOSTILE)
    for one in honest(world):
        world.report(*one)
    return verdicts(Gatherer(world.ports, [world.pool], judge_node=judge, workers=INSIDE).poll(), HOSTILE)


def case(cloud: str, seed: int) -> None:
    """One order of writes by honest and hostile nodes, with polls in between."""
    rng = random.Random(f"{cloud} {seed}")
    world, expected = World(cloud, 4), undisturbed(cloud)
    hostile = HOSTILE
    steps: list[tuple[int, str, int, int] | None] = [*honest(world), *[None] * WRITES]
    order = sorted(range(len(steps)), key=lambda at: rng.random() if steps[at] is None else at / len(honest(world)))
    polls = Gatherer(world.ports, [world.pool], judge_node=judge, workers=INSIDE)
    for at in order:
        step = steps[at]
        if step is not None:
            world.report(*step)
        elif world.objects:
            if rng.random() < 0.6:
                for name, data in pair(rng, world, hostile):
                    world.write(name, data)
            else:
                name = key(rng, world, hostile)
                world.write(name, content(rng, world, hostile, name))
        if rng.random() < 0.1 and world.objects:
            dirty = set(shown(polls.poll())) & BAD
            assert not dirty, (cloud, seed, dirty)
    for number in world.own:
        world.renew(number)
    for _ in range(MOST_POLLS):
        if verdicts(polls.poll(), hostile) == expected:
            break
    for gatherer in (polls, Gatherer(world.ports, [world.pool], judge_node=judge, workers=INSIDE)):
        verdict = gatherer.poll()
        assert not set(shown(verdict)) & BAD, (cloud, seed)
        assert verdicts(verdict, hostile) == expected, (cloud, seed)


class InTurn:
    """Reads one node after the other. Threads take half of the time of a case; the short part of each cloud has them."""

    def __init__(self, max_workers: int) -> None:
        pass

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[str], object], names: Iterable[str]) -> list[object]:
        """Call a function with each name."""
        return [function(name) for name in names]


def part_of(cloud: str, part: int) -> None:
    """The cases of one part: in each, the honest nodes have the verdict that they have without the hostile node."""
    with pytest.MonkeyPatch.context() as patched:
        if part:
            patched.setattr(gather, "ThreadPoolExecutor", InTurn)
        for seed in range(part * 1000, part * 1000 + (25 if part == 0 else 200)):
            case(cloud, seed)
