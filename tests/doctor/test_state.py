"""Questions about Pulumi's state, with the real engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuinfra.cli import main
from gpuinfra.clouds.preflight import RowState
from gpuinfra.doctor import state
from gpuinfra.doctor.machine import as_run_here
from gpuinfra.engine import find_engine
from tests.doctor import aws as account
from tests.doctor.test_aws_live import healthy

PASSPHRASE = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_engine(lambda line: print(line, file=sys.stderr))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    for name in ("PULUMI_ACCESS_TOKEN", "PULUMI_BACKEND_URL", state.PHRASE, state.PHRASE_FILE):
        monkeypatch.delenv(name, raising=False)


def test_missing_login_names_the_command(tmp_path: Path) -> None:
    """Without a login, the row states how to log in."""
    (row,) = state.backend(tmp_path, None)
    assert (row.state, row.needed, row.fix) == (RowState.ERROR, "a login", as_run_here(state.LOGIN))


def test_without_a_stack_a_missing_login_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a stack, a missing login is no problem, because a rehearsal requires none. A backend that cannot be reached is one."""
    (question,) = state.questions(tmp_path, None, required=False)
    (row,) = question.ask()
    assert (row.state, row.fix) == (RowState.SKIPPED, as_run_here(state.LOGIN))
    assert "a rehearsal requires no login" in row.found
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere/at/all")
    (row,) = question.ask()
    assert row.state is RowState.ERROR


def test_local_state_is_reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder is reachable, and a missing passphrase is a warning, because Pulumi prompts for it."""
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    backend, secrets = state.backend(tmp_path, None)
    assert (backend.state, backend.found) == (RowState.OK, f"file://{tmp_path}/state")
    assert secrets.state is RowState.WARN


@pytest.mark.parametrize(
    ("url", "needed"),
    [("file:///nowhere/at/all", "an existing folder"), ("https://127.0.0.1:1", "a connection to the backend")],
)
def test_unreachable_state_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, needed: str) -> None:
    """A folder that does not exist and a service that does not respond are problems with different fixes."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    monkeypatch.setenv("PULUMI_ACCESS_TOKEN", "pul-0123456789")
    (row,) = state.backend(tmp_path, None)
    assert (row.state, row.needed) == (RowState.ERROR, needed)
    assert "pul-0123456789" not in str(row)


def test_plan_live_checks_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan --live` ends with exit code 1 if the backend of the stack's project cannot be reached, and with 0 if it can."""
    account.use(monkeypatch, healthy())
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    assert main(["plan", "aws-p4d", "--live"]) == 1
    out = capsys.readouterr().out
    assert "needed: an existing folder" in out
    assert "1 problem, " in out
    (tmp_path / "state").mkdir()
    assert main(["plan", "aws-p4d", "--live"]) == 0
    assert f"backend: file://{tmp_path}/state" in capsys.readouterr().out


def test_without_an_engine_the_backend_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine, the state backend is not checked, and the row says so."""
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (row,) = state.backend(tmp_path, None)
    assert (row.state, row.fix) == (RowState.SKIPPED, "python -m gpuinfra.engine")


def test_passphrase_is_found_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that is set is named, without its value. A file that cannot be read is a problem."""
    url = "s3://state"
    monkeypatch.setenv(state.PHRASE_FILE, str(tmp_path / "none"))
    assert next(state.secrets(url, None)).state is RowState.ERROR
    (tmp_path / "phrase").write_text(PASSPHRASE)
    monkeypatch.setenv(state.PHRASE_FILE, str(tmp_path / "phrase"))
    assert next(state.secrets(url, None)).found == "PULUMI_CONFIG_PASSPHRASE_FILE is set"
    monkeypatch.setenv(state.PHRASE, PASSPHRASE)
    row = next(state.secrets(url, None))
    assert (row.state, row.found) == (RowState.OK, "PULUMI_CONFIG_PASSPHRASE is set")
    assert PASSPHRASE not in str(row)


@pytest.mark.parametrize(
    ("url", "provider"), [("https://api.pulumi.com", None), ("s3://state", "awskms:///alias/state?region=us-west-2")]
)
def test_passphrase_is_not_needed_with_another_provider(url: str, provider: str | None) -> None:
    """Pulumi Cloud and a key service need no passphrase."""
    assert next(state.secrets(url, provider)).state is RowState.OK


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ana:pw@host/x", "https://host/x"),
        ("azblob://state?storage_account=a&sas_token=abc", "azblob://state?storage_account=a&sas_token=***"),
        ("s3://b?region=us-east-1&secretKey=abc", "s3://b?region=us-east-1&secretKey=***"),
    ],
)
def test_secrets_in_urls_are_hidden(text: str, shown: str) -> None:
    """Passwords and keys in the URL of a backend are not shown."""
    assert state.without_login(text) == shown
