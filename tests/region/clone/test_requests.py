"""Impossible and hostile requests have one clear finding each, and write no file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuinfra.base.day import VARIABLE
from gpuinfra.cli import main
from tests.region.clone.stacks import file_of

AWS, AZURE, GCP, BLOCK = "aws-p4d", "azure-ndv4", "gcp-a3ultra", "aws-p5-block"
ALIASES = (
    "{a: &a ["
    + ", ".join("x" * 9)
    + "], "
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}], " for old, new in zip("abcde", "bcdef", strict=True))
    + "z: 1}"
)
"""A value whose aliases repeat each other: 9 to the power of 6 values."""
REQUESTS: dict[str, tuple[str, list[str], int, str]] = {
    "same region": (AWS, ["--region", "us-east-1"], 1, "which is the region of the stack"),
    "misspelled region": (AWS, ["--region", "us-esat-2"], 1, "did you mean us-east-2?"),
    "zone as region": (AWS, ["--region", "us-west-2a"], 1, "not a valid AWS region"),
    "empty region": (AWS, ["--region", ""], 1, "not a valid AWS region"),
    "path as region": (AWS, ["--region", "../../etc/passwd"], 1, "not a valid AWS region"),
    "escape sequence as region": (AWS, ["--region", "us-\x1b[31mwest-2"], 1, "not a valid AWS region"),
    "secret as region": (AWS, ["--region", "ghp_0123456789abcdefABCDEF"], 1, "a string of 26 characters"),
    "long region": (AWS, ["--region", "x" * 100_000], 1, "a string of 100000 characters"),
    "China": (AWS, ["--region", "cn-north-1"], 1, "aws-cn partition"),
    "GovCloud": (AWS, ["--region", "us-gov-west-1"], 1, "aws-us-gov partition"),
    "Azure China": (AZURE, ["--region", "chinaeast2"], 1, "AzureChinaCloud partition"),
    "Azure Government": (AZURE, ["--region", "usgovvirginia"], 1, "AzureUSGovernment partition"),
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
    "pool twice": (AWS, ["--region", "us-west-2", "--count", "gpu=2", "--count", "gpu=3"], 2, "specified twice"),
    "count without pools": ("aws-foundation", ["--region", "us-west-2", "--count", "2"], 1, "has no pools"),
    "range of a network of another stack": ("aws-cluster", ["--region", "us-west-2", "--cidr", "10.99.0.0/16"], 1, "the clone does not create the network"),
    "peer of a network of another stack": ("aws-cluster", ["--region", "us-west-2", "--peer", "10.99.0.0/16"], 1, "the clone does not create the network"),
    "overlapping range": (AWS, ["--region", "us-west-2", "--cidr", "10.64.128.0/17"], 1, "overlaps 10.64.0.0/16"),
    "public range": (AWS, ["--region", "us-west-2", "--cidr", "8.8.0.0/16"], 1, "not a private range"),
    "range overlaps peer": (AWS, ["--region", "us-west-2", "--cidr", "10.80.0.0/16", "--peer", "10.80.4.0/24"], 1, "overlaps 10.80.4.0/24"),
    "peer is everything": (AWS, ["--region", "us-west-2", "--peer", "0.0.0.0/0"], 1, "every private range"),
    "peer is no range": (AWS, ["--region", "us-west-2", "--peer", "$(reboot)"], 1, "allowed: an IPv4 network"),
    "InfiniBand range": (AZURE, ["--region", "eastus2", "--cidr", "172.16.0.0/16"], 1, "172.16.0.0/16"),
    "RPO below the cloud's": (AWS, ["--region", "us-west-2", "--rpo", "5"], 1, "is 15 minutes"),
    "RPO of nothing": ("aws-existing-network", ["--region", "us-west-2", "--rpo", "60"], 1, "no file system of the stack has a bucket"),
    "RPO of zero": (AWS, ["--region", "us-west-2", "--rpo", "0"], 1, "allowed: 1 to 10080 minutes"),
    "unknown mode": (AWS, ["--region", "us-west-2", "--mode", "warm"], 1, "allowed: cold, pilot-light, hot"),
    "unknown cloud": (AWS, ["--region", "us-west-2", "--cloud", "oracle"], 1, "allowed: aws, azure, gcp"),
    "unsupported key": (AWS, ["--region", "us-west-2", "--set", "network.kms_key=alias/x"], 1, "network.kms_key is not a known field"),
    "no such pool": (AWS, ["--region", "us-west-2", "--set", "pools[9].name=x"], 2, "the list has 1 entry"),
    "field of a pool that does not exist": (AWS, ["--region", "us-west-2", "--set", "pools[1].name=x"], 2, "does not match a value in the clone"),
    "entry of capacity that --count removes": (AWS, ["--region", "us-west-2", "--count", "1", "--set", "pools[0].capacity[1].kind=spot"], 2, "does not match a value in the clone"),
    "index into text": (AWS, ["--region", "us-west-2", "--set", "name[0]=x"], 2, "does not match a value in the clone"),
    "values that contradict each other": (AWS, ["--region", "us-west-2", "--set", "storage=abc", "--set", "storage[0].bucket=y"], 2, "does not match a value in the clone"),
    "mapping after a list": (AWS, ["--region", "us-west-2", "--set", "tags=[1]", "--set", "tags.x=1"], 2, "does not match a value in the clone"),
    "no value": (AWS, ["--region", "us-west-2", "--set", "network.cidr"], 2, "allowed: PATH=VALUE"),
    "path that is no path": (AWS, ["--region", "us-west-2", "--set", "a b=1"], 2, "is not a path"),
    "YAML bomb": (AWS, ["--region", "us-west-2", "--set", "tags=" + "{a: " * 200], 1, "--set"),
    "reservation of the first region": (AWS, ["--region", "us-west-2", "--set", "pools[0].capacity[0].id=cr-0123456789abcdef0"], 1, "the reservation of the stack in us-east-1"),
    "region through set": (AWS, ["--region", "us-west-2", "--set", "where.region=us-east-1"], 1, "changes the cloud or the region"),
    "registry of another cloud": (AWS, ["--cloud", "gcp", "--region", "us-central1"], 1, "software.registry"),
    "unknown stack": ("nope", ["--region", "us-west-2"], 2, "does not exist"),
    "folder as output": (AWS, ["--region", "us-west-2", "--output", "."], 2, "is a folder"),
    "output without folder": (AWS, ["--region", "us-west-2", "--output", "none/Pulumi.x.yaml"], 2, "cannot be written"),
    "output is the stack": (AWS, ["--region", "us-west-2", "--output", "Pulumi.aws-p4d.yaml", "--force"], 2, "is the stack's own file"),
    "unknown region": (AWS, ["--region", "mars-1"], 1, "not a valid AWS region; allowed: us-east-1"),
    "region in capital letters": (AWS, ["--region", "US-WEST-2"], 1, "did you mean us-west-2?"),
    "region with a line break": (AWS, ["--region", "us-west-2\n"], 1, "did you mean us-west-2?"),
    "region with a Cyrillic letter": (AWS, ["--region", "us-w\u0435st-2"], 1, "did you mean us-west-2?"),
    "empty zone": (AWS, ["--region", "us-west-2", "--zone", ""], 1, "not a zone of us-west-2"),
    "path as zone": (AWS, ["--region", "us-west-2", "--zone", "../../etc"], 1, "not a zone of us-west-2"),
    "zone that does not exist": ("aws-foundation", ["--region", "us-west-2", "--zone", "usw2-az9"], 1, "not a zone of us-west-2"),
    "too many nodes": (AWS, ["--region", "us-west-2", "--count", "100001"], 1, "allowed: 1 to 100000"),
    "fraction of a node": (AWS, ["--region", "us-west-2", "--count", "1.5"], 2, "allowed: a whole number"),
    "digits of another script": (AWS, ["--region", "us-west-2", "--count", "\u0663"], 2, "allowed: a whole number"),
    "underscore in a number": (AWS, ["--region", "us-west-2", "--count", "1_0"], 2, "allowed: a whole number"),
    "escape sequence as pool": (AWS, ["--region", "us-west-2", "--count", "\x1b[31mgpu=2"], 1, "the pools are gpu"),
    "machine without GPUs": (AWS, ["--region", "us-west-2", "--machine", "m7i.xlarge"], 1, "which has no GPUs; p4d.24xlarge has 8 GPUs"),
    "empty machine": (AWS, ["--region", "us-west-2", "--machine", ""], 1, "not in the AWS catalog"),
    "secret as machine": (AWS, ["--region", "us-west-2", "--machine", "ghp_0123456789abcdefABCDEF"], 1, "a string of 26 characters"),
    "empty range": (AWS, ["--region", "us-west-2", "--cidr", ""], 1, "allowed: an IPv4 network"),
    "IPv6 range": (AWS, ["--region", "us-west-2", "--cidr", "fd00::/64"], 1, "allowed: an IPv4 network"),
    "range that is too small": (AWS, ["--region", "us-west-2", "--cidr", "10.80.0.0/30"], 1, "is a /30"),
    "range with host bits": (AWS, ["--region", "us-west-2", "--cidr", "10.80.0.1/16"], 1, "set the host bits to zero"),
    "RPO that is no number": (AWS, ["--region", "us-west-2", "--rpo", "soon"], 2, "allowed: a whole number"),
    "negative RPO": (AWS, ["--region", "us-west-2", "--rpo=-5"], 1, "allowed: 1 to 10080 minutes"),
    "RPO of years": (AWS, ["--region", "us-west-2", "--rpo", "99999999999"], 1, "allowed: 1 to 10080 minutes"),
    "empty cloud": (AWS, ["--region", "us-west-2", "--cloud", ""], 1, "allowed: aws, azure, gcp"),
    "module as cloud": (AWS, ["--region", "us-west-2", "--cloud", "os"], 1, "allowed: aws, azure, gcp"),
    "cloud through set": (AWS, ["--region", "us-west-2", "--set", "where.cloud=gcp"], 1, "changes the cloud or the region"),
    "zone of the stack through set": (AWS, ["--region", "us-west-2", "--set", "where.zone=use1-az4"], 1, "which is in us-east-1"),
    "value given twice": (AWS, ["--region", "us-west-2", "--set", "name=a", "--set", "name=b"], 2, "is specified twice"),
    "value given twice in two forms": (AWS, ["--region", "us-west-2", "--set", "pools[0].capacity[0].count=1", "--set", "pools[0].capacity[00].count=2"], 2, "is specified twice"),
    "secret as tag": (AWS, ["--region", "us-west-2", "--set", "tags.password=hunter2hunter2"], 1, "looks like a secret"),
    "secret as tag of a pool": (AWS, ["--region", "us-west-2", "--set", "pools[0].tags={team: ghp_0123456789abcdefABCDEF}"], 1, "looks like a secret"),
    "YAML tag": (AWS, ["--region", "us-west-2", "--set", "name=!!python/object/apply:os.system [id]"], 1, "has the tag"),
    "aliases that grow": (AWS, ["--region", "us-west-2", "--set", "tags=" + ALIASES], 1, "more than 50,000 values"),
    "index of 20 digits": (AWS, ["--region", "us-west-2", "--set", f"pools[{'9' * 20}].name=x"], 2, "the list has 1 entry"),
    "image with a command": (AWS, ["--region", "us-west-2", "--set", "pools[0].image={ref: ami-0123456789abcdef0; reboot}"], 1, "is not an AMI ID"),
    "read-only folder": (AWS, ["--region", "us-west-2", "--output", "/proc/Pulumi.x.yaml"], 2, "/proc/Pulumi.x.yaml cannot be written"),
    "file as folder": (AWS, ["--region", "us-west-2", "--output", "Pulumi.aws-p4d.yaml/Pulumi.x.yaml"], 2, "which is not a path"),
    "device as output": (AWS, ["--region", "us-west-2", "--output", "/dev/null"], 2, "/dev/null already exists"),
    "long output": (AWS, ["--region", "us-west-2", "--output", "x" * 5000], 2, "--output is a string of 5000 characters"),
    "empty output": (AWS, ["--region", "us-west-2", "--output", ""], 2, "is a folder"),
    "command as output": (AWS, ["--region", "us-west-2", "--output", "Pulumi.$(reboot).yaml"], 1, "--output has an invalid stack name: a string of 9 characters"),
    "escape sequence as output": (AWS, ["--region", "us-west-2", "--output", "Pulumi.\x1b[31mx.yaml"], 1, "--output has an invalid stack name: a string of 6 characters"),
    "name of more than 100 characters": (AWS, ["--region", "us-west-2", "--output", f"Pulumi.{'x' * 101}.yaml"], 1, "allowed: 1 to 100 letters"),
    "name of more than 100 characters with its base": (AWS, ["--region", "us-west-2", "--mode", "pilot-light", "--output", f"Pulumi.{'x' * 96}.yaml"], 1, "allowed: 1 to 100 letters"),
}  # fmt: skip
"""Name -> stack, options, exit code, text of the finding."""


def refused(folder: Path, options: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a command ends with an exit code and one finding, and leaves no file behind."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["clone", *options]) == code
    out, error = capsys.readouterr()
    lines = [line for line in error.splitlines() if line.strip()]
    assert len(lines) == 1, error
    assert text in lines[0]
    for word in ("Traceback", "internal error", "\x1b[31m"):
        assert word not in out + error
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


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
    path = given if stack == "nope" else str(tmp_path / given)
    refused(tmp_path, [path, *options], code, text, capsys)


GOOD = file_of(AWS).read_text()
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "no YAML": (b"config: [", "is not valid YAML"),
    "no declaration": (b"config: {aws:region: us-east-1}", "config has no gpuinfra:cluster"),
    "list": (b"[1, 2]", "is a list of length 2"),
    "bytes": (bytes(range(256)), "contains invalid UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "contains invalid UTF-8"),
    "zero byte": (b"a\0b", "is not valid YAML"),
    "key twice": (f"{GOOD}config: {{}}\n".encode(), "repeats the key 'config'"),
    "nested too deeply": (b"{a: " * 3000, "nested too deeply"),
    "aliases that grow": (f"config: {{gpuinfra:cluster: {ALIASES}}}".encode(), "more than 50,000 values"),
    "unknown field": (GOOD.replace("name: train", "name: train\n    color: red").encode(), "color is not a known field"),
    "machine sold nowhere": (GOOD.replace("p4d.24xlarge", "p9.24xlarge").encode(), "did you mean p4d.24xlarge?"),
    "escape sequence as name": (GOOD.replace("name: train", 'name: "\\e[31m"').encode(), "name is a string of 5 characters"),
}  # fmt: skip
"""Name -> content of the stack file, text of the finding."""


@pytest.mark.parametrize("name", BROKEN)
def test_broken_stack_file_has_one_finding(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack file that cannot be read or is invalid ends the clone with one finding."""
    content, text = BROKEN[name]
    path = tmp_path / "Pulumi.one.yaml"
    path.write_bytes(content)
    refused(tmp_path, [str(path), "--region", "us-west-2"], 1, text, capsys)


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ("Pulumi.aws-p4d-us-west-2.yaml", "cold"),
        ("Pulumi.aws-p4d-us-west-2.yaml", "pilot-light"),
        ("Pulumi.aws-p4d-us-west-2-base.yaml", "pilot-light"),
    ],
)
def test_existing_output_has_one_finding(
    file: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of the clone that exists ends it with one finding, also if only one of two files exists."""
    shutil.copy(file_of(AWS), tmp_path)
    (tmp_path / file).write_text("mine")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["clone", str(tmp_path / "Pulumi.aws-p4d.yaml"), "--region", "us-west-2", "--mode", mode]) == 2
    assert f"{file} already exists" in capsys.readouterr().err
    assert (tmp_path / file).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(("file", "project", "text"), [
    ("Pulumi.$(reboot).yaml", "gpuinfra", "STACK is a string of 9 characters"),
    ("Pulumi.a b.yaml", "gpuinfra", "not a valid stack name"),
    ("Pulumi.one.yaml", "$(reboot)", "name in Pulumi.yaml is a string of 9 characters"),
    ("Pulumi.one.yaml", "a/b", "not a valid project name"),
    (f"Pulumi.{'x' * 95}.yaml", "gpuinfra", "--output has an invalid stack name"),
])  # fmt: skip
def test_hostile_name_of_a_stack_or_project_has_one_finding(
    file: str, project: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that Pulumi does not accept ends the clone, so that no command of the report contains it."""
    (tmp_path / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
    (tmp_path / file).write_text(GOOD)
    refused(tmp_path, [str(tmp_path / file), "--region", "us-west-2"], 1, text, capsys)


def test_impossible_pair_has_three_alternatives(capsys: pytest.CaptureFixture[str]) -> None:
    """If no machine type of the region can replace the pool's, three alternatives have a reason, and a price if it is known."""
    assert main(["clone", str(file_of(AWS)), "--region", "sa-east-1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "alternatives"
    assert len(lines) == 5
    assert "us-west-2" in lines[3]
    assert "on-demand price" in lines[3]


def test_rpo_names_what_it_requires(capsys: pytest.CaptureFixture[str]) -> None:
    """An RPO that the cloud can reach adds a note, and one without a commitment of the cloud adds a warning. Both clones are made."""
    assert main(["clone", str(file_of(AWS)), "--region", "us-west-2", "--rpo", "15", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "info: --rpo is 15, which requires S3 Replication Time Control" in err
    assert "region: us-west-2" in out
    assert main(["clone", str(file_of(AZURE)), "--region", "eastus2", "--rpo", "15", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "warn: --rpo is 15, but Azure does not commit to a lag" in err
    assert "region: eastus2" in out


def test_location_of_the_state_does_not_prevent_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A clone contains neither the state nor the secrets provider of the stack. If they are in the region that can fail, the report has a warning."""
    path = tmp_path / "Pulumi.aws-recovery.yaml"
    provider = "secretsprovider: awskms://alias/state?region=us-east-2\n"
    path.write_text(provider + file_of("aws-recovery").read_text())
    assert main(["clone", str(path), "--region", "us-west-2", "--dry-run"]) == 0
    assert "secretsprovider is in us-east-2" in capsys.readouterr().err
