"""What a hostile node writes affects only this node: identity comes before content, and every text is bounded and clean."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuinfra.handover import gather, wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.evidence import evidence_of, proof_of
from gpuinfra.handover.examine import examine
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.gather import LISTED_PER_POLL, Gatherer
from gpuinfra.handover.listing import MOST_KEPT
from gpuinfra.handover.ports import PoolExpected
from gpuinfra.handover.watch import WaitOutcome

from .fleet import INSIDE, LAUNCHED, Fleet, gpu_uuid, instance, judge, pool

SHARED = pool(2, evidence_owner="")
"""A pool whose nodes can write to the folders of each other."""
CONTROL = (
    "".join(
        map(
            chr, [*range(32), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
        )
    )
    + "\ud800"
)


def two_nodes() -> Fleet:
    """A healthy node 1, and a hostile node 2 that reports as well."""
    fleet = Fleet()
    for number in (1, 2):
        fleet.launch(number)
        fleet.report(number, owner="")
    return fleet


def plant(fleet: Fleet, seq: int, **more: Any) -> None:
    """A newer document in the folder of node 1."""
    fleet.report(
        1, owner="", boot="0badb007", seq=seq, gpus=0, modified=LAUNCHED + timedelta(hours=1, seconds=seq), **more
    )


def polled(fleet: Fleet, expected: PoolExpected = SHARED, times: int = 1) -> list[str]:
    """The outcomes after some polls of one gatherer."""
    polls = Gatherer(fleet.ports, [expected], judge_node=judge, workers=INSIDE)
    for _ in range(times - 1):
        polls.poll()
    return [node.outcome for node in polls.poll().nodes]


@pytest.mark.parametrize("count", [1, MOST_KEPT, MOST_KEPT + 5, 500])
@pytest.mark.parametrize("signer", ["", instance(2), "nobody", "unreadable"])
def test_objects_that_the_node_did_not_sign_do_not_count(count: int, signer: str) -> None:
    """Any number of newer objects without a proof, or with the proof of another node, leaves a node verified, and none of them is parsed."""
    fleet = two_nodes()
    for seq in range(count):
        plant(fleet, seq, signer=signer)
        if not signer:
            del fleet.proofs[fleet.refs[-1].key]
    planted = {ref.key for ref in fleet.refs if ref.boot_id == "0badb007"}
    read: list[str] = []
    original = fleet.read
    fleet.read = lambda ref: (read.append(ref.key), original(ref))[1]  # type: ignore[method-assign]
    assert polled(fleet, times=2) == ["verified", "verified"]
    assert not planted & set(read)


def test_a_folder_of_any_size_delays_only_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of a folder continues in the next poll. The other nodes are verified meanwhile, and then this node is."""
    monkeypatch.setattr(gather, "LISTED_PER_POLL", 30)
    assert LISTED_PER_POLL > 1000
    fleet = two_nodes()
    for seq in range(100):
        plant(fleet, seq, signer=instance(2))
    polls = Gatherer(fleet.ports, [SHARED], judge_node=judge, workers=INSIDE)
    seen = [[node.outcome for node in polls.poll().nodes] for _ in range(10)]
    assert seen[0] == ["waiting", "verified"]
    assert seen[-1] == ["verified", "verified"]


