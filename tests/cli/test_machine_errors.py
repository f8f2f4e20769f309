"""Errors of this machine and of other programs are no defects of gpuinfra: full disks, missing folders, and unexpected output."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import urllib.error
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, UsageError, reason_of
from gpuinfra.base.file_errors import cannot_write, naming
from gpuinfra.base.json_text import parsed
from gpuinfra.cli import main
from gpuinfra.cli.stacks import exported
from gpuinfra.doctor.state import backend
from gpuinfra_rehearsal.folder import find_program
from gpuinfra_rehearsal.run import _require_nodes

DEEP = b"[" * 3000
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the output of a `pulumi` that prints its version, and otherwise fails or prints this file."""
    answer = tmp_path / "answer"
    for name in ("pulumi", "pulumi-language-python"):
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\nif [ "$1" = version ]; then echo v9.0.0; exit; fi\n/bin/cat {answer}; /bin/cat {answer} >&2; exit $CODE\n'
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CODE", "0")
    return answer


@pytest.mark.parametrize("content", [DEEP, b"\xff\xfe", b"", b"null", b"7", b"[]", b'"x"', b'{"deployment": null}', b'{"deployment": 7}'])  # fmt: skip
def test_an_unknown_document_of_the_engine_is_one_error(engine: Path, content: bytes) -> None:
    """A state that is not a JSON document of the expected form is an error with a fix."""
    engine.write_bytes(content)
    with pytest.raises(DeploymentError, match="in an unknown format for aws-p4d; update Pulumi"):
        exported("aws-p4d")


def test_the_error_of_the_engine_is_printable(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences and direction marks in an error of the engine are replaced."""
    monkeypatch.setenv("CODE", "1")
    engine.write_text("\x1b[31mred\u202e")
    with pytest.raises(DeploymentError, match=r"failed for aws-p4d: \?\[31mred\?; "):
        exported("aws-p4d")


def test_json_that_is_nested_too_deeply_is_not_json() -> None:
    """Python's parser fails in a different way for a text with too many levels."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parsed(DEEP)
    assert parsed(b'{"a": 1}') == {"a": 1}


def test_a_usage_error_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """An argument with control characters does not affect the terminal that shows the error."""
    assert main(["init", "\x07\u202e"]) == 2
    assert "Got unexpected extra argument (??)" in capsys.readouterr().err


def test_no_folder_for_temporary_files_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If Python finds no writable folder for temporary files, the error names TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "missing")])
    monkeypatch.setattr("gpuinfra.rules.load_stack", lambda *_, **__: tempfile.mkdtemp())
    monkeypatch.setattr("gpuinfra.cli.permissions.load_stack", lambda *_, **__: tempfile.mkdtemp(), raising=False)
    assert main(["permissions", "aws-p4d"]) == 3
    assert "set TMPDIR to a writable folder with free space, and run the command again" in capsys.readouterr().err


def test_an_error_without_a_file_does_not_blame_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk during the write to a file names no file, and later messages are still shown."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gpuinfra.rules.load_stack", refuse)
    monkeypatch.setattr("gpuinfra.cli.permissions.load_stack", refuse, raising=False)
    for _ in range(2):
        assert main(["permissions", "aws-p4d"]) == 3
        assert (
            "gpuinfra: error: a file or the output cannot be used: No space left on device; " in capsys.readouterr().err
        )


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """The path is added to an error that has none, and an existing path is kept."""
    with pytest.raises(OSError, match=r"full|denied") as raised, naming(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "full")
    assert raised.value.filename == str(tmp_path / "a")
    with pytest.raises(OSError, match=r"full|denied") as raised, naming(tmp_path / "a"):
        raise OSError(errno.EACCES, "denied", "b")
    assert raised.value.filename == "b"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, EnvironmentMissing),
        (errno.EROFS, EnvironmentMissing),
        (errno.EACCES, EnvironmentMissing),
        (errno.ENOENT, UsageError),
        (errno.EISDIR, UsageError),
    ],
)
def test_a_file_that_cannot_be_written_is_about_the_machine_or_the_path(number: int, kind: type[Exception]) -> None:
    """A wrong path is a usage error. A full disk and a folder without permission are missing prerequisites."""
    error = cannot_write(
        Path("plan.html"), OSError(number, os.strerror(number)), "specify a different path with --html"
    )
    assert type(error) is kind
    assert str(error).startswith(f"plan.html cannot be written: {os.strerror(number)}; ")
    assert ("free space on the disk, or specify" in str(error)) == (number == errno.ENOSPC)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/x"), "Read-only file system (/x)"),
        (FULL, "No space left on device"),
        (urllib.error.URLError(OSError(-3, "Temporary failure in name resolution")), "Temporary failure in name resolution"),
        (TimeoutError("timed out"), "timed out"),
        (TimeoutError(), "TimeoutError"),
        (json.JSONDecodeError("Expecting value", "x", 0), "Expecting value: line 1 column 1 (char 0)"),
    ],
)  # fmt: skip
def test_a_reason_has_no_error_number(error: Exception, text: str) -> None:
    """The text of an error of the operating system contains its file, and no number."""
    assert reason_of(error) == text


