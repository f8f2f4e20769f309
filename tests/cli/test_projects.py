"""A stack is a part of a Pulumi project, which need not be the project of the current folder. The engine and its states are real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.stack_files import project_folder, stack_name
from gpuinfra.cli import main
from gpuinfra.cli.stack_context import commands_of
from gpuinfra.cli.stacks import current_backend, exported, project_of, short_name, stacks_of
from gpuinfra.engine import find_engine


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the projects `one`, which has the stack `dev` and its file in `stacks/`, and `two`, which is the current folder."""
    engine = find_engine(lambda line: print(line, file=sys.stderr))
    for name in ("state", "one/stacks", "two"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("PULUMI_HOME", "PULUMI_BACKEND_URL"):
        monkeypatch.setenv(name, str(tmp_path / "home") if name == "PULUMI_HOME" else f"file://{tmp_path / 'state'}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test")
    monkeypatch.setenv("PULUMI_SKIP_UPDATE_CHECK", "1")
    for name in ("one", "two"):
        (tmp_path / name / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\nstackConfigDir: stacks\n")
    words = [str(engine.path), "stack", "init", "dev", "--no-select", "--non-interactive"]
    subprocess.run(words, cwd=tmp_path / "one", env=engine.environ(), check=True, capture_output=True)
    assert (tmp_path / "one" / "stacks" / "Pulumi.dev.yaml").is_file()
    monkeypatch.chdir(tmp_path / "two")
    return tmp_path


@pytest.mark.parametrize("current", ["one", "one/stacks", "two", "."])
def test_the_state_of_a_stack_file_is_that_of_its_project(
    projects: Path, current: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command reads the state from the project of the stack file, in any current folder."""
    monkeypatch.chdir(projects / current)
    file = projects / "one" / "stacks" / "Pulumi.dev.yaml"
    assert main(["nodes", str(file)]) == 3
    assert capsys.readouterr().err.startswith(f"gpuinfra: error: {file} has no nodes in its state; ")
    assert exported("dev", project=project_of(file)) == []


def test_a_relative_path_does_not_select_the_current_project(projects: Path) -> None:
    """The current project is not the project of a file next to it, also if the file is in no project."""
    assert project_of("../one/stacks/Pulumi.dev.yaml") == projects / "one"
    assert project_folder(Path.cwd() / ".." / "three") is None


def test_the_name_of_a_stack_is_about_the_current_folder(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the path of a stack file, the state is that of the current project, as for every command of Pulumi."""
    with pytest.raises(DeploymentError, match="no stack named 'dev' found; log in to the state backend"):
        exported("dev")
    monkeypatch.chdir(projects / "one" / "stacks")
    assert exported("dev") == []
    assert project_of("dev") == projects / "one"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("dev", "dev"),
        ("dev.eu", "dev.eu"),
        ("dev.yaml.eu", "dev.yaml.eu"),
        ("Pulumi.dev.yaml", "dev"),
        ("../one/Pulumi.dev.eu.yaml", "dev.eu"),
        ("stacks/Pulumi.dev.eu.yml", "dev.eu"),
        ("stacks/Pulumi.dev.eu.json", "dev.eu"),
        ("stacks/dev.eu.yaml", "dev.eu"),
        ("/a.b/Pulumi.Pulumi.dev.yaml", "Pulumi.dev"),
        ("", ""),
    ],
)
def test_the_name_of_a_stack_can_have_dots(given: str, name: str) -> None:
    """Only the path, the prefix and the suffix of a stack file are removed: the dot in a name is a part of it."""
    assert short_name(given) == stack_name(Path(given)) == name


def test_the_state_of_a_stack_with_a_dot_is_read(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine accepts dots in the names of stacks, so a name with a dot does not select another stack."""
    engine = find_engine()
    words = [str(engine.path), "stack", "init", "dev.eu", "--no-select", "--non-interactive"]
    subprocess.run(words, cwd=projects / "one", env=engine.environ(), check=True, capture_output=True)
    file = projects / "one" / "stacks" / "Pulumi.dev.eu.yaml"
    assert file.is_file()
    monkeypatch.chdir(projects / "one")
    words = [str(engine.path), "stack", "rm", "dev", "--yes", "--non-interactive"]
    subprocess.run(words, env=engine.environ(), check=True, capture_output=True)
    assert exported("dev.eu") == exported(str(file)) == []


def test_commands_in_messages_can_be_run_in_the_current_folder(
    projects: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a stack of another project, messages contain the path of the stack file for gpuinfra, and the folder of the project for Pulumi."""
    file, stacks = "../one/stacks/Pulumi.dev.yaml", stacks_of({})
    assert main(["nodes", file]) == 3
    assert f"run `pulumi up --stack dev --cwd {projects / 'one'}` first" in capsys.readouterr().err
    commands = commands_of(file, stacks)
    assert commands.restore == f"pulumi up --refresh --stack dev --cwd {projects / 'one'}"
    assert commands.on_node.format(node="gpu-1", command="ls") == f"gpuinfra ssh {file} gpu-1 'ls'"
    monkeypatch.chdir(projects / "one" / "stacks")
    commands = commands_of("Pulumi.dev.yaml", stacks)
    assert commands.restore == "pulumi up --refresh --stack dev"
    assert commands.on_node.format(node="gpu-1", command="ls") == "gpuinfra ssh dev gpu-1 'ls'"
    odd = projects / "one" / "a {b}"
    odd.mkdir()
    (odd / "dev.yaml").touch()
    monkeypatch.chdir(odd)
    assert (
        commands_of("../a {b}/dev.yaml", stacks).on_node.format(node="n", command="c")
        == "gpuinfra ssh '../a {b}/dev.yaml' n 'c'"
    )


def test_outside_a_project_the_error_is_not_about_the_login(
    projects: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If there is no Pulumi project, a login does not help, so the message says where to run the command."""
    monkeypatch.chdir(projects)
    assert main(["nodes", "dev"]) == 3
    line = capsys.readouterr().err
    assert "run the command in the folder of the Pulumi project, or specify the path of the stack file in it" in line
    assert "log in" not in line


def test_the_backend_is_that_of_the_project(projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project can declare its own state backend (`backend.url`), which replaces that of the login."""
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    own = f"file://{projects / 'state'}"
    with (projects / "one" / "Pulumi.yaml").open("a") as file:
        file.write(f"backend: {{url: '{own}'}}\n")
    assert current_backend(projects / "one") == own
    assert current_backend(projects / "two") != own
