"""Commands without the rehearsal, which is a distribution of its own."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuinfra.cli import main, rehearsals
from gpuinfra.cli.rehearsals import DISTRIBUTION, LABEL

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "stacks/Pulumi.aws-p4d.yaml").read_text(encoding="utf-8")
FROM_CLONE = f"run `pip install --no-deps {ROOT}/rehearsal`"


@pytest.fixture(autouse=True)
def _not_installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No distribution registers a rehearsal, or the one that a test names."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: getattr(request, "param", ()))


@pytest.mark.parametrize(
    "words",
    [
        ["rehearse", "up", "aws-p4d"],
        ["nodes", "aws-p4d", "--rehearsal"],
        ["run", "aws-p4d", "--rehearsal", "--", "true"],
        ["verify", "aws-p4d", "--rehearsal"],
        ["cache", "clean", "--rehearsals"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_command_that_needs_it_prints_the_install_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with the exit code of a missing prerequisite and one line with the path to install from."""
    assert main(words) == 3
    assert capsys.readouterr().err == f"gpuinfra: error: the rehearsal is not installed; {FROM_CLONE}\n"


def test_from_a_wheel_the_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside a clone, the command contains the name of the wheel file of the same version, with a folder."""
    monkeypatch.setattr(rehearsals, "__file__", str(tmp_path / "gpuinfra" / "cli" / "rehearsals.py"))
    file = f"gpuinfra_rehearsal-{importlib.metadata.version('gpuinfra')}{LABEL}-py3-none-any.whl"
    assert f"`pip install --no-deps FOLDER/{file}`" in rehearsals.not_installed()


@pytest.mark.parametrize(
    "_not_installed", [[SimpleNamespace(dist=SimpleNamespace(version=f"0.1.9{LABEL}"))]], indirect=True, ids=["0.1.9"]
)
def test_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A rehearsal of another version is not loaded, and the message names both versions."""
    assert main(["rehearse", "up", "aws-p4d"]) == 3
    ours = importlib.metadata.version("gpuinfra")
    expected = f"gpuinfra: error: {DISTRIBUTION} 0.1.9 is installed, but this is gpuinfra {ours}; {FROM_CLONE}\n"
    assert capsys.readouterr().err == expected


def test_cache_shows_and_cleans_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`gpuinfra cache` lists engines and bundles, and `clean --all` leaves rehearsals alone."""
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    bundle, project = tmp_path / "cache" / "bundles" / "a.tar.gz", tmp_path / "r" / "train" / "project"
    for file in (bundle, project / "Pulumi.yaml"):
        file.parent.mkdir(parents=True)
        file.write_text("x")
    assert main(["cache", "--json", "--folder", str(tmp_path / "r")]) == 0
    assert [entry["kind"] for entry in json.loads(capsys.readouterr().out)["entries"]] == ["bundle"]
    assert main(["cache", "clean", "--all", "--folder", str(tmp_path / "r")]) == 0
    assert (bundle.exists(), project.exists()) == (False, True)


def test_doctor_skips_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuinfra doctor` reports that the rehearsal is not installed, which is no problem, and asks nothing about its folder."""
    monkeypatch.setattr("gpuinfra.doctor.run.rows_of", lambda stack, more: [row for one in more for row in one.ask()])
    assert main(["doctor", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["topic"], row["state"], row["found"]) == ("rehearsal", "skipped", "not installed")
    assert f"run {row['fix']}" == FROM_CLONE


def test_a_comparison_says_why_it_has_no_resources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuinfra plan --diff` compares declaration and price, and gives the install command instead of the resources."""
    new = tmp_path / "Pulumi.try.yaml"
    new.write_text(GOOD.replace("capacity_gib: 4800", "capacity_gib: 9600"))
    assert main(["plan", str(new), "--diff", "aws-p4d", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [field["path"] for field in document["declaration"]] == ["storage[/scratch].capacity_gib"]
    assert (document["resources"], document["resources_reason"]) == (
        None,
        f"the rehearsal is not installed; {FROM_CLONE}",
    )
    assert main(["plan", str(new), "--diff", "aws-p4d"]) == 0
    assert FROM_CLONE in capsys.readouterr().out


def test_help_needs_no_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `rehearse` is the same without the rehearsal."""
    assert main(["rehearse", "--help"]) == 0
    assert "--under-least-permissions" in capsys.readouterr().out


def test_both_packages_have_one_version() -> None:
    """The rehearsal has the version of gpuinfra with the label, requires exactly this version, and is required exactly by the extra."""
    ours, theirs = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "rehearsal")
    )
    assert theirs["version"] == ours["version"] + LABEL
    assert theirs["dependencies"] == [f"gpuinfra=={ours['version']}"]
    assert ours["optional-dependencies"]["rehearsal"] == [f"{DISTRIBUTION}=={theirs['version']}"]
    assert "rehearsal" not in "".join(ours["optional-dependencies"]["all"])


BY_NAME = re.compile(r"install\b[^\n`]*(?<![\w/.-])(gpuinfra[-_]rehearsal(?!-\d)|[\"']?gpuinfra\[[\w,]*rehearsal)")


def test_no_text_installs_it_by_name() -> None:
    """Pages, messages and scripts contain only install commands with a path: a public index could have that name from somebody else."""
    folders = ("docs", "gpuinfra", "rehearsal", "examples", "tools", ".ci")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".yml", "")
    ]
    files += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    named = [path.name for path in files if path.is_file() and BY_NAME.search(path.read_text(encoding="utf-8"))]
    assert named == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install gpuinfra-rehearsal", True),
        ("pip install 'gpuinfra[aws,rehearsal]'", True),
        ("uv pip install gpuinfra_rehearsal", True),
        ("pip install --no-deps ./rehearsal", False),
        ("pip install dist/gpuinfra_rehearsal-0.2.0+unpublished-py3-none-any.whl", False),
    ],
)
def test_an_install_command_by_name_is_found(text: str, found: bool) -> None:
    """A name or an extra in an install command is found, a path is not."""
    assert bool(BY_NAME.search(text)) == found
