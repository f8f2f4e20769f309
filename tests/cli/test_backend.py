"""The state backend of the last login, which `gpuinfra ready` checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.cli import main
from gpuinfra.cli.stacks import current_backend, stacks_of
from gpuinfra.engine.find import Engine


def use_engine(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a shell script the engine that gpuinfra finds."""
    program = folder / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=folder, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda *_, **__: engine)


@pytest.mark.parametrize(
    ("script", "url"),
    [
        ("""echo '{"user": "u", "organizations": [], "url": "gs://state"}'""", "gs://state"),
        ("echo 'error: PULUMI_ACCESS_TOKEN must be set' >&2; exit 255", ""),
        ("echo '[]'", ""),
        ("echo '{}'", ""),
    ],
)
def test_backend_is_the_url_of_the_login(
    script: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI prints the URL (`pulumi whoami --json`). Without a login, the URL is unknown."""
    program = tmp_path / "pulumi"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "whoami --json" ] || exit 1\n{script}\n')
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=tmp_path, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda **_: engine)
    assert current_backend() == url
    assert stacks_of({}).backend("aws-p4d") == url


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (["nodes", "aws-p4d"], "log in to the state backend (`pulumi login`) and deploy the stack, or add --rehearsal to use its rehearsal"),
        (["ssh", "aws-p4d", "gpu-1"], "add --rehearsal to use its rehearsal, or specify --hosts FILE"),
        (["run", "aws-p4", "--", "ls"], "add --rehearsal to use its rehearsal, or specify --hosts FILE"),
    ],
)  # fmt: skip
def test_an_unreadable_state_names_what_each_command_can_do(
    words: list[str], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a login, the exit code is 3, and the message names the options of the command and a stack file whose name is close to the given name."""
    use_engine("echo 'error: PULUMI_ACCESS_TOKEN must be set for login' >&2; exit 255", tmp_path, monkeypatch)
    assert main(words) == 3
    line = capsys.readouterr().err.strip()
    assert f"failed for {words[1]}: PULUMI_ACCESS_TOKEN must be set for login; " in line
    assert line.endswith(end)
    assert ("did you mean aws-p4d? otherwise, log in" in line) == (words[1] == "aws-p4")


@pytest.mark.parametrize(
    "message",
    [
        "if you're using the --stack flag, pass the fully qualified name (organization/project/stack)",
        "no current project found, pass the fully qualified stack name (org/project/stack)",
    ],
)
def test_without_a_project_no_backend_asks_for_a_login(
    message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The messages of Pulumi's own backends and of Pulumi Cloud (v3.259.0) about a missing project have the same fix."""
    use_engine(f"""echo "error: {message}" >&2; exit 255""", tmp_path, monkeypatch)
    assert main(["nodes", "aws-p4d"]) == 3
    line = capsys.readouterr().err
    assert f"{message}; run the command in the folder of the Pulumi project" in line
    assert "log in" not in line


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (["nodes", "aws-p4d"], "run `pulumi up --stack aws-p4d` first, or add --rehearsal to use its rehearsal"),
        (["env", "aws-p4d"], "run `pulumi up --stack aws-p4d` first, or add --rehearsal to use its rehearsal"),
        (["ssh", "aws-p4d", "gpu-1"], "run `pulumi up --stack aws-p4d` first, or add --rehearsal to use its rehearsal, or specify --hosts FILE"),
    ],
)  # fmt: skip
def test_a_state_without_nodes_names_what_each_command_can_do(
    words: list[str], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no nodes are deployed, the exit code is 3, and the message names only options that the command has."""
    use_engine("""echo '{"deployment": {"resources": []}}'""", tmp_path, monkeypatch)
    assert main(words) == 3
    assert capsys.readouterr().err.strip() == f"gpuinfra: error: aws-p4d has no nodes in its state; {end}"


@pytest.mark.parametrize(
    "words",
    [["nodes"], ["env"], ["verify"], ["ssh", "gpu-1"], ["run", "--", "ls"], ["cp", "gpu-1:a", "b"], ["check"], ["pairs", "--shared-folder",
        "/scratch"], ["bootstrap"], ["replace", "gpu-1", "--dry-run"]],
    ids=lambda words: words[0],
)  # fmt: skip
@pytest.mark.parametrize("stack", ["aws-foundation", "aws-site"])
def test_a_stack_without_pools_refers_to_the_stack_with_the_pools(
    stack: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the stack file declares no pools, each command states that the pools are in another stack, and does not recommend `pulumi up`."""
    use_engine("""echo '{"deployment": {"resources": []}}'""", tmp_path, monkeypatch)
    assert main([words[0], stack, *words[1:]]) == 3
    assert capsys.readouterr().err.strip() == (
        f"gpuinfra: error: {stack} declares no nodes, because it has no pools; specify the stack that declares the node pools (`layers` contains `cluster`)"
    )


def test_backend_is_unknown_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing engine is not an error of `ready`."""

    def missing(**_: object) -> Engine:
        raise EnvironmentMissing("no engine")

    monkeypatch.setattr("gpuinfra.engine.find_engine", missing)
    assert current_backend() == ""
