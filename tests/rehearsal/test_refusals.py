"""Acceptance: a stack file with a mistake, or a command typed wrong, gives one message each and starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import REPOSITORY, Rehearse

GOOD = (REPOSITORY / "stacks" / "Pulumi.aws-p4d.yaml").read_text(encoding="utf-8")
MISTAKES = {
    "machine": (("p4d.24xlarge", "p4d.24xlrge"), "p4d.24xlarge"),
    "count": (("count: 2", "count: -1"), "-1"),
    "field": (("pools:", "poools:"), "pools"),
    "region": (("region: us-east-1", "region: us-east-11"), "us-east-1"),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_wrong_stack_file_starts_nothing(rehearse: Rehearse, tmp_path: Path, name: str) -> None:
    """Exit code 1, the value and what is allowed, no traceback, and no folder was made."""
    (old, new), words = MISTAKES[name]
    assert old in GOOD
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(GOOD.replace(old, new), encoding="utf-8")
    told = rehearse("up", str(stack))
    assert told.code == 1, told.out + told.err
    assert words in told.err
    assert "Traceback" not in told.err
    assert not told.root.exists()


def test_broken_yaml(rehearse: Rehearse, tmp_path: Path) -> None:
    """YAML that is none is told with its line."""
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text("config:\n  gpuinfra:cluster: [\n", encoding="utf-8")
    told = rehearse("up", str(stack))
    assert told.code == 1, told.err
    assert "Traceback" not in told.err
    assert not told.root.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up", "aws-p4e"), "did you mean"),
        (("up", "aws-p4d", "--fault", "node:gpu-1:xid-97"), "did you mean xid-79"),
        (("up", "aws-p4d", "--deadline", "soon"), "such as 90s"),
        (("upp", "aws-p4d"), "upp"),
    ],
)
def test_a_command_typed_wrong(rehearse: Rehearse, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and what was meant."""
    told = rehearse(*words)
    assert told.code == 2, told.out + told.err
    assert said in told.err
    assert "Traceback" not in told.err
    assert not told.root.exists()
