"""`gpuinfra logs`: what is printed, and the errors without logs, without a permission and without the node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import logs as cli
from gpuinfra.cli import main
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.logs import LogLine, LogQuestion
from gpuinfra.handover.wire import TYPE

NODES: Sequence[Mapping[str, Any]] = [
    {"type": TYPE, "custom": True, "outputs": {"nodes": [{"label": "gpu-1", "instanceId": "i-1"}]}}
]
AT = datetime(2026, 11, 30, 6, 1, 2, 345000, UTC)


def line(text: str, instance_id: str = "i-1") -> LogLine:
    """A kernel line."""
    return LogLine(time=AT, instance_id=instance_id, source="kernel", text=text)


class Service:
    """The log service, which keeps the questions."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.problem = ""
        self.interrupted = False
        """Whether the operator interrupts the command after the lines."""
        self.asked: list[LogQuestion] = []

    def read(self, cloud: AwsCloud, question: LogQuestion) -> Iterator[LogLine]:
        """Answer a question."""
        self.asked.append(question)
        if self.problem:
            raise DeploymentError(self.problem)
        yield from (one for one in self.lines if question.instance_id in ("", one.instance_id))
        if self.interrupted:
            raise KeyboardInterrupt


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    """The log service of the stack `aws-monitoring`, and a copy of it without logs."""
    made = Service()
    text = (shipped("stacks") / "Pulumi.aws-monitoring.yaml").read_text()
    (tmp_path / "Pulumi.watched.yaml").write_text(text)
    kept = [row for row in text.splitlines() if not row.strip().startswith("logs:")]
    (tmp_path / "Pulumi.silent.yaml").write_text("\n".join(kept))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "readable_stack", lambda *_, **__: nullcontext(NODES))
    monkeypatch.setattr(AwsCloud, "node_logs", lambda self, question: made.read(self, question))
    return made


def run(*words: str, stack: str = "Pulumi.watched.yaml") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [stack, *words], standalone_mode=False)


def test_lines_have_their_time_their_node_and_their_source(service: Service) -> None:
    """A node in the state has its label, a node that is gone has none, and a line stays one line without control characters."""
    service.lines = [line("NVRM: Xid 79"), line("last words", "i-0"), line("a\x1b[2Jb\nc")]
    result = run()
    assert result.output.splitlines() == [
        "2026-11-30T06:01:02.345Z gpu-1 i-1 kernel NVRM: Xid 79",
        "2026-11-30T06:01:02.345Z - i-0 kernel last words",
        "2026-11-30T06:01:02.345Z gpu-1 i-1 kernel a?[2Jb c",
    ]


def test_a_node_is_named_by_its_label_or_its_instance_id(service: Service) -> None:
    """The lines of one node are asked for by its instance ID, also for a node that is gone."""
    service.lines = [line("of gpu-1"), line("last words", "i-0")]
    assert "of gpu-1" in run("gpu-1").output
    assert run("i-0").output.endswith("last words\n")
    assert [one.instance_id for one in service.asked] == ["i-1", "i-0"]


def test_lines_are_filtered_and_cut(service: Service) -> None:
    """Only lines that match are printed, the newest ones if their number is limited, and a message says from when on older ones are left out."""
    service.lines = [line("Xid 13"), line("Xid 79"), line("link up")]
    assert "left out" not in run("--grep", "Xid|AER").stderr
    result = run("--grep", "Xid|AER", "--lines", "1")
    assert result.stdout == "2026-11-30T06:01:02.345Z gpu-1 i-1 kernel Xid 79\n"
    assert result.stderr == (
        "older lines than 2026-11-30 06:01:02 UTC are left out; use --lines, --grep or a shorter --since\n"
    )
    document = json.loads(run("--json", "--since", "2h", "--lines", "2").stdout)
    assert (document["cut"], document["lines"][0]["node"], len(document["lines"])) == (True, "gpu-1", 2)
    assert json.loads(run("--json").stdout)["cut"] is False


def test_an_interrupt_ends_the_command_after_the_lines_that_it_read(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of the first pages are printed before the service is asked for the last one, and Ctrl-C prints no traceback."""
    service.lines, service.interrupted = [line("first page")], True
    assert main(["logs", "Pulumi.watched.yaml"]) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err.lstrip()) == (
        "2026-11-30T06:01:02.345Z gpu-1 i-1 kernel first page\n",
        "interrupted\n",
    )


def test_no_lines_are_no_error_for_a_node_of_the_stack(service: Service) -> None:
    """A node that exists and wrote nothing has no lines."""
    result = run("gpu-1", "--since", "30m")
    assert (result.return_value, result.stderr) == (0, "no lines in the last 30m\n")


@pytest.mark.parametrize(
    ("words", "stack", "problem", "expected"),
    [
        ((), "Pulumi.silent.yaml", "", r"silent declares no logs; add `logs: \{\}` to its declaration, and deploy it"),
        (("gpu-9",), "Pulumi.watched.yaml", "", r"watched has no node gpu-9, and the log service has no lines .* nodes: gpu-1"),
        ((), "Pulumi.watched.yaml", "not authorized: logs:FilterLogEvents", r"the logs of watched cannot be read: not authorized: logs:FilterLogEvents"),
        (("--grep", "("), "Pulumi.watched.yaml", "", r"--grep is '\(', which is not a regular expression"),
        (("--since", "soon"), "Pulumi.watched.yaml", "", r"--since is 'soon'; allowed: minutes, hours or days"),
    ],
    ids=["no logs", "no such node", "no permission", "no expression", "no duration"],
)  # fmt: skip
def test_errors_name_their_fix(
    service: Service, words: tuple[str, ...], stack: str, problem: str, expected: str
) -> None:
    """Each error says what is wrong and what to do."""
    service.problem = problem
    result = run(*words, stack=stack)
    assert isinstance(result.exception, DeploymentError | UsageError)
    assert result.exc_info is not None
    with pytest.raises(type(result.exception), match=expected):
        raise result.exception
