"""The record of the last failover drill, and the line of `gpuinfra ready` about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuinfra.clouds.region.readiness import OK, SKIPPED, WARN
from gpuinfra.remote import drills
from gpuinfra.spec.load import LoadedStack, read_stack
from tests.region.clone.stacks import file_of


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedStack:
    """A stack with a second region, and a state folder of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "Pulumi.aws-recovery.yaml"
    path.write_text(file_of("aws-recovery").read_text())
    return read_stack(path)


def state(stack: LoadedStack, days: int = 0) -> tuple[str, str]:
    """The state and the reason of the line, some days after the drill."""
    one = drills.line(stack, datetime.now(UTC) + timedelta(days=days))
    assert (one.topic, one.name) == ("drill", "us-west-2")
    assert bool(one.fix) is (one.state != OK)
    assert not one.fix or one.fix == f"gpuinfra rehearse drill {stack.path} --to us-west-2"
    return one.state, one.reason


def test_a_stack_without_a_drill_has_no_result(stack: LoadedStack) -> None:
    """Without a record, or with a file that is no record, the result is not checked."""
    assert state(stack)[0] == SKIPPED
    drills.record(stack, problems=(), rpo=46.0, rto=75.0)
    (file,) = (stack.path.parent / "state/gpuinfra/drill").glob("*.json")
    for text in ("", "[]", '{"schema": "gpuinfra.drill/2"}', '{"schema": "gpuinfra.drill/1"}'):
        file.write_text(text)
        assert state(stack)[0] == SKIPPED


@pytest.mark.parametrize(
    ("field", "value"),
    [("rpo_minutes", "46"), ("rto_minutes", None), ("rto_minutes", True), ("ended", "yesterday"), ("ended", "2026-11-27T10:00:00"), ("ended", 7),
     ("problems", "none"), ("problems", [3]), ("problems", [""]), ("declaration", None)],
)  # fmt: skip
def test_a_record_with_an_edited_field_is_no_record(stack: LoadedStack, field: str, value: object) -> None:
    """A field with a value that a drill cannot write makes the result unknown, and is not an error of `ready`."""
    drills.record(stack, problems=(), rpo=46.0, rto=75.0)
    (file,) = (stack.path.parent / "state/gpuinfra/drill").glob("*.json")
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, field: value}))
    assert state(stack)[0] == SKIPPED
    del body[field]
    file.write_text(json.dumps(body))
    assert state(stack)[0] == SKIPPED


def test_a_drill_that_passed_is_ok_until_it_is_old(stack: LoadedStack) -> None:
    """The line has the date and the times of the drill. A drill of another month is a warning."""
    drills.record(stack, problems=(), rpo=46.04, rto=75.0)
    found = state(stack)
    assert found[0] == OK
    assert "RPO 46.0 minutes, RTO 75.0 minutes" in found[1]
    assert state(stack, days=drills.OLD_DAYS)[0] == OK
    assert state(stack, days=drills.OLD_DAYS + 1) == (WARN, "the last drill passed 31 days ago")


def test_a_drill_that_failed_is_a_warning(stack: LoadedStack) -> None:
    """The reason is the first problem of the last drill."""
    drills.record(stack, problems=(), rpo=46.0, rto=75.0)
    drills.record(stack, problems=("ready: the key is missing\nmore", "RTO missed"), rpo=None, rto=None)
    found = state(stack)
    assert found[0] == WARN
    assert found[1].endswith("failed: ready: the key is missing")


def test_a_drill_of_another_declaration_is_a_warning(stack: LoadedStack) -> None:
    """A drill proves nothing about a declaration that changed since then. A comment is no change."""
    drills.record(stack, problems=(), rpo=46.0, rto=75.0)
    stack.path.write_text("# comment\n" + stack.path.read_text())
    assert state(read_stack(stack.path))[0] == OK
    stack.path.write_text(stack.path.read_text().replace("count: 2", "count: 3"))
    found = state(read_stack(stack.path))
    assert found[0] == WARN
    assert "the declaration changed" in found[1]