def test_a_slow_search_continues_in_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a search is limited. A poll ends, and the next one continues after the objects that were examined."""
    monkeypatch.setattr(gather, "SEARCH_S", 0.0)
    fleet = two_nodes()
    for seq in range(3):
        plant(fleet, seq, signer=instance(2))
    polls = Gatherer(fleet.ports, [SHARED], judge_node=judge, workers=INSIDE)
    ticks = iter(range(100_000))
    polls._clock = lambda: float(next(ticks)) / 2
    seen = [[node.outcome for node in polls.poll().nodes] for _ in range(12)]
    assert seen[-1] == ["verified", "verified"]


def test_a_copied_document_does_not_count() -> None:
    """A genuine document of the node, copied with its proof to a newer name, is not newer evidence."""
    fleet = two_nodes()
    own = fleet.refs[0]
    plant(fleet, 9, data=fleet.bodies[own.key])
    fleet.proofs[fleet.refs[-1].key] = fleet.proofs[own.key]
    assert polled(fleet) == ["verified", "verified"]


def test_nothing_but_foreign_objects_is_a_reason_to_wait_for_the_node_itself() -> None:
    """Before a node reports, foreign objects in its folder give no final outcome, and the reason names them without their content."""
    fleet = Fleet()
    fleet.launch(1)
    plant(fleet, 1, signer=instance(2), document={"instance_id": "evil"})
    (node,) = Gatherer(fleet.ports, [pool(1, evidence_owner="")], judge_node=judge, workers=INSIDE).poll().nodes
    assert (node.outcome, node.settled) == ("waiting", False)
    assert "1 document, the newest is evidence/train/" in node.reason
    assert "evil" not in node.reason


@pytest.mark.parametrize("field", ["instance_id", "boot_id", "bundle_sha256", "schema", "pool", "machine"])
@pytest.mark.parametrize(
    "value", ["\ud800", CONTROL, "x" * 4_000_000, ["\ud800"], {"\ud800": 1}, 10**30, None],
    ids=["surrogate", "control", "long", "list", "object", "number", "null"],
)  # fmt: skip
def test_a_field_with_any_value_stays_with_its_node(field: str, value: object) -> None:
    """A lone surrogate, control characters or megabytes in a field never stop the handover, and do not reach its outputs."""
    fleet = two_nodes()
    fleet.report(2, owner="", seq=2, document={field: value}, data=None)
    shown = outputs(fleet)
    assert "verified" in shown
    assert_clean(shown)
    assert len(shown) < 20_000


@pytest.mark.parametrize(
    "gpus",
    [
        [{"uuid": gpu_uuid(1, at)} for at in range(100_000)],
        [{"uuid": "\x1b]0;x\x07", "index": CONTROL}],
        [{"uuid": "\ud800", "serial": CONTROL, "pci": "x" * 10_000}],
        [{"uuid": gpu_uuid(2, 0), "serial": CONTROL, "pci": "x" * 10_000}] * 9,
        {"uuid": 1}, "text", [1, None, [[]]],
    ],
    ids=range(7),
)  # fmt: skip
def test_the_state_has_the_uuids_of_the_machine(gpus: object) -> None:
    """The state has at most as many UUIDs as the machine has GPUs, each in the driver's form and once."""
    fleet = two_nodes()
    fleet.report(2, owner="", seq=2, document={"gpus": gpus})
    verdict = Gatherer(fleet.ports, [SHARED], judge_node=judge, workers=INSIDE).poll()
    uuids = [gpu["uuid"] for gpu in verdict.nodes[1].gpus]
    assert len(uuids) == len(set(uuids)) <= 8
    assert all(len(uuid) == 40 for uuid in uuids)
    assert_clean(outputs(fleet))


