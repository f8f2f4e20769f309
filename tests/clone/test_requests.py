"""Impossible and hostile requests have one clear finding each, and write no file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuinfra.cli import main
from gpuinfra.day import VARIABLE
from tests.clone.stacks import file_of

AWS, AZURE, GCP, BLOCK = "aws-p4d", "azure-ndv4", "gcp-a3ultra", "aws-p5-block"
REQUESTS: dict[str, tuple[str, list[str], int, str]] = {
    "same region": (AWS, ["--region", "us-east-1"], 1, "which is the region of the stack"),
    "misspelled region": (AWS, ["--region", "us-esat-2"], 1, "did you mean us-east-2?"),
    "zone as region": (AWS, ["--region", "us-west-2a"], 1, "not a valid AWS region"),
    "empty region": (AWS, ["--region", ""], 1, "not a valid AWS region"),
    "path as region": (AWS, ["--region", "../../etc/passwd"], 1, "not a valid AWS region"),
    "escape sequence as region": (AWS, ["--region", "us-\x1b[31mwest-2"], 1, "not a valid AWS region"),
    "secret as region": (AWS, ["--region", "ghp_0123456789abcdefABCDEF"], 1, "a string of 26 characters"),
    "long region": (AWS, ["--region", "x" * 100_000], 1, "a string of 100000 characters"),
    "China": (AWS, ["--region", "cn-north-1"], 1, "partition aws-cn"),
    "GovCloud": (AWS, ["--region", "us-gov-west-1"], 1, "partition aws-us-gov"),
    "Azure China": (AZURE, ["--region", "chinaeast2"], 1, "partition AzureChinaCloud"),
    "Azure Government": (AZURE, ["--region", "usgovvirginia"], 1, "partition AzureUSGovernment"),
    "region of another cloud": (AWS, ["--region", "us-central1"], 1, "not a valid AWS region"),
    "machine not sold in region": (AWS, ["--region", "sa-east-1"], 1, "the catalog does not list in sa-east-1"),
    "machine not sold in region of Google Cloud": (GCP, ["--region", "africa-south1"], 1, "does not list in africa-south1"),
    "machine sold nowhere": (AWS, ["--region", "us-west-2", "--machine", "p9.48xlarge"], 1, "not in the AWS catalog"),
    "machine of another cloud": (AWS, ["--region", "us-west-2", "--machine", "a3-megagpu-8g"], 1, "not in the AWS catalog"),
    "machine sold as block only": (AWS, ["--region", "us-east-2", "--machine", "p6e-gb200.36xlarge"], 1, "sold only as block"),
    "zone of another region": (AWS, ["--region", "us-west-2", "--zone", "use1-az1"], 1, "not a zone of us-west-2"),
    "zone without the machine": (GCP, ["--region", "us-east4", "--zone", "us-east4-c"], 1, "the catalog does not list a3-ultragpu-8g"),
    "zone letter on Azure": (AZURE, ["--region", "eastus2", "--zone", "a"], 1, "not a zone of eastus2"),
    "no nodes": (AWS, ["--region", "us-west-2", "--count", "0"], 1, "--count is 0"),
    "negative nodes": (AWS, ["--region", "us-west-2", "--count=-4"], 1, "--count is -4"),
    "nodes that are no number": (AWS, ["--region", "us-west-2", "--count", "many"], 2, "allowed: a whole number"),
    "huge number": (AWS, ["--region", "us-west-2", "--count", "9" * 5000], 2, "allowed: a whole number"),
    "unknown pool": (AWS, ["--region", "us-west-2", "--count", "cpu=2"], 1, "the pools are gpu"),
    "pool twice": (AWS, ["--region", "us-west-2", "--count", "gpu=2", "--count", "gpu=3"], 2, "given twice"),
    "count without pools": ("aws-foundation", ["--region", "us-west-2", "--count", "2"], 1, "has no pools"),
    "overlapping range": (AWS, ["--region", "us-west-2", "--cidr", "10.64.128.0/17"], 1, "overlaps 10.64.0.0/16"),
    "public range": (AWS, ["--region", "us-west-2", "--cidr", "8.8.0.0/16"], 1, "not a private range"),
    "range overlaps peer": (AWS, ["--region", "us-west-2", "--cidr", "10.80.0.0/16", "--peer", "10.80.4.0/24"], 1, "overlaps 10.80.4.0/24"),
    "peer is everything": (AWS, ["--region", "us-west-2", "--peer", "0.0.0.0/0"], 1, "every private range"),
    "peer is no range": (AWS, ["--region", "us-west-2", "--peer", "$(reboot)"], 1, "allowed: an IPv4 network"),
    "InfiniBand range": (AZURE, ["--region", "eastus2", "--cidr", "172.16.0.0/16"], 1, "172.16.0.0/16"),
    "expired block": (BLOCK, ["--region", "us-west-2"], 1, "which has passed"),
    "RPO below the cloud's": (AWS, ["--region", "us-west-2", "--rpo", "5"], 1, "is 15 minutes"),
    "RPO of nothing": ("aws-existing-network", ["--region", "us-west-2", "--rpo", "60"], 1, "no file system of the stack has a bucket"),
    "RPO of zero": (AWS, ["--region", "us-west-2", "--rpo", "0"], 1, "at least 1 minute"),
    "unknown mode": (AWS, ["--region", "us-west-2", "--mode", "warm"], 1, "allowed: cold, pilot-light, hot"),
    "unknown cloud": (AWS, ["--region", "us-west-2", "--cloud", "oracle"], 1, "allowed: aws, azure, gcp"),
    "unsupported key": (AWS, ["--region", "us-west-2", "--set", "network.kms_key=alias/x"], 1, "network.kms_key is not a known field"),
    "no such pool": (AWS, ["--region", "us-west-2", "--set", "pools[9].name=x"], 2, "the list has 1 entries"),
    "field of a pool that does not exist": (AWS, ["--region", "us-west-2", "--set", "pools[1].name=x"], 2, "leads to nothing in the clone"),
    "entry of capacity that --count removes": (AWS, ["--region", "us-west-2", "--count", "1", "--set", "pools[0].capacity[1].kind=spot"], 2, "leads to nothing in the clone"),
    "index into text": (AWS, ["--region", "us-west-2", "--set", "name[0]=x"], 2, "leads to nothing in the clone"),
    "values that contradict each other": (AWS, ["--region", "us-west-2", "--set", "storage=abc", "--set", "storage[0].bucket=y"], 2, "leads to nothing in the clone"),
    "mapping after a list": (AWS, ["--region", "us-west-2", "--set", "tags=[1]", "--set", "tags.x=1"], 2, "leads to nothing in the clone"),
    "no value": (AWS, ["--region", "us-west-2", "--set", "network.cidr"], 2, "allowed: PATH=VALUE"),
    "path that is no path": (AWS, ["--region", "us-west-2", "--set", "a b=1"], 2, "is not a path"),
    "YAML bomb": (AWS, ["--region", "us-west-2", "--set", "tags=" + "{a: " * 200], 1, "--set"),
    "reservation of the first region": (AWS, ["--region", "us-west-2", "--set", "pools[0].capacity[0].id=cr-0123456789abcdef0"], 1, "the reservation of the stack in us-east-1"),
    "region through set": (AWS, ["--region", "us-west-2", "--set", "where.region=us-east-1"], 1, "changes the cloud or the region"),
    "registry of another cloud": (AWS, ["--cloud", "gcp", "--region", "us-central1"], 1, "software.registry"),
    "unknown stack": ("nope", ["--region", "us-west-2"], 2, "does not exist"),
    "folder as output": (AWS, ["--region", "us-west-2", "--output", "."], 2, "is a folder"),
    "output without folder": (AWS, ["--region", "us-west-2", "--output", "none/Pulumi.x.yaml"], 2, "cannot be written"),
    "output is the stack": (AWS, ["--region", "us-west-2", "--output", "Pulumi.aws-p4d.yaml", "--force"], 2, "is the file of the stack"),
}  # fmt: skip
"""Name -> stack, options, exit code, text of the finding."""


def test_there_are_at_least_30_requests() -> None:
    """The table has at least 30 requests."""
    assert len(REQUESTS) >= 30


@pytest.mark.parametrize("name", REQUESTS)
def test_request_has_one_clear_finding(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request ends with its exit code and one finding, without a traceback, and leaves no file behind."""
    stack, options, code, text = REQUESTS[name]
    given = stack
    if stack != "nope":
        shutil.copy(file_of(stack), tmp_path)
        given = f"Pulumi.{stack}.yaml"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    if stack == BLOCK:
        monkeypatch.setenv(VARIABLE, "2027-11-21")
    before = sorted(tmp_path.iterdir())
    path = given if stack == "nope" else str(tmp_path / given)
    assert main(["clone", path, *options]) == code
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.strip()]
    assert len(lines) == 1, error
    assert text in lines[0]
    assert "Traceback" not in error
    assert "internal error" not in error
    assert "\x1b[31m" not in error
    assert sorted(tmp_path.iterdir()) == before


def test_impossible_pair_has_three_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    """If no machine type of the region can replace the pool's, three alternatives have a reason, and a price if it is known."""
    assert main(["clone", str(file_of(AWS)), "--region", "sa-east-1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "alternatives"
    assert len(lines) == 5
    assert "us-west-2" in lines[2]
    assert "spot price" in lines[2]


def test_rpo_names_what_it_requires(capsys: pytest.CaptureFixture[str]) -> None:
    """An RPO that the cloud can reach adds a note, and one without a commitment of the cloud adds a warning. Both clones are made."""
    assert main(["clone", str(file_of(AWS)), "--region", "us-west-2", "--rpo", "15", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "info: --rpo is 15, which requires S3 Replication Time Control" in err
    assert "region: us-west-2" in out
    assert main(["clone", str(file_of(AZURE)), "--region", "eastus2", "--rpo", "15", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "warn: --rpo is 15, but Azure commits to no lag" in err
    assert "region: eastus2" in out
