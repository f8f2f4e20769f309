"""Removal of old engines from the cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpuinfra.engine import entries, keep
from gpuinfra.engine.module import CLI, HOST, Module

BOTH = (CLI, HOST)


def module(digest: str, folder: Path) -> Module:
    """Sources with this checksum."""
    return Module(folder=folder, version="3.259.0", go="1.26", digest=digest * 16)


def engine(cache: Path, digest: str, days: float, programs: tuple[str, ...] = BOTH) -> Path:
    """A complete cached engine, last used this many days ago."""
    folder = cache / "engine" / module(digest, cache).key(programs)
    folder.mkdir(parents=True)
    (folder / "pulumi").write_text("a program")
    stat = (folder / "pulumi").stat()
    (folder / keep.MARKER).write_text(
        f'{{"files": {{"pulumi": {{"size": {stat.st_size}, "mtime_ns": {stat.st_mtime_ns}}}}}}}'
    )
    moment = time.time() - days * 86_400
    os.utime(folder / keep.MARKER, (moment, moment))
    return folder


def test_newest_two_of_a_kind_are_kept(tmp_path: Path) -> None:
    """Older engines of the same kind are removed, whatever their names are; other kinds are not touched."""
    new, old, older, oldest = (engine(tmp_path, d, n) for d, n in (("b", 2), ("d", 3), ("a", 4), ("c", 50)))
    other = engine(tmp_path, "e", 90, (HOST,))
    assert set(keep.prune(tmp_path, module("b", tmp_path), BOTH)) == {older, oldest}
    assert [path.exists() for path in (new, old, older, oldest, other)] == [True, True, False, False, True]
    assert keep.prune(tmp_path, module("b", tmp_path), BOTH) == []


def test_engines_used_today_are_kept(tmp_path: Path) -> None:
    """Three checkouts in use keep their three engines; using an engine updates its time."""
    folders = [engine(tmp_path, digest, days) for digest, days in (("a", 5), ("b", 6), ("c", 7), ("d", 8))]
    assert keep.kept(tmp_path, module("d", tmp_path), BOTH) == folders[3]
    assert keep.prune(tmp_path, module("a", tmp_path), BOTH) == [folders[1], folders[2]]


def test_locked_engine_is_kept(tmp_path: Path) -> None:
    """A folder whose lock is held is not removed."""
    folders = [engine(tmp_path, digest, days) for digest, days in (("a", 5), ("b", 6), ("c", 7))]
    with keep.lock(tmp_path, module("c", tmp_path), BOTH, lambda line: None):
        assert keep.prune(tmp_path, module("a", tmp_path), BOTH) == []
    assert folders[2].exists()


def test_a_folder_that_disappears_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that another process removes while the size is computed does not count, and is no error."""
    (tmp_path / "kept").write_text("text" * 4000)
    (tmp_path / "gone" / "inner").mkdir(parents=True)
    expected = entries.size_of(tmp_path) - entries.size_of(tmp_path / "gone")
    scandir = os.scandir

    def removed(path: str | Path | int) -> object:
        if not isinstance(path, int) and Path(path).name == "gone":
            (tmp_path / "gone" / "inner").rmdir()
            (tmp_path / "gone").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed)
    assert entries.size_of(tmp_path) == expected
