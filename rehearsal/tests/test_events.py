from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.actions import errors_of
from gpuinfra_rehearsal.engine import OperationResult
from gpuinfra_rehearsal.events import RunProgress, Tail, kind_of, name_of
from gpuinfra_rehearsal.progress import Bars, Lines

URN = "urn:pulumi:s::p::a:b:C$aws:ec2/vpc:Vpc::net"


def error(text: str, urn: str = URN) -> dict[str, Any]:
    """An error event as the engine writes it."""
    return {"diagnosticEvent": {"urn": urn, "severity": "error", "message": f"<{{%reset%}}>{text}<{{%reset%}}>\n"}}


def test_type_and_name_of_a_urn() -> None:
    """The type is the last one of the chain, and the name may contain colons."""
    assert (kind_of(URN), name_of(URN)) == ("aws:ec2/vpc:Vpc", "net")
    assert name_of("urn:pulumi:s::p::t::a::b") == "a::b"


def test_progress_counts_changes() -> None:
    """A create is a change, a same is not, and the engine's summary is used."""
    progress = RunProgress()
    for op in ("create", "same"):
        progress.take({"resourcePreEvent": {"metadata": {"urn": URN, "op": op}}})
        progress.take({"resOutputsEvent": {"metadata": {"urn": URN, "op": op}}})
    progress.take({"summaryEvent": {"resourceChanges": {"create": 1, "same": 1}}})
    assert progress.changed == [("create", URN)]
    assert (progress.changes, progress.current) == (1, {})


def test_components_are_not_shown_as_in_progress() -> None:
    """The stack and components are in progress during the whole operation, so only resources are listed."""
    progress = RunProgress()
    for urn, kind, custom in (
        ("urn:pulumi:s::p::pulumi:pulumi:Stack::p-s", "pulumi:pulumi:Stack", False),
        ("urn:pulumi:s::p::gpuinfra:index:GpuCluster::train", "gpuinfra:index:GpuCluster", False),
        (URN, "aws:ec2/vpc:Vpc", True),
    ):
        metadata = {"urn": urn, "op": "create", "type": kind, "new": {"type": kind, "urn": urn, "custom": custom}}
        progress.take({"resourcePreEvent": {"metadata": metadata}})
    assert progress.current_resources == [("aws:ec2/vpc:Vpc", "net")]


def test_status_is_not_an_error() -> None:
    """An ephemeral message is the status of its resource, not a diagnostic."""
    progress = RunProgress()
    progress.take({"diagnosticEvent": {"urn": URN, "severity": "info", "message": "1 of 4", "ephemeral": True}})
    assert (progress.status, progress.diagnostics) == ({URN: "1 of 4"}, [])


def test_tail_waits_for_complete_lines(tmp_path: Path) -> None:
    """A partial line is read when it is complete, and an invalid line is skipped."""
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []
    path.write_text('{"sequence": 1}\n{"sequ')
    assert list(tail.new()) == [{"sequence": 1}]
    with path.open("a") as file:
        file.write('ence": 2}\nbroken\n{"sequence": 3}\n')
    assert list(tail.new()) == [{"sequence": 2}, {"sequence": 3}]


def test_errors_name_the_resource_without_the_engine_s_frame() -> None:
    """The engine's frame around reasons is removed, repeated and empty errors appear once, and a hint follows."""
    progress = RunProgress()
    progress.take(error("1 error occurred:\n\t* no capacity\n\n"))
    progress.take(error("1 error occurred:\n\t* no capacity\n\n"))
    progress.take(error("update failed", ""))
    problems = errors_of(OperationResult(name="up", exit_code=1, seconds=1, progress=progress))
    (problem,) = problems
    message, hint = problem.splitlines()
    assert message == "net (aws:ec2/vpc:Vpc): no capacity"
    assert "what to do" in hint


def test_a_failure_without_error_events_shows_the_log() -> None:
    """Without an error event, the end of the engine's output is the error."""
    problems = errors_of(OperationResult(name="up", exit_code=255, seconds=1, output="a\nerror: something else\n"))
    assert problems[-1] == "error: something else"


def test_every_plain_line_has_the_rehearsal_prefix() -> None:
    """Titles, nodes, the final count and each line of a longer error have the prefix."""
    stream = io.StringIO()
    view = Lines(stream)
    view.begin("up of try", 3, 1)
    view.show(RunProgress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "booting"}])
    view.line("two\nlines")
    view.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert all(line.startswith("rehearsal: ") for line in lines)
    assert "gpu-1 (i-1): booting" in lines[1]


def test_a_quiet_operation_is_reported() -> None:
    """If nothing changes, a line states how long the rehearsal runs, which operation runs, and its counts."""
    stream = io.StringIO()
    view = Lines(stream)
    progress = RunProgress(status={URN: "0 of 1 nodes verified"})
    with view.alive(0.02):
        view.begin("up of try", 3, 1)
        until(lambda: "still running after 0 s: up of try\n" in stream.getvalue())
        view._at = 0.0
        view.show(progress, [])
        until(lambda: "still running after 0 s: up of try; 0 of 3 resources; 0 of 1 nodes" in stream.getvalue())
        view.end()
        until(lambda: stream.getvalue().endswith("still running after 0 s\n"))
        view.phase("report")
        until(lambda: stream.getvalue().endswith("still running after 0 s: report\n"))
    assert all(line.startswith("rehearsal: ") for line in stream.getvalue().splitlines())


def test_bars_are_not_interrupted_by_lines() -> None:
    """In a terminal, the bars show that an operation runs. Between operations, a line does."""
    stream = io.StringIO()
    view = Bars(stream)
    view.begin("up of try", 3, 1)
    view._still(20.0)
    assert "still running" not in stream.getvalue()
    view.end()
    view._still(40.0)
    assert "rehearsal: still running after 40 s\n" in stream.getvalue()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a line of another thread."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_plain_lines_do_not_repeat_a_stage() -> None:
    """A stage of a node is printed once."""
    stream = io.StringIO()
    view = Lines(stream)
    for _ in range(5):
        view.show(RunProgress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "booting"}])
    assert stream.getvalue().count("gpu-1 (i-1)") == 1


def test_bars_are_removed_and_lines_stay() -> None:
    """After the end the bar is removed and the lines stay, also where texts look like markup."""
    stream = io.StringIO()
    view = Bars(stream)
    view.begin("up of [bold]try", 3, 1)
    view.show(RunProgress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "[/x] booting"}])
    view.end()
    assert "rehearsal: up of [bold]try" in stream.getvalue()