@pytest.mark.parametrize("most", [None, 0, 1, 8, 1000])
def test_a_node_lists_at_most_the_gpus_of_its_machine(most: int | None) -> None:
    """A machine without GPUs has none in the state, and no machine has more than 64, whatever its node lists."""
    fleet = Fleet()
    fleet.launch(1)
    listed = [{"uuid": gpu_uuid(1, at)} for at in range(100)]
    fleet.report(1, document={"gpus": listed, "probes": {"gpus": 8}})
    expectation = {"required": ["G1"], "skips": {}, **({} if most is None else {"gpus": most})}
    content = examine(fleet.bodies[fleet.refs[0].key], fleet.refs[0], expectation, lambda *_: [])
    assert len(content.gpus) == min(most or 0, 64)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 8_000_000, b"[[]," * 2_000_000, b'{"a":' * 100_000, b'{"schema": "gpuinfra.evidence/1", "x": 1e999}', b"\xff\xfe\x00" * 1000,
        b'"\\\"' * 1_000_000, b'{"a": NaN}', b"9" * 5_000_000, b" ", b"null", b"\xef\xbb\xbf{}",
    ],
    ids=range(11),
)  # fmt: skip
def test_a_document_of_any_bytes_is_one_finding(data: bytes) -> None:
    """Bytes that are not a document of evidence, signed by their node, refuse this node only, within seconds."""
    fleet = two_nodes()
    fleet.report(2, owner="", seq=2, data=data)
    begun = time.thread_time()
    polls = Gatherer(fleet.ports, [SHARED], judge_node=judge, workers=INSIDE)
    assert [node.outcome for node in polls.poll().nodes] == ["verified", "refused"]
    assert time.thread_time() - begun < 20


def strings(value: object) -> list[str]:
    """All texts and all names of fields of a value."""
    if isinstance(value, dict):
        return [*value, *(text for inner in value.values() for text in strings(inner))]
    return [text for inner in value for text in strings(inner)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("read", [lambda data: evidence_of(data).document, proof_of], ids=["evidence", "proof"])
def test_no_raw_text_exists_behind_the_door(read: Callable[[bytes], object]) -> None:
    """In texts and names of fields at any depth, control and bidirectional characters and lone surrogates are escape sequences."""
    raw = {"schema": "gpuinfra.evidence/1", f"name{CONTROL}": [{"inner": [f"text{CONTROL}"]}]}
    texts = strings(read(json.dumps(raw).encode()))
    assert len(texts) == 5
    assert not set("".join(texts)) & (set(CONTROL) - {"\n", "\t"})
    assert any(text.startswith("text\\x00") for text in texts)


@pytest.mark.parametrize(
    "value", ["", " i-1", "i-1\n", "i 1", "-i", "i/1", "x" * 129, "ı-1", 1, None, ["i-1"], {"i-1": 1}], ids=range(12)
)
@pytest.mark.parametrize("field", ["instance_id", "boot_id", "bundle_sha256", "previous", "finished"])
def test_an_identifier_without_its_form_is_empty(field: str, value: object) -> None:
    """A state, a report and a command line contain identifiers, so another text, number or list is no identifier."""
    data = json.dumps({"schema": "gpuinfra.evidence/1", field: value}).encode()
    assert getattr(evidence_of(data), field) == ""


def outputs(fleet: Fleet) -> str:
    """Everything that a handover writes about a fleet: the state as the engine receives it, and the reasons on the terminal."""
    verdict = Gatherer(fleet.ports, [SHARED], judge_node=judge, workers=INSIDE).poll()
    outcome = WaitOutcome(verdict=verdict, ready=False, ended=WaitEnd.SETTLED, seconds=1.0)
    state = wire.to_struct(wire.outputs_of(outcome, (), ""))
    return json.dumps(wire.from_struct(state), ensure_ascii=False) + "\n".join(reasons(outcome, "aws"))


def assert_clean(text: str) -> None:
    """No control or bidirectional character is in a text, except for line breaks."""
    assert not set(text) & (set(CONTROL) - set("\n"))


@pytest.mark.parametrize(
    "change", [lambda token: token + "\ud800", lambda token: CONTROL, lambda token: "x" * 60_000], ids=range(3)
)
def test_a_proof_with_any_value_stays_with_its_node(change: Callable[[str], str]) -> None:
    """The reason for a proof that is not valid is bounded and clean."""
    fleet = two_nodes()
    fleet.report(2, owner="", seq=2)
    key = fleet.refs[-1].key
    fleet.proofs[key] = json.dumps({"signer": change("x"), "sha256": "0" * 64}).encode()
    assert polled(fleet) == ["verified", "verified"]
    assert_clean(outputs(fleet))
