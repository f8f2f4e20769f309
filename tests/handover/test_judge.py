from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuinfra.handover import wire
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.handover.names import Names
from gpuinfra.handover.ports import GroupExpected, PoolExpected, Trouble
from gpuinfra.handover.watch import Gatherer, Outcome, Wait, watch
from gpuinfra.handover.wording import hint, reasons
from gpuinfra.report import node_entry

from .fleet import LAUNCHED, OWNER, Fleet, instance, judge, pool


def look(fleet: Fleet, expected: PoolExpected | None = None, **more: object) -> FleetVerdict:
    """One look."""
    return Gatherer(fleet.ports, [expected or pool()], judge_node=judge).look(**more)  # type: ignore[arg-type]


def healthy(count: int = 2) -> Fleet:
    """Nodes that have all reported well."""
    fleet = Fleet()
    for number in range(1, count + 1):
        fleet.launch(number)
        fleet.report(number)
    return fleet


def waited(fleet: Fleet, wait: Wait, expected: PoolExpected | None = None) -> tuple[Outcome, list[str]]:
    """A whole wait, and what was said meanwhile."""
    said: list[str] = []
    outcome = watch(
        Gatherer(fleet.ports, [expected or pool()], judge_node=judge),
        wait,
        say=said.append,
        cancelled=threading.Event(),
    )
    return outcome, said


def test_healthy_fleet_is_complete() -> None:
    """Nodes that are there, signed for and pass every required check are verified, with all their GPUs."""
    verdict = look(healthy())
    assert verdict.complete
    assert [n.outcome for n in verdict.nodes] == ["verified", "verified"]
    assert sum(n.gpus_verified for n in verdict.nodes) == 16


def test_raw_output_counts_not_the_nodes_opinion() -> None:
    """A node that writes `pass` beside raw output with seven GPUs has failed."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, gpus=7, document={"checks": [{"id": "G1", "severity": "block", "outcome": "pass"}]})
    node = look(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled, node.gpus_verified) == ("failed", True, 0)
    assert "found 7, expected 8 GPUs" in node.reason


def test_newest_boot_counts() -> None:
    """After a reboot only the new boot's evidence counts, and of a boot its highest number."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, boot="boot-0001", seq=7)
    fleet.report(1, boot="boot-0002", seq=1, gpus=7, modified=LAUNCHED + timedelta(hours=1))
    assert look(fleet, pool(1)).nodes[0].outcome == "failed"
    fleet.report(1, boot="boot-0002", seq=2, modified=LAUNCHED + timedelta(hours=2))
    assert look(fleet, pool(1)).nodes[0].outcome == "verified"


def test_dead_instances_do_not_count() -> None:
    """Evidence of an instance that its group no longer holds, or that is leaving, makes nobody verified."""
    fleet = healthy(2)
    fleet.members_ = [fleet.members_[0], *fleet.members_[2:]]
    verdict = look(fleet)
    assert (verdict.verified, verdict.missing) == (1, {"gpu-reserved-0": 1})
    fleet = Fleet()
    fleet.launch(1, leaving=True)
    fleet.report(1)
    assert look(fleet, pool(1)).missing == {"gpu-reserved-0": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"document": {"bundle_sha256": "c" * 64}}, "set up by bundle cccccccccccc"),
        ({"document": {"instance_id": instance(9)}}, f"names {instance(9)}"),
        ({"document": {"boot_id": "another"}}, "boot another"),
        ({"document": {"schema": "gpuinfra.evidence/9"}}, "not of schema"),
        ({"document": {"probes": None}}, "no raw output"),
        ({"data": b"\xff\x00 not json"}, "not JSON"),
        ({"data": b"[" * 100_000}, "not JSON"),
        ({"signer": instance(9)}, f"signed by {instance(9)}"),
        ({"signer": "nobody"}, "SignatureDoesNotMatch"),
    ],
)
def test_evidence_that_cannot_be_believed(change: dict[str, object], words: str) -> None:
    """Evidence of a wrong bundle, instance, boot, schema or signer is refused at once, with its reason."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1, **change)
    node = look(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", True)
    assert words in node.reason


def test_proof_over_other_evidence() -> None:
    """A proof that is genuine but was signed over other evidence does not vouch for this one."""
    fleet = Fleet()
    fleet.launch(1)
    first = fleet.report(1)
    second = fleet.report(1, seq=2, gpus=6)
    fleet.proofs[second.key] = fleet.proofs[first.key]
    assert "over other evidence" in look(fleet, pool(1)).nodes[0].reason


def test_role_is_compared() -> None:
    """A signature under another role of the account is refused, because its session name could be chosen."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    node = look(fleet, pool(1, node_role="another")).nodes[0]
    assert node.outcome == "refused"
    assert "role train-node" in node.reason


