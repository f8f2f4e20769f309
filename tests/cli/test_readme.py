"""README and docs are true: stacks, links, exit codes, help, and a program that runs. `tests/test_docs_blocks.py` checks the code blocks."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click

from gpuinfra.base.errors import INTERRUPTED, EnvironmentMissing, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import COMMANDS
from tests.clouds.recorder import record

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
STACKS_PAGE = (ROOT / "docs" / "reference" / "stacks.md").read_text()
LIBRARY = (ROOT / "docs" / "guides" / "library.md").read_text()
STACKS = {path.name.split(".")[1] for path in shipped("stacks").glob("Pulumi.*.yaml")}


def test_every_shipped_stack_is_listed() -> None:
    """The page about the stacks lists each stack that ships, and no other."""
    section = STACKS_PAGE.split("| cloud | stacks | page |")[1].split("\n\n")[0]
    assert set(re.findall(r"`((?:aws|azure|gcp)-[a-z0-9-]+)`", section)) == STACKS


def test_readme_shows_the_shipped_stack_file() -> None:
    """The declaration in the README is the one that `make rehearse` runs, in at most fifteen lines."""
    (block,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    lines = (shipped("stacks") / "Pulumi.aws-p4d.yaml").read_text().splitlines(keepends=True)
    assert block == "".join(line for line in lines if not line.startswith("#"))
    assert len(block.splitlines()) <= 15


def test_readme_is_short_and_states_what_is_not_proven() -> None:
    """The README fits one and a half screens and links what is not proven."""
    assert len(README.splitlines()) <= 85
    assert "**Not proven:**" in README
    assert "docs/reference/proofs.md" in README


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", text, flags=re.DOTALL)


def test_project_of_the_library_page_is_an_example() -> None:
    """The stack file and the program of the page are those of `examples/components/aws`, which a test rehearses, without their first lines."""
    example = ROOT / "examples" / "components" / "aws"
    assert "".join(blocks(LIBRARY, "yaml")[1]) == (example / "Pulumi.dev.yaml").read_text().partition("\n")[2]
    assert blocks(LIBRARY, "python")[1] == (example / "__main__.py").read_text().partition('"""\n\n')[2]


def test_programs_of_the_library_page_run() -> None:
    """A program on existing resources creates nodes that are verified, and no network, key, bucket or file system."""
    cluster, _, declaration, existing = blocks(LIBRARY, "python")
    assert cluster.split() == (shipped("stacks") / "__main__.py").read_text().partition('"""\n\n')[2].split()
    exec(compile(declaration, "library.md", "exec"), {})
    recording = record(lambda: exec(compile(existing, "library.md", "exec"), {}))
    assert len(recording.of("aws:autoscaling/group:Group")) == 1
    (ready,) = recording.of("gpuinfra:index:NodesReady")
    assert ready.inputs["evidenceBucket"] == "our-evidence"
    created = (
        "aws:ec2/vpc:Vpc",
        "aws:ec2/subnet:Subnet",
        "aws:kms/key:Key",
        "aws:s3/bucket:Bucket",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
    )
    assert [one.name for type_ in created for one in recording.of(type_)] == []


def test_readme_shows_five_lines_of_the_example() -> None:
    """The README shows lines of the program from components."""
    (block,) = blocks(README, "python")
    example = (ROOT / "examples" / "components" / "aws" / "__main__.py").read_text().splitlines()
    assert len(block.splitlines()) == 5
    assert [line for line in block.splitlines() if line not in example] == []


def test_every_command_exit_code_and_page_is_documented() -> None:
    """docs/reference/commands.md has each command and exit code, and the index of the documentation each page."""
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in COMMANDS if f"gpuinfra {name}" not in commands] == []
    codes = set(re.findall(r"^\| (\d+) \|", commands, flags=re.MULTILINE))
    assert codes == {
        "0",
        "1",
        *(str(code) for code in (UsageError.exit_code, EnvironmentMissing.exit_code, INTERRUPTED)),
    }
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").glob("*/*.md"))]
    assert [name for name in pages if f"({name})" not in index] == []


def test_every_command_has_short_and_long_help() -> None:
    """Each line of `gpuinfra --help` starts with a capital and fits one line; each command explains itself and its options."""
    for name, line in COMMANDS.items():
        assert line[0].isupper(), name
        assert not line.endswith("."), name
        command = importlib.import_module(f"gpuinfra.cli.{name}").command
        assert command.help, name
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert [one.name for one in options if not one.help] == [], name
        # The options of `size` describe a job: each of its three goals has some of its own.
        assert len(options) <= (38 if name == "size" else 18), name
