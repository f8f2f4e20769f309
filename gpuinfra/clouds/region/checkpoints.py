"""Finds the newest complete checkpoint in a replica, from the names of the objects that complete a checkpoint (`recovery.checkpoints`).

A cloud replicates objects in any order, so the object that completes a checkpoint can be in the replica before its files. A checkpoint is complete in the
replica if the replica also has every other object of its folder, with the same size. This requires a listing of the bucket in the first region; without
it, the result says that the files were not compared.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.failover import BucketPair, Unreachable, label
from gpuinfra.clouds.region.readiness import ReadinessLine, fails, passes, skips, unread, warns

TOPIC = "checkpoint"
MOST_OBJECTS = 200_000
"""Number of objects of one bucket that are listed. A listing has about 1,000 objects in each request."""
COMPARED = 5
"""Number of checkpoints, the newest first, whose files are compared."""


@dataclass(frozen=True, kw_only=True)
class CheckpointObject:
    """An object of a bucket."""

    key: str
    size: int
    modified: datetime
    """Time at which the object was written. On Azure and Google Cloud, a replica has the time of the copy."""


Listing = Callable[[str], Iterable[CheckpointObject]]
"""Lists the objects of one bucket whose names begin with a text. Raises `Unreachable` and `DeploymentError`."""


@dataclass(frozen=True, kw_only=True)
class CheckpointPair:
    """A bucket in the first region and its replica."""

    replica: str
    """Name of the replica."""
    source: Listing
    copy: Listing
    private: bool = False
    """Whether only machines in the networks of the stack can list the buckets, so that a missing answer is expected elsewhere."""


def listed_pairs(
    pairs: Iterable[BucketPair],
    source: Callable[[str, str], Iterable[CheckpointObject]],
    copy: Callable[[str, str], Iterable[CheckpointObject]],
    *,
    private: bool = False,
) -> tuple[CheckpointPair, ...]:
    """Return the pairs with their listings. `source` and `copy` list the objects of a bucket whose names begin with a text."""
    return tuple(
        CheckpointPair(
            replica=pair.replica, source=partial(source, pair.source), copy=partial(copy, pair.replica), private=private
        )
        for pair in pairs
    )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint."""

    name: str
    """Folder of the checkpoint, or the name of its only object."""
    written: datetime


def pattern_problem(pattern: str) -> str:
    """Return why a pattern names no objects, or an empty text."""
    parts = pattern.split("/")
    if "" in parts or ".." in parts or "." in parts:
        return "is not the name of an object, which has no empty folder and no . or .."
    if any("**" in part and part != "**" for part in parts) or parts[-1] == "**":
        return "contains ** as a part of a name"
    return ""