def test_foreign_folder_cannot_hide_evidence() -> None:
    """Newer evidence for an instance in somebody else's folder changes nothing."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    fleet.report(1, boot="boot-0009", gpus=1, owner="AROAOTHER", modified=LAUNCHED + timedelta(days=1))
    assert look(fleet, pool(1, evidence_owner=OWNER)).complete


def test_stale_template_waits_for_its_group() -> None:
    """A node of another template version is refused, but may still be replaced, so it is not settled."""
    fleet = Fleet()
    fleet.launch(1, template_version="2")
    fleet.report(1)
    node = look(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", False)
    assert "version 2, wanted is 3" in node.reason


def test_evidence_from_before_the_launch() -> None:
    """Evidence that is older than the instance's launch does not count."""
    fleet = Fleet()
    fleet.launch(1, launched=LAUNCHED + timedelta(hours=1))
    fleet.report(1)
    assert look(fleet, pool(1)).nodes[0].outcome == "waiting"


def test_failing_node_in_the_middle_of_its_steps_is_not_settled() -> None:
    """While the journal says that steps are to come, failed checks are not the last word; a failed step ends that."""
    for status, settled in (("reboot", False), ("running", False), ("failed", True), ("done", True)):
        fleet = Fleet()
        fleet.launch(1)
        fleet.report(1, gpus=0, document={"state": {"steps": [{"id": "30-driver", "status": status}]}})
        assert look(fleet, pool(1)).nodes[0].settled is settled, status


def test_required_check_that_did_not_run_fails() -> None:
    """A check that the machine requires and that has no outcome keeps the node from being verified."""
    expectation = {"gpus": 8, "required": ["G1", "N1"], "skips": {}}
    node = look(healthy(1), pool(1, expectation=expectation)).nodes[0]
    assert node.outcome == "failed"
    assert "N1" in node.reason


def test_labels_stay_and_are_not_given_again() -> None:
    """A node keeps its label, and the replacement of a lost one gets the next number."""
    fleet = healthy(2)
    labels = {n.instance_id: n.label for n in look(fleet).nodes}
    assert labels == {instance(1): "gpu-1", instance(2): "gpu-2"}
    fleet.members_.pop(0)
    fleet.launch(3)
    fleet.report(3)
    assert {n.instance_id: n.label for n in look(fleet, names=Names(labels=labels)).nodes} == {
        instance(2): "gpu-2",
        instance(3): "gpu-3",
    }


def test_labels_follow_the_launch_across_groups() -> None:
    """After a rolling replacement the numbers follow the launches of the whole pool, whatever group each node is in."""
    fleet = Fleet()
    for number, group in ((5, "asg-2"), (6, "asg-1"), (7, "asg-2"), (8, "asg-1")):
        fleet.launch(number, group=group)
    first, second = GroupExpected(name="a", group="asg-1", count=2), GroupExpected(name="b", group="asg-2", count=2)
    earlier = {instance(n): f"gpu-{n}" for n in range(1, 5)}
    verdict = look(fleet, pool(groups=(first, second)), names=Names(labels=earlier))
    assert {n.instance_id: n.label for n in verdict.nodes} == {instance(n): f"gpu-{n}" for n in range(5, 9)}


def test_a_number_is_not_given_again_after_its_machine_is_gone() -> None:
    """The newest node is lost and its replacement not there yet while somebody looks: the replacement gets a number of its own."""
    fleet = healthy(2)
    names = look(fleet).names
    fleet.members_.pop()
    between = look(fleet, names=names)
    kept = wire.outputs_of(Outcome(verdict=between, ready=False, ended="once", seconds=0), "")
    fleet.launch(3)
    after = look(fleet, names=wire.names_of(kept))
    assert [n.label for n in after.nodes] == ["gpu-1", "gpu-3"]
    assert wire.names_of({"nodes": kept["nodes"]}).call("gpu", [instance(3)]).labels[instance(3)] == "gpu-2"


def test_machines_that_come_and_go_during_one_wait_use_their_numbers() -> None:
    """Labels are carried from look to look: what was called gpu-3 while it lived leaves that name to nobody."""
    fleet = Fleet()
    fleet.launch(1)
    ticks = iter(range(0, 1000, 5))
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            fleet.members_.clear()
            fleet.launch(2)
            fleet.report(2)

    outcome = watch(
        Gatherer(fleet.ports, [pool(1)], judge_node=judge), Wait(deadline_s=60), say=say, cancelled=threading.Event(),
        clock=lambda: float(next(ticks)),
    )  # fmt: skip
    assert said[0].endswith("gpu-1 waiting")
    assert [n.label for n in outcome.verdict.nodes] == ["gpu-2"]


