"""The list of nodes: order, state, time and price."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuinfra.base.errors import DeploymentError
from gpuinfra.cli import nodes as cli
from gpuinfra.cli.stacks import Stacks
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.ports import EvidenceRef, PortUnavailable
from gpuinfra.handover.workers import NotEvaluated
from gpuinfra.node.notices import Notice, NoticeKind, dumped
from gpuinfra.node.outcome import Unreadable
from gpuinfra.node.repair import status_in
from gpuinfra.report import nodes_text
from gpuinfra.verification import nodes, store
from gpuinfra.verification.drift import Difference
from gpuinfra.verification.nodes import MOST_DOCUMENTS, NodeRow, rows
from gpuinfra.verification.store import Poll
from tests.handover.fleet import INSIDE, LAUNCHED, Fleet, Inside, T, instance, judge, pool

PRICES: dict[str, float | None] = {"gpu-reserved-0": 21.5}


@pytest.fixture(autouse=True)
def simple_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge earlier evidence with the check of the fleet."""
    monkeypatch.setattr(nodes, "judge_node", judge)


def series(fleet: Fleet, number: int, gpus: list[int], boot: str = "boot-0001", start: int = 1) -> list[EvidenceRef]:
    """Evidence of one node, oldest first, each with the hash of the previous document and a minute later."""
    refs: list[EvidenceRef] = []
    for seq, count in enumerate(gpus, start):
        previous = hashlib.sha256(fleet.bodies[refs[-1].key]).hexdigest() if refs else None
        later = LAUNCHED + timedelta(minutes=5 + seq)
        refs.append(
            fleet.report(number, gpus=count, seq=seq, boot=boot, modified=later, document={"previous": previous})
        )
    return refs


def polled(fleet: Fleet, count: int) -> Poll:
    """One poll of a fleet with this number of requested nodes."""
    pools = [pool(count)]
    gatherer = Gatherer(fleet.ports, pools, judge_node=judge, workers=INSIDE)
    return Poll(pools=pools, gatherer=gatherer, verdict=gatherer.poll(), store=fleet, cluster="train")


def row_of(fleet: Fleet) -> NodeRow:
    """The row of the only node."""
    (row,) = rows([polled(fleet, 1)], (), PRICES)
    return row


def test_nodes_with_trouble_come_first() -> None:
    """Missing, failed and waiting nodes precede drifted and verified ones; names are in numeric order."""
    fleet = Fleet()
    for number in range(1, 13):
        fleet.launch(number)
        if number != 3:
            fleet.report(number, gpus=7 if number == 5 else 8)
    changed = Difference(
        area="node", name="gpu-12", id=instance(12), kind="setting", what="D4 holds", recorded="", found="",
        reason="not held: nccl", fix="fix gpu-12",
    )  # fmt: skip
    failed = Difference(**{**vars(changed), "id": instance(5)})
    found = rows([polled(fleet, 14)], [changed, failed], PRICES)
    assert [(row.label, row.state) for row in found] == [
        ("gpu-reserved-0", "not launched"),
        ("gpu-5", "failed"),
        ("gpu-3", "waiting"),
        ("gpu-12", "drifted"),
        *((f"gpu-{n}", "verified") for n in (1, 2, 4, 6, 7, 8, 9, 10, 11)),
    ]
    by_label = {row.label: row for row in found}
    assert by_label["gpu-reserved-0"].count == 2
    assert (by_label["gpu-12"].drift, by_label["gpu-12"].what_to_do) == (("D4 holds",), "fix gpu-12")
    assert "GPU" in by_label["gpu-5"].reason or "gpu_count" in by_label["gpu-5"].reason
    assert by_label["gpu-3"].checked is None
    assert {row.usd_per_hour for row in found} == {0.0, 21.5}


def test_time_since_which_a_node_is_verified_is_that_of_the_first_evidence_without_interruption() -> None:
    """Evidence before a failure does not count, and neither does evidence of an earlier boot."""
    fleet = Fleet()
    fleet.launch(1)
    refs = series(fleet, 1, [8, 8, 7, 8, 8, 8])
    row = row_of(fleet)
    assert (row.verified_since, row.since_exact, row.checked) == (refs[3].modified, True, refs[5].modified)
    later = series(fleet, 1, [8], boot="boot-0002", start=9)
    assert (row_of(fleet).verified_since, row_of(fleet).since_exact) == (later[0].modified, True)


