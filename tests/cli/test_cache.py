"""`gpuinfra cache`: what it shows, and what `clean` removes and keeps."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from pathlib import Path

import pytest

from gpuinfra.bundle import Bundle, on_disk
from gpuinfra.cli import main
from gpuinfra.clouds.preflight import RowState
from gpuinfra.doctor import machine
from gpuinfra.engine import entries
from gpuinfra.engine.keep import MARKER
from gpuinfra.engine.module import CLI, HOST, read_module
from gpuinfra_rehearsal import kept

BOTH = (CLI, HOST)
ENDING = read_module().ending(BOTH)


class Home:
    """A cache and a folder with rehearsals."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.folder = folder / "cache", folder / ".rehearsal"

    def engine(self, name: str, days: float) -> Path:
        """An engine that was last used this many days ago."""
        path = self.cache / "engine" / f"{name}{ENDING}"
        path.mkdir(parents=True)
        (path / "pulumi").write_bytes(b"x" * 100_000)
        (path / MARKER).write_text("{}")
        return self.aged(path / MARKER, days).parent

    def bundle(self, name: str, days: float, size: int = 10) -> Path:
        """A bundle that was last used this many days ago."""
        path = self.cache / "bundles" / f"{name}.tar.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        return self.aged(path, days)

    def rehearsal(self, stack: str, *, state: bool = True) -> Path:
        """A rehearsal that no process uses."""
        path = self.folder / stack
        (path / "project").mkdir(parents=True)
        (path / "project" / "Pulumi.yaml").write_text("name: x\n")
        if state:
            (path / "state").mkdir()
        return path

    @staticmethod
    def aged(path: Path, days: float) -> Path:
        """The file with an older time."""
        moment = time.time() - days * 86_400
        os.utime(path, (moment, moment))
        return path

    @property
    def current(self) -> str:
        """Start of the name of the engine that this version uses."""
        module = read_module()
        return f"{module.version}-{module.digest[:12]}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty cache and the folder of no rehearsal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    return Home(tmp_path)