def test_outdated_nodes_that_nobody_replaces_are_told_early() -> None:
    """A group that leaves an outdated node alone is named long before the deadline, with what to do, and the wait ends."""
    fleet = healthy(1)
    fleet.launch(2, template_version="2")
    seconds = iter(range(0, 10_000, 5))
    said: list[str] = []
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge), Wait(deadline_s=2700), say=said.append,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "stale"
    assert outcome.seconds < 1400
    assert any("gpu-2 runs an outdated launch template" in line and "instance refresh" in line for line in said)
    text = "\n".join(reasons(outcome))
    assert "its groups leave outdated nodes alone" in text
    assert "start an instance refresh" in text


def test_a_group_that_rolls_is_waited_for() -> None:
    """While a group replaces node after node, nodes that are still outdated are no reason to give up."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    fleet.launch(2, template_version="2", leaving=True)
    seconds = iter(range(0, 10_000, 20))
    outcome = watch(
        Gatherer(fleet.ports, [pool()], judge_node=judge), Wait(deadline_s=2700), say=lambda _: None,
        cancelled=Always(), clock=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.ended == "deadline"


class Always(threading.Event):
    """Nobody cancels, and no time passes while one waits."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


def test_identity_is_asked_for_once() -> None:
    """One verification for each evidence, however often one looks; a refused proof is not asked again either."""
    fleet = healthy(1)
    gatherer = Gatherer(fleet.ports, [pool(1)], judge_node=judge)
    for _ in range(3):
        gatherer.look()
    assert len(fleet.verified) == 1


def test_watch_ends_when_every_node_has_answered() -> None:
    """A fleet with one failed node ends before the deadline and is not ready."""
    fleet = healthy(1)
    fleet.launch(2)
    fleet.report(2, gpus=7)
    outcome, _ = waited(fleet, Wait(deadline_s=60))
    assert (outcome.ended, outcome.ready) == ("settled", False)
    text = "\n".join(reasons(outcome))
    assert f"gpu-2 ({instance(2)})" in text
    assert "what to do: replace the node" in text


def test_silent_node_ends_at_the_deadline_with_its_console() -> None:
    """A node that never reports costs the deadline and no more, and the end of its console log is told."""
    fleet = healthy(1)
    fleet.launch(2)
    fleet.consoles[instance(2)] = [f"line {n}" for n in range(40)]
    outcome, _ = waited(fleet, Wait(deadline_s=0.3))
    assert outcome.ended == "deadline"
    text = "\n".join(reasons(outcome))
    assert f"gpu-2 ({instance(2)}): never reported" in text
    assert "| line 39" in text
    assert "| line 20" not in text


def test_a_silent_node_without_a_console_is_not_sent_to_read_it() -> None:
    """Where the console log is empty, the advice is what else can be done, here and in the report."""
    fleet = healthy(1)
    fleet.launch(2)
    outcome, _ = waited(fleet, Wait(deadline_s=0.3))
    text = "\n".join(reasons(outcome))
    assert "its console log is empty" in text
    assert "read the end of its console log" not in text
    assert "what to do: it may not have booted yet: give a longer deadline" in text
    silent = outcome.verdict.nodes[1]
    assert node_entry(silent)["hint"] == hint(silent)
    assert node_entry(silent, console=["step 30-driver"])["hint"].startswith("read the end of its console log")


def test_stock_out_is_told_early_in_the_clouds_words() -> None:
    """A group that gets no machines is told at once and ends the waiting before the deadline."""
    fleet = healthy(1)
    fleet.troubles_ = [Trouble(group="asg-1", kind="capacity", message="We currently do not have sufficient capacity")]
    outcome, said = waited(fleet, Wait(deadline_s=2))
    assert outcome.ended == "stock-out"
    assert outcome.seconds < 2
    assert "asg-1: We currently do not have sufficient capacity" in said
    text = "\n".join(reasons(outcome))
    assert "1 node never launched: We currently do not have sufficient capacity" in text
    assert "another zone" in text


def test_each_group_is_told_by_its_own_trouble() -> None:
    """Two groups that lack nodes for two reasons are told apart, and one without a word of the cloud borrows none."""
    groups = tuple(
        GroupExpected(name=f"gpu-{n}", group=f"asg-{n}", count=1) for n in ("reserved-0", "spot-0", "spot-1")
    )
    fleet = Fleet()
    fleet.troubles_ = [
        Trouble(group="asg-reserved-0", kind="permission", message="You are not authorized"),
        Trouble(group="asg-spot-0", kind="capacity", message="There is no Spot capacity"),
    ]
    outcome, _ = waited(fleet, Wait(deadline_s=0.3), pool(groups=groups))
    told = {text.partition(":")[0]: text for text in reasons(outcome)[1:]}
    assert "not authorized" in told["gpu-reserved-0"]
    assert "role or key policy" in told["gpu-reserved-0"]
    assert "no Spot capacity" in told["gpu-spot-0"]
    assert "another zone" in told["gpu-spot-0"]
    assert "scaling activities" in told["gpu-spot-1"]


