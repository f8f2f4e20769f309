"""The search for capacity with a stand-in for the engine: order, stops, the stack file, and a kill at any moment."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.base.naming import logical
from gpuinfra.base.people_files import FileVersion, replace_file
from gpuinfra.engine.locked import StateLocked
from gpuinfra.engine.up import UpFailed
from gpuinfra.node.journal import write_whole
from gpuinfra.plan.make import build_plan
from gpuinfra.remote import stack_journal
from gpuinfra.search.journal import SearchJournal
from gpuinfra.search.placements import check_editable, stack_for
from gpuinfra.spec import Lustre
from gpuinfra.spec.load import read_stack
from tests.rules.cases import TODAY

from .world import QUOTA, STOCK_OUT, TEXT, Killed, World, go


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An account with capacity everywhere."""
    path = tmp_path / "Pulumi.find.yaml"
    path.write_text(TEXT)
    path.chmod(0o640)
    return World(path)


def test_capacity_at_once_needs_one_attempt(world: World) -> None:
    """The stack is deployed once, nothing is removed, and the file does not change."""
    assert go(world) == ["1. gpu: p4d.24xlarge in use1-az4, spot; small: p4d.24xlarge in use1-az4, on-demand: ready after 0 s"]  # fmt: skip
    assert world.calls == ["up use1-az4"]
    assert world.path.read_text() == TEXT


def test_alternatives_are_tried_in_order(world: World) -> None:
    """Groups without capacity are removed before the next attempt, an entry that repeats a placement is not tried, and other pools stay."""
    world.refusals = {"use1-az4": STOCK_OUT, "use1-az6": STOCK_OUT}
    lines = go(world)
    assert world.calls == [
        "up use1-az4", "remove train-gpu-spot-0", "up use1-az4 use1-az6", "remove train-gpu-spot-0", "up use1-az1 use1-az4",
    ]  # fmt: skip
    assert [line.split(": ")[-1] for line in lines if line[0].isdigit()] == ["no capacity after 0 s"] * 2 + ["ready after 0 s"]  # fmt: skip
    assert f"   gpu-spot-0: stock-out: {STOCK_OUT}" in lines
    assert sorted(urn.rpartition("::")[2] for urn in world.groups) == [
        "train-gpu-on-demand-0",
        "train-small-on-demand-0",
    ]


def test_placement_is_written_with_the_comments_of_the_file(world: World) -> None:
    """Only zone and capacity of the pool change; comments, order and file mode are kept."""
    world.refusals = {"use1-az4": STOCK_OUT, "use1-az6": STOCK_OUT}
    go(world)
    text = world.path.read_text()
    assert text == TEXT.replace("        zone: use1-az4\n", "        zone: use1-az1\n").replace(
        "capacity: {kind: spot, count: 2}\n", "capacity: {kind: on_demand, count: 2}\n"
    )
    assert world.path.stat().st_mode & 0o777 == 0o640


def test_storage_keeps_its_zone(world: World) -> None:
    """If the zone of the pools determines the default zone, the default is written too, so that a file system is not replaced."""
    text = TEXT.replace(", zone: use1-az4}", "}").replace("  - name: small", "  - name: small\n        zone: use1-az4")
    storage = (
        "    storage:\n      - {kind: lustre, mount: /scratch, capacity_gib: 4800, throughput_mb_s_per_tib: 250}\n"
    )
    world.path.write_text(text + storage)
    world.refusals = {"use1-az4": STOCK_OUT}
    before = [one.subnet for one in world.plan().file_systems]
    go(world)
    assert [one.subnet for one in world.plan().file_systems] == before == ["private-4"]
    assert read_stack(world.path).spec.pools[0].zone == "use1-az6"


def test_other_pools_keep_their_zone(world: World) -> None:
    """A pool without a zone stays in its zone, even if this was the zone of the pool that moves."""
    text = TEXT.replace(", zone: use1-az4}", "}")
    world.path.write_text(text)
    world.refusals = {"use1-az4": STOCK_OUT}
    before = zones(world)
    assert before == {"gpu-spot-0": "use1-az4", "small-on-demand-0": "use1-az4"}
    go(world)
    assert zones(world) == {**before, "gpu-spot-0": "use1-az6"}


