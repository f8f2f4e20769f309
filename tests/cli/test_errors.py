"""How the command tells what is wrong."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pytest

from gpuinfra import GpuCluster, clouds
from gpuinfra.cli import main, prefixed


def test_each_of_several_findings_says_whose_it_is() -> None:
    """Findings are lines of their own with the same beginning; what belongs to one of them is indented below it."""
    assert prefixed("a is wrong\n  allowed is b\nc is wrong") == [
        "gpuinfra: a is wrong",
        "  allowed is b",
        "gpuinfra: c is wrong",
    ]


def test_a_declaration_with_two_mistakes_tells_both_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two findings of one file read alike on stderr."""
    file = tmp_path / "Pulumi.two.yaml"
    file.write_text(
        "name: train\nbudget: 3\nowner: {}\nwhere: {cloud: aws, region: us-east-1, zone: use1-az4}\n"
        "pools: [{name: gpu, machine: p9.giant, capacity: {kind: spot, count: 2}}]\n"
    )
    assert main(["rehearse", "preview", str(file), "--folder", str(tmp_path)]) != 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) >= 2, lines
    assert all(line.startswith(("gpuinfra: ", " ")) for line in lines), lines
    assert sum(line.startswith("gpuinfra: ") for line in lines) >= 2


def test_a_cloud_whose_packages_are_not_installed_is_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who installed one cloud and rehearses or deploys another reads one line with what to type, exit code 3, and no traceback."""
    monkeypatch.setattr(clouds, "_installed", lambda name: name != "pulumi-gcp")
    assert clouds.why_not_here("aws") is None
    assert main(["rehearse", "up", "gcp-a3high", "--folder", str(tmp_path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "its packages are not installed here (pulumi-gcp): pip install 'gpuinfra[gcp]'" in line
    assert list(tmp_path.iterdir()) == []

    spec = {
        "name": "train",
        "where": {"cloud": "gcp", "region": "us-central1"},
        "pools": [{"name": "gpu", "machine": "a2-highgpu-8g", "capacity": {"kind": "spot", "count": 1}}],
    }
    with pytest.raises(pulumi.RunError, match=r"gpuinfra\[gcp\]"):
        GpuCluster("train", spec)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["catalog", "p4d"], "did you mean p4d.24xlarge, p4de.24xlarge?"),
        (["catalog", "p4d.24xlrage"], "did you mean p4d.24xlarge?"),
        (["catalog", "--gpu", "H9"], "allowed: V100-32GB"),
        (["run", "aws-p4d"], "gpuinfra run STACK -- COMMAND"),
        (["ssh", "aws-p4d"], "gpuinfra ssh STACK NODE"),
        (["explain", ""], "top-level fields are name"),
        (["rehearse", "up", "aws-p4d", "--fault", "node:gpu-9:xid-79"], "gpu-1 to gpu-4"),
    ],
)
def test_a_command_that_is_typed_wrong_says_what_to_type(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and what would have been right, before anything is looked up or started."""
    assert main(words) == 2
    assert said in capsys.readouterr().err
