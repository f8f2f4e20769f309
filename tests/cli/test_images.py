"""`gpuinfra images`: the release of each pool, and newer releases."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from gpuinfra.cli.images import command
from gpuinfra.software.images import changes

ROOT = Path(__file__).parents[2]


def _run(tmp_path: Path, image: str, *options: str) -> str:
    text = (ROOT / "stacks/Pulumi.azure-ndv4.yaml").read_text()
    first, found, rest = text.partition("\n    pools:")
    assert found
    path = tmp_path / "Pulumi.azure-ndv4.yaml"
    path.write_text(f"{first}\n    software: {{os: ubuntu-24.04, image: {image}}}{found}{rest}")
    result = CliRunner().invoke(command, [str(path), *options], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.output


def test_a_newer_release_is_shown_with_what_it_changes(tmp_path: Path) -> None:
    """For a pinned release, each newer release lists the changed packages, its source, and the field to change."""
    text = _run(tmp_path, "2026-05-26")
    assert "release  2026-05-26; driver 580.126.20" in text
    assert "newer    2026-07-29: driver 580.126.20 -> 580.173.02" in text
    assert "Azure/azhpc-images:versions.json at tag ubuntu-hpc-2026072901; read 2026-11-22" in text
    assert "CUDA" not in text.splitlines()[2]
    assert "set software.image to 2026-07-29 and run `pulumi up`" in text


def test_the_newest_recorded_release_has_no_newer_one(tmp_path: Path) -> None:
    """The newest recorded release states that none is newer; without a date, the first deployment decides."""
    assert "no newer release is recorded" in _run(tmp_path, "2026-07-29")
    assert "the newest at the first deployment; newest recorded release 2026-07-29" in _run(tmp_path, "default")


def test_the_json_output_has_the_same_facts(tmp_path: Path) -> None:
    """The changes are pairs of versions by package; an unrecorded release has unknown old versions."""
    (pool, *_) = json.loads(_run(tmp_path, "2026-06-01", "--json"))["pools"]
    (newer,) = pool["newer"]
    assert (pool["date"], newer["date"]) == ("2026-06-01", "2026-07-29")
    assert newer["changes"]["driver"] == ["", "580.173.02"]


def test_changes_name_only_what_differs() -> None:
    """Equal versions and packages that the newer record does not state are left out."""
    assert changes({"driver": "1", "cuda": "2", "dcgm": "3"}, {"driver": "1", "cuda": "4", "kernel": "5"}) == {
        "kernel": ("", "5"),
        "CUDA": ("2", "4"),
    }
