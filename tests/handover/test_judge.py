from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuinfra.handover import wire
from gpuinfra.handover.causes import CapacityCause, WaitEnd
from gpuinfra.handover.explain import hint, reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.judge import FleetVerdict, describe
from gpuinfra.handover.names import NodeNames
from gpuinfra.handover.ports import EvidenceRef, GroupExpected, GroupProblem, PoolExpected
from gpuinfra.handover.watch import Wait, WaitOutcome, watch

from .fleet import INSIDE, LAUNCHED, OWNER, Fleet, instance, judge, pool


def poll(fleet: Fleet, expected: PoolExpected | None = None, **more: object) -> FleetVerdict:
    """One poll."""
    return Gatherer(fleet.ports, [expected or pool()], judge_node=judge, workers=INSIDE).poll(**more)  # type: ignore[arg-type]


def healthy(count: int = 2) -> Fleet:
    """A fleet whose nodes have all reported healthy evidence."""
    fleet = Fleet()
    for number in range(1, count + 1):
        fleet.launch(number)
        fleet.report(number)
    return fleet


def waited(fleet: Fleet, wait: Wait, expected: PoolExpected | None = None) -> tuple[WaitOutcome, list[str]]:
    """One complete wait, and its progress lines."""
    lines: list[str] = []
    outcome = watch(
        Gatherer(fleet.ports, [expected or pool()], judge_node=judge, workers=INSIDE),
        wait,
        log=lines.append,
        cancelled=threading.Event(),
    )
    return outcome, lines


def test_healthy_fleet_is_complete() -> None:
    """Nodes that are members, have a valid identity and pass every required check are verified, with all their GPUs."""
    verdict = poll(healthy())
    assert verdict.complete
    assert [n.outcome for n in verdict.nodes] == ["verified", "verified"]
    assert sum(n.gpus_verified for n in verdict.nodes) == 16


def test_evidence_of_several_nodes_is_read_at_the_same_time() -> None:
    """Two requests for evidence are in progress at the same time, and an error of one is the error of the poll."""

    class Slow(Fleet):
        both = threading.Barrier(2)

        def read(self, ref: EvidenceRef) -> bytes:
            self.both.wait(300)
            return super().read(ref)

    fleet = Slow()
    for number in (1, 2):
        fleet.launch(number)
        fleet.report(number)
    assert poll(fleet).complete
    fleet.bodies.clear()
    with pytest.raises(KeyError):
        poll(fleet)


def test_raw_output_counts_not_the_nodes_own_results() -> None:
    """A node that writes `pass` beside raw output with seven GPUs fails."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, gpus=7, document={"checks": [{"id": "G1", "severity": "block", "outcome": "pass"}]})
    node = poll(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled, node.gpus_verified) == ("failed", True, 0)
    assert "found 7, expected 8 GPUs" in node.reason


def test_newest_boot_counts() -> None:
    """After a reboot only evidence of the new boot counts, and within a boot the highest number."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, boot="boot-0001", seq=7)
    fleet.report(1, boot="boot-0002", seq=1, gpus=7, modified=LAUNCHED + timedelta(hours=1))
    assert poll(fleet, pool(1)).nodes[0].outcome == "failed"
    fleet.report(1, boot="boot-0002", seq=2, modified=LAUNCHED + timedelta(hours=2))
    assert poll(fleet, pool(1)).nodes[0].outcome == "verified"


@pytest.mark.parametrize(("hours", "outcome"), [(23.9, "verified"), (24, "verified"), (24.1, "waiting")])
def test_evidence_has_a_maximum_age(hours: float, outcome: str) -> None:
    """Evidence of up to one day verifies a node. With older evidence, the node waits for newer evidence, and the hint names the unit."""
    fleet = healthy(1)
    now = fleet.refs[0].modified + timedelta(hours=hours)
    seen = Gatherer(fleet.ports, [pool(1)], judge_node=judge, workers=INSIDE, now=lambda: now).poll().nodes[0]
    assert (seen.outcome, seen.settled) == (outcome, outcome == "verified")
    if outcome == "waiting":
        assert seen.reason == "the node's newest evidence was uploaded 24 hours ago, so its GPUs are no longer verified"
        assert "gpuinfra-recheck.timer" in hint(seen)


