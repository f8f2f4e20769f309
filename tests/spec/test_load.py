from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from pydantic import Field, create_model

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.base.findings import Level
from gpuinfra.reference.schema import FILE, text
from gpuinfra.rules import load_stack
from gpuinfra.spec.base import SpecModel
from gpuinfra.spec.load import find_stack, stack_name
from gpuinfra.spec.meanings import meaning

TODAY = date(2026, 11, 21)
ROOT = Path(__file__).parents[2]
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
GOOD = (ROOT / "stacks/Pulumi.aws-p4d.yaml").read_text()


@pytest.mark.parametrize("path", STACKS, ids=[stack_name(path) for path in STACKS])
def test_shipped_stacks_have_no_errors(path: Path) -> None:
    """Each shipped stack has no error and references the schema; the three basic ones have at most 20 lines."""
    stack = load_stack(path, TODAY)
    assert not [finding for finding in stack.findings if finding.level is Level.ERROR]
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# yaml-language-server: $schema=../gpuinfra/spec/schema.json")
    if stack.name in ("aws-p4d", "azure-ndv4", "gcp-a3mega"):
        assert len(lines) <= 20


def test_finding_has_the_line_of_its_value(tmp_path: Path) -> None:
    """A rule's finding has the line number of the value that it concerns."""
    path = tmp_path / "Pulumi.try.yaml"
    path.write_text(GOOD.replace("machine: p4d.24xlarge", "machine: p4d.24xlrage"))
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    finding = next(f for f in caught.value.findings if f.rule == "machine_is_known")
    assert finding.line == GOOD.splitlines().index("        machine: p4d.24xlarge") + 1
    assert "did you mean p4d.24xlarge?" in finding.hint


@pytest.mark.parametrize(
    ("provider", "declared", "messages"),
    [
        ("us-west-2", "us-east-1", ["3: error: aws:region is 'us-west-2', but where.region is 'us-east-1'; set it to us-east-1, or change where.region"]),
        ("us-eats-1", "us-east-1", ["3: error: aws:region is 'us-eats-1', but where.region is 'us-east-1'; did you mean us-east-1?"]),
        ("[us-east-1]", "us-east-1", ["3: error: aws:region is a list of length 1, but where.region is 'us-east-1'; did you mean us-east-1?"]),
        ("us-east-1", "us-eats-1", ["6: error: where.region is 'us-eats-1', which is not a valid AWS region; did you mean us-east-1?"]),
        ("us-eats-1", "us-eats-1", ["6: error: where.region is 'us-eats-1', which is not a valid AWS region; did you mean us-east-1?"]),
        ("us-wset-2", "us-eats-1", [("3: error: aws:region is 'us-wset-2', which "
            "is not a valid AWS region; did you mean us-west-2?"), ("6: error: where.region is 'us-eats-1', "
            "which is not a valid AWS region; did you mean us-east-1?")]),
    ],
)  # fmt: skip
def test_conflicting_regions_report_the_invalid_one(
    provider: str, declared: str, messages: list[str], tmp_path: Path
) -> None:
    """Each invalid region yields one message at its own line, without follow-up messages."""
    path = tmp_path / "Pulumi.try.yaml"
    text = GOOD.replace("aws:region: us-east-1", f"aws:region: {provider}")
    path.write_text(text.replace("{cloud: aws, region: us-east-1", f"{{cloud: aws, region: {declared}"))
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    usual = {finding.rule for finding in load_stack(ROOT / "stacks/Pulumi.aws-p4d.yaml", TODAY).findings}
    found = [finding for finding in caught.value.findings if finding.rule not in usual]
    assert [str(finding).removeprefix(f"{path}:") for finding in found] == messages


def test_the_declared_project_is_the_project_of_the_provider(tmp_path: Path) -> None:
    """`where.project` is a provider setting for all commands, and another `gcp:project` is one error at its line."""
    path = tmp_path / "Pulumi.lab.yaml"
    text = (ROOT / "stacks/Pulumi.gcp-a3mega.yaml").read_text()
    path.write_text(text.replace("where: {", "where: {project: declared, "))
    assert load_stack(path, TODAY).settings == {"gcp:region": "us-central1", "gcp:project": "declared"}
    path.write_text(path.read_text().replace("config:\n", "config:\n  gcp:project: other\n"))
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    (finding,) = (finding for finding in caught.value.findings if finding.level is Level.ERROR)
    assert (
        str(finding) == f"{path}:3: error: gcp:project is 'other', but where.project is 'declared'; remove one of them"
    )


def test_file_can_contain_the_declaration_alone(tmp_path: Path) -> None:
    """A file can contain the declaration without the structure of a Pulumi stack file."""
    path = tmp_path / "cluster.yaml"
    path.write_text("name: base\nwhere: {cloud: aws, region: us-east-1}\nbudget: {recipients: [a@b.co]}\n")
    stack = load_stack(path, TODAY)
    assert stack.spec.made_layers == ("foundation", "site")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("config: {}\n", ["has no gpuinfra:cluster"]),
        ("config: {gpuinfra:clustr: {name: x}}\n", ["rename gpuinfra:clustr to gpuinfra:cluster"]),
        ("config: 5\n", ["has no gpuinfra:cluster"]),
        ("", ["is empty"]),
    ],
)
def test_file_without_a_declaration_is_rejected(tmp_path: Path, content: str, words: list[str]) -> None:
    """A file without a declaration yields one message that names the expected key."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(content)
    with pytest.raises(SpecError) as caught:
        load_stack(path, TODAY)
    for word in words:
        assert word in str(caught.value)


def test_unknown_stack_suggests_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled stack name yields the nearest name and the list of stacks."""
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


def test_shipped_schema_is_current() -> None:
    """The shipped schema equals the schema of the models (`python -m gpuinfra.reference.schema` writes it)."""
    assert FILE.read_text() == text()


_BUILT = """
from gpuinfra.spec import read_stack
from gpuinfra.spec.base import SpecModel

def built(section):
    return [*([section.__name__] if section.__pydantic_complete__ else []), *(name for one in section.__subclasses__() for name in built(one))]

print(built(SpecModel), SpecModel.model_config.get("use_attribute_docstrings"))
read_stack("aws-p4d")
print(built(SpecModel))
"""


def test_a_stack_builds_one_validator() -> None:
    """Importing the sections builds no validator and parses no source code, and reading a stack builds only the validator of the
    declaration. Both are slow."""
    done = subprocess.run([sys.executable, "-c", _BUILT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] None", "['ClusterSpec']"]


def test_a_section_without_source_code_has_its_own_descriptions() -> None:
    """A field that a program creates has the description that it declares, or none, in messages and in the schema."""
    section = create_model(
        "Place", __base__=SpecModel, region=(str, Field(description="A region.")), zone=(str, ""), __module__="created"
    )
    assert (meaning(section, "region"), meaning(section, "zone")) == ("A region.", "")
    fields = section.model_json_schema()["properties"]
    assert fields["region"]["description"] == "A region."
    assert "description" not in fields["zone"]
    with pytest.raises(SpecError, match=r"region is missing; add it \(A region\)"):
        section()