def zones(world: World) -> dict[str, str]:
    """Group -> zone in the plan of the stack file."""
    return {group.name: group.zone for pool in world.plan().pools for group in pool.groups}


AZURE = """\
config:
  azure-native:location: southcentralus
  gpuinfra:cluster:
    name: train
    where: {cloud: azure, region: southcentralus}
    pools:
      - name: gpu
        machine: Standard_ND96asr_v4
        capacity: {kind: spot, count: 2}
        fallback:
          - {zone: "2"}
    storage:
      - {kind: lustre, mount: /scratch, capacity_gib: 16384, throughput_mb_s_per_tib: 125, importer_id: 00000000-0000-4000-8000-000000000009}
"""


def test_file_system_stays_if_azure_chose_the_zone_of_the_nodes(world: World) -> None:
    """If the declaration contains no zone, the file system keeps its zone, and the stack file contains only valid zones."""
    world.path.write_text(AZURE)
    declared = read_stack(world.path)
    moved = stack_for(declared, AZURE, {"gpu": 0})
    before, after = (build_plan(one.spec, TODAY) for one in (declared, moved))
    assert [one.zone for one in before.file_systems] == [one.zone for one in after.file_systems] == ["1"]
    assert [group.zone for plan in (before, after) for pool in plan.pools for group in pool.groups] == ["regional", "2"]
    storage = moved.spec.storage[0]
    assert isinstance(storage, Lustre)
    assert (moved.spec.where.zone, storage.zone) == (None, "1")


