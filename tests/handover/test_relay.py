"""The fabric test through the relay of the handover, on three clouds, with honest and hostile nodes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.checks.fabric_test import Waits
from gpuinfra.node.evidence import sha256
from gpuinfra.node.fabric_relay import NodeReport, RelayedRendezvous
from gpuinfra.node.fabric_service import Waiting

from .fuzz import mutated
from .hostile_world import BOOTS, CLOUDS, PREFIX, World, id_of, signed
from .relay_world import SHEET, ServedNode, hostile_report, world_of

EACH = pytest.mark.parametrize("cloud", CLOUDS)
SHARED = pytest.mark.parametrize("cloud", ["azure", "gcp"])


@EACH
@pytest.mark.parametrize("count", [2, 5])
def test_the_nodes_of_a_pool_are_verified(cloud: str, count: int, tmp_path: Path) -> None:
    """Each node passes with its own raw output, and the sheet is empty when the command ends."""
    world, handover = world_of(cloud, tmp_path, count)
    assert handover.run() == dict.fromkeys(range(1, count + 1), "verified")
    assert json.loads(world.objects[SHEET][0]) == {"schema": "gpuinfra.fabric-sheet/1", "test": "", "nodes": {}}


@EACH
def test_the_slow_node_fails_and_the_others_pass(cloud: str, tmp_path: Path) -> None:
    """The slow node fails with its own measurement."""
    _, handover = world_of(cloud, tmp_path, 4)
    handover.nodes[2].slow = True
    assert handover.run() == {1: "verified", 2: "verified", 3: "failed", 4: "verified"}


def test_a_node_is_asked_with_one_request_for_one_object(tmp_path: Path) -> None:
    """A poll of a node is one request, and sends nothing else."""
    _, handover = world_of("gcp", tmp_path, 2)
    node = handover.nodes[0]
    before = len(handover.world.objects)
    node.service.once()
    assert (node.gets, len(handover.world.objects)) == (1, before)


def test_a_replaced_node_measures_with_a_verified_node(tmp_path: Path) -> None:
    """A later command asks good nodes to be the partner of the new node, and they keep their results."""
    world, handover = world_of("aws", tmp_path, 2)
    assert set(handover.run().values()) == {"verified"}
    results = [node.result.read_text() for node in handover.nodes]
    world.nodes = 3
    late = ServedNode(world, 3, tmp_path)
    again = type(handover)(world, [*handover.nodes, late])
    assert set(again.run().values()) == {"verified"}
    assert [node.result.read_text() for node in handover.nodes] == results


def test_a_busy_node_does_not_delay_the_others(tmp_path: Path) -> None:
    """A node whose GPUs a job uses reports the reason in its evidence, and the others are verified."""
    _, handover = world_of("aws", tmp_path, 3)
    handover.nodes[1].waiting = Waiting(Waits.GPUS, "processes use the GPUs")
    assert handover.run() == {1: "verified", 2: "waiting", 3: "verified"}
    (reason,) = [one.reason for one in handover.verdict.nodes if one.instance_id == handover.nodes[1].name]
    assert reason.endswith("processes use the GPUs")


def test_a_node_that_restarted_is_asked_again(tmp_path: Path) -> None:
    """The result of an earlier boot is lost, so the node measures again, and its first report has the number 1 again."""
    _, handover = world_of("gcp", tmp_path, 2)
    handover.turn()
    handover.turn()
    node = handover.nodes[0]
    node.boot = BOOTS[1]
    node.service = node.started()
    node.upload()
    assert handover.run() == {1: "verified", 2: "verified"}


def test_the_ids_of_nccl_reach_the_partner_only_through_the_handover(tmp_path: Path) -> None:
    """Both nodes of a pair report that they arrived. The next sheet has the number of GPUs and NCCL's ID of the partner."""
    _, handover = world_of("azure", tmp_path, 2)
    for _ in range(3):
        handover.gatherer.poll()
        handover.relay.turn(handover.gatherer, handover.gatherer.poll())
        for node in handover.nodes:
            if not (called := node.relay.call()) or not called[1].run:
                node.service.once()
    calls = [node.relay.call() for node in handover.nodes]
    assert [call and (call[1].run, call[1].place, call[1].gpus) for call in calls] == [("0001", 0, 0), ("0001", 1, 0)]
    stores = [RelayedRendezvous(node.relay, call[0]) for node, call in zip(handover.nodes, calls, strict=True) if call]
    name = [node.name for node in handover.nodes]
    assert stores[0].get(name[1], "0001-1.json") is None
    stores[0].put(name[0], "0001-0.json", json.dumps({"run": "0001", "gpus": 8, "unique_id": "ab" * 128}).encode())
    stores[1].put(name[1], "0001-1.json", json.dumps({"run": "0001", "gpus": 4}).encode())
    handover.relay.turn(handover.gatherer, handover.gatherer.poll())
    found = [json.loads(stores[at].get(name[1 - at], f"0001-{1 - at}.json") or b"") for at in (0, 1)]
    assert [(one["gpus"], one["unique_id"]) for one in found] == [(4, ""), (8, "ab" * 128)]


