"""Documents are evaluated in processes with a deadline, whatever they contain and whichever command reads them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpuinfra.handover import workers
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.workers import NotEvaluated, Workers
from gpuinfra.node.outcome import CheckResult

from .fleet import Fleet, judge, pool


@pytest.fixture
def own() -> Iterator[Workers]:
    """Workers with one process."""
    made = Workers(1)
    yield made
    made.close()


def reported(*numbers: int) -> Fleet:
    """A fleet whose nodes have reported."""
    fleet = Fleet()
    for number in numbers:
        fleet.launch(number)
        fleet.report(number)
    return fleet


def judge_with_process(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[CheckResult]:
    """The judge, with the number of its process as the measured value."""
    return [{**check, "found": os.getpid()} for check in judge(probes, expectation, journal)]


def hang_on_seven(
    probes: Mapping[str, object], expectation: Mapping[str, object], journal: Mapping[str, object] | None
) -> list[CheckResult]:
    """The judge, which needs hours in one pattern for the evidence with seven GPUs."""
    if probes["gpus"] == 7:
        re.match(r"(a|a)*b", "a" * 60)
    return judge(probes, expectation, journal)


def for_ever() -> None:
    """Never end, within one call that Python cannot interrupt."""
    re.match(r"(a|a)*b", "a" * 60)


def end_once(marker: str) -> str:
    """End the process in the first call."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        os._exit(1)
    return "done"


def number_of() -> int:
    """Return the number of the process."""
    return os.getpid()


def fail(error: type[Exception]) -> None:
    """Raise an error with a text of a document."""
    raise error("text of a node")


def test_each_document_is_evaluated_in_another_process() -> None:
    """Also the small document of the only node is not evaluated in this process."""
    (node,) = Gatherer(reported(1).ports, [pool(1)], judge_node=judge_with_process).poll().nodes
    assert node.outcome == "verified"
    assert node.checks[0]["found"] != os.getpid()


def test_a_small_document_that_never_ends_changes_no_other_verdict(
    own: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node is not verified and the reason states the limit, the other nodes are verified, and the next poll does not evaluate it again."""
    monkeypatch.setattr(workers, "LIMIT_S", 3.0)
    fleet = reported(1, 3)
    fleet.launch(2)
    fleet.report(2, gpus=7)
    polls = Gatherer(fleet.ports, [pool(3)], judge_node=hang_on_seven, workers=own)
    verdict = polls.poll()
    outcomes = {node.instance_id[-1]: node.outcome for node in verdict.nodes}
    assert (outcomes["1"], outcomes["3"]) == ("verified", "verified")
    (hostile,) = (node for node in verdict.nodes if node.outcome != "verified")
    assert "cannot be judged: the evaluation takes longer than 3 s" in hostile.reason
    begun = time.monotonic()
    assert [node.outcome for node in polls.poll().nodes] == [node.outcome for node in verdict.nodes]
    assert time.monotonic() - begun < 2


def test_a_process_that_misses_the_deadline_is_replaced(own: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends at the deadline, its process does not exist afterwards, and the next call gets another one."""
    first = own.call(number_of)
    monkeypatch.setattr(workers, "LIMIT_S", 2.0)
    begun = time.monotonic()
    with pytest.raises(NotEvaluated, match="the evaluation takes longer than 2 s"):
        own.call(for_ever)
    assert time.monotonic() - begun < 20
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    monkeypatch.setattr(workers, "LIMIT_S", 60.0)
    assert own.call(number_of) != first


def test_calls_share_one_process(own: Workers) -> None:
    """A batch of documents starts one process."""
    assert len({own.call(number_of) for _ in range(5)}) == 1


def test_a_process_that_was_killed_before_a_call_is_replaced(own: Workers) -> None:
    """If the operating system ended the process between two documents, the next document gets another process."""
    first = own.call(number_of)
    os.kill(first, 9)
    assert own.call(len, "x" * 1_000_000) == 1_000_000


def test_a_process_that_is_killed_during_a_call_is_replaced_once(own: Workers, tmp_path: Path) -> None:
    """The memory of another program can have ended it, so the document is evaluated again."""
    assert own.call(end_once, str(tmp_path / "marker")) == "done"


def test_a_document_that_ends_its_processes_is_given_up(own: Workers) -> None:
    """The reason names the process, and the document is not evaluated in this process, where it would need as much memory."""
    with pytest.raises(NotEvaluated, match="the process that evaluates it ended"):
        own.call(os._exit, 1)
    assert own.call(len, "xy") == 2


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError, "text of a node"), (KeyError, "KeyError in the evaluation")], ids=["reason", "defect"]
)  # fmt: skip
def test_an_error_of_the_function_is_the_reason(own: Workers, error: type[Exception], reason: str) -> None:
    """A `ValueError` states its reason. The text of another error can quote the document and is left out."""
    with pytest.raises(NotEvaluated, match=f"^{reason}$"):
        own.call(fail, error)


def test_a_process_that_cannot_start_is_a_reason(own: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for a process, the document is not evaluated, and the command does not end with an internal error."""
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(NotEvaluated, match="no process can be started to evaluate it: No such file or directory"):
        own.call(len, "xy")


def test_processes_end_with_their_input(own: Workers) -> None:
    """A process ends when this process no longer exists, even if it was killed."""
    own.call(number_of)
    (process,) = own._processes
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdin = None
