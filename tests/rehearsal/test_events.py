from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from gpuinfra.rehearsal.engine import Operation
from gpuinfra.rehearsal.events import Progress, Tail, kind_of, name_of
from gpuinfra.rehearsal.run import problems_of
from gpuinfra.rehearsal.view import Bars, Lines

URN = "urn:pulumi:s::p::a:b:C$aws:ec2/vpc:Vpc::net"


def error(text: str, urn: str = URN) -> dict[str, Any]:
    """An error event as the engine writes it."""
    return {"diagnosticEvent": {"urn": urn, "severity": "error", "message": f"<{{%reset%}}>{text}<{{%reset%}}>\n"}}


def test_urns_are_taken_apart() -> None:
    """The type is the last of the chain, the name may hold colons."""
    assert (kind_of(URN), name_of(URN)) == ("aws:ec2/vpc:Vpc", "net")
    assert name_of("urn:pulumi:s::p::t::a::b") == "a::b"


def test_progress_counts_what_changed() -> None:
    """Creations are changes, sames are not, and the engine's own sum is kept."""
    progress = Progress()
    for op in ("create", "same"):
        progress.take({"resourcePreEvent": {"metadata": {"urn": URN, "op": op}}})
        progress.take({"resOutputsEvent": {"metadata": {"urn": URN, "op": op}}})
    progress.take({"summaryEvent": {"resourceChanges": {"create": 1, "same": 1}}})
    assert progress.changed == [("create", URN)]
    assert (progress.changes, progress.current) == (1, {})


def test_status_is_not_an_error() -> None:
    """An ephemeral line is progress beside its resource and not a diagnostic."""
    progress = Progress()
    progress.take({"diagnosticEvent": {"urn": URN, "severity": "info", "message": "1 of 4", "ephemeral": True}})
    assert (progress.status, progress.diagnostics) == ({URN: "1 of 4"}, [])


def test_tail_waits_for_whole_lines(tmp_path: Path) -> None:
    """A line that is still being written is read when it is whole; one that is broken is passed over."""
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.new()) == []
    path.write_text('{"sequence": 1}\n{"sequ')
    assert list(tail.new()) == [{"sequence": 1}]
    with path.open("a") as file:
        file.write('ence": 2}\nbroken\n{"sequence": 3}\n')
    assert list(tail.new()) == [{"sequence": 2}, {"sequence": 3}]


def test_problems_name_the_resource_and_drop_the_frame() -> None:
    """The engine's frame around reasons is taken off, repeated and empty errors are told once, and what to do stands below."""
    progress = Progress()
    progress.take(error("1 error occurred:\n\t* no capacity\n\n"))
    progress.take(error("1 error occurred:\n\t* no capacity\n\n"))
    progress.take(error("update failed", ""))
    problems = problems_of(Operation(name="up", exit_code=1, seconds=1, progress=progress))
    (problem,) = problems
    told, advice = problem.splitlines()
    assert told == "net (aws:ec2/vpc:Vpc): no capacity"
    assert "what to do" in advice


def test_a_failure_without_words_shows_the_log() -> None:
    """When the engine gives no error event, the end of what it printed is the problem."""
    problems = problems_of(Operation(name="up", exit_code=255, seconds=1, output="a\nerror: something else\n"))
    assert problems[-1] == "error: something else"


def test_every_plain_line_says_that_it_is_a_rehearsal() -> None:
    """Titles, nodes, counts and errors of several lines all carry the word."""
    stream = io.StringIO()
    view = Lines(stream)
    view.begin("up of try", 3, 1)
    view.show(Progress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "booting"}])
    view.line("two\nlines")
    view.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.startswith("rehearsal: ") for line in lines)
    assert "gpu-1 (i-1): booting" in lines[1]


def test_plain_lines_do_not_repeat_a_stage() -> None:
    """A node's stage is one line, however often it is shown."""
    stream = io.StringIO()
    view = Lines(stream)
    for _ in range(5):
        view.show(Progress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "booting"}])
    assert stream.getvalue().count("gpu-1 (i-1)") == 1


def test_bars_end_and_leave_the_lines() -> None:
    """The bar is gone afterwards and the lines stay, also where node texts look like markup."""
    stream = io.StringIO()
    view = Bars(stream)
    view.begin("up of [bold]try", 3, 1)
    view.show(Progress(), [{"label": "gpu-1", "instance_id": "i-1", "stage": "[/x] booting"}])
    view.end()
    assert "rehearsal: up of [bold]try" in stream.getvalue()