def flood(world: World, victims: int, hostile: int, turn: int) -> None:
    """A hostile node that shares the folders of all nodes occupies the next names, copies what others signed, and signs documents under their names."""
    by = id_of(world.cloud, hostile)
    for number in range(1, victims + 1):
        for at in range(turn + 1, turn + 3):
            base = f"{world.folder(number)}/{BOOTS[0]}/fabric/{at:06d}"
            claimed = {
                "schema": "gpuinfra.fabric-report/1",
                "instance_id": id_of(world.cloud, number),
                "boot_id": BOOTS[0],
                "seq": at,
            }
            data = json.dumps({**claimed, "test": "0" * 16, "ask": 1, "ready": False}).encode()
            copied = [value[0] for key, value in world.objects.items() if "/fabric/" in key and key.endswith(".json")]
            data = random.Random(at).choice([data, b"[" * 50_000, b"x" * 2_000_000, *copied[:3]])
            world.write(f"{base}.json", data)
            world.write(f"{base}.{turn:08x}.proof.json", signed(world.cloud, by, sha256(data)))
        evidence = f"{world.folder(number)}/{BOOTS[0]}/{turn + 2:06d}"
        world.write(f"{evidence}.json", b"{}")
        world.write(f"{evidence}.{turn:08x}.proof.json", signed(world.cloud, by, sha256(b"{}")))


@SHARED
def test_a_neighbor_that_occupies_every_name_stops_no_other_node(cloud: str, tmp_path: Path) -> None:
    """Before each turn, it creates the next names in each folder that it can reach, with newer, larger and copied objects, also where a sheet of nodes
    would be. The other nodes are verified."""
    world, handover = world_of(cloud, tmp_path, 4, hostile=1)
    turns = iter(range(1000))

    def between() -> None:
        flood(world, 4, 5, next(turns))
        world.write(f"{PREFIX}/fabric/rendezvous/gpu-{'b' * 12}/0001/plan/01/x/verdict", b"{}")

    handover.between = between
    assert handover.run() == dict.fromkeys(range(1, 5), "verified")


@SHARED
def test_thousands_of_newer_objects_stop_no_other_node(cloud: str, tmp_path: Path) -> None:
    """A folder with many objects that its node did not sign takes longer, and its node is verified."""
    world, handover = world_of(cloud, tmp_path, 3, hostile=1)
    data = b"{}"
    proof = signed(cloud, id_of(cloud, 4), sha256(data))
    for at in range(2000):
        base = f"{world.folder(2)}/{BOOTS[0]}/fabric/{500_000 + at:06d}"
        world.objects[f"{base}.json"] = world.objects[f"{base}.00000000.proof.json"] = data, world.now
        world.objects[f"{base}.00000000.proof.json"] = proof, world.now
    world.objects |= {
        key: (value[0], world.now.replace(year=2100)) for key, value in world.objects.items() if "/fabric/5" in key
    }
    assert handover.run() == dict.fromkeys(range(1, 4), "verified")


