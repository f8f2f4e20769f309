"""How the command shows errors."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pytest

from gpuinfra import GpuCluster, clouds
from gpuinfra.cli import main, prefixed


def test_each_of_several_findings_has_the_prefix() -> None:
    """Each finding is a line with the prefix; its details are indented below it."""
    assert prefixed("a is wrong\n  allowed is b\nc is wrong") == [
        "gpuinfra: a is wrong",
        "  allowed is b",
        "gpuinfra: c is wrong",
    ]


def test_two_errors_of_a_declaration_are_both_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two findings of one file have the same form on stderr."""
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


def test_missing_packages_of_a_cloud_are_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud without its packages ends with exit code 3 and one line that names the command to install them."""
    monkeypatch.setattr(clouds, "_installed", lambda name: name != "pulumi-gcp")
    assert clouds.why_not_here("aws") is None
    assert main(["rehearse", "up", "gcp-a3high", "--folder", str(tmp_path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "these packages are not installed: pulumi-gcp; run pip install 'gpuinfra[gcp]'" in line
    assert list(tmp_path.iterdir()) == []

    spec = {
        "name": "train",
        "where": {"cloud": "gcp", "region": "us-central1"},
        "pools": [{"name": "gpu", "machine": "a2-highgpu-8g", "capacity": {"kind": "spot", "count": 1}}],
    }
    with pytest.raises(pulumi.RunError, match=r"gpuinfra\[gcp\]"):
        GpuCluster("train", spec)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["catalog", "p4d"], "did you mean p4d.24xlarge, p4de.24xlarge?"),
        (["catalog", "p4d.24xlrage"], "did you mean p4d.24xlarge?"),
        (["catalog", "--gpu", "H9"], "allowed: V100-32GB"),
        (["run", "aws-p4d"], "gpuinfra run STACK -- COMMAND"),
        (["ssh", "aws-p4d"], "gpuinfra ssh STACK NODE"),
        (["pairs", "aws-p4d", "--shared-folder", "/scratch", "--rehearsal"], "No such option"),
        (["explain", ""], "top-level fields are name"),
        (["rehearse", "up", "aws-p4d", "--fault", "node:gpu-9:xid-79"], "gpu-1 to gpu-4"),
    ],
)
def test_a_usage_error_names_the_right_words(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error ends with exit code 2 and the allowed or nearest words, before anything starts."""
    assert main(words) == 2
    assert message in capsys.readouterr().err
