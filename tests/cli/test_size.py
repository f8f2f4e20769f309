"""`gpuinfra size`: output, files and errors of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuinfra.cli import cli, main
from gpuinfra.sizing.throughput import NOTHING_NEAR

JOB = ("size", "--model", "llama-2-13b", "--tokens", "2T", "--days", "90")


def run(*words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, [*words])


@pytest.fixture(scope="module")
def answer() -> dict[str, object]:
    """The JSON answer."""
    found: dict[str, object] = json.loads(run(*JOB, "--json").stdout)
    return found


def test_the_table_shows_machines_days_and_price() -> None:
    """Each row has the machine, the days by wall time and the price."""
    shown = run(*JOB).stdout
    for words in (
        "days by wall time",
        "tokens/s while training",
        "limited by",
        "cheapest",
        "fastest",
        "mix",
        "checkpoint",
        "commit",
    ):
        assert words in shown


def test_json_has_ranges_and_sources(answer: dict[str, object]) -> None:
    """Each candidate has ranges from low to high, and the source of each number."""
    rows = answer["candidates"]
    assert isinstance(rows, list)
    for row in rows[:20]:
        for name in ("tokens_per_s", "wall_tokens_per_s", "days", "usd"):
            assert row[name]["low"] <= row[name]["middle"] <= row[name]["high"]
        labels = {entry["number"] for entry in row["why"]}
        assert {
            "model",
            "memory",
            "recipe",
            "layout",
            "throughput",
            "price",
            "checkpoint",
            "failures",
            "storage",
            "energy",
        } <= labels


def test_why_shows_the_source_of_a_row() -> None:
    """`--why --row 3` explains the third candidate."""
    shown = run(*JOB, "--why", "--row", "3").stdout
    assert "sources of row 3" in shown
    assert "arXiv 1910.02054" in shown
    assert "interpolated" in shown


def test_the_page_has_a_plot(tmp_path: Path) -> None:
    """`--html` writes a page with a plot of price against time."""
    page = tmp_path / "size.html"
    assert run(*JOB, "--html", str(page)).exit_code == 0
    text = page.read_text()
    assert "<svg" in text
    assert "days by wall time" in text


@pytest.mark.parametrize(("machine", "near"), [("p5.48xlarge", True), ("g5.12xlarge", False)])
def test_inference_says_where_no_decode_time_is_near(machine: str, near: bool) -> None:
    """The range is wide on GPUs for which no decode times are recorded, and the answer says so."""
    words = ("size", "--model", "llama-3.1-8b", "--goal", "inference", "--concurrency", "8", "--machine", machine)
    assert (NOTHING_NEAR not in run(*words).stdout) == near


def test_leaving_a_source_out_changes_the_answer(answer: dict[str, object]) -> None:
    """`--without` removes the rows of a publisher."""
    other = json.loads(run(*JOB, "--json", "--without", "megatron-bridge").stdout)
    assert other["candidates"][0]["tokens_per_s"] != answer["candidates"][0]["tokens_per_s"]  # type: ignore[index]


def test_init_writes_a_stack_with_the_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--init` writes the stack of a row, and `gpuinfra plan` shows what it does."""
    monkeypatch.chdir(tmp_path)
    assert run(*JOB, "--capacity", "on_demand", "--cloud", "aws", "--init").exit_code == 0
    shown = run("plan", "Pulumi.train.yaml").stdout
    assert "USD per billion tokens" in shown
    assert "llama-2-13b, pretrain" in shown


def test_init_does_not_replace_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An existing stack file needs --force or another name."""
    monkeypatch.chdir(tmp_path)
    Path("Pulumi.train.yaml").write_text("config: {}\n")
    assert main([*JOB, "--init"]) == 2
    assert "use a different --name or --output, or add --force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("size",), "--model is missing"),
        (("size", "--model", "7B"), "--tokens is 0"),
        (("size", "--model", "7B", "--tokens", "1B", "--examples", "5"), "both set"),
        (("size", "--model", "7B", "--tokens", "1B", "--rank", "8"), "--rank has no effect"),
        (("size", "--model", "7B", "--tokens", "1B", "--context", "8"), "--context has no effect"),
        (("size", "--model", "7B", "--tokens", "1B", "--epochs", "2"), "--epochs has no effect"),
        (("size", "--model", "7B", "--tokens", "1B", "--without", "no-source"), "--without is 'no-source'"),
        (("size", "--model", "7B", "--tokens", "1B", "--row", "9999"), "--row is 9999"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[1:])[:40],
)
def test_a_wrong_option_gives_one_error(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option and the fix, with exit code 2."""
    assert main([*words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_models_are_listed() -> None:
    """`--list-models` prints the names that `--model` accepts."""
    assert "llama-2-13b" in run("size", "--list-models").stdout
