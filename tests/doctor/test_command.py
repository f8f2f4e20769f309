"""`gpuinfra doctor`, and how questions are asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.cli import main
from gpuinfra.clouds import preflight as rows
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, RowState, Unanswered, ok
from gpuinfra.doctor import cloud, machine, state
from gpuinfra.spec.load import LoadedStack
from tests.doctor import aws as account

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _prerequisites(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what depends on the machine: engine, state backend and credentials."""
    monkeypatch.setattr(machine, "engine", lambda: iter([ok("engine", "Pulumi", "3.259.0")]))
    monkeypatch.setattr(state, "backend", lambda *_, **__: iter([ok("state", "backend", "file:///state")]))


def test_without_credentials_clouds_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a stack, a cloud without credentials is skipped with the reason and the login, and the exit code is 0."""

    class Preflight:
        def __init__(self, *given: object) -> None:
            return

        def identity(self) -> Iterator[PreflightRow]:
            raise rows.no_credentials("none found", "run the login")

    for name in CLOUDS:
        assert cloud_of(name).preflight is not None
        monkeypatch.setattr(f"gpuinfra.clouds.{name}.preflight.Preflight", Preflight)
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"], document["stack"]) == ("gpuinfra.doctor/1", True, None)
    skipped = [one for one in document["rows"] if one["state"] == "skipped"]
    assert [(one["where"], one["found"], one["fix"]) for one in skipped] == [
        (title, "no credentials: none found; a rehearsal requires none", "run the login")
        for title in ("AWS", "Azure", "Google Cloud")
    ]
    assert set(document["rows"][0]) == {"topic", "where", "state", "found", "needed", "fix"}


def test_with_a_stack_missing_credentials_are_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stack, only its cloud is checked, and credentials that AWS does not accept end with exit code 1 and the fix."""
    refusal = account.refuse("ExpiredToken", "The security token included in the request is expired", 403)
    account.use(monkeypatch, {"sts:GetCallerIdentity": refusal})
    assert main(["doctor", "aws-p4d"]) == 1
    out = capsys.readouterr().out
    assert "error    identity   AWS: the credentials are not accepted: ExpiredToken" in out
    assert "fix: run `aws sso login`" in out
    assert "azure" not in out
    assert account.SECRET not in out


def test_missing_packages_skip_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages of a cloud, its identity is skipped instead of an import error."""
    monkeypatch.setattr(cloud, "installed_version", lambda name: None)
    (row,) = cloud._identity("aws")
    assert row.state is RowState.SKIPPED
    assert "boto3" in row.found


def test_a_stack_with_errors_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The errors of a declaration are reported before any question is asked."""
    text = (ROOT / "stacks" / "Pulumi.aws-p4d.yaml").read_text().replace("p4d.24xlarge", "p4d.24xlrage")
    (tmp_path / "Pulumi.mine.yaml").write_text(text)
    assert main(["doctor", str(tmp_path / "Pulumi.mine.yaml")]) == 1
    captured = capsys.readouterr()
    assert "did you mean p4d.24xlarge?" in captured.err
    assert captured.out == ""


def test_answers_keep_the_order_of_the_questions() -> None:
    """All questions are asked at the same time, and their rows are in the order of the questions."""
    gate = threading.Barrier(3, timeout=300)

    def ask(name: str) -> Iterator[PreflightRow]:
        gate.wait()
        yield ok("t", name, "found")

    names = ["b", "c", "a"]
    found = rows.answers([PreflightQuestion(topic="t", where=name, ask=lambda name=name: ask(name)) for name in names])
    assert [one.where for one in found] == names


def test_a_late_answer_is_a_warning() -> None:
    """A question without an answer at the deadline is a warning, and does not hide the other answers."""
    never = threading.Event()
    late = PreflightQuestion(topic="quota", where="q", ask=lambda: iter([ok("quota", "q", str(never.wait(300)))]))
    quick = PreflightQuestion(topic="image", where="i", ask=lambda: iter([ok("image", "i", "found")]))
    first, second = rows.answers([late, quick], deadline_s=0.2)
    never.set()
    assert (first.state, first.topic, first.found) == (RowState.WARN, "quota", "no response within 0.2 s")
    assert second.state is RowState.OK


def test_an_unanswered_question_is_one_row() -> None:
    """A question without an answer is one row with the text of the cloud on one printable line."""

    def ask() -> Iterator[PreflightRow]:
        raise Unanswered("denied:\n\x1b[31mno", "a permission", "allow it")

    (row,) = rows.answers([PreflightQuestion(topic="quota", where="q", ask=ask)])
    assert (row.state, row.found, row.needed, row.fix) == (RowState.WARN, "denied: ?[31mno", "a permission", "allow it")