def test_a_link_to_itself_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A symbolic link that refers to itself is not a file, for the output and for other paths."""
    link = tmp_path / "loop.yaml"
    link.symlink_to(link)
    words = ["init", "--cloud", "aws", "--region", "us-east-1", "--machine", "p4d.24xlarge", "--yes", "--output", str(link)]  # fmt: skip
    assert main(words) == 2
    monkeypatch.setattr("gpuinfra.rules.load_stack", lambda *_, **__: link.resolve(strict=True))
    monkeypatch.setattr(
        "gpuinfra.cli.permissions.load_stack", lambda *_, **__: link.resolve(strict=True), raising=False
    )
    capsys.readouterr()
    assert main(["permissions", "aws-p4d"]) in (2, 3)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime: python\nplugins: []\n", "plugins is []; allowed: a mapping"),
        ("runtime: {name: python, options: 7}\n", "options is 7; allowed: a mapping"),
        ("runtime: python\nconfig: [1]\n", "config is [1]; allowed: a mapping"),
        (f"a: {'[' * 3000}\n", "nested too deeply"),
    ],
)
def test_a_project_with_unexpected_values_is_a_usage_error(tmp_path: Path, text: str, message: str) -> None:
    """A value in Pulumi.yaml that is not a mapping is an error that contains the value."""
    (tmp_path / "Pulumi.yaml").write_text(text)
    (tmp_path / "__main__.py").touch()
    with pytest.raises(UsageError, match=re.escape(message)):
        find_program(tmp_path / "Pulumi.x.yaml")


@pytest.mark.parametrize("content", [DEEP, b"\xff", b"", b"[]"])
def test_doctor_reports_an_unknown_answer_about_the_backend(engine: Path, tmp_path: Path, content: bytes) -> None:
    """Output of `pulumi whoami --json` in an unknown format is a problem with a fix."""
    engine.write_bytes(content)
    (row,) = backend(tmp_path, None)
    assert "in an unknown format" in str(row)
    assert "update Pulumi" in str(row)


def test_the_path_of_a_written_file_is_printable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A direction mark in the path of an output file is replaced in the message about the file."""
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "aws-p4d", "--svg", "\u202e"]) in (0, 1)
    assert (tmp_path / "\u202e").is_file()
    assert "diagram: ?\n" in capsys.readouterr().err


def test_a_rehearsal_without_namespaces_is_exit_code_3() -> None:
    """If the system cannot run stand-in nodes, a rehearsal fails with exit code 3, unless the nodes are omitted or the plan has none."""
    missing = SimpleNamespace(nodes_available=lambda: (False, "this system forbids user namespaces: EPERM"))

    def session(*, nodes: int, without_nodes: bool = False) -> Any:
        return SimpleNamespace(
            cloud=missing,
            options=SimpleNamespace(without_nodes=without_nodes),
            plan=lambda: SimpleNamespace(nodes=nodes),
        )

    with pytest.raises(EnvironmentMissing, match=r"forbids user namespaces: EPERM; .* add --without-nodes") as caught:
        _require_nodes(session(nodes=2))
    assert caught.value.exit_code == 3
    _require_nodes(session(nodes=2, without_nodes=True))
    _require_nodes(session(nodes=0))
