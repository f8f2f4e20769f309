"""`gpuinfra explain` explains every name that a finding or a table shows."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpuinfra.base.shipped import shipped
from gpuinfra.cli import main
from gpuinfra.cli.explain import command
from gpuinfra.node.checks import ALL
from gpuinfra.node.xids import XIDS


def _explained(word: str) -> str:
    """The output of the command for a name."""
    return CliRunner().invoke(command, [word], standalone_mode=False, catch_exceptions=False).output


@pytest.mark.parametrize("check", ALL.values(), ids=list(ALL))
def test_check_is_explained_by_id_and_by_name(check) -> None:
    """A check's ID and its name print the same text: meaning, commands, severity, action and source."""
    text = _explained(check.id.lower())
    assert text.startswith(f"check {check.id} {check.name}")
    assert f"severity {check.severity.value}: " in text
    assert text.count("\n  runs     ") == len(check.probes)
    assert f"action   {check.hint}" in text
    assert check.source
    assert f"source   {check.source}" in text
    assert text in _explained(check.name)


@pytest.mark.parametrize("script", sorted(shipped("bootstrap").glob("[0-9]*.sh")), ids=lambda path: path.stem)
def test_step_is_explained_by_the_header_of_its_script(script) -> None:
    """A step's name, with or without its number, prints the header of its script as its meaning, as for a field or a check."""
    text = _explained(script.stem)
    assert text.splitlines()[1].startswith("  meaning ")
    assert "Proves: " in text
    assert "#" not in text
    assert _explained(script.name) == text
    assert text in _explained(script.stem.split("-", 1)[1])


def test_xid_is_explained() -> None:
    """Xids in the table print their meaning; any other number is explained as unknown."""
    assert XIDS[79].meaning in _explained("xid-79")
    assert _explained("Xid 79") == _explained("xid79")
    assert "not in the table" in _explained("xid-4711")


def test_name_with_several_meanings_prints_all_of_them() -> None:
    """`burn_in` prints both the field and the check."""
    assert "handover.burn_in" in _explained("burn_in")
    assert "check B6" in _explained("burn_in")


def test_unknown_name_suggests_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled name exits with code 2 and suggests the right name."""
    assert main(["explain", "pcie_lnk"]) == 2
    assert "did you mean pcie_link?" in capsys.readouterr().err
