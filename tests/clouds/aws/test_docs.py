"""The programs in docs/reference/aws.md are short and run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clouds.recorder import record

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "aws.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


COMPONENTS = ("NodePool(", "SharedFilesystem(")


def test_the_page_has_a_program_for_each_component() -> None:
    """The page has one program with a node pool and one with a file system. `test_recovery.py` tests the program with a second region."""
    assert [[name for name in COMPONENTS if name in program] for program in PROGRAMS] == [[name] for name in COMPONENTS]


@pytest.mark.parametrize("program", PROGRAMS, ids=["nodes", "storage"])
def test_a_program_has_at_most_15_lines(program: str) -> None:
    """A single component needs at most 15 lines."""
    assert len([line for line in program.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize(
    ("program", "made"),
    [(PROGRAMS[0], "aws:autoscaling/group:Group"), (PROGRAMS[1], "aws:fsx/lustreFileSystem:LustreFileSystem")],
    ids=["nodes", "storage"],
)
def test_a_program_creates_its_component_and_no_network(program: str, made: str) -> None:
    """The program runs as printed and creates no network."""
    recording = record(lambda: exec(compile(program, str(PAGE), "exec"), {}))
    assert len(recording.of(made)) == 1
    assert not recording.of("aws:ec2/vpc:Vpc")
    assert not recording.of("aws:ec2/subnet:Subnet")