def test_no_capacity_anywhere_restores_the_declaration(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last placement, the pool has no nodes, the other pools are deployed, the file is as before, and a new search can start."""
    world.refusals = dict.fromkeys(["use1-az4", "use1-az6", "use1-az1"], STOCK_OUT)
    counts: dict[str, int] = {}
    deploy = world.deploy

    def counted(again: bool) -> None:
        counts.clear()
        counts.update({logical("train", one.name): one.count for pool in world.plan().pools for one in pool.groups})
        deploy(again)

    monkeypatch.setattr(world, "deploy", counted)
    with pytest.raises(DeploymentError, match="no placement of gpu has capacity"):
        go(world)
    assert world.path.read_text() == TEXT
    assert world.calls[-2:] == ["remove train-gpu-on-demand-0", "up use1-az4"]
    assert counts == {"train-gpu-spot-0": 0, "train-small-on-demand-0": 1}
    world.refusals = {}
    go(world)


BLOCK = """\
      - name: gpu
        machine: p5.48xlarge
        zone: use1-az4
        capacity: {kind: block, id: cr-0123456789abcdef0, count: 2, starts_at: "2026-11-16T11:30:00Z", ends_at: "2027-05-17T11:30:00Z"}
        fallback:
          - {zone: use1-az6, machine: p4d.24xlarge, capacity: {kind: spot, count: 2}}
"""


def test_pool_that_requires_nodes_is_left_out_of_the_last_deployment(world: World) -> None:
    """A Capacity Block has at least one node, so the last deployment does not contain the groups of its pool."""
    head, _, rest = TEXT.partition("      - name: gpu  # for training\n")
    text = f"{head}{BLOCK}      - name: small{rest.partition('- name: small')[2]}"
    world.path.write_text(text)
    world.refusals = dict.fromkeys(["use1-az4", "use1-az6"], STOCK_OUT)
    with pytest.raises(DeploymentError, match="no placement of gpu has capacity"):
        go(world)
    assert world.calls[-1].startswith("without urn:pulumi:**aws:autoscaling/group:Group::train-gpu-block-0")
    assert world.path.read_text() == text


@pytest.mark.parametrize("entry", ["{capacity: {kind: on_demand, count: 2}}", "{machine: p4de.24xlarge}"])
def test_launch_templates_of_alternatives_in_the_same_zone_are_removed(world: World, entry: str) -> None:
    """If no placement has capacity, a final deployment also runs if the alternatives use no other zone, because they have their own launch templates."""
    head = TEXT.partition("          - {zone: use1-az6}\n")[0]
    world.path.write_text(f"{head}          - {entry}\n")
    world.refusals = {"use1-az4": STOCK_OUT}
    with pytest.raises(DeploymentError, match="no placement of gpu has capacity"):
        go(world)
    assert world.calls[-1] == "without urn:pulumi:**aws:autoscaling/group:Group::train-gpu-spot-0"
    assert not [urn for urn in world.groups if "-gpu-" in urn]


@pytest.mark.parametrize("zone", ["use1-az4", "use1-az6"])
def test_quota_ends_the_search(world: World, zone: str) -> None:
    """A message for which another zone does not help ends the search with the message and the hint, and no group is removed after it."""
    world.refusals = {"use1-az4": STOCK_OUT, zone: QUOTA}
    with pytest.raises(UpFailed, match="current vCPU limit of 0") as caught:
        go(world)
    assert "request a higher quota" in str(caught.value)
    assert world.calls[-1].startswith("up")
    assert f"zone: {zone}\n" in world.path.read_text()


def test_unknown_message_ends_the_search(world: World) -> None:
    """A message that no table contains is not treated as missing capacity."""
    world.refusals = {"use1-az4": "The flux capacitor is empty."}
    with pytest.raises(UpFailed, match="flux capacitor"):
        go(world)
    assert world.calls == ["up use1-az4"]


@pytest.mark.parametrize(
    ("pool", "searches", "words"),
    [("small", True, "small has no `fallback`"), ("gpu", False, "because of --no-search")],
)
def test_without_alternatives_the_group_stays(world: World, pool: str, searches: bool, words: str) -> None:
    """Without alternatives, the groups keep waiting for capacity as with `pulumi up`, and the error states why nothing was searched."""
    world.pools, world.refusals = (pool,), {"use1-az4": STOCK_OUT}
    with pytest.raises(UpFailed) as caught:
        go(world, searches=searches)
    assert words in str(caught.value)
    assert STOCK_OUT in str(caught.value)
    assert world.calls == ["up use1-az4"]
    assert world.path.read_text() == TEXT


def test_the_control_node_has_no_alternatives(world: World) -> None:
    """If there is no capacity for the control node, no pool moves, and the message names the field with another machine type."""
    world.path.write_text(TEXT + "    monitoring: {receivers: [{kind: slack, secret: /alerts/slack}]}\n")
    world.pools, world.refusals = ("monitoring",), {"use1-az4": STOCK_OUT}
    with pytest.raises(UpFailed, match=r"set monitoring\.machine to another machine type"):
        go(world)
    assert world.calls == ["up use1-az4"]


def test_pools_with_running_nodes_do_not_move(world: World) -> None:
    """If nodes from before the run exist in a pool, its groups stay, because jobs can run on the nodes. The error says how to move the pool."""
    world.running, world.refusals = ("gpu",), {"use1-az4": STOCK_OUT}
    with pytest.raises(UpFailed, match="nodes of gpu ran before this command, and jobs can run on them") as caught:
        go(world)
    assert STOCK_OUT in str(caught.value)
    assert "set `count` to 0" in str(caught.value)
    assert world.calls == ["up use1-az4"]
    assert world.path.read_text() == TEXT
    world.running = ()
    go(world)
    assert world.calls[1:3] == ["up use1-az4", "remove train-gpu-spot-0"]


@pytest.mark.long
@pytest.mark.parametrize(
    "zones", [["use1-az4", "use1-az6"], ["use1-az4", "use1-az6", "use1-az1"]], ids=["found", "none"]
)
def test_search_can_be_killed_at_any_moment(
    world: World, tmp_path: Path, zones: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill between any two actions, `--resume` ends with the same file and the same groups, with and without capacity."""
    world.refusals = dict.fromkeys(zones, STOCK_OUT)

    def search(world: World, *, again: bool = False) -> None:
        with (
            contextlib.nullcontext() if len(zones) == 2 else pytest.raises(DeploymentError, match="no placement of gpu")
        ):
            go(world, again=again)

    search(world)
    text, groups = world.path.read_text(), world.groups
    moment = 0
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        one = World(folder / world.path.name, refusals=world.refusals, kill_at=moment)
        one.path.write_text(TEXT)
        with monkeypatch.context() as patched:

            def write(path: Path, content: str, one: World = one) -> None:
                one.tick()
                write_whole(path, content)
                one.tick()

            def replace(read: FileVersion, content: str, fix: str, one: World = one) -> FileVersion:
                one.tick()
                written = replace_file(read, content, fix)
                one.tick()
                return written

            patched.setattr(stack_journal, "write_whole", write)
            patched.setattr("gpuinfra.search.placements.replace_file", replace)
            try:
                search(one)
                break
            except Killed:
                pass
        journal = SearchJournal(one.path, folder)
        resumed = journal.unfinished
        journal.close()
        search(one, again=resumed)
        assert (one.path.read_text(), one.groups) == (text, groups), moment
    assert moment > 25


def test_a_resumed_search_keeps_the_groups_of_its_attempt(world: World) -> None:
    """After a kill while the groups of an alternative start, `--resume` deploys again, and removes no group."""
    world.refusals, world.kill_at = {"use1-az4": STOCK_OUT}, 6
    with pytest.raises(Killed):
        go(world)
    before = list(world.calls)
    assert before[-1] == "up use1-az4 use1-az6"
    go(world, again=True)
    assert world.calls == [*before, "up use1-az4 use1-az6 again"]


def test_a_failure_without_a_shortage_ends_the_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment that fails for another reason is not repeated, its error is the result, and a new search can start."""

    def refused(again: bool) -> None:
        world.calls.append("up")
        raise UpFailed("`pulumi up` exited with code 255: AccessDenied", [])

    monkeypatch.setattr(world, "deploy", refused)
    with pytest.raises(UpFailed, match="AccessDenied"):
        go(world)
    assert (world.calls, world.path.read_text()) == (["up"], TEXT)
    journal = SearchJournal(world.path, world.path.parent)
    assert (journal.unfinished, [one["result"] for one in journal.attempts]) == (False, ["failed"])
    journal.close()


def test_edited_file_is_not_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack file that changed during the search is an error that names the journal, and nothing is deployed."""
    world.refusals, world.kill_at = {"use1-az4": STOCK_OUT}, 5
    with pytest.raises(Killed):
        go(world)
    world.path.write_text(world.path.read_text() + "    tags: {team: a}\n")
    calls = list(world.calls)
    with pytest.raises(UsageError, match="changed after the search began"):
        go(world, again=True)
    assert world.calls == calls


def test_journal_is_locked_and_checked(world: World) -> None:
    """A second run and a file that is not a journal are one error each."""
    journal = SearchJournal(world.path, world.path.parent)
    with pytest.raises(GpuinfraError, match="is running"):
        SearchJournal(world.path, world.path.parent)
    journal.begin("find")
    journal.close()
    journal.path.write_text(json.dumps({"schema": "other"}))
    with pytest.raises(GpuinfraError, match="is not a journal of"):
        SearchJournal(world.path, world.path.parent)


def test_shared_values_are_an_error_before_anything_is_created(world: World) -> None:
    """A file in which another pool inherits the values of the pool cannot be edited in place."""
    text = TEXT.replace("- name: gpu  # for training", "- &gpu\n        name: gpu")
    text = text[: text.index("      - name: small")] + "      - {<<: *gpu, name: small}\n"
    world.path.write_text(text)
    with pytest.raises(UsageError, match="cannot be edited in place"):
        check_editable(read_stack(world.path), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            TEXT.partition("      - name: small")[0],
            "subnets and gateways of other zones remain until the next deployment",
        ),
        (TEXT, "the nodes of other pools are not verified, and resources of other zones can remain"),
    ],
    ids=["one pool", "two pools"],
)
def test_a_failed_last_deployment_is_stated(
    world: World, text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the last deployment fails, the error states that resources of other zones remain, and a new search can start."""
    world.path.write_text(text)

    def refuse(patterns: Sequence[str], again: bool) -> None:
        raise UpFailed("`pulumi up` exited with code 255", [])

    deploy = world.deploy

    def without_nodes_refused(again: bool) -> None:
        if "count: 0" in world.path.read_text():
            raise UpFailed("`pulumi up` exited with code 255", [])
        deploy(again)

    monkeypatch.setattr(world, "settle", refuse)
    monkeypatch.setattr(world, "deploy", without_nodes_refused)
    world.refusals = dict.fromkeys(["use1-az4", "use1-az6", "use1-az1"], STOCK_OUT)
    with pytest.raises(DeploymentError, match=words):
        go(world)
    assert world.path.read_text() == text
    world.refusals = {}
    go(world)


def test_alternatives_over_the_limit_are_skipped(world: World) -> None:
    """An alternative over the price limit is not deployed, it is in the log with its price, and the next alternative is tried."""
    world.refusals = {"use1-az4": STOCK_OUT}
    world.over = {"use1-az6": "costs 70.00 USD an hour, and --max-usd-per-hour is 50.00"}
    lines = go(world)
    assert world.calls == ["up use1-az4", "remove train-gpu-spot-0", "up use1-az1 use1-az4"]
    assert lines[2:4] == [
        "2. gpu: p4d.24xlarge in use1-az6, spot; small: p4d.24xlarge in use1-az4, on-demand: skipped, because it is over the price limit",
        "   gpu: price: costs 70.00 USD an hour, and --max-usd-per-hour is 50.00",
    ]
    assert lines[-1].endswith("ready after 0 s")


def test_resumed_placement_over_the_limit_is_not_deployed(world: World, tmp_path: Path) -> None:
    """If the limit of a resumed run excludes the next placement, nothing is deployed, and a higher limit continues the run."""
    world.refusals, world.kill_at = {"use1-az4": STOCK_OUT}, 4
    with pytest.raises(Killed):
        go(world)
    world.kill_at, calls = 0, len(world.calls)
    world.over = {"use1-az6": "costs 65.54 USD an hour, and the limit is 60"}
    with pytest.raises(
        DeploymentError, match=r"the next placement costs 65.54 USD an hour, and the limit is 60; nothing was deployed"
    ):
        go(world, again=True)
    assert len(world.calls) == calls
    world.over = {}
    go(world, again=True)
    assert world.path.read_text().count("zone: use1-az6") == 3


@pytest.mark.parametrize("attempt", [1, 2])
def test_lock_of_another_run_ends_the_command(
    world: World, tmp_path: Path, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock in the first attempt ends the run. A lock during the search keeps the journal, so that `--resume` continues."""
    deploy, count = world.deploy, 0

    def locked(again: bool) -> None:
        nonlocal count
        count += 1
        if count == attempt:
            raise StateLocked("find is locked by ci@runner (pid 7) since 2026-11-27T20:00:00Z; wait until the run ends")
        deploy(again)

    monkeypatch.setattr(world, "deploy", locked)
    world.refusals = {"use1-az4": STOCK_OUT}
    with pytest.raises(StateLocked):
        go(world)
    journal = SearchJournal(world.path, world.path.parent)
    assert journal.unfinished == (attempt == 2)
    journal.close()
    go(world, again=attempt == 2)
    assert read_stack(world.path).spec.pools[0].zone == "use1-az6"


def test_edits_during_a_search_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the stack file changes during an attempt, the search ends with an error before it writes the file."""
    deploy = world.deploy

    def edited(again: bool) -> None:
        if world.calls:
            world.path.write_text(world.path.read_text().replace("count: 1}", "count: 3}"))
        deploy(again)

    monkeypatch.setattr(world, "deploy", edited)
    world.refusals = {"use1-az4": STOCK_OUT, "use1-az6": STOCK_OUT}
    with pytest.raises(UsageError, match="changed after the search began"):
        go(world)
    assert "count: 3}" in world.path.read_text()


def test_search_without_an_alternative_within_the_limit_ends(world: World) -> None:
    """The error names the price limit, and the stack file is the same as before the search."""
    world.refusals = {"use1-az4": STOCK_OUT}
    world.over = dict.fromkeys(("use1-az6", "use1-az1"), "costs 70.00 USD an hour, and --max-usd-per-hour is 50.00")
    with pytest.raises(DeploymentError, match="no placement of gpu has capacity within the price limit; the groups"):
        go(world)
    assert world.calls[:2] == ["up use1-az4", "remove train-gpu-spot-0"]
    assert not any("use1-az1" in call or "use1-az6" in call for call in world.calls)
    assert world.path.read_text() == TEXT
