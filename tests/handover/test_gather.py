"""The requests, the memory and the processes of a poll."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from gpuinfra.handover import gather
from gpuinfra.handover.documents import Documents
from gpuinfra.handover.gather import LISTED_AGAIN, READS_AT_ONCE, Gatherer
from gpuinfra.handover.listing import MOST_KEPT
from gpuinfra.handover.ports import EvidenceRef, PortUnavailable

from .fleet import INSIDE, LAUNCHED, Fleet, instance, judge, pool

NODES = 50


def reported(count: int = NODES, boots: int = 3, fleet: Fleet | None = None) -> Fleet:
    """A fleet whose nodes have reported in several boots, and as many nodes that left."""
    fleet = fleet or Fleet()
    for number in range(1, count + 1):
        fleet.launch(number)
        for boot in range(boots):
            fleet.report(number, boot=f"boot-{boot:04}", modified=LAUNCHED + timedelta(minutes=boot + 1))
            fleet.report(1000 + number, boot=f"boot-{boot:04}")
    return fleet


def gatherer(fleet: Fleet, count: int = NODES, **more: Any) -> Gatherer:
    """A gatherer for the fleet."""
    return Gatherer(fleet.ports, [pool(count, **more)], judge_node=judge, workers=INSIDE)


def requests(fleet: Fleet) -> dict[str, int]:
    """The requests to the store since the last call."""
    found = dict(fleet.requests)
    fleet.requests.clear()
    return found


def test_a_poll_lists_the_folders_of_members_only() -> None:
    """The first poll reads one document and one proof of each node. An unchanged poll lists some folders again, and reads nothing."""
    fleet = reported()
    polls = gatherer(fleet)
    assert polls.poll().complete
    assert requests(fleet) == {"folders": 1, "list": NODES, "read": NODES, "proof": NODES}
    assert polls.poll().complete
    assert requests(fleet) == {"list": LISTED_AGAIN}


def test_each_verified_node_is_listed_again() -> None:
    """Newer evidence of a verified node is found, at the latest when the folders of all other nodes were listed."""
    fleet = reported()
    polls = gatherer(fleet)
    polls.poll()
    fleet.report(NODES, boot="boot-0009", gpus=7, modified=LAUNCHED + timedelta(hours=1))
    seen = [polls.poll().verified for _ in range(-(-NODES // LISTED_AGAIN))]
    assert (seen[0], seen[-1]) == (NODES, NODES - 1)


def test_a_node_without_evidence_costs_one_request_for_the_whole_fleet() -> None:
    """Nodes that have not reported are found with a list of folders, and their evidence counts in the poll after they report."""
    fleet = reported()
    for number in (51, 52):
        fleet.launch(number)
    polls = gatherer(fleet, 52)
    polls.poll()
    requests(fleet)
    polls.poll()
    assert requests(fleet) == {"folders": 1, "list": LISTED_AGAIN}
    fleet.report(51)
    assert [node.label for node in polls.poll().nodes if node.outcome != "verified"] == ["gpu-52"]


def test_nodes_that_their_group_must_replace_are_not_listed() -> None:
    """The evidence of a node with an outdated template cannot verify it."""
    fleet = reported(2)
    fleet.launch(3, template_version="2")
    fleet.report(3)
    assert [node.stale for node in gatherer(fleet, 3).poll().nodes] == [False, False, True]
    assert requests(fleet) == {"folders": 1, "list": 2, "read": 2, "proof": 2}


def test_a_poll_continues_after_an_error() -> None:
    """After an error, the next poll does not list and read the other nodes again."""

    class Failing(Fleet):
        fails = True

        def read(self, ref: EvidenceRef) -> bytes:
            data = super().read(ref)
            if self.fails and ref.instance_id == instance(NODES):
                self.fails = False
                raise PortUnavailable("SlowDown")
            return data

    fleet = reported(fleet=Failing())
    polls = gatherer(fleet)
    with pytest.raises(PortUnavailable):
        polls.poll()
    polls.poll()
    assert requests(fleet) == {"folders": 1, "list": NODES, "read": NODES + 1, "proof": NODES + 1}


class Counted(bytes):
    """A document that counts how many documents are held."""

    held = most = 0

    @classmethod
    def made(cls, data: bytes) -> Counted:
        """A document with this content."""
        cls.held += 1
        cls.most = max(cls.most, cls.held)
        return cls(data)

    def __del__(self) -> None:
        type(self).held -= 1


class Counting(Fleet):
    """A fleet whose documents are counted."""

    def read(self, ref: EvidenceRef) -> bytes:
        return Counted.made(super().read(ref))


def test_documents_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time, a poll holds the documents that are being read and the few that fit in the cache."""
    fleet = reported(fleet=Counting())
    size = len(next(iter(fleet.bodies.values())))
    monkeypatch.setattr(gather, "Documents", partial(Documents, kept_bytes=3 * size + 100))
    Counted.held = Counted.most = 0
    polls = gatherer(fleet)
    assert polls.poll().complete
    assert Counted.held <= 3
    assert Counted.most <= READS_AT_ONCE + 3 + 1


def test_a_document_is_read_again_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is no longer in the cache is read again, and does not count if it changed."""
    monkeypatch.setattr(gather, "Documents", partial(Documents, kept_bytes=0))
    fleet = reported(1)
    polls = gatherer(fleet, 1)
    node = polls.poll().nodes[0]
    assert polls.data_of(node) == fleet.bodies[node.evidence_key]
    fleet.bodies[node.evidence_key] += b" "
    assert polls.data_of(node) is None


def test_history_has_all_documents_of_the_boot() -> None:
    """Documents beyond the evidence that a poll keeps are listed when they are requested."""
    fleet = Fleet()
    fleet.launch(1)
    previous = "null"
    for seq in range(1, MOST_KEPT + 6):
        previous = fleet.report(1, seq=seq, document={"previous": previous}).etag
    polls = gatherer(fleet, 1)
    node = polls.poll().nodes[0]
    assert [ref.seq for ref, _ in polls.history(node)] == list(range(MOST_KEPT + 5, 0, -1))


def test_history_has_the_evidence_of_the_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports to the fabric test, and evidence of another node that a store lists in the same folder, are not read for it."""
    fleet = Fleet()
    for number in (1, 2):
        fleet.launch(number)
        previous = "null"
        for seq in range(1, MOST_KEPT + 6):
            previous = fleet.report(number, seq=seq, document={"previous": previous}).etag
            fleet.report(number, seq=seq, key=f"evidence/train/{number}/fabric/{seq}", is_report=True)
    polls = gatherer(fleet, 2)
    node = polls.poll().nodes[0]
    monkeypatch.setattr(fleet, "list", lambda _: [fleet._proven(ref) for ref in reversed(fleet.refs)])
    read, originally = list[EvidenceRef](), fleet.read
    monkeypatch.setattr(fleet, "read", lambda ref: read.append(ref) or originally(ref))
    assert [ref.seq for ref, _ in polls.history(node)] == list(range(MOST_KEPT + 5, 0, -1))
    assert {(ref.instance_id, ref.is_report) for ref in read} == {(node.instance_id, False)}
