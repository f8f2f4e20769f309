"""Lists the rehearsals in a folder as cache entries for `gpuinfra cache`."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.errors import DeploymentError
from gpuinfra.cli.rehearsals import KIND
from gpuinfra.engine.entries import IN_USE, CacheEntry, size_of
from gpuinfra_rehearsal.folder import Folder
from gpuinfra_rehearsal.processes import marked

KEPT = "needs --rehearsals"


def rehearsals(folder: Path) -> Iterator[CacheEntry]:
    """Yield the rehearsals in a folder. Folders of other programs are skipped."""
    roots = [path for path in sorted(folder.iterdir()) if _is_one(path)] if folder.is_dir() else []
    running = {path for path in roots if _running(path)}
    for path in roots:
        # If a stack uses other stacks, its state, lock and processes are in the folder of its foundation.
        own = (path / "state").is_dir()
        locked = path in running or (not own and bool(running))
        used = max((one.stat().st_mtime for one in (path, path / "report.json") if one.exists()), default=0.0)
        why = IN_USE if locked else KEPT
        yield CacheEntry(kind=KIND, path=path, size=size_of(path), used=used, kept=why, locked=locked)


def remove(entry: CacheEntry) -> bool:
    """Remove a rehearsal. Return False if it started in the meantime."""
    try:
        with Folder(root=entry.path, stack=entry.path.name).locked():
            shutil.rmtree(entry.path)
    except DeploymentError:
        return False
    return True


def size(folder: Path) -> int:
    """Return the bytes of the rehearsals in a folder."""
    return sum(size_of(path) for path in folder.iterdir() if _is_one(path)) if folder.is_dir() else 0


def _is_one(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and (path / "project" / "Pulumi.yaml").is_file()


def _running(path: Path) -> bool:
    lock = path / "lock"
    if lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    return bool(marked(path.resolve()))
