"""The record of the active region: conditions, epochs, the journals in it, and operators on different machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.clouds.region.active import LONGEST, SCHEMA, SharedRecord, StoredRecord, place_of
from gpuinfra.region.failover.journal import FailoverJournal
from gpuinfra.region.failover.run import run_steps
from gpuinfra.region.failover.steps import Failing, steps
from tests.region.failover.shared import CLUSTER_STATE, MemoryRecord
from tests.region.failover.world import World

STACK, FIRST, SECOND = "aws-recovery", "us-east-1", "us-west-2"
FILES = {STACK: "1"}
FIELDS = {"schema": SCHEMA, "region": FIRST, "epoch": 0, "changed_by": "", "changed_at": "", "moves": {}}


def shared(store: MemoryRecord) -> SharedRecord:
    """The record, as an operator reads it."""
    return SharedRecord(store, STACK, FIRST)


@contextmanager
def journal_on(machine: Path, store: MemoryRecord) -> Iterator[FailoverJournal]:
    """The journal of the failover on a machine."""
    with closing(FailoverJournal(machine / f"Pulumi.{STACK}.yaml", machine / "state")) as journal:
        journal.share(shared(store))
        yield journal


def machine(folder: Path, name: str) -> Path:
    """A machine of an operator, with an empty state folder."""
    path = folder / name
    path.mkdir()
    return path


def test_a_stack_without_a_record_runs_in_its_first_region() -> None:
    """Reading does not write the record."""
    store = MemoryRecord()
    assert (shared(store).region, shared(store).active, store.writes) == (FIRST, None, 0)


def test_a_change_of_the_region_increments_the_epoch_and_names_the_operator() -> None:
    """Journals do not change the epoch; the record has the operator and the time of the last change of the region."""
    store = MemoryRecord()
    record = shared(store)
    record.update("failover", {"steps": {}})
    assert (store.active().region, store.active().epoch) == (FIRST, 0)
    record.update("failover", {"steps": {"fence": {}}}, SECOND)
    record.update("failover", {"steps": {"fence": {"state": "done"}}})
    active = shared(store).active
    assert active is not None
    assert (active.region, active.epoch) == (SECOND, 1)
    assert "@" in active.changed_by
    assert active.changed_at.endswith("Z")
    assert str(active).startswith(f"{SECOND} is active since ")


def test_the_second_of_two_operators_stops() -> None:
    """A write after a different run has written is refused, and does not replace what the other run wrote."""
    store = MemoryRecord()
    ours, theirs = shared(store), shared(store)
    theirs.update("failover", {"steps": {}})
    with pytest.raises(DeploymentError, match="was changed by a different run while this run was in progress"):
        ours.update("failback", {"steps": {}})
    assert set(store.active().moves) == {"failover"}


def test_a_write_whose_response_is_lost_succeeds() -> None:
    """A repeated request is refused, but the record has the content of this run."""
    store = MemoryRecord()
    record = shared(store)
    store.lost = True
    record.update("failover", {"steps": {}})
    record.update("failover", {"steps": {"fence": {}}})
    assert store.active().moves["failover"] == {"steps": {"fence": {}}}


@pytest.mark.parametrize(
    "text",
    [
        b"not JSON",
        b"[]",
        b"{}",
        json.dumps({**FIELDS, "schema": "gpuinfra.active-region/2", "stack": STACK}).encode(),
        json.dumps({**FIELDS, "stack": "other"}).encode(),
        b" " * (LONGEST + 1),
    ],
    ids=["text", "list", "empty", "schema", "stack", "length"],
)  # fmt: skip
def test_an_object_that_is_not_the_record_is_an_error(text: bytes) -> None:
    """Each wrong content is one error, because the active region is then unknown."""
    with pytest.raises(DeploymentError, match="is not a record of aws-recovery"):
        shared(MemoryRecord(held=StoredRecord(text=text, tag="1")))


def test_a_different_machine_continues(tmp_path: Path) -> None:
    """A failover that stops on one machine continues on another one with an empty state folder, and repeats no step that is done."""
    store, world = MemoryRecord(), World(import_fails=True)
    failing = world.failing()
    with journal_on(machine(tmp_path, "a"), store) as journal:
        journal.begin(STACK, SECOND, FILES)
        assert not run_steps(journal, steps(failing), lambda _: None).ok
    calls, world.import_fails = list(world.calls), False
    assert store.active().region == SECOND
    with journal_on(machine(tmp_path, "b"), store) as journal:
        assert journal.state("fence") == "done"
        assert run_steps(journal, steps(failing), lambda _: None).ok
    assert world.calls[len(calls) :] == ["import fs-1"]


def test_a_resumed_run_records_each_step(tmp_path: Path) -> None:
    """What a second operator does is in the record as soon as it is in the journal of the second machine, so that a third one continues from there."""
    store = MemoryRecord()
    with journal_on(machine(tmp_path, "a"), store) as journal:
        journal.begin(STACK, SECOND, FILES)
        journal.start("check")
    with journal_on(machine(tmp_path, "b"), store) as journal:
        journal.start("check")
        journal.finish("check", "done", "is ready")
        journal.start("fence", SECOND)
        journal.finish("fence", "done", "no nodes are left")
        steps_of_b = {name: journal.entry(name) for name in journal.steps}
        assert store.active().moves["failover"]["steps"] == steps_of_b
    with journal_on(machine(tmp_path, "c"), store) as journal:
        journal.finish("check", "done", "again")
        assert store.active().moves["failover"]["steps"]["check"]["found"] == "again"


def test_the_region_is_active_before_the_first_region_is_stopped(tmp_path: Path) -> None:
    """When the first node is stopped, the record already names the second region; until then, it names the first one."""
    store, world = MemoryRecord(), World()
    seen: dict[str, str] = {}

    def watch(step: str) -> None:
        seen.setdefault(step.split(" ")[0], store.active().region)

    ask = world._ask
    world._ask = lambda region, call: (watch(call), ask(region, call))[1]  # type: ignore[method-assign]
    with journal_on(machine(tmp_path, "a"), store) as journal:
        journal.begin(STACK, SECOND, FILES)
        assert run_steps(journal, steps(world.failing()), lambda _: None).ok
    assert seen == {
        "up": FIRST,
        "stop": SECOND,
        "running": SECOND,
        "compare": SECOND,
        "disable": SECOND,
        "detach": SECOND,
        "import": SECOND,
    }


def test_without_its_own_steps_the_move_is_recorded(tmp_path: Path) -> None:
    """A stack without node groups and buckets also records the second region."""
    store, world = MemoryRecord(), World()
    failing: Failing = replace(world.failing(stop_first=True), resources=())
    world.groups, world.pairs = lambda resources: (), lambda resources: ()  # type: ignore[method-assign]
    with journal_on(machine(tmp_path, "a"), store) as journal:
        journal.begin(STACK, SECOND, FILES)
        assert run_steps(journal, steps(failing), lambda _: None).ok
    assert store.active().region == SECOND


def test_a_move_that_another_machine_retired_is_retired_here(tmp_path: Path) -> None:
    """The journal of a machine is a copy: if the record has none, it is set aside."""
    store, here = MemoryRecord(), machine(tmp_path, "a")
    with journal_on(here, store) as journal:
        journal.begin(STACK, SECOND, FILES)
    with journal_on(machine(tmp_path, "b"), store) as journal:
        journal.retire()
    with journal_on(here, store) as journal:
        assert not journal.exists
    assert len(list((here / "state").rglob("*.old"))) == 1


def test_a_journal_in_another_format_is_an_error(tmp_path: Path) -> None:
    """A journal of a later version is not overwritten."""
    store = MemoryRecord()
    shared(store).update("failover", {"schema": "gpuinfra.failover-journal/9", "steps": {}})
    with (
        pytest.raises(GpuinfraError, match="contains no journal of a failover in the format"),
        journal_on(machine(tmp_path, "a"), store),
    ):
        pass
    assert store.writes == 1


def test_a_record_that_cannot_be_written_stops_the_move(tmp_path: Path) -> None:
    """If the second region does not respond, no step starts."""
    store, world = MemoryRecord(), World()
    with journal_on(machine(tmp_path, "a"), store) as journal:
        journal.begin(STACK, SECOND, FILES)
        store.down = True
        with pytest.raises(
            DeploymentError, match="cannot be written: second timed out; run the command again with --resume"
        ):
            run_steps(journal, steps(world.failing()), lambda _: None)
    assert world.calls == []


@pytest.mark.parametrize(
    ("resources", "name", "place"),
    [
        ([CLUSTER_STATE], None, "evidence-second"),
        ([CLUSTER_STATE], "recovery", "evidence-second"),
        ([CLUSTER_STATE], "other", None),
        ([{**CLUSTER_STATE, "outputs": {}}], None, None),
        ([{**CLUSTER_STATE, "outputs": {"recovery": None}}], None, None),
        ([], None, None),
    ],
    ids=["cluster", "name", "other-name", "before-recovery", "no-recovery", "empty"],
)
def test_the_record_is_in_the_replica_of_the_evidence(
    resources: list[Any], name: str | None, place: str | None
) -> None:
    """The state of the component contains the place."""
    assert place_of(resources, name) == place