def lies(kind: str, rng: random.Random, called: dict[str, Any], test: str) -> dict[str, Any]:
    """A report of a hostile member."""
    ask, run = called.get("ask", 1), str(called.get("run", ""))
    base = NodeReport(
        test=test, ask=ask, ready=True, run=run, gpus=8 if run else 0, unique_id="00" * 128 if run else ""
    )
    words = {"silent": "", "fails": "fail", "passes": "pass", "absent": "absent"}
    content = {**base.__dict__, "outcome": words.get(kind, "")}
    if kind == "fuzz":
        return (
            json.loads(mutated(rng, content) or b"{}")
            if rng.random() < 0.5
            else {**content, "run": rng.choice(["0001", "9", "x"]), "ask": rng.choice([ask, -1, 10**9])}
        )
    return (
        {**content, "reason": "\x1b[2J\u202e" * 50}
        if words.get(kind)
        else {**content, "ready": kind != "leaves" or not run}
    )


@EACH
@pytest.mark.parametrize("kind", ["silent", "fails", "passes", "absent", "leaves", "fuzz"])
def test_a_hostile_member_stops_no_other_node(cloud: str, kind: str, tmp_path: Path) -> None:
    """Whatever a member of the test reports about itself, or if it is silent during each all-reduce, the other nodes are verified."""
    world, handover = world_of(cloud, tmp_path, 4, hostile=1)
    evil = ServedNode(world, 5, tmp_path)
    rng, seqs = random.Random(kind), iter(range(1, 10_000))

    def between() -> None:
        sheet = json.loads(world.objects[SHEET][0]) if SHEET in world.objects else {"nodes": {}}
        if called := sheet["nodes"].get(evil.name):
            try:
                report = lies(kind, rng, called, sheet["test"])
            except ValueError:
                report = {}
            hostile_report(world, 5, report if isinstance(report, dict) else {}, next(seqs))
        handover.now += 100.0

    handover.between = between
    assert handover.run(60) == dict.fromkeys(range(1, 5), "verified")
    assert "\x1b" not in repr(handover.verdict)


@EACH
def test_reports_of_another_test_or_boot_do_not_count(cloud: str, tmp_path: Path) -> None:
    """Reports that a node signed for an earlier command, or in an earlier boot, change nothing in a new test."""
    world, handover = world_of(cloud, tmp_path, 2)
    handover.run()
    for node in handover.nodes:
        node.result.unlink()
        node.upload()
    again = type(handover)(world, [])
    for _ in range(4):
        again.turn()
    calls = json.loads(world.objects[SHEET][0])["nodes"].values()
    assert list(calls) == [{"boot": BOOTS[0], "ask": 1}] * 2


@SHARED
def test_a_copy_of_an_earlier_report_does_not_count(cloud: str, tmp_path: Path) -> None:
    """A neighbor that copies a report with its proof to a later number replays nothing, because the report names its number."""
    world, handover = world_of(cloud, tmp_path, 2)
    for _ in range(2):
        handover.turn()
    base = f"{world.folder(1)}/{BOOTS[0]}/fabric/000001"
    (proof,) = [key for key in world.objects if key.startswith(f"{base}.") and "proof" in key]
    handover.nodes[0].relay.send(NodeReport(test="f" * 16, ask=5))
    world.write(f"{base[:-6]}000900.json", world.objects[f"{base}.json"][0])
    world.write(f"{base[:-6]}000900.00000000.proof.json", world.objects[proof][0])
    reports = handover.gatherer.reports(handover.gatherer.poll().nodes)
    assert reports[handover.nodes[0].name].ask == 5


@EACH
def test_two_commands_at_the_same_time_verify_the_nodes(cloud: str, tmp_path: Path) -> None:
    """Each command replaces the sheet of the other one. The nodes answer the sheet that they read, and both commands read the results."""
    world, first = world_of(cloud, tmp_path, 4)
    second = type(first)(world, [])
    first.between = second.turn
    assert first.run(200) == dict.fromkeys(range(1, 5), "verified")
    second.turn()
    assert {one.outcome for one in second.verdict.nodes} == {"verified"}