def test_floor_and_none() -> None:
    """`floor` is content with its number, `none` looks once and waits for nobody."""
    fleet = healthy(1)
    fleet.launch(2)
    floor, _ = waited(fleet, Wait(mode="floor", floor=1, deadline_s=5))
    assert (floor.ready, floor.ended) == (True, "ready")
    once, _ = waited(fleet, Wait(mode="none", deadline_s=5))
    assert (once.ready, once.ended) == (False, "once")


def test_empty_fleet_is_never_ready() -> None:
    """No members and no evidence is a fleet that lacks everything, not one that is complete."""
    outcome, _ = waited(Fleet(), Wait(deadline_s=0.1))
    assert not outcome.ready
    assert outcome.verdict.missing == {"gpu-reserved-0": 2}


def test_cancel_ends_promptly() -> None:
    """A cancel ends the waiting at once, whatever the deadline."""
    cancelled = threading.Event()
    cancelled.set()
    gatherer = Gatherer(Fleet().ports, [pool()], judge_node=judge)
    outcome = watch(gatherer, Wait(deadline_s=600), say=lambda _: None, cancelled=cancelled)
    assert outcome.ended == "cancelled"
    assert outcome.seconds < 5


def test_throttling_is_waited_out() -> None:
    """A cloud that throttles once is asked again, and the person is told."""
    fleet = healthy(1)
    fleet.unavailable = 1
    outcome, said = waited(fleet, Wait(deadline_s=30), pool(1))
    assert outcome.ready
    assert any("Throttling" in line for line in said)


@pytest.mark.parametrize("signer", ["i-00000000000000009", "nobody"])
def test_evidence_that_another_put_under_a_nodes_name_hides_nothing_where_folders_have_no_owner(signer: str) -> None:
    """Newer evidence that the node did not sign is passed over for its own; without any of its own, it is refused."""
    fleet = Fleet()
    fleet.launch(1)
    unowned = pool(1, evidence_owner="")
    planted = fleet.report(
        1, gpus=7, boot="boot-9999", seq=999999, signer=signer, modified=LAUNCHED + timedelta(days=1)
    )
    looked = Gatherer(fleet.ports, [unowned], judge_node=judge).look()
    assert [node.outcome for node in looked.nodes] == ["refused"]
    own = fleet.report(1)
    looked = Gatherer(fleet.ports, [unowned], judge_node=judge).look()
    assert [(node.outcome, node.evidence_key) for node in looked.nodes] == [("verified", own.key)]
    fleet.refs.remove(planted)


def test_older_evidence_never_stands_in_for_newer_that_waits_for_its_proof() -> None:
    """A node that rebooted has to prove itself again: what it signed before does not count meanwhile."""
    fleet = Fleet()
    fleet.launch(1)
    fleet.report(1)
    second = fleet.report(1, boot="boot-0002", modified=LAUNCHED + timedelta(hours=1))
    del fleet.proofs[second.key]
    looked = Gatherer(fleet.ports, [pool(1, evidence_owner="")], judge_node=judge).look()
    assert [node.outcome for node in looked.nodes] == ["waiting"]


def test_a_node_that_its_group_renews_is_waited_for() -> None:
    """Where a group brings a newer bundle to nodes that live, older evidence is not the last word; elsewhere it is."""
    fleet = Fleet()
    fleet.launch(1, renewed=True)
    fleet.report(1, document={"bundle_sha256": "c" * 64})
    node = look(fleet, pool(1)).nodes[0]
    assert (node.outcome, node.settled) == ("refused", False)
    assert "its group has yet to renew it" in node.reason
    fleet.report(1, seq=2)
    assert look(fleet, pool(1)).complete


def test_an_upgrade_that_stopped_is_told_in_the_clouds_words() -> None:
    """Nodes of an older template whose group shows an error are told with it, though no node is missing."""
    fleet = healthy(2)
    fleet.members_[1] = replace(fleet.members_[1], template_version="older than 3")
    fleet.troubles_ = [Trouble(group="asg-1", kind="other", message="Rolling Upgrade failed")]
    outcome, said = waited(fleet, Wait(deadline_s=0.4))
    assert "asg-1: Rolling Upgrade failed" in said
    assert "gpu-reserved-0: its nodes are not renewed: Rolling Upgrade failed" in "\n".join(reasons(outcome))
