"""Engines that were kept and are not needed any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpuinfra.engine import keep
from gpuinfra.engine.module import CLI, HOST, Module

BOTH = (CLI, HOST)


def module(digest: str, folder: Path) -> Module:
    """Sources that differ in their checksum."""
    return Module(folder=folder, version="3.259.0", go="1.26", digest=digest * 16)


def engine(cache: Path, digest: str, days: float, programs: tuple[str, ...] = BOTH) -> Path:
    """A whole kept engine that was last asked for so many days ago."""
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


def test_the_newest_two_of_a_kind_stay(tmp_path: Path) -> None:
    """Older engines go, whatever the order of their names; engines of another kind are none of this one's business."""
    new, old, older, oldest = (engine(tmp_path, d, n) for d, n in (("b", 2), ("d", 3), ("a", 4), ("c", 50)))
    other = engine(tmp_path, "e", 90, (HOST,))
    assert set(keep.prune(tmp_path, module("b", tmp_path), BOTH)) == {older, oldest}
    assert [path.exists() for path in (new, old, older, oldest, other)] == [True, True, False, False, True]
    assert keep.prune(tmp_path, module("b", tmp_path), BOTH) == []


def test_what_was_in_use_today_stays(tmp_path: Path) -> None:
    """Three checkouts that are all worked with keep their three engines; asking for one makes it young again."""
    folders = [engine(tmp_path, digest, days) for digest, days in (("a", 5), ("b", 6), ("c", 7), ("d", 8))]
    assert keep.kept(tmp_path, module("d", tmp_path), BOTH) == folders[3]
    assert keep.prune(tmp_path, module("a", tmp_path), BOTH) == [folders[1], folders[2]]


def test_an_engine_that_somebody_builds_is_left_alone(tmp_path: Path) -> None:
    """Who holds the lock of a folder keeps it."""
    folders = [engine(tmp_path, digest, days) for digest, days in (("a", 5), ("b", 6), ("c", 7))]
    with keep.lock(tmp_path, module("c", tmp_path), BOTH, lambda line: None):
        assert keep.prune(tmp_path, module("a", tmp_path), BOTH) == []
    assert folders[2].exists()
