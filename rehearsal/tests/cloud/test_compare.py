"""Recordings of real providers against the stand-in.

No account is at hand where this was written, so the recording is one that the stand-in itself answered (it says so in its
name): unchanged it must show no difference, and each way in which a real provider could differ is put into it by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuinfra_rehearsal.cloud.compare import main

RECORDING = Path(__file__).parent / "recordings" / "aws-made-by-the-stand-in.jsonl"
VPC, ROLE, BUCKET = "aws:ec2/vpc:Vpc", "aws:iam/role:Role", "aws:s3/bucket:Bucket"
Change = Callable[[dict[str, Any]], object]


def entries() -> list[dict[str, Any]]:
    """The recording's calls."""
    return [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]


def told(calls: list[dict[str, Any]], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit code and lines of a comparison."""
    file = folder / "grpc.json"
    file.write_text("".join(json.dumps(call) + "\n" for call in calls), encoding="utf-8")
    code = main([str(file)])
    return code, capsys.readouterr().out.splitlines()


def test_a_recording_of_the_stand_in_has_no_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks, diffs, creations and lookups are repeated with equal results."""
    code, lines = told(entries(), tmp_path, capsys)
    assert (code, lines) == (0, [f"{len(entries())} provider calls, 0 differences"])
    assert {entry["method"].rsplit("/", 1)[1] for entry in entries()} == {
        "Configure",
        "Check",
        "Diff",
        "Create",
        "Invoke",
    }


@pytest.mark.parametrize(
    ("call", "type", "change", "words"),
    [
        ("Check", VPC, lambda r: r["inputs"].update(instanceTenancy="default"), f'{VPC}: Check instanceTenancy: only the provider fills it in ("default")'),
        ("Check", VPC, lambda r: r["inputs"].pop("enableDnsSupport"), f"{VPC}: Check enableDnsSupport: only the stand-in fills it in (true)"),
        ("Check", VPC, lambda r: r["inputs"].update(enableDnsSupport=False), f"{VPC}: Check enableDnsSupport: the provider makes it false, the stand-in true"),
        ("Check", VPC, lambda r: r.update(failures=[{"property": "cidrBlock", "reason": "too large"}]),
            f"{VPC}: Check cidrBlock: only the provider refuses it"),
        ("Diff", VPC, lambda r: r.update(replaces=[]), f"{VPC}: Diff cidrBlock: only the stand-in replaces because of it"),
        ("Diff", VPC, lambda r: r.update(diffs=["cidrBlock", "ipv6CidrBlock"]), f"{VPC}: Diff ipv6CidrBlock: only the provider counts it as a change"),
        ("Create", ROLE, lambda r: r["properties"].update(newInAws="x"), f"{ROLE}: Create newInAws: only the provider returns it (text)"),
        ("Create", ROLE, lambda r: r["properties"].pop("uniqueId"), f"{ROLE}: Create uniqueId: only the stand-in returns it (text)"),
        ("Create", BUCKET, lambda r: r["properties"]["serverSideEncryptionConfiguration"]["rule"].update(newInAws="x"),
            (f"{BUCKET}: Create serverSideEncryptionConfiguration.rule.newInAws: "
            "only the provider returns it (text)")),
        ("Create", BUCKET, lambda r: r["properties"].update(bucketDomainName=7), (f"{BUCKET}: Create bucketDomainName: "
            "the provider returns a number, the stand-in text")),
        ("Invoke", "aws:index/getCallerIdentity:getCallerIdentity", lambda r: r["return"].pop("arn"), ("aws:index/getCallerIdentity:getCallerIdentity: "
            "Invoke arn: only the stand-in returns it (text)")),
    ],
)  # fmt: skip
def test_each_kind_of_difference_is_reported(
    call: str, type: str, change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A provider that rejects, fills in, replaces or returns something else is reported by type, call and property."""
    calls = entries()
    one = next(
        e for e in calls if e["method"].endswith(call) and type in (e["request"].get("type"), e["request"].get("tok"))
    )
    change(one["response"])
    code, lines = told(calls, tmp_path, capsys)
    assert code == 1
    assert words in lines
    assert lines[-1].endswith(" 1 differences")


def test_an_error_only_in_the_recording_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error in the recording is a difference where the stand-in has none."""
    calls = entries()
    one = next(e for e in calls if e["method"].endswith("Create") and e["request"]["type"] == ROLE)
    del one["response"]
    one["errors"] = ["MalformedPolicyDocument: not like this"]
    code, lines = told(calls, tmp_path, capsys)
    assert code == 1
    assert lines[0] == f"{ROLE}: Create: only the provider refuses: MalformedPolicyDocument: not like this"


def test_ids_of_an_account_are_translated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The replay has its own ids, and references to them are translated."""
    text = RECORDING.read_text(encoding="utf-8").replace("vpc-00000000000000001", "vpc-0a1b2c3d4e5f60718")
    code, lines = told([json.loads(line) for line in text.splitlines()], tmp_path, capsys)
    assert (code, lines[:-1]) == (0, [])


def test_redacted_secrets_and_older_engines_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A redacted value never differs, and lines without progress or type are read as calls."""
    calls = entries()
    for entry in calls:
        entry.pop("progress")
        if entry["method"].endswith(("Check", "Create", "Diff")):
            entry["request"].pop("type")
        if entry["method"].endswith("Check") and "::aws:ec2/vpc:Vpc::" in entry["request"]["urn"].replace("$", "::"):
            entry["response"]["inputs"]["cidrBlock"] = "[secret]"
    assert told(calls, tmp_path, capsys)[0] == 0


@pytest.mark.parametrize("text", ["not json\n", '{"no": "method"}\n', "[1]\n"])
def test_a_file_that_is_not_a_recording_is_rejected(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has file and line, and how to make a recording."""
    file = tmp_path / "other"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert f"{file}:1 is not a line that PULUMI_DEBUG_GRPC writes" in capsys.readouterr().err
    assert main([str(tmp_path / "missing")]) == 2
    assert main([]) == 2
