"""The results of `gpuinfra ready --record` and of the drill, which each machine reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.active import KEY, OWN_KEYS, REPORT_KEY, RecordChanged
from gpuinfra.clouds.region.readiness import OK, SKIPPED, UNREAD, WARN
from gpuinfra.region import shared_results
from gpuinfra.region.shared_results import lines, read, results_of, write
from gpuinfra.remote import drills
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import file_of
from tests.region.failover.shared import MemoryRecord

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
COMMAND = "gpuinfra ready train --record"
DRILL: dict[str, Any] = {
    "schema": drills.SCHEMA, "declaration": "d", "ended": "2026-11-28T10:00:00Z", "problems": [], "rpo_minutes": 62.0, "rto_minutes": 120.0,
}  # fmt: skip


def record(store: MemoryRecord, *, ready: bool = True, drill: dict[str, Any] | None = None, days: int = 0) -> None:
    """Record a result some days ago."""
    write(store, "train", results_of(ready, "9 ok", drill, NOW - timedelta(days=days)))


def state(store: Any) -> tuple[str, str]:
    """The state and the reason of the line."""
    line, _, _ = lines("train", "us-west-2", store, COMMAND, NOW)
    assert line.topic == "recorded"
    assert bool(line.fix) == (line.state != OK)
    return line.state, line.reason


def test_another_machine_sees_the_result_and_the_drill() -> None:
    """The object has the time, the operator, the summary and the drill."""
    store = MemoryRecord()
    assert read(store, "train") is None
    record(store, drill=DRILL)
    found = read(store, "train")
    assert found is not None
    assert (found.at, found.ready, found.summary, found.drill) == ("2026-11-29T12:00:00Z", True, "9 ok", DRILL)
    assert "@" in found.by
    line, drill, _ = lines("train", "us-west-2", store, COMMAND, NOW)
    assert drill == DRILL
    assert line.reason.startswith("ready at 2026-11-29T12:00:00Z, recorded by ")


def test_a_missing_or_old_result_has_the_command() -> None:
    """Without a result, the line is not checked; a result of two days ago is a warning, because the daily job does not run."""
    assert state(MemoryRecord())[0] == SKIPPED
    assert state(None)[0] == SKIPPED
    for days, ready, expected in ((1, True, OK), (3, True, WARN), (0, False, WARN)):
        store = MemoryRecord()
        record(store, ready=ready, days=days)
        assert state(store)[0] == expected, days


@pytest.mark.parametrize(
    "change",
    [{"schema": "other"}, {"stack": "other"}, {"at": "yesterday"}, {"summary": None, "at": None}, {"ready": "yes"}],
)
def test_an_edited_object_is_not_a_result(change: dict[str, Any]) -> None:
    """Another format, another stack and a time that is none are not results. A text is not `true`."""
    store = MemoryRecord()
    record(store)
    held = store.read()
    assert held is not None
    store.write(json.dumps({**json.loads(held.text), **change}).encode(), held.tag)
    if change == {"ready": "yes"}:
        assert state(store)[0] == WARN
        return
    assert state(store)[0] == UNREAD
    with pytest.raises(DeploymentError, match="are not results of train"):
        read(store, "train")


def test_a_drill_that_is_no_drill_is_ignored() -> None:
    """Only a complete record of a drill counts."""
    store = MemoryRecord()
    record(store, drill={**DRILL, "rto_minutes": None})
    assert lines("train", "us-west-2", store, COMMAND, NOW)[1] is None


def test_concurrent_results_are_written_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that another machine overtakes is repeated, and ends with a message if that does not stop."""
    store = MemoryRecord()
    write_once, refused = store.write, [2]

    def overtaken(text: bytes, tag: str | None) -> str:
        refused[0] -= 1
        if refused[0] >= 0:
            raise RecordChanged
        return write_once(text, tag)

    monkeypatch.setattr(store, "write", overtaken)
    record(store)
    refused[0] = 99
    with pytest.raises(DeploymentError, match="other machines record results at the same time"):
        record(store)


def test_the_newer_drill_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drill of another machine replaces an older one of this machine, and the reverse."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stack = read_stack(file_of("aws-recovery"))
    assert drills.newest(stack, DRILL) == DRILL
    drills.record(stack, problems=(), rpo=1.0, rto=2.0)
    assert drills.newest(stack, DRILL) != DRILL
    later = {**DRILL, "ended": "2099-01-01T00:00:00Z"}
    assert drills.newest(stack, later) == later
    assert drills.newest(stack, {"ended": "x"}) == drills.newest(stack)


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_results_are_beside_the_record(cloud: str) -> None:
    """The object is not the record of the active region, and a failback copies neither of them."""
    places = {
        "azure": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/c"
    }
    store: Any = cloud_of(cloud).record(places.get(cloud, "evidence"), "us-west-2", {}, REPORT_KEY)
    assert store._key == REPORT_KEY
    assert OWN_KEYS == (KEY, REPORT_KEY)


def test_time_without_a_zone_is_utc() -> None:
    """An edited time without a zone is read as UTC."""
    assert shared_results._time("2026-11-29T12:00:00") == NOW