def test_evidence_that_another_node_wrote_does_not_count() -> None:
    """A document whose hash the newer one does not contain ends the series."""
    fleet = Fleet()
    fleet.launch(1)
    refs = series(fleet, 1, [8, 8, 8])
    fleet.bodies[refs[0].key] += b" "
    assert row_of(fleet).verified_since == refs[1].modified
    fleet.bodies[refs[1].key] = b"[]"
    assert row_of(fleet).verified_since == refs[2].modified


def test_number_of_documents_to_read_is_limited() -> None:
    """A node with a long history is shown as verified before the oldest document that was read."""
    fleet = Fleet()
    fleet.launch(1)
    refs = series(fleet, 1, [8] * (MOST_DOCUMENTS + 5))
    row = row_of(fleet)
    assert (row.verified_since, row.since_exact) == (refs[5].modified, False)
    shown = "\n".join(nodes_text.text([row], LAUNCHED + timedelta(hours=2)))
    assert f"before {refs[5].modified:%Y-%m-%d %H:%M}" in shown


def test_failed_node_is_not_verified_since_any_time() -> None:
    """A node whose newest evidence fails has the time of the check only."""
    fleet = Fleet()
    fleet.launch(1)
    refs = series(fleet, 1, [8, 7])
    assert (row_of(fleet).verified_since, row_of(fleet).checked) == (None, refs[1].modified)


def test_unknown_price_is_not_zero() -> None:
    """With one unknown price, the total is unknown."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    found = rows([polled(fleet, 1)], (), {})
    assert nodes_text.document("s", found)["usd_per_hour"] is None
    assert "unknown USD an hour" in "\n".join(nodes_text.text(found, datetime.now(UTC)))


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """The stack `aws-p4d`, whose cloud is a fleet."""

    def chosen(given: dict[str, Any]) -> Stacks:
        del given["rehearsal"], given["folder"]
        state = [{"type": "gpuinfra:index:NodesReady", "custom": True, "outputs": {}}]
        return Stacks(open=lambda name: nullcontext(state), up="", restore="", project=lambda name: Path())

    fleet = Fleet()
    monkeypatch.setattr("gpuinfra.cli.options.stacks_of", chosen)
    monkeypatch.setattr(store, "polled", lambda resources: (polled(fleet, 2),))
    monkeypatch.setattr("gpuinfra.verification.judged.judge_all", lambda *_: ())
    return fleet


def test_command_prints_nodes_price_and_totals(deployed: Fleet) -> None:
    """The table and the JSON document have the same nodes, times and totals; the price is that of the plan."""
    for number in (1, 2):
        deployed.launch(number)
        deployed.report(number, gpus=8 - number + 1)
    done = CliRunner().invoke(cli.command, ["aws-p4d", "--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
    document = json.loads(done.output)
    assert (document["schema"], document["stack"]) == ("gpuinfra.nodes/1", "aws-p4d")
    assert document["totals"]["verified"] == document["totals"]["failed"] == 1
    assert [node["label"] for node in document["nodes"]] == ["gpu-2", "gpu-1"]
    assert document["usd_per_hour"] == pytest.approx(2 * document["nodes"][0]["usd_per_hour"])
    assert document["nodes"][0]["usd_per_hour"] > 10
    text = CliRunner().invoke(cli.command, ["aws-p4d"], standalone_mode=False)
    assert "2 nodes: 1 failed, 1 verified; " in text.output


def test_unreachable_cloud_is_an_error(deployed: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cloud does not respond, no list is printed."""

    def unavailable(_: object) -> Any:
        raise PortUnavailable("Throttling: Rate exceeded")

    monkeypatch.setattr(store, "polled", unavailable)
    done = CliRunner().invoke(cli.command, ["aws-p4d"], standalone_mode=False)
    assert isinstance(done.exception, DeploymentError)
    assert "Rate exceeded" in str(done.exception)


NOTICE = Notice("spot 1", NoticeKind.RECLAIM, "spot interruption: terminate", 1795860000.0)