def test_a_list_of_values_is_named_in_a_reason() -> None:
    """A check that finds several values names each of them, and an empty list is none."""
    wrong = {"id": "D4", "name": "holds", "outcome": "fail", "found": [], "expected": ["a", "b"], "unit": None}
    assert describe(wrong) == "D4 holds: found none, expected a, b"


def test_an_old_failure_stays_a_failure() -> None:
    """A node whose old evidence failed is failed, not waiting."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, gpus=7)
    now = LAUNCHED + timedelta(days=9)
    assert (
        Gatherer(fleet.ports, [pool(1)], judge_node=judge, workers=INSIDE, now=lambda: now).poll().nodes[0].outcome
        == "failed"
    )


def test_dead_instances_do_not_count() -> None:
    """Evidence of an instance that left or is leaving its group does not count."""
    fleet = healthy(2)
    fleet.members_ = [fleet.members_[0], *fleet.members_[2:]]
    verdict = poll(fleet)
    assert (verdict.verified, verdict.missing) == (1, {"gpu-reserved-0": 1})
    fleet = Fleet()
    fleet.launch(1, leaving=True)
    fleet.report(1)
    assert poll(fleet, pool(1)).missing == {"gpu-reserved-0": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"document": {"bundle_sha256": "c" * 64}}, "set up by bundle cccccccccccc"),
        ({"document": {"instance_id": instance(9)}}, f"is from instance {instance(9)}"),
        ({"document": {"boot_id": "another"}}, "boot another"),
        ({"document": {"seq": 2}}, "number 2"),
        ({"document": {"schema": "gpuinfra.evidence/9"}}, "does not have the schema"),
        ({"document": {"probes": None}}, "no raw probe output"),
        ({"data": b"\xff\x00 not json"}, "not JSON"),
        ({"data": b"[" * 100_000}, "nested more than 40 levels"),
        ({"signer": instance(9)}, f"signed by {instance(9)}"),
        ({"signer": "nobody"}, "SignatureDoesNotMatch"),
    ],
)
def test_invalid_evidence_is_refused(change: dict[str, object], words: str) -> None:
    """Evidence of a wrong bundle, instance, boot, schema or signer is refused at once, with the reason."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, **change)
    node = poll(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", True)
    assert words in node.reason


def test_proof_over_other_evidence() -> None:
    """A genuine proof that signs other evidence is refused, and does not hide evidence that the node signed."""
    fleet = Fleet()
    fleet.launch(1)
    first = fleet.report(1)
    second = fleet.report(1, seq=2, gpus=6)
    fleet.proofs[second.key] = fleet.proofs[first.key]
    assert poll(fleet, pool(1)).nodes[0].evidence_key == first.key
    fleet.refs.remove(first)
    assert "signs different evidence" in poll(fleet, pool(1)).nodes[0].reason


def test_role_is_compared() -> None:
    """A signature under another role of the account is refused, because that role's session name could be chosen."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    node = poll(fleet, pool(1, node_role="another")).nodes[0]
    assert node.outcome == "refused"
    assert "role train-node" in node.reason


def test_foreign_folder_cannot_hide_evidence() -> None:
    """Newer evidence for an instance in another writer's folder is ignored."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    fleet.report(1, boot="boot-0009", gpus=1, owner="AROAOTHER", modified=LAUNCHED + timedelta(days=1))
    assert poll(fleet, pool(1, evidence_owner=OWNER)).complete


def test_stale_template_waits_for_its_group() -> None:
    """A node of another template version is refused but not settled, because its group may still replace it."""
    fleet = Fleet()
    fleet.launch(1, template_version="2")
    fleet.report(1)
    node = poll(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", False)
    assert "launch template version 2, but the current one of the Auto Scaling group is 3" in node.reason


def test_evidence_from_before_the_launch() -> None:
    """Evidence older than the instance's launch does not count, and the node can still send newer evidence."""
    fleet = Fleet()
    fleet.launch(1, launched=LAUNCHED + timedelta(hours=1))
    fleet.report(1)
    node = poll(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("waiting", False)


def test_failing_node_in_the_middle_of_its_steps_is_not_settled() -> None:
    """While the journal lists unfinished steps, or a failed step that the node repeats, failed checks are not final; a step that it gave up makes
    them final, also in a journal of an earlier version."""
    repeated, final = {"status": "failed", "final": False}, {"status": "failed", "final": True}
    unfinished = [{"status": "reboot"}, {"status": "running"}, repeated]
    for step, settled in (
        *((one, False) for one in unfinished),
        *((one, True) for one in ({"status": "done"}, {"status": "failed"}, final)),
    ):
        fleet = Fleet()
        fleet.launch(1)
        steps = [{"id": "30-driver", **step}, {"id": "40-cuda", "status": "done"}]
        fleet.report(1, gpus=0, document={"state": {"steps": steps}})
        assert poll(fleet, pool(1)).nodes[0].settled is settled, step


def test_required_check_that_did_not_run_fails() -> None:
    """A required check without an outcome keeps the node from being verified."""
    expectation = {"gpus": 8, "required": ["G1", "N1"], "skips": {}}
    node = poll(healthy(1), pool(1, expectation=expectation)).nodes[0]
    assert node.outcome == "failed"
    assert "N1" in node.reason


def test_labels_stay_and_are_not_reused() -> None:
    """A node keeps its label, and the replacement of a lost node gets the next number."""
    fleet = healthy(2)
    labels = {n.instance_id: n.label for n in poll(fleet).nodes}
    assert labels == {instance(1): "gpu-1", instance(2): "gpu-2"}
    fleet.members_.pop(0)
    fleet.launch(3)
    fleet.report(3)
    assert {n.instance_id: n.label for n in poll(fleet, names=NodeNames(labels=labels)).nodes} == {
        instance(2): "gpu-2",
        instance(3): "gpu-3",
    }


def test_labels_follow_the_launch_across_groups() -> None:
    """After a rolling replacement the numbers follow the launch order of the whole pool across its groups."""
    fleet = Fleet()
    for number, group in ((5, "asg-2"), (6, "asg-1"), (7, "asg-2"), (8, "asg-1")):
        fleet.launch(number, group=group)
    first, second = GroupExpected(name="a", group="asg-1", count=2), GroupExpected(name="b", group="asg-2", count=2)
    earlier = {instance(n): f"gpu-{n}" for n in range(1, 5)}
    verdict = poll(fleet, pool(groups=(first, second)), names=NodeNames(labels=earlier))
    assert {n.instance_id: n.label for n in verdict.nodes} == {instance(n): f"gpu-{n}" for n in range(5, 9)}


def test_number_is_not_reused_after_its_instance_is_gone() -> None:
    """If a poll happens between the loss of the newest node and its replacement, the replacement still gets a new number."""
    fleet = healthy(2)
    names = poll(fleet).names
    fleet.members_.pop()
    between = poll(fleet, names=names)
    kept = wire.outputs_of(WaitOutcome(verdict=between, ready=False, ended=WaitEnd.ONCE, seconds=0), (), "")
    fleet.launch(3)
    after = poll(fleet, names=wire.names_of(kept))
    assert [n.label for n in after.nodes] == ["gpu-1", "gpu-3"]
    assert wire.names_of({"nodes": kept["nodes"]}).assign("gpu", [instance(3)]).labels[instance(3)] == "gpu-2"


def test_instances_that_come_and_go_during_a_wait_use_up_numbers() -> None:
    """Labels are carried from poll to poll: the label gpu-3 of a lost instance is not assigned again."""
    fleet = Fleet()
    fleet.launch(1)
    ticks = iter(range(0, 1000, 5))
    lines: list[str] = []

    def log(text: str) -> None:
        lines.append(text)
        if len(lines) == 1:
            fleet.members_.clear()
            fleet.launch(2)
            fleet.report(2)

    outcome = watch(
        Gatherer(fleet.ports, [pool(1)], judge_node=judge, workers=INSIDE), Wait(deadline_s=60), log=log, cancelled=threading.Event(),
        clock=lambda: float(next(ticks)),
    )  # fmt: skip
    assert lines[0].endswith("gpu-1 waiting")
    assert [n.label for n in outcome.verdict.nodes] == ["gpu-2"]


def test_outdated_nodes_without_replacement_are_reported_early() -> None:
    """A group that does not replace an outdated node is named long before the deadline, with what to do, and the wait ends."""
    fleet = healthy(1)
    fleet.launch(2, template_version="2")
    seconds = iter(range(0, 10_000, 5))
    lines: list[str] = []
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge, workers=INSIDE), Wait(deadline_s=2700), log=lines.append,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "stale"
    assert outcome.seconds < 1400
    assert any("gpu-2 runs an outdated launch template" in line and "instance refresh" in line for line in lines)
    text = "\n".join(reasons(outcome, "aws"))
    assert "outdated nodes are not being replaced" in text
    assert "start an instance refresh" in text


def test_rolling_replacement_is_waited_for() -> None:
    """While a group replaces nodes one after another, outdated nodes do not end the wait."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    fleet.launch(2, template_version="2", leaving=True)
    seconds = iter(range(0, 10_000, 20))
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge, workers=INSIDE), Wait(deadline_s=2700), log=lambda _: None,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "deadline"


def _rolling(new: dict[int, int]) -> Fleet:
    """Three nodes of one group: the replaced ones by number with their GPUs, the others of the previous template."""
    fleet = Fleet()
    for number in (1, 2, 3):
        fleet.launch(number, template_version="3" if number in new else "2")
        if number in new:
            fleet.report(number, gpus=new[number])
    return fleet


def _wait(fleet: Fleet) -> tuple[WaitOutcome, list[str]]:
    seconds, lines = iter(range(0, 100_000, 20)), []
    outcome = watch(
        Gatherer(fleet.ports, [pool(3)], judge_node=judge, workers=INSIDE), Wait(deadline_s=2700), log=lines.append,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    return outcome, lines


def test_a_group_continues_only_after_its_canary_is_verified() -> None:
    """The handover asks a group to continue when its new node is verified, and waits for the other nodes."""
    fleet = _rolling({1: 8})

    def replaced(groups: object) -> list[str]:
        fleet.members_.clear()
        for number in (1, 2, 3):
            fleet.launch(number)
            fleet.report(number)
        return ["gpu-reserved-0"]

    fleet.on_proceed = replaced
    outcome, lines = _wait(fleet)
    assert outcome.ready
    assert fleet.proceeded == [["gpu-reserved-0"]]
    assert "gpu-reserved-0: the canary is verified; replacing the other nodes" in lines


def test_a_failed_canary_stops_the_replacement() -> None:
    """A new node that fails ends the wait, the group is not asked to continue, and the text names the node."""
    fleet = _rolling({1: 7})
    outcome, _ = _wait(fleet)
    assert outcome.ended == "canary"
    assert fleet.proceeded == []
    text = "\n".join(reasons(outcome, "aws"))
    assert "the first node of a replacement failed, so the other nodes keep the previous template" in text
    assert "gpu-1" in text


def test_a_canary_without_evidence_is_waited_for() -> None:
    """Before the canary reports, the group is not asked to continue."""
    fleet = _rolling({})
    fleet.members_.clear()
    fleet.launch(1)
    fleet.launch(2, template_version="2")
    outcome, _ = _wait(fleet)
    assert outcome.ended == "deadline"
    assert fleet.proceeded == []


class Always(threading.Event):
    """Never cancelled, and waiting takes no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_identity_is_requested_once() -> None:
    """Each evidence is verified once, however often the fleet is polled; a refused proof is not verified again either."""
    fleet = healthy(1)
    gatherer = Gatherer(fleet.ports, [pool(1)], judge_node=judge, workers=INSIDE)
    for _ in range(3):
        gatherer.poll()
    assert len(fleet.verified) == 1


def test_a_proof_that_cannot_be_verified_now_concerns_one_node() -> None:
    """The other nodes are verified, the reason is reported, and the proof is verified again at the next poll."""
    fleet = healthy(1)
    fleet.launch(2)
    fleet.report(2, signer="unreadable")
    gatherer = Gatherer(fleet.ports, [pool(2)], judge_node=judge, workers=INSIDE)
    verdicts = [gatherer.poll() for _ in range(3)]
    assert len(fleet.verified) == 1 + 3
    assert "HTTP Error 404" in str(verdicts[-1])


def test_watch_ends_when_every_node_has_reported() -> None:
    """A fleet with one failed node ends before the deadline and is not ready."""
    fleet = healthy(1)
    fleet.launch(2)
    fleet.report(2, gpus=7)
    outcome, _ = waited(fleet, Wait(deadline_s=60))
    assert (outcome.ended, outcome.ready) == ("settled", False)
    text = "\n".join(reasons(outcome, "aws"))
    assert f"gpu-2 ({instance(2)})" in text
    assert "what to do: replace the node" in text


def test_node_that_never_reports_ends_at_the_deadline_with_its_console() -> None:
    """The wait ends at the deadline, and the result shows the end of the node's console log."""
    fleet = healthy(1)
    fleet.launch(2)
    fleet.consoles[instance(2)] = [f"line {n}" for n in range(40)]
    outcome, _ = waited(fleet, Wait(deadline_s=0.3))
    assert outcome.ended == "deadline"
    text = "\n".join(reasons(outcome, "aws"))
    assert f"gpu-2 ({instance(2)}): never reported" in text
    assert "| line 39" in text
    assert "| line 20" not in text


def test_hint_for_an_empty_console_does_not_refer_to_it() -> None:
    """If the console log is empty, the hint names another action, here and in the report."""
    fleet = healthy(1)
    fleet.launch(2)
    outcome, _ = waited(fleet, Wait(deadline_s=0.3))
    text = "\n".join(reasons(outcome, "aws"))
    assert "its console log is empty" in text
    assert "read the end of the node's console log" not in text
    assert "what to do: the node may not have booted yet; set a longer deadline" in text
    silent = outcome.verdict.nodes[1]
    assert hint(silent, ["step 30-driver"]).startswith("read the end of the node's console log")


def test_stock_out_is_reported_early() -> None:
    """A group without capacity is reported at once in the cloud's words and ends the wait before the deadline."""
    fleet = healthy(1)
    fleet.problems_ = [
        GroupProblem(
            group="asg-1", cause=CapacityCause.STOCK_OUT, message="We currently do not have sufficient capacity"
        )
    ]
    outcome, lines = waited(fleet, Wait(deadline_s=2))
    assert outcome.ended == "stock-out"
    assert outcome.seconds < 2
    assert "asg-1: We currently do not have sufficient capacity" in lines
    text = "\n".join(reasons(outcome, "aws"))
    assert "1 node never launched: We currently do not have sufficient capacity" in text
    assert "zones or capacity kinds" in text


def test_missing_capacity_is_not_final_while_a_node_ends() -> None:
    """While the previous node of a full reservation ends, the group cannot launch its replacement, and the wait goes on."""
    fleet = healthy(1)
    fleet.launch(2, leaving=True)
    fleet.problems_ = [
        GroupProblem(group="asg-1", cause=CapacityCause.RESERVATION, message="ReservationCapacityExceeded")
    ]
    seconds = iter(range(0, 10_000, 60))
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge, workers=INSIDE), Wait(deadline_s=2700), log=lambda _: None,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "deadline"
    fleet.members_.pop()
    seconds = iter(range(0, 10_000, 60))
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge, workers=INSIDE), Wait(deadline_s=2700), log=lambda _: None,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "stock-out"