def test_a_defect_in_a_question_is_raised() -> None:
    """An exception that is not an answer is raised, so that a defect is not shown as a row."""

    def ask() -> Iterator[PreflightRow]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rows.answers([PreflightQuestion(topic="t", where="w", ask=ask)])


def test_a_cloud_without_questions_about_a_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a cloud for which only the identity is checked, the other topics are skipped and named."""

    class Preflight:
        def __init__(self, *given: object) -> None:
            return

        def identity(self) -> Iterator[PreflightRow]:
            yield ok("identity", "Azure", "subscription")

    monkeypatch.setattr("gpuinfra.clouds.azure.preflight.Preflight", Preflight)
    monkeypatch.setattr("gpuinfra.clouds.azure.preflight.TOPICS", ())
    assert main(["doctor", "azure-ndv4"]) == 0
    assert (
        "quota, machine, reservation, image, names: gpuinfra does not check these topics on Azure yet"
        in capsys.readouterr().out
    )


def test_a_throttled_identity_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stack, only missing or invalid credentials are skipped. A throttled request stays a warning."""
    account.use(monkeypatch, {"sts:GetCallerIdentity": account.refuse("Throttling", "Rate exceeded")})
    rows_ = {one.where: one for one in rows.answers(cloud.identities(["aws"]))}
    assert rows_["AWS"].state is RowState.WARN


def test_questions_about_a_plan_need_an_identity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the identity has a problem, such as no project, no question about the plan is asked, and the topics are skipped."""

    class Preflight:
        def __init__(self, *given: object) -> None:
            return

        def identity(self) -> Iterator[PreflightRow]:
            yield rows.problem("identity", "Google Cloud", "no project", "a project", "set it")

    monkeypatch.setattr("gpuinfra.clouds.gcp.preflight.Preflight", Preflight)
    assert main(["doctor", "gcp-a3mega"]) == 1
    out = capsys.readouterr().out
    assert "skipped  account" in out
    assert "not checked without an identity" in out


@pytest.mark.parametrize("command", [["doctor", "aws-p4d"], ["plan", "aws-p4d", "--live"]], ids=" ".join)
def test_the_backend_and_the_cloud_are_asked_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """The state backend is checked together with the cloud, and a backend that cannot be reached ends with exit code 1 and the fix."""
    gate = threading.Barrier(2, timeout=300)

    def backend(*_: object, **__: object) -> Iterator[PreflightRow]:
        gate.wait()
        yield rows.problem("state", "backend", "not logged in", "a login", "pulumi login")

    def live_rows(stack: object) -> list[PreflightRow]:
        gate.wait()
        return [ok("identity", "AWS", "account")]

    monkeypatch.setattr(state, "backend", backend)
    monkeypatch.setattr(cloud, "live_rows", live_rows)
    assert main(command) == 1
    out = capsys.readouterr().out
    for words in ("error    state ", "backend: not logged in", "fix: pulumi login", "AWS: account"):
        assert words in out


@pytest.mark.parametrize("offered", [True, False], ids=["offered", "not offered"])
def test_a_machine_type_that_the_account_offers_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, offered: bool
) -> None:
    """`plan --live` asks the cloud for a machine type that the catalog lists elsewhere, and names the field that declares it."""
    stack = tmp_path / "Pulumi.lab.yaml"
    text = (ROOT / "stacks" / "Pulumi.aws-p4d.yaml").read_text()
    assert "use1-az6" in text or "use1-az4" in text
    stack.write_text(text.replace("use1-az6", "use1-az3").replace("use1-az4", "use1-az3"))
    asked: list[str] = []

    def live_rows(declared: LoadedStack) -> list[PreflightRow]:
        asked.extend(declared.spec.where.offers)
        what = ("machine", "p4d.24xlarge in use1-az3")
        return [ok(*what, "offered")] if offered else [rows.problem(*what, "not offered", "a zone", "choose one")]

    monkeypatch.setattr(cloud, "live_rows", live_rows)
    assert main(["plan", str(stack)]) == 1
    assert (
        "error: pools[0].machine is p4d.24xlarge, which the catalog does not list in use1-az3"
        in capsys.readouterr().err
    )
    assert main(["plan", str(stack), "--live"]) == (0 if offered else 1)
    shown = capsys.readouterr()
    assert asked == ["p4d.24xlarge"]
    assert ("warn: pools[0].machine" in shown.err and "set where.offers" in shown.err) is offered
    assert ("error: pools[0].machine" in shown.err) is not offered
