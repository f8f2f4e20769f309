from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from gpuinfra.errors import SpecError, UsageError
from gpuinfra.findings import Level
from gpuinfra.reference.schema import FILE, text
from gpuinfra.rules import load_stack
from gpuinfra.spec.load import find_stack, stack_name

TODAY = date(2026, 11, 21)
ROOT = Path(__file__).parents[2]
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
GOOD = (ROOT / "stacks/Pulumi.aws-p4d.yaml").read_text()


@pytest.mark.parametrize("path", STACKS, ids=[stack_name(path) for path in STACKS])
def test_every_stack_that_ships_can_be_built(path: Path) -> None:
    """Each shipped stack has at most 20 lines where the issue asks for it, no error, and points editors at the schema."""
    stack = load_stack(path, TODAY)
    assert not [finding for finding in stack.findings if finding.level is Level.ERROR]
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# yaml-language-server: $schema=../gpuinfra/spec/schema.json")
    if stack.name in ("aws-p4d", "azure-ndv4", "gcp-a3mega"):
        assert len(lines) <= 20


def test_a_finding_knows_its_line(tmp_path: Path) -> None:
    """A finding of a rule points at the line of the value it is about."""
    path = tmp_path / "Pulumi.try.yaml"
    path.write_text(GOOD.replace("machine: p4d.24xlarge", "machine: p4d.24xlrage"))
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    finding = next(f for f in caught.value.findings if f.rule == "machine_is_known")
    assert finding.line == GOOD.splitlines().index("        machine: p4d.24xlarge") + 1
    assert "did you mean p4d.24xlarge?" in finding.hint


@pytest.mark.parametrize(
    ("provider", "declared", "said"),
    [
        ("us-west-2", "us-east-1", ["3: error: aws:region is 'us-west-2', but where.region is 'us-east-1'; write us-east-1 here too, or change where.region"]),
        ("us-eats-1", "us-east-1", ["3: error: aws:region is 'us-eats-1', but where.region is 'us-east-1'; did you mean us-east-1?"]),
        ("us-east-1", "us-eats-1", ["6: error: where.region is 'us-eats-1', which is not a region of AWS; did you mean us-east-1?"]),
        ("us-eats-1", "us-eats-1", ["6: error: where.region is 'us-eats-1', which is not a region of AWS; did you mean us-east-1?"]),
        ("us-wset-2", "us-eats-1", ["3: error: aws:region is 'us-wset-2', which is not a region of AWS; did you mean us-west-2?", "6: error: where.region is 'us-eats-1', which is not a region of AWS; did you mean us-east-1?"]),
    ],
)  # fmt: skip
def test_regions_that_differ_blame_the_wrong_one(provider: str, declared: str, said: list[str], tmp_path: Path) -> None:
    """Two regions in one file are a slip: one message for each wrong one, at its own line, and none that follows from it."""
    path = tmp_path / "Pulumi.try.yaml"
    text = GOOD.replace("aws:region: us-east-1", f"aws:region: {provider}")
    path.write_text(text.replace("{cloud: aws, region: us-east-1", f"{{cloud: aws, region: {declared}"))
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    usual = {finding.rule for finding in load_stack(ROOT / "stacks/Pulumi.aws-p4d.yaml", TODAY).findings}
    found = [finding for finding in caught.value.findings if finding.rule not in usual]
    assert [str(finding).removeprefix(f"{path}:") for finding in found] == said


def test_a_declaration_alone_is_read_too(tmp_path: Path) -> None:
    """A file may hold the declaration without Pulumi's frame."""
    path = tmp_path / "cluster.yaml"
    path.write_text("name: base\nwhere: {cloud: aws, region: us-east-1}\nbudget: {recipients: [a@b.co]}\n")
    stack = load_stack(path, TODAY)
    assert stack.spec.made_layers == ("foundation", "site")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("config: {}\n", ["has no gpuinfra:cluster"]),
        ("config: {gpuinfra:clustr: {name: x}}\n", ["is gpuinfra:clustr meant to be gpuinfra:cluster?"]),
        ("config: 5\n", ["has no gpuinfra:cluster"]),
        ("", ["is empty"]),
    ],
)
def test_a_file_without_a_declaration_says_so(tmp_path: Path, content: str, words: list[str]) -> None:
    """A file that holds no declaration gets one message that says where it belongs."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(content)
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_stack_is_named_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack's name that is misspelt gets the nearest one and the list."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError, match="did you mean aws-p4d"):
        find_stack("aws-p4")
    with pytest.raises(UsageError, match="does not exist"):
        find_stack("nowhere/Pulumi.x.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        find_stack("./stacks")
    with pytest.raises(UsageError):
        find_stack("x" * 5000)
    with pytest.raises(UsageError):
        find_stack("a\0b")


def test_the_shipped_schema_is_current() -> None:
    """The schema that editors use is the one that the models give (`python -m gpuinfra.reference.schema` writes it)."""
    assert FILE.read_text() == text()