def test_each_group_shows_its_own_problem() -> None:
    """Two groups that lack nodes for two reasons show both; a group without a message from the cloud shows none."""
    groups = tuple(
        GroupExpected(name=f"gpu-{n}", group=f"asg-{n}", count=1) for n in ("reserved-0", "spot-0", "spot-1")
    )
    fleet = Fleet()
    fleet.problems_ = [
        GroupProblem(group="asg-reserved-0", cause=CapacityCause.PERMISSION, message="You are not authorized"),
        GroupProblem(group="asg-spot-0", cause=CapacityCause.STOCK_OUT, message="There is no Spot capacity"),
    ]
    outcome, _ = waited(fleet, Wait(deadline_s=0.3), pool(groups=groups))
    texts = {text.partition(":")[0]: text for text in reasons(outcome, "aws")[1:]}
    assert "not authorized" in texts["gpu-reserved-0"]
    assert "role or key policy" in texts["gpu-reserved-0"]
    assert "no Spot capacity" in texts["gpu-spot-0"]
    assert "zones or capacity kinds" in texts["gpu-spot-0"]
    assert "scaling activities" in texts["gpu-spot-1"]


def test_floor_and_none() -> None:
    """`floor` is ready at its number; `none` polls once and does not wait."""
    fleet = healthy(1)
    fleet.launch(2)
    floor, _ = waited(fleet, Wait(mode="floor", floor=1, deadline_s=5))
    assert (floor.ready, floor.ended) == (True, "ready")
    once, _ = waited(fleet, Wait(mode="none", deadline_s=5))
    assert (once.ready, once.ended) == (False, "once")