def noticed(fleet: Fleet, stdout: str, code: int = 0) -> NodeRow:
    """The row of a node whose evidence contains a file of notices."""
    fleet.launch(1)
    fleet.report(1, document={"probes": {"gpus": 8, "notices": {"stdout": stdout, "exit": code}}})
    return row_of(fleet)


def test_notices_of_a_node_are_listed() -> None:
    """The row of a verified node contains what the cloud announced, with the deadline."""
    row = noticed(Fleet(), dumped([NOTICE, replace(NOTICE, id="2", deadline=None)]))
    text = "spot interruption: terminate, not before 2026-11-28T10:00:00Z"
    assert row.notices == (text, "spot interruption: terminate")
    assert "not before" in "\n".join(nodes_text.text([row], datetime.now(UTC)))
    assert nodes_text.document("s", [row])["nodes"][0]["notices"] == row.notices


def test_estimated_deadline_is_marked() -> None:
    """A deadline that follows from the documented notice period is marked."""
    assert nodes.shown(replace(NOTICE, estimated=True)).endswith("estimated not before 2026-11-28T10:00:00Z")


@pytest.mark.parametrize(("stdout", "code"), [("{", 0), (dumped([NOTICE]), 1), (dumped([]), 0)])
def test_unreadable_notices_are_none(stdout: str, code: int) -> None:
    """Notices in another form, or of a probe that failed, are left out, and the table has no column for them."""
    row = noticed(Fleet(), stdout, code)
    assert row.notices == ()
    assert "notices" not in "\n".join(nodes_text.text([row], datetime.now(UTC)))


def test_earlier_evidence_that_cannot_be_evaluated_ends_the_series() -> None:
    """Earlier evidence that misses the deadline does not verify its node, so the node has been verified since the next document."""
    fleet = Fleet()
    fleet.launch(1)
    refs = series(fleet, 1, [8, 8, 8])

    class Late(Inside):
        """The first document misses the deadline."""

        def call(self, function: Callable[..., T], *arguments: object) -> T:
            if function is nodes.is_verified and arguments[0] == fleet.bodies[refs[0].key]:
                raise NotEvaluated("the evaluation takes longer than 60 s")
            return super().call(function, *arguments)

    gatherer = Gatherer(fleet.ports, [pool(1)], judge_node=judge, workers=Late())
    seen = Poll(pools=[pool(1)], gatherer=gatherer, verdict=gatherer.poll(), store=fleet, cluster="train")
    (row,) = rows([seen], (), PRICES)
    assert (row.state, row.verified_since, row.since_exact) == ("verified", refs[1].modified, True)


REPAIR = {
    "schema": "gpuinfra.repair/1", "mode": "replace", "at_most": 1, "taken": 1, "node": "i-2", "step": "wait", "problem": "", "held": [],
    "events": [
        {"at": "2026-11-29T03:10:30Z", "event": "draining", "node": "i-2", "instance_id": "i-2", "reason": "G10 (remapping-failed)", "number": 1},
    ],
}  # fmt: skip


def test_the_events_of_the_repair_are_listed_below_the_nodes() -> None:
    """The text shows the mode, the current step and each event. The JSON has the same facts, and null without repair."""
    status = status_in(json.dumps(REPAIR))
    lines = "\n".join(nodes_text.text((), LAUNCHED, status))
    assert "repair: replace, 1 of 1 node taken out of use in 24 hours; i-2: wait" in lines
    assert "draining" in lines
    assert "G10 (remapping-failed)" in lines
    document = nodes_text.document("train", (), status)
    assert document["repair"]["events"][0]["event"] == "draining"
    assert nodes_text.document("train", ())["repair"] is None


@pytest.mark.parametrize("change", [{"mode": "x"}, {"events": [{}]}, {"schema": "later"}, {"taken": "many"}])
def test_an_unreadable_status_of_the_repair_is_left_out(change: dict[str, object]) -> None:
    """A control node of another version, or one that is compromised, does not stop the command."""
    with pytest.raises(Unreadable):
        status_in(json.dumps({**REPAIR, **change}))
    evidence = {
        "schema": "gpuinfra.evidence/1",
        "probes": {"repair": {"stdout": json.dumps({**REPAIR, **change}), "exit": 0}},
    }
    assert nodes.repair_of_document(json.dumps(evidence).encode()) is None