def test_show_lists_each_kind_with_its_size(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Each engine and rehearsal has a row with size and reason, bundles have one row together, and the total is the sum."""
    home.engine(home.current, 9)
    home.engine("3.1.0-aaaaaaaaaaaa", 9)
    home.bundle("a", 0)
    home.bundle("b", 5)
    home.rehearsal("train")
    assert main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: " ".join(line.split()) for line in lines if line.startswith("  ")}
    assert rows[f"{home.current}{ENDING}"].endswith("current version")
    assert rows[f"3.1.0-aaaaaaaaaaaa{ENDING}"].startswith(f"engine 3.1.0-aaaaaaaaaaaa{ENDING} 0.1 MB ")
    assert "in the last day" not in rows[f"3.1.0-aaaaaaaaaaaa{ENDING}"]
    assert rows["2"].startswith("bundle 2 files")
    assert rows["2"].endswith("1 used in the last day")
    assert rows["train"].startswith("rehearsal train")
    assert main(["cache", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "gpuinfra.cache/1"
    assert document["bytes"] == sum(one["bytes"] for one in document["entries"])
    assert len(document["entries"]) == 5


def test_an_empty_cache_is_not_an_error(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cache, nothing is listed and nothing is removed."""
    assert main(["cache"]) == 0
    assert "empty" in capsys.readouterr().out
    assert main(["cache", "clean", "--all"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_clean_removes_what_is_not_in_use(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The current engine, recent entries and rehearsals stay. Engines of other versions and old bundles are removed."""
    kept = [
        home.engine(home.current, 9),
        home.engine("3.2.0-bbbbbbbbbbbb", 0.5),
        home.bundle("a", 0),
        home.rehearsal("t"),
    ]
    gone = [home.engine("3.1.0-aaaaaaaaaaaa", 9), home.bundle("b", 5)]
    assert main(["cache", "clean", "--dry-run"]) == 0
    assert "would free" in capsys.readouterr().out
    assert all(path.exists() for path in (*kept, *gone))
    assert main(["cache", "clean"]) == 0
    out = capsys.readouterr().out
    assert [path.exists() for path in kept] == [True] * 4
    assert [path.exists() for path in gone] == [False] * 2
    assert f"removed: {gone[0]} (0.1 MB)" in out
    assert "removed: 1 bundles" in out
    assert "freed: 0.1 MB" in out


@pytest.mark.parametrize(
    ("option", "removed"), [("--engines", {"engine"}), ("--bundles", {"bundle"}), ("--rehearsals", {"rehearsal"})]
)
def test_an_option_selects_a_kind(option: str, removed: set[str], home: Home) -> None:
    """Only the selected kind is removed."""
    found = {
        "engine": home.engine("3.1.0-aaaaaaaaaaaa", 9),
        "bundle": home.bundle("b", 5),
        "rehearsal": home.rehearsal("train"),
    }
    assert main(["cache", "clean", option]) == 0
    assert {kind for kind, path in found.items() if not path.exists()} == removed


def test_all_removes_everything_that_no_process_uses(home: Home) -> None:
    """`--all` removes the current engine and recent entries, but not a locked engine or a running rehearsal."""
    gone = [home.engine(home.current, 0), home.bundle("a", 0), home.rehearsal("done")]
    locked, running = home.engine("3.2.0-bbbbbbbbbbbb", 9), home.rehearsal("running")
    with (
        locked.with_name(f"{locked.name}.lock").open("a+") as one,
        (running / "lock").open("a+") as other,
    ):
        for file in (one, other):
            fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["cache", "clean", "--all"]) == 0
        assert [path.exists() for path in gone] == [False] * 3
        assert locked.exists()
        assert running.exists()
    assert main(["cache", "clean", "--all"]) == 0
    assert not locked.exists()
    assert not running.exists()


def test_clean_does_not_list_a_locked_engine(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that is being built or used is not among what `clean` would remove."""
    locked = home.engine("3.2.0-bbbbbbbbbbbb", 9)
    with locked.with_name(f"{locked.name}.lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["cache", "clean", "--dry-run"]) == 0
        assert capsys.readouterr().out == "nothing to remove\n"
        assert main(["cache"]) == 0
        assert "in use" in capsys.readouterr().out


def test_a_stack_in_the_state_of_a_running_one_is_in_use(home: Home) -> None:
    """While a foundation is rehearsed, the folder of a stack that has its state there stays."""
    base, user = home.rehearsal("base"), home.rehearsal("user", state=False)
    with (base / "lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["cache", "clean", "--rehearsals"]) == 0
        assert user.exists()
    assert main(["cache", "clean", "--rehearsals"]) == 0
    assert not user.exists()


def test_a_folder_of_another_program_is_not_a_rehearsal(home: Home) -> None:
    """Only folders with the project of a rehearsal are removed."""
    (home.folder / "mine").mkdir(parents=True)
    assert main(["cache", "clean", "--all"]) == 0
    assert (home.folder / "mine").exists()


def test_a_limit_removes_the_oldest_first(home: Home) -> None:
    """Only as much as necessary is removed, least recently used first."""
    old, older = home.bundle("old", 5, 400_000), home.bundle("older", 6, 400_000)
    assert main(["cache", "clean", "--limit", "0.0005"]) == 0
    assert old.exists()
    assert not older.exists()
    assert main(["cache", "clean", "--limit", "0.0005"]) == 0
    assert old.exists()


def test_more_than_the_limit_is_a_warning(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the cache and the rehearsals together exceed the limit, `cache` and `doctor` state both sizes and the commands that remove data."""
    home.engine(home.current, 0)
    (home.rehearsal("train") / "state" / "x").write_bytes(b"x" * 1_500_000)
    assert main(["cache"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("GPUINFRA_CACHE_LIMIT_GB", "0.001")
    assert main(["cache"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r": 0\.\d MB in .*/cache and 1\.\d MB in \.rehearsal exceed the limit of 1\.0 MB;", line)
    assert "`gpuinfra cache clean --rehearsals`" in line
    (row,) = machine.size(home.cache, home.folder, kept.size(home.folder))
    assert (row.state, row.topic) == (RowState.WARN, "disk")
    monkeypatch.setenv("GPUINFRA_CACHE_LIMIT_GB", "1")
    assert list(machine.size(home.cache, home.folder, kept.size(home.folder))) == []


@pytest.mark.parametrize("value", ["much", "-1", "nan", "inf"])
def test_a_limit_that_is_no_size_is_an_error(
    value: str, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that is not a number of gigabytes is a usage error with the allowed values."""
    monkeypatch.setenv("GPUINFRA_CACHE_LIMIT_GB", value)
    assert main(["cache"]) == 2
    assert f"GPUINFRA_CACHE_LIMIT_GB is '{value}'; allowed: a number of gigabytes" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--engines"], ["show", "--all"], ["--limit", "1"], ["show", "--dry-run"]])
def test_options_without_clean_are_an_error(words: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that selects what to remove has no effect on `show`, so it is refused."""
    assert main(["cache", *words]) == 2
    assert "gpuinfra cache clean" in capsys.readouterr().err


def test_bundles_are_limited_when_one_is_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new bundle removes the oldest ones above the limit, but none that was used in the last day."""
    monkeypatch.setattr(entries, "BUNDLES_LIMIT", 500_000)
    recent, old, older = (home.bundle(name, days, 400_000) for name, days in (("a", 0.5), ("b", 5), ("c", 6)))
    path = on_disk(Bundle(data=b"new", sha256="new"))
    assert [one.exists() for one in (path, recent, old, older)] == [True, True, False, False]


def test_a_bundle_is_recognized_by_its_content(home: Home) -> None:
    """A file with the right name and size but another content is written again. A used bundle gets the time of its use."""
    path = home.bundle("new", 9, 3)
    bundle = Bundle(data=b"new", sha256="new")
    assert on_disk(bundle) == path
    assert path.read_bytes() == b"new"
    home.aged(path, 9)
    on_disk(bundle)
    assert time.time() - path.stat().st_mtime < 86_400