def test_empty_fleet_is_never_ready() -> None:
    """A fleet without members and evidence lacks all nodes and is not complete."""
    outcome, _ = waited(Fleet(), Wait(deadline_s=0.1))
    assert not outcome.ready
    assert outcome.verdict.missing == {"gpu-reserved-0": 2}


def test_cancel_ends_promptly() -> None:
    """A cancel ends the wait at once, whatever the deadline."""
    cancelled = threading.Event()
    cancelled.set()
    gatherer = Gatherer(Fleet().ports, [pool()], judge_node=judge, workers=INSIDE)
    outcome = watch(gatherer, Wait(deadline_s=600), log=lambda _: None, cancelled=cancelled)
    assert outcome.ended == "cancelled"
    assert outcome.seconds < 5


def test_throttling_is_retried() -> None:
    """A throttled request is retried, and the progress shows it."""
    fleet = healthy(1)
    fleet.unavailable = 1
    outcome, lines = waited(fleet, Wait(deadline_s=30), pool(1))
    assert outcome.ready
    assert any("Throttling" in line for line in lines)


@pytest.mark.parametrize("signer", ["i-00000000000000009", "nobody", "copied"])
def test_newer_evidence_of_another_signer_is_skipped_where_folders_have_no_owner(signer: str) -> None:
    """Newer evidence that the node did not sign is skipped for its own, also with a copy of its proof; if it has none of its own, it is refused."""
    fleet = Fleet()
    fleet.launch(1)
    unowned = pool(1, evidence_owner="")
    planted = fleet.report(
        1, owner="", gpus=7, boot="boot-9999", seq=999999, signer=signer, modified=LAUNCHED + timedelta(days=1)
    )
    if signer == "copied":
        fleet.proofs[planted.key] = json.dumps({"signer": instance(1), "sha256": "0" * 64}).encode()
    looked = Gatherer(fleet.ports, [unowned], judge_node=judge, workers=INSIDE).poll()
    assert [(node.outcome, node.settled) for node in looked.nodes] == [("waiting", False)]
    own = fleet.report(1, owner="")
    if signer == "copied":
        fleet.proofs[planted.key] = fleet.proofs[own.key]
    looked = Gatherer(fleet.ports, [unowned], judge_node=judge, workers=INSIDE).poll()
    assert [(node.outcome, node.evidence_key) for node in looked.nodes] == [("verified", own.key)]
    fleet.refs.remove(planted)


