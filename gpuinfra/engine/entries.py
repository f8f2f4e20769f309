"""What the cache contains: engines, Go toolchains and bundles, their sizes, and what can be removed.

An engine of another version, a toolchain and a bundle are created again when they are needed, so removing one costs only time.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base.errors import UsageError
from gpuinfra.engine.hosts import PROGRAMS, module_of
from gpuinfra.engine.keep import IN_USE_S, MARKER, last_used
from gpuinfra.engine.module import Module

ENGINE, TOOLCHAIN, BUNDLE = "engine", "toolchain", "bundle"
IN_USE = "in use"
BUNDLES_LIMIT = 100_000_000
"""Bytes of bundles to keep. A bundle has 0.2 MB, and each change to a declaration or to gpuinfra creates another one."""
GB = 1_000_000_000
LIMIT_GB = 4.0
"""Gigabytes of engines, toolchains, bundles and rehearsals together, above which commands warn. An engine has 0.15, a rehearsal 0.02."""
LIMIT_VARIABLE = "GPUINFRA_CACHE_LIMIT_GB"


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """A folder or a file of the cache."""

    kind: str
    path: Path
    size: int
    """Bytes."""
    used: float
    """Time of the last use, in seconds since the epoch."""
    kept: str = ""
    """The reason why `gpuinfra cache clean` keeps it, or an empty string if it can be removed."""
    locked: bool = False
    """Whether a process uses it now, so that it cannot be removed at all."""


def entries(cache: Path, module: Module, now: float) -> Iterator[CacheEntry]:
    """Yield everything in the cache that can be created again."""
    modules = (module, *(module_of(runtime) for runtime in PROGRAMS))
    versions = (*(f"{one.version}-{one.digest[:12]}-" for one in modules), f"{module.version}-release-")
    for path in _inside(cache / "engine"):
        if path.is_dir():
            used = last_used(path)
            current = path.name.startswith(versions)
            locked = _locked(path)
            why = IN_USE if locked else "current version" if current else _recent(used, now)
            yield CacheEntry(kind=ENGINE, path=path, size=size_of(path), used=used, kept=why, locked=locked)
    for path in _inside(cache / "go"):
        if path.is_dir():
            used = path.stat().st_mtime
            yield CacheEntry(kind=TOOLCHAIN, path=path, size=size_of(path), used=used, kept=_recent(used, now))
    for path in _inside(cache / "bundles"):
        if path.is_file():
            used = path.stat().st_mtime
            yield CacheEntry(kind=BUNDLE, path=path, size=size_of(path), used=used, kept=_recent(used, now))


def remove(entry: CacheEntry) -> bool:
    """Remove an entry. Return False if another process locked it in the meantime."""
    if entry.path.is_file():
        entry.path.unlink(missing_ok=True)
        return True
    lock = entry.path.with_name(f"{entry.path.name}.lock")
    with contextlib.ExitStack() as stack:
        if lock.exists():
            file = stack.enter_context(lock.open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        # Remove the marker first, so that a concurrent run does not use a half-removed engine.
        (entry.path / MARKER).unlink(missing_ok=True)
        shutil.rmtree(entry.path)
    return True


def over_limit(cached: Iterable[CacheEntry], limit: int) -> list[CacheEntry]:
    """Return the removable entries to remove so that the total is at most `limit` bytes, least recently used first."""
    cached = list(cached)
    total, gone = sum(one.size for one in cached), []
    for entry in sorted((one for one in cached if not one.kept), key=lambda one: one.used):
        if total <= limit:
            break
        gone.append(entry)
        total -= entry.size
    return gone


def size_limit() -> int:
    """Return the size in bytes above which commands warn. Raises `UsageError` if the variable is not a number of gigabytes."""
    given = os.environ.get(LIMIT_VARIABLE) or str(LIMIT_GB)
    with contextlib.suppress(ValueError):
        if 0 <= (size := float(given)) < math.inf:
            return int(size * GB)
    raise UsageError(f"{LIMIT_VARIABLE} is {given!r}; allowed: a number of gigabytes, such as {LIMIT_GB:g}")


def in_words(count: int) -> str:
    """Return a number of bytes in megabytes or gigabytes."""
    return f"{count / GB:,.2f} GB" if count >= GB else f"{count / 1_000_000:,.1f} MB"


def size_of(path: Path) -> int:
    """Return the number of bytes that a file or a folder occupies. Links are not followed. What another process removes meanwhile does not count."""
    names = [str(path)]
    if not path.is_symlink():
        # Unlike `rglob`, `os.walk` skips a folder that disappears. A rehearsal has thousands of links, so the names stay strings.
        names += (f"{folder}/{name}" for folder, folders, files in os.walk(path) for name in (*folders, *files))
    total = 0
    for name in names:
        with contextlib.suppress(OSError):
            total += os.lstat(name).st_blocks * 512
    return total


def _recent(used: float, now: float) -> str:
    return "used in the last day" if now - used < IN_USE_S else ""


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _locked(folder: Path) -> bool:
    lock = folder.with_name(f"{folder.name}.lock")
    with contextlib.suppress(FileNotFoundError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def prune_bundles(cache: Path) -> None:
    """Remove the least recently used bundles until the rest have at most `BUNDLES_LIMIT` bytes. Recently used bundles are kept."""
    now = time.time()
    bundles = []
    for path in _inside(cache / "bundles"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            bundles.append(
                CacheEntry(
                    kind=BUNDLE,
                    path=path,
                    size=stat.st_blocks * 512,
                    used=stat.st_mtime,
                    kept=_recent(stat.st_mtime, now),
                )
            )
    for entry in over_limit(bundles, BUNDLES_LIMIT):
        with contextlib.suppress(OSError):
            entry.path.unlink()
