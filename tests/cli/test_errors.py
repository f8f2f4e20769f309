"""How the command shows errors."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpuinfra import GpuCluster, clouds
from gpuinfra.cli import main, prefixed


def test_each_of_several_findings_has_the_prefix() -> None:
    """Each finding is a line with the prefix; its details are indented below it."""
    assert prefixed("a is wrong\n  allowed is b\nc is wrong", "gpuinfra: ") == [
        "gpuinfra: a is wrong",
        "  allowed is b",
        "gpuinfra: c is wrong",
    ]


@pytest.mark.parametrize(
    "words",
    [["plan"], ["plan", "--nope"], ["nope"], ["plan", "nope"], ["prices", "update", "x.json"], ["explain", "nope"]],
    ids=" ".join,
)
def test_each_error_has_one_prefix(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Errors about arguments, names and files start with the same words. The usage is a second line."""
    assert main(words) == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("gpuinfra: error: ")
    assert all(line.startswith("  usage: gpuinfra ") for line in rest)


def test_an_option_after_the_node_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """An option of gpuinfra in the place of the command on the node is refused with its right place, because it would run on the node."""
    assert main(["ssh", "aws-p4d", "gpu-1", "--rehearsal", "nvidia-smi"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("gpuinfra: error: --rehearsal stands after gpu-1 ")
    assert "put it before aws-p4d" in first


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
    monkeypatch.setattr(clouds, "installed_version", lambda name: None if name == "pulumi-gcp" else "1")
    assert clouds.why_not_here("aws") is None
    assert main(["rehearse", "up", "gcp-a3high", "--folder", str(tmp_path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "these packages are not installed: pulumi-gcp; run `pip install 'gpuinfra[gcp]'`" in line
    assert list(tmp_path.iterdir()) == []

    spec = {
        "name": "train",
        "where": {"cloud": "gcp", "region": "us-central1"},
        "pools": [{"name": "gpu", "machine": "a2-highgpu-8g", "capacity": {"kind": "spot", "count": 1}}],
    }
    # The SDK takes the current event loop, which a test before this one can have closed.
    asyncio.set_event_loop(asyncio.new_event_loop())
    with pytest.raises(pulumi.RunError, match=r"gpuinfra\[gcp\]"):
        GpuCluster("train", spec)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["catalog", "p4d"], "did you mean p4d.24xlarge, p4de.24xlarge?"),
        (["catalog", "p4d.24xlrage"], "did you mean p4d.24xlarge?"),
        (["catalog", "--gpu", "H9"], "GPU 'H9' is not in the catalog; allowed: A100-40GB, "),
        (["catalog", "--gpu", "T4"], "GPU 'T4' is not in the catalog; allowed: A100-40GB, "),
        (
            ["catalog", "--gpu", "A10G", "--cloud", "azure"],
            "GPU 'A10G' is not in the catalog of Azure; allowed: A100-40GB, ",
        ),
        (["run", "aws-p4d"], "gpuinfra run STACK -- COMMAND"),
        (["ssh", "aws-p4d"], "gpuinfra ssh STACK NODE"),
        (["pairs", "aws-p4d", "--shared-folder", "/scratch", "--rehearsal"], "No such option"),
        (["explain", ""], "top-level fields are name"),
        (["catalog", "--region", "us-wst-2"], "not a region of AWS or Azure or Google Cloud; did you mean us-west-2?"),
        (["catalog", "--cloud", "aws", "--region", "us-central1"], "not a region of AWS; "),
        (["rehearse", "up", "aws-p4d", "--fault", "node:gpu-9:xid-79", "--folder", ".no-rehearsal"], "gpu-1 to gpu-4"),
    ],
)
def test_a_usage_error_names_the_right_words(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error ends with exit code 2 and the allowed or nearest words, before anything starts."""
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("stack", ["/", ".", "..", "a b", "--x"])
@pytest.mark.parametrize("words", [["verify"], ["run"], ["ssh"]])
def test_a_path_that_names_no_stack_is_a_usage_error(
    words: list[str], stack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path without a stack name does not select the stack that Pulumi selected last."""
    rest = {"verify": [], "run": ["ls"], "ssh": ["gpu-1"]}[words[0]]
    assert main([*words, "--", stack, *rest]) == 2
    assert "is not the name of a stack" in capsys.readouterr().err


def _command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuinfra", *words],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
        **options,
    )


def test_output_to_a_full_disk_is_an_error_with_a_fix() -> None:
    """Output that cannot be written ends with exit code 3 and one line, which names the cause and the fix."""
    with Path("/dev/full").open("w") as full:
        done = _command("catalog", stdout=full)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line == (
        "gpuinfra: error: the output cannot be used: No space left on device; free space on the disk, and run the command again"
    )


def test_output_to_a_closed_pipe_is_not_an_error() -> None:
    """A reader that closes the pipe ends the command without a message."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = _command("schema", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO], ids=errno.errorcode.get
)
def test_an_error_of_the_file_system_names_the_file_and_the_fix(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be written is not reported as a defect of gpuinfra."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "plan.html")

    monkeypatch.setattr("gpuinfra.plan.make.build_plan", refuse)
    monkeypatch.setattr("gpuinfra.cli.plan.build_plan", refuse, raising=False)
    assert main(["plan", "aws-p4d"]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"gpuinfra: error: plan.html cannot be used: {os.strerror(number)}; ")
    assert line.endswith("and run the command again")
