"""`gpuinfra explain` knows every word that a finding or a table shows."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpuinfra.cli import main
from gpuinfra.cli.explain import command
from gpuinfra.node.checks import ALL
from gpuinfra.node.xids import XIDS
from gpuinfra.shipped import shipped


def said(word: str) -> str:
    """What the command prints about a word."""
    return CliRunner().invoke(command, [word], standalone_mode=False, catch_exceptions=False).output


@pytest.mark.parametrize("check", ALL.values(), ids=list(ALL))
def test_a_check_tells_what_it_asks_how_bad_it_is_and_what_to_do(check) -> None:
    """By its id or its name, the same text: purpose, command, severity and what a person does."""
    text = said(check.id.lower())
    assert text.startswith(f"check {check.id} {check.name}")
    assert f"severity {check.severity.value}: " in text
    assert text.count("  asks: ") == len(check.probes)
    assert f"to do: {check.hint}" in text
    assert text in said(check.name)


@pytest.mark.parametrize("script", sorted(shipped("bootstrap").glob("[0-9]*.sh")), ids=lambda path: path.stem)
def test_a_step_tells_what_its_script_says_of_itself(script) -> None:
    """The head of the script, with what it reads and what it proves, by its name with and without the number."""
    text = said(script.stem)
    assert "Proves: " in text
    assert "#" not in text
    assert said(script.name) == text
    assert text in said(script.stem.split("-", 1)[1])


def test_an_xid_tells_its_meaning_and_what_to_do() -> None:
    """Numbers of the table, and any other."""
    assert XIDS[79].meaning in said("xid-79")
    assert said("Xid 79") == said("xid79")
    assert "not in the table" in said("xid-4711")


def test_a_word_with_several_meanings_gets_all_of_them() -> None:
    """`burn_in` is a field and a check."""
    assert "handover.burn_in" in said("burn_in")
    assert "check B6" in said("burn_in")


def test_a_word_that_nobody_knows_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen is answered with the right word."""
    assert main(["explain", "pcie_lnk"]) == 2
    assert "did you mean pcie_link?" in capsys.readouterr().err
