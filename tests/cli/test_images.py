"""`gpuinfra images`: the release of each pool, and newer releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuinfra.cli.images import command
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.software.images import changes
from tests.doctor.test_gcp_live import PATHS, PROJECT, Google, google, image

__all__ = ["google"]

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
    assert "Azure/azhpc-images:versions.json at tag ubuntu-hpc-2026072901; retrieved 2026-11-22" in text
    assert "CUDA" not in text.splitlines()[2]
    assert "set software.image to 2026-07-29 and run `pulumi up`" in text


def test_the_newest_recorded_release_has_no_newer_one(tmp_path: Path) -> None:
    """The newest recorded release states that none is newer; without a date, the first deployment decides."""
    assert "no newer release is recorded; use --live to query the cloud" in _run(tmp_path, "2026-07-29")
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


STACK = "gcp-a3mega"


def _live(tmp_path: Path, image: str, *options: str) -> str:
    text = (ROOT / f"stacks/Pulumi.{STACK}.yaml").read_text()
    first, found, rest = text.partition("\n    software: {")
    assert found
    path = tmp_path / f"Pulumi.{STACK}.yaml"
    text = f"{first}{found}os: ubuntu-24.04, image: {image}, {rest}"
    path.write_text(text.replace("config:\n", f"config:\n  gcp:project: {PROJECT}\n"))
    result = CliRunner().invoke(command, [str(path), "--live", *options], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.output


def _published(google: Google, day: str) -> None:
    google.answers[PATHS["image"]] = (200, image(name=f"ubuntu-accelerator-2404-amd64-with-nvidia-580-v{day}"))


def test_the_cloud_is_asked_for_a_newer_image(tmp_path: Path, google: Google) -> None:
    """With `--live`, an image that is newer than the record is shown with its driver branch; what no source states is not known."""
    _published(google, "20261015")
    text = _live(tmp_path, "2026-08-20")
    assert "ubuntu-accelerator-2404-amd64-with-nvidia-580-v20261015 is the newest image: " in text
    assert "driver 580.173.02 -> branch 580" in text
    assert "kernel not known -> not known" in text
    assert "DCGM not known -> not known" in text
    assert "set software.image to 2026-10-15 and run `pulumi up`" in text
    assert google.requests == [("GET", PATHS["image"])], "nothing else is asked"


def test_the_cloud_has_a_recorded_image(tmp_path: Path, google: Google) -> None:
    """If the newest image of the cloud is recorded, its recorded contents are compared, and the same release is not newer."""
    _published(google, "20260820")
    text = _live(tmp_path, "2026-04-18")
    assert "v20260820 is the newest image: driver branch 580 -> 580.173.02, kernel not known -> not known" in text
    assert "container toolkit not known -> 1.20.0" in text
    for declared in ("2026-08-20", "default", "2026-10-15"):
        assert "which is not newer than the release of this pool" in _live(tmp_path, declared)


def test_a_default_image_is_compared_with_the_release_of_the_plan(tmp_path: Path, google: Google) -> None:
    """Without a date, the plan uses the newest recorded release, so a newer one in the cloud is shown with its changes."""
    _published(google, "20261015")
    (pool, *_) = json.loads(_live(tmp_path, "default", "--json"))["pools"]
    assert pool["newest_in_cloud"] == {
        "ref": "projects/ubuntu-os-accelerator-images/global/images/ubuntu-accelerator-2404-amd64-with-nvidia-580-v20261015",
        "date": "2026-10-15",
        "newer": True,
        "changes": {"driver": ["580.173.02", "branch 580"], "kernel": ["", ""], "DCGM": ["", ""], "container toolkit": ["1.20.0", ""]},
    }  # fmt: skip


def test_an_image_whose_name_has_no_date_is_shown(tmp_path: Path, google: Google) -> None:
    """An image whose name has another form cannot be selected by its date."""
    google.answers[PATHS["image"]] = (200, image(name="ubuntu-accelerator-2404-amd64-with-nvidia-580-hotfix"))
    text = _live(tmp_path, "2026-08-20")
    assert "its name has no date, so set `image` to an object with `ref` to select it" in text
    assert "to use the release" not in text


def test_what_is_not_asked_is_stated(tmp_path: Path, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials, without an answer, or for an image without a family, the line states the reason, and the records are shown."""
    del google.answers[PATHS["image"]]
    assert "not queried: us-central1 has no image of this family" in _live(tmp_path, "2026-08-20")
    assert "the image is not a release of one of the cloud's GPU images" in _live(tmp_path, "plain")
    monkeypatch.delenv(gcp_credentials.TOKEN)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    text = _live(tmp_path, "2026-04-18")
    assert "not queried: no credentials" in text
    assert "fix: run `gcloud auth application-default login`" in text
    assert "newer    2026-08-20: driver unknown -> 580.173.02" in text
