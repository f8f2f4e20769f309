"""A fuzzer: whatever hostile nodes write, in any order, nothing raises, the verdicts of the other nodes stay, and no output has their characters."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.handover import wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.examine import examine, judge_node
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.ports import EvidenceRef
from gpuinfra.handover.watch import WaitOutcome, progress
from gpuinfra.node import evidence as node_evidence
from gpuinfra.report.tables import Cell, Table, markdown
from gpuinfra.report.verification_page import page
from gpuinfra.report.verification_text import document as report_document
from gpuinfra.report.verification_text import junit
from gpuinfra.report.verification_text import text as report_text
from gpuinfra.verification.judged import judge_all
from gpuinfra.verification.read import EvidenceDocument, FoundEvidence, parse
from tests.node import healthy
from tests.node.test_evidence import BOOT, NODE

from .fleet import LAUNCHED, judge
from .hostile_world import BOOTS, CLOUDS, World, document, id_of, signed

WRITES = 12
"""Objects that hostile nodes write in one case."""
MULTIPLE, FIXED_S = 60.0, 0.25
"""The time to examine a document is at most this multiple of the time to decode its JSON, plus a constant for the checks of a machine."""
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
    name = f"{world.folder(number)}/{boot}/{rng.choice((0, 1, 2, 3, 7, 999999)):06d}{end}"
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
    base = f"{world.folder(number)}/{rng.choice((*BOOTS, 'f' * 8))}/{rng.randrange(900, 999):06d}"
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


def case(cloud: str, seed: int) -> None:
    """One order of writes by honest and hostile nodes, with polls in between."""
    rng = random.Random(f"{cloud} {seed}")
    hostile = 4
    alone, world = World(cloud, 4), World(cloud, 4)
    for one in honest(alone):
        alone.report(*one)
    expected = verdicts(Gatherer(alone.ports, [alone.pool], judge_node=judge).poll(), hostile)
    steps: list[tuple[int, str, int, int] | None] = [*honest(world), *[None] * WRITES]
    order = sorted(range(len(steps)), key=lambda at: rng.random() if steps[at] is None else at / len(honest(world)))
    polls = Gatherer(world.ports, [world.pool], judge_node=judge)
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
    for _ in range(3):
        polls.poll()
    for gatherer in (polls, Gatherer(world.ports, [world.pool], judge_node=judge)):
        verdict = gatherer.poll()
        assert not set(shown(verdict)) & BAD, (cloud, seed)
        found = verdicts(verdict, hostile)
        assert found == expected, (cloud, seed)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("part", [pytest.param(at, marks=pytest.mark.long) for at in range(1, 5)] + [0])
def test_hostile_writes_change_no_other_verdict(cloud: str, part: int) -> None:
    """In each case of a seed, the honest nodes have the verdict that they have without the hostile node."""
    count = 25 if part == 0 else 400
    for seed in range(part * 1000, part * 1000 + count):
        case(cloud, seed)


def original() -> dict[str, Any]:
    """Evidence of a healthy machine, as the node program makes it."""
    return node_evidence.make(
        node=NODE, expectation=healthy.P4D, journal=healthy.JOURNAL, probes=healthy.healthy(), instance_id="i-00000000000000001", boot_id=BOOT,
        seq=1, previous=None, started="2026-11-21T09:00:00Z", finished="2026-11-21T09:00:05Z", host_keys=[],
    )  # fmt: skip


def reports(one: EvidenceDocument) -> Iterator[str]:
    """The reports about a document: JSON, HTML, JUnit and the lines on the terminal."""
    found = FoundEvidence(newest=(one,), about="")
    nodes = judge_all(found, lambda _: healthy.P4D)
    yield json.dumps(report_document(nodes, found), ensure_ascii=False)
    yield page(report_document(nodes, found), "title")
    yield junit(nodes, found)
    yield from report_text(nodes, found)
    yield from markdown(
        Table(["text", "code"], [(value, Cell(value, code=True)) for value in texts(one.document)]), 100
    )


def texts(content: Any) -> Iterator[str]:
    """All texts of a document."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from texts(inner)


def examined(data: bytes) -> float:
    """Examine one document, and return the CPU time."""
    ref = EvidenceRef(instance_id="i-00000000000000001", boot_id=BOOT, seq=1, key="k.json", etag="e", modified=LAUNCHED)
    begun = time.thread_time()
    examine(data, ref, healthy.P4D, judge_node)
    return time.thread_time() - begun


@pytest.mark.parametrize("part", [pytest.param(at, marks=pytest.mark.long) for at in range(1, 5)] + [0])
def test_documents_of_any_content_are_examined_in_bounded_time(part: int, tmp_path: Path) -> None:
    """A changed document of a real machine raises nothing, needs a bounded time, and no report contains its control characters."""
    base = original()
    for seed in range(part * 1000, part * 1000 + (10 if part == 0 else 150)):
        rng = random.Random(f"document {seed}")
        data = mutated(rng, base)
        begun = time.thread_time()
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(data)
        decoding = time.thread_time() - begun
        spent = min(examined(data), examined(data))
        assert spent < MULTIPLE * decoding + FIXED_S, (seed, spent, decoding)
        one = parse(data, "x.json")
        for report in reports(one) if isinstance(one, EvidenceDocument) else [one]:
            assert not set(report) & BAD, seed


@pytest.mark.parametrize("part", [pytest.param(at, marks=pytest.mark.long) for at in range(1, 5)] + [0])
def test_markdown_keeps_texts_in_their_cells(part: int) -> None:
    """A text of any content is on one line and in one cell of a Markdown table, without control characters."""
    for seed in range(part * 1000, part * 1000 + (25 if part == 0 else 250)):
        rng = random.Random(f"markdown {seed}")
        lines = markdown(
            Table(["text", "code"], [(value, Cell(value, code=True)) for value in (text(rng), text(rng))]), 9
        )
        assert len("\n".join(lines).splitlines()) == 4, seed
        for line in lines:
            assert not set(line) & frozenset(DIRTY), seed
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3, (seed, line)