def matcher(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern: `*` and `?` match within a folder, and `**/` matches any number of folders."""
    text = ""
    for part in re.split(r"(\*\*/|\*|\?)", pattern):
        text += {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
    return re.compile(text)


def _fixed(pattern: str) -> str:
    """Return the text with which all names begin."""
    return re.split(r"[*?]", pattern, maxsplit=1)[0]


def lines(pattern: str, pairs: Iterable[CheckpointPair], rpo_minutes: int, now: datetime) -> Iterator[ReadinessLine]:
    """Return the line of each replica about its newest complete checkpoint."""
    for pair in pairs:
        yield _line(pattern, pair, rpo_minutes, now)


def _line(pattern: str, pair: CheckpointPair, rpo_minutes: int, now: datetime) -> ReadinessLine:
    name, prefix = label(pair.replica), _fixed(pattern)
    try:
        copies = _listed(pair.copy, prefix)
    except (Unreachable, DeploymentError) as problem:
        if pair.private:
            return skips(TOPIC, name, str(problem))
        return unread(TOPIC, name, str(problem), "log in to the cloud, and run the command again")
    try:
        originals: Mapping[str, CheckpointObject] | None = _listed(pair.source, prefix)
        unknown = ""
    except (Unreachable, DeploymentError) as problem:
        originals, unknown = None, f"; its files were not compared with the first region: {problem}"
    return _judged(name, pattern, originals, copies, rpo_minutes, now, unknown)


REPLICATED = "export the file system if it does not export automatically, and wait until the objects are replicated"
"""How a checkpoint that is not complete in the replica gets there."""


def _listed(listing: Listing, prefix: str) -> dict[str, CheckpointObject]:
    by_key: dict[str, CheckpointObject] = {}
    for item in listing(prefix):
        by_key[item.key] = item
        if len(by_key) > MOST_OBJECTS:
            raise DeploymentError(
                f"more than {MOST_OBJECTS:,} objects begin with {prefix!r}; begin recovery.checkpoints with a longer folder name"
            )
    return by_key


def _judged(
    name: str,
    pattern: str,
    originals: Mapping[str, CheckpointObject] | None,
    copies: Mapping[str, CheckpointObject],
    rpo_minutes: int,
    now: datetime,
    unknown: str,
) -> ReadinessLine:
    newest = newest_complete(pattern, originals, copies)
    latest = next(iter(_checkpoints(pattern, originals)), None) if originals is not None else None
    if newest is None and latest is None:
        where = "the replica" if originals is None else "the bucket and its replica"
        return warns(
            TOPIC,
            name,
            f"no object in {where} matches recovery.checkpoints {pattern}{unknown}",
            "write a checkpoint, or correct recovery.checkpoints",
        )
    if newest is None:
        assert latest is not None
        return fails(
            TOPIC,
            name,
            f"contains no complete checkpoint; the first region wrote {latest.name} {_age(now - latest.written)} ago",
            REPLICATED,
        )
    age = now - newest.written
    text = f"the newest complete checkpoint is {newest.name}, {_age(age)} old{unknown}"
    if latest is None:
        often = f"write a checkpoint at least every {rpo_minutes} minutes, or increase recovery.rpo_minutes"
        return warns(TOPIC, name, text, often) if age > timedelta(minutes=rpo_minutes) else passes(TOPIC, name, text)
    if latest.name == newest.name:
        return passes(TOPIC, name, text)
    text += f"; {latest.name}, which the first region wrote {_age(now - latest.written)} ago, is not complete in the replica"
    return fails(TOPIC, name, text, REPLICATED) if age > timedelta(minutes=rpo_minutes) else passes(TOPIC, name, text)


@dataclass(frozen=True, kw_only=True)
class ReplicatedCheckpoint:
    """The newest complete checkpoint of one replica, with its objects there."""

    replica: str
    checkpoint: Checkpoint
    objects: tuple[CheckpointObject, ...]
    compared: bool
    """Whether the objects were compared with those of the first region."""


def newest_of(pattern: str, pairs: Iterable[CheckpointPair]) -> ReplicatedCheckpoint | None:
    """Return the newest complete checkpoint of all replicas. Without an answer of the first region, the object that completes a checkpoint is sufficient.

    Raises `Unreachable` and `DeploymentError` if a replica cannot be listed.
    """
    newest: ReplicatedCheckpoint | None = None
    for pair in pairs:
        copies, originals = _listed(pair.copy, _fixed(pattern)), None
        with contextlib.suppress(Unreachable, DeploymentError):
            originals = _listed(pair.source, _fixed(pattern))
        checkpoint = newest_complete(pattern, originals, copies)
        if checkpoint is not None and (newest is None or checkpoint.written > newest.checkpoint.written):
            objects = tuple(one for key, one in sorted(copies.items()) if _within(key, checkpoint.name))
            newest = ReplicatedCheckpoint(
                replica=pair.replica, checkpoint=checkpoint, objects=objects, compared=originals is not None
            )
    return newest


def newest_complete(
    pattern: str, originals: Mapping[str, CheckpointObject] | None, copies: Mapping[str, CheckpointObject]
) -> Checkpoint | None:
    """Return the newest checkpoint whose objects are all in the replica. Without the originals, the object that completes a checkpoint is sufficient.

    The time is that of the first region if it is known.
    """
    if originals is None:
        return next(iter(_checkpoints(pattern, copies)), None)
    compared = 0
    for checkpoint in _checkpoints(pattern, {**copies, **originals}):
        marker = [key for key in _markers(pattern, copies) if _folder(key) == checkpoint.name]
        if not marker:
            continue
        compared += 1
        wanted = [each for key, each in originals.items() if _within(key, checkpoint.name)]
        if all((copy := copies.get(each.key)) is not None and copy.size == each.size for each in wanted):
            return checkpoint
        if compared == COMPARED:
            return None
    return None


def _markers(pattern: str, objects: Iterable[str]) -> list[str]:
    expression = matcher(pattern)
    return [key for key in objects if expression.fullmatch(key)]


def _checkpoints(pattern: str, objects: Mapping[str, CheckpointObject]) -> Sequence[Checkpoint]:
    """Return the checkpoints in a listing, the newest first."""
    checkpoints = [Checkpoint(name=_folder(key), written=objects[key].modified) for key in _markers(pattern, objects)]
    return sorted(checkpoints, key=lambda one: (one.written, one.name), reverse=True)


def _folder(key: str) -> str:
    """Return the folder of the object that completes a checkpoint, or the object itself if it is in no folder."""
    return key.rpartition("/")[0] or key


def _within(key: str, folder: str) -> bool:
    return key == folder or key.startswith(f"{folder}/")


def _age(duration: timedelta) -> str:
    """Return an age in words, such as `22 minutes`."""
    minutes = max(0, int(duration.total_seconds() // 60))
    if minutes < 120:
        return counted(minutes, "minute")
    return counted(minutes // 60, "hour") if minutes < 48 * 60 else counted(minutes // 1440, "day")


def utc(moment: datetime) -> datetime:
    """Return a time in UTC."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