def test_newer_evidence_counts_from_its_proof_on() -> None:
    """After a reboot, the evidence of the new boot counts as soon as the node has signed it. Until then, it can be that of any writer."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, owner="")
    second = fleet.report(1, owner="", boot="boot-0002", gpus=7, modified=LAUNCHED + timedelta(hours=1))
    proof = fleet.proofs.pop(second.key)
    polls = Gatherer(fleet.ports, [pool(1, evidence_owner="")], judge_node=judge, workers=INSIDE)
    assert [(node.outcome, node.unsigned) for node in polls.poll().nodes] == [("verified", 1)]
    fleet.proofs[second.key] = proof
    polls.poll()
    assert [(node.outcome, node.unsigned) for node in polls.poll().nodes] == [("failed", 0)]


def test_node_that_its_group_upgrades_is_waited_for() -> None:
    """Where a group applies a newer bundle to running nodes, evidence of an older bundle is not final; elsewhere it is."""
    fleet = Fleet()
    fleet.launch(1, renewed=True)
    fleet.report(1, document={"bundle_sha256": "c" * 64})
    node = poll(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", False)
    assert "its group has not upgraded it yet" in node.reason
    fleet.report(1, seq=2)
    assert poll(fleet, pool(1)).complete


def test_stopped_upgrade_is_reported() -> None:
    """Outdated nodes whose group shows an error are reported with the cloud's text, even if no node is missing."""
    fleet = healthy(2)
    fleet.members_[1] = replace(fleet.members_[1], template_version="older than 3")
    fleet.problems_ = [GroupProblem(group="asg-1", cause=CapacityCause.UNKNOWN, message="Rolling Upgrade failed")]
    outcome, lines = waited(fleet, Wait(deadline_s=0.4))
    assert "asg-1: Rolling Upgrade failed" in lines
    assert "gpu-reserved-0: its outdated nodes are not being replaced: Rolling Upgrade failed" in "\n".join(
        reasons(outcome, "aws")
    )
