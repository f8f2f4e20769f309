from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.cli import main
from gpuinfra.cli.plan import compared
from gpuinfra.report import plan_diff_text, tables
from gpuinfra.report.plan_diff import ACTIONS, PlanDiff, PropertyChange, ResourceChange, field_changes
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal import changes
from tests.clouds.stacks import TODAY

FILE = shipped("stacks") / "Pulumi.aws-p4d.yaml"
ROOT = Path(__file__).parents[2]
FOUND = (
    ResourceChange(
        action="replaced",
        type="aws:fsx/lustreFileSystem:LustreFileSystem",
        name="train-scratch-0-lustre",
        properties=(
            *(PropertyChange(path=f"tags.t{at}", old=None, new="x" * 90, replaces=False) for at in range(7)),
            PropertyChange(path="storageCapacity", old=7200, new=4800, replaces=True),
        ),
    ),
    ResourceChange(action="retained", type="aws:s3/bucket:Bucket", name="train-data"),
)


@pytest.fixture
def diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanDiff:
    """A comparison with known resources."""
    monkeypatch.setattr(changes, "resource_changes", lambda *_: FOUND)
    old = tmp_path / FILE.name
    old.write_text(FILE.read_text().replace("4800", "7200").replace("where:", "budget: {recipients: [ops@example.com]}\n    where:"))  # fmt: skip
    return compared(FILE, old, "main", TODAY)


def test_a_comparison_has_the_documented_keys(diff: PlanDiff) -> None:
    """The JSON document has the documented keys, both prices, and the findings that only one declaration has."""
    answer: Any = diff.as_dict()
    text = (ROOT / "docs/reference/plan-json.md").read_text().partition("## `--diff --json`")[2]
    assert json.loads(json.dumps(answer)) == answer
    for key in (
        *answer,
        *answer["price"],
        *answer["findings"],
        *answer["resources"][0],
        *answer["resources"][0]["properties"][0],
        *ACTIONS,
    ):  # type: ignore[misc, index]
        assert f"`{key}`" in text, key
    assert answer["counts"] == {"replaced": 1, "retained": 1}
    assert {one.path for one in diff.fields} == {"storage[/scratch].capacity_gib", "budget"}
    assert [one.path for one in diff.appeared] == ["budget.recipients"]
    assert diff.resolved == ()
    assert diff.old.cost is not None
    assert diff.new.cost is not None
    old, new = (one.cost.usd_per_hour for one in (diff.old, diff.new) if one.cost)
    lines = {one.what: (one.old_usd_per_hour, one.new_usd_per_hour) for one in diff.prices}
    assert sum((after or 0) - (before or 0) for before, after in lines.values()) == pytest.approx(new - old)
    assert len(lines) == 2


def test_the_text_lists_inputs_that_replace_first_and_explains_the_actions(diff: PlanDiff) -> None:
    """A replacement names its cause before other inputs, and the meaning of each action that occurs is stated."""
    text = plan_diff_text.text(diff)
    assert "resources: 1 replaced, 1 retained" in text
    lines = text.splitlines()
    at = lines.index("  +- aws:fsx/lustreFileSystem:LustreFileSystem train-scratch-0-lustre")
    assert lines[at + 1] == "       storageCapacity: 7200 -> 4800 (replaces)"
    assert lines[at + 2].startswith("       tags.t0: not set -> ")
    assert "  -  aws:s3/bucket:Bucket train-data (retained)" in lines
    assert "and 2 more" in text
    assert "x" * 61 not in text
    assert "Its data is lost" in text
    assert "continues to incur costs" in text
    assert "A removed resource" not in text
    assert "USD a month (-" in text


def test_signs_have_the_colors_of_a_preview(diff: PlanDiff, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal with colors, a replacement is red and a retained resource is yellow."""
    monkeypatch.setattr(tables, "has_color", lambda: True)
    text = plan_diff_text.text(diff)
    assert "  \x1b[31m+-\x1b[0m aws:fsx/" in text
    assert "  \x1b[33m- \x1b[0m aws:s3/" in text


def test_markdown_shows_text_of_a_stack_file_as_text() -> None:
    """Markup, HTML, mentions, pipes and backticks in a cell have no effect on the comment."""
    table = Table(["a", Column("b", right=True)], [("<img> @team |x| *b*", Cell("a|`b`", code=True)), ("1", "2")])
    assert tables.markdown(table, 1) == [
        "| a | b |",
        "| --- | ---: |",
        "| &lt;img&gt; &#64;team \\|x\\| \\*b\\* | `a\\|'b'` |",
    ]


def test_markdown_is_limited_and_contains_the_findings(diff: PlanDiff) -> None:
    """A comment has at most 100 rows for each table and states how many are missing."""
    many = replace(diff, resources=FOUND * 80)
    text = plan_diff_text.markdown(many)
    assert len(text) < 65_536
    assert "60 more rows" in text
    assert "**new findings**" in text
    assert "`budget.recipients`" in text


def test_declared_fields_are_compared_by_name() -> None:
    """An inserted pool is one change, and a pool that moved is none."""
    pool = {"machine": "p4d.24xlarge", "capacity": [{"kind": "spot", "count": 2}]}
    base = {"name": "train", "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"}}
    old = parse_spec({**base, "pools": [{"name": "a", **pool}]})
    new = parse_spec({**base, "pools": [{"name": "b", **pool}, {"name": "a", **pool}]})
    (change,) = field_changes(old, new)
    assert change.path == "pools[b]"
    assert change.old is None
    assert change.new["machine"] == "p4d.24xlarge"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--markdown"], "--markdown prints the comparison of --diff"),
        (["--diff", "aws-p4d", "--markdown", "--json"], "--markdown prints the comparison of --diff"),
        (["--diff", "aws-p4d", "--why"], "--diff prints only the comparison"),
        (["--diff", "aws-p4d", "--live"], "--diff prints only the comparison"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that would have no effect is a usage error."""
    assert main(["plan", "aws-p4d", *words]) == 2
    assert error in capsys.readouterr().err


def test_an_invalid_declaration_on_either_side_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the new declaration are findings with exit code 1. Errors of the old one are the reason why resources are not compared."""
    wrong = tmp_path / FILE.name
    wrong.write_text(FILE.read_text().replace("p4d.24xlarge", "p9.giant"))
    assert main(["plan", str(wrong), "--diff", "aws-p4d"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"new: {wrong}:")
    assert "error: pools[0].machine is 'p9.giant'" in shown.err
    assert "there is no plan" in shown.out
    assert main(["plan", "aws-p4d", "--diff", str(wrong), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["resources"] is None
    assert "has errors" in answer["resources_reason"]
    assert answer["price"]["old"] is None
