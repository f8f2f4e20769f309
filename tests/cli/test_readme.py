"""README and the pages under docs/ promise what is there: stacks, commands, options, files, and a program that runs."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from gpuinfra.cli import COMMANDS
from gpuinfra.shipped import shipped
from tests.clouds.recorder import record

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
STACKS = {path.name.split(".")[1] for path in shipped("stacks").glob("Pulumi.*.yaml")}


def typed() -> list[tuple[str, str]]:
    """Page and command of every line in a block that a person would type."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```(?:console|bash|)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            lines = [line.split("#")[0].strip() for line in block.splitlines()]
            found += [(page.name, line) for line in lines if line.startswith("gpuinfra ")]
    return found


@pytest.mark.parametrize(("page", "line"), typed(), ids=lambda value: value[:60])
def test_what_a_page_tells_to_type_is_a_command_with_these_options(page: str, line: str) -> None:
    """Each command line of a page names a command, options that it has, and a stack that ships."""
    _, name, *words = shlex.split(line.replace("[", "").replace("]", "").replace("...", ""))
    assert name in COMMANDS
    command = importlib.import_module(f"gpuinfra.cli.{name}").command
    assert isinstance(command, click.Command)
    ours = words[: words.index("--")] if "--" in words else words
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in ours if word.startswith("--")} <= options
    named = [word for word in words if re.fullmatch(r"(aws|azure|gcp)-[a-z0-9-]+", word)]
    assert set(named) <= STACKS


def test_readme_lists_every_stack_that_ships_and_no_other() -> None:
    """A stack that is added or renamed shows."""
    section = README.split("| cloud | stacks | page |")[1].split("\n\n")[0]
    assert set(re.findall(r"`((?:aws|azure|gcp)-[a-z0-9-]+)`", section)) == STACKS


def test_readme_shows_the_stack_file_as_it_is() -> None:
    """The declaration that people see first is the one that `make rehearse` runs."""
    (block,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    lines = (shipped("stacks") / "Pulumi.aws-p4d.yaml").read_text().splitlines(keepends=True)
    assert block == "".join(line for line in lines if not line.startswith("#"))
    assert len(block.splitlines()) <= 15


def test_readmes_program_runs() -> None:
    """Nodes alone, in fifteen lines, with the network of somebody else."""
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
    recording = record(lambda: exec(compile(program, "README.md", "exec"), {}))
    assert len(recording.of("aws:autoscaling/group:Group")) == 1
    assert not recording.of("aws:ec2/vpc:Vpc")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file or folder that is there."""
    links = re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_every_command_and_every_page_is_told() -> None:
    """README names each command of `gpuinfra --help`; the index of the documentation each page beside it."""
    assert not [name for name in COMMANDS if f"gpuinfra {name}" not in README and name != "schema"]
    assert "gpuinfra schema" in (ROOT / "docs" / "declaring.md").read_text()
    index = (ROOT / "docs" / "README.md").read_text()
    assert not [
        path.name for path in (ROOT / "docs").glob("*.md") if path.name not in index and path.name != "README.md"
    ]
