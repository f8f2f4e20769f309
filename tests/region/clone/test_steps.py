"""The clone of a stack with declared steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.region.clone import CloneRequest, clone
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import TODAY, cloned, file_of, saved


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A shipped stack with a step, and its script."""
    path = tmp_path / "Pulumi.train.yaml"
    text = file_of("aws-p4d").read_text(encoding="utf-8")
    path.write_text(text.rstrip() + "\n    software: {steps: [{name: tuning, file: tuning.sh}]}\n", encoding="utf-8")
    (tmp_path / "tuning.sh").write_text("#!/bin/bash\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("mode", ["cold", "pilot-light", "hot"])
def test_the_clone_refers_to_the_same_scripts(stack: Path, mode: str) -> None:
    """The steps of the clone have the scripts of the stack."""
    made = read_stack(saved(cloned(stack, "us-west-2", mode=mode), stack.parent)).spec
    original = read_stack(stack).spec
    assert original.software.steps[0].script is not None
    assert made.software.steps == original.software.steps


def test_a_clone_in_another_folder_requires_a_copy_of_the_script(stack: Path, tmp_path: Path) -> None:
    """The clone is refused with the field and the fix, until the script exists next to it."""
    there = tmp_path / "other"
    there.mkdir()

    def made() -> list[str]:
        text = stack.read_text(encoding="utf-8")
        result = clone(read_stack(stack), text, CloneRequest(region="us-west-2"), TODAY, there / "Pulumi.west.yaml")
        return [one.path for one in result.findings if one.level == "error"]

    assert made() == ["software.steps[0].file"]
    (there / "tuning.sh").write_text("#!/bin/bash\n", encoding="utf-8")
    assert made() == []
