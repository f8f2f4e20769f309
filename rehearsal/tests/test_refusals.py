"""An invalid stack file or command gives one message for each mistake and starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import REPOSITORY, Rehearse, command, run

GOOD = (REPOSITORY / "stacks" / "Pulumi.aws-p4d.yaml").read_text(encoding="utf-8")
MISTAKES = {
    "machine": (("p4d.24xlarge", "p4d.24xlrge"), "p4d.24xlarge"),
    "count": (("count: 2", "count: -1"), "-1"),
    "field": (("pools:", "poools:"), "pools"),
    "region": (("region: us-east-1", "region: us-east-11"), "us-east-1"),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_an_invalid_stack_file_starts_nothing(rehearse: Rehearse, tmp_path: Path, name: str) -> None:
    """Exit code 1, the value and the allowed values, no traceback, and no folder."""
    (old, new), words = MISTAKES[name]
    assert old in GOOD
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(GOOD.replace(old, new), encoding="utf-8")
    result = rehearse("up", str(stack))
    assert result.code == 1, result.out + result.err
    assert words in result.err
    assert "Traceback" not in result.err
    assert not result.root.exists()


def test_invalid_yaml(rehearse: Rehearse, tmp_path: Path) -> None:
    """Invalid YAML is an error without a traceback."""
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text("config:\n  gpuinfra:cluster: [\n", encoding="utf-8")
    result = rehearse("up", str(stack))
    assert result.code == 1, result.err
    assert "Traceback" not in result.err
    assert not result.root.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up", "aws-p4e"), "did you mean"),
        (("up", "aws-p4d", "--fault", "node:gpu-1:xid-97"), "did you mean xid-79"),
        (("up", "aws-p4d", "--deadline", "soon"), "such as 90s"),
        (("upp", "aws-p4d"), "upp"),
    ],
)
def test_an_invalid_command(rehearse: Rehearse, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and the correct word."""
    result = rehearse(*words)
    assert result.code == 2, result.out + result.err
    assert said in result.err
    assert "Traceback" not in result.err
    assert not result.root.exists()


_WITHOUT_NAMESPACES = (
    "unshare",
    "-Ur",
    "/bin/sh",
    "-c",
    'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"',
    "sh",
)
"""Runs a command in a user namespace that forbids further user namespaces."""


def test_up_without_namespaces_is_a_missing_prerequisite(needs_nodes: None, tmp_path: Path) -> None:
    """Where nodes cannot run, `up` ends with exit code 3, the reason, and the option that omits the nodes."""
    folder = tmp_path / "r"
    words = command("rehearse", "up", "aws-p4d", "--folder", str(folder))
    result = run([*_WITHOUT_NAMESPACES, *words], folder / "aws-p4d")
    assert result.code == 3, result.out + result.err
    line = result.err.splitlines()[-1]
    assert line.startswith("gpuinfra: error: stand-in nodes cannot run: this system forbids user namespaces: ")
    assert "--without-nodes" in line
    assert not (folder / "aws-p4d/report.json").exists()


@pytest.mark.long
def test_up_without_nodes_rehearses_the_cloud(rehearse: Rehearse) -> None:
    """`--without-nodes` creates every resource, starts no node and reports no node as verified."""
    result = rehearse("up", "aws-p4d", "--without-nodes")
    assert result.code == 0, result.out + result.err
    assert {one["outcome"] for one in result.report["nodes"]} == {"not rehearsed"}
    assert not list(result.root.glob("nodes/*/console*"))
