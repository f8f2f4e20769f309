"""Lists the rehearsals in a folder as cache entries for `gpuinfra cache`."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.preflight import Row, warning
from gpuinfra.engine.entries import IN_USE, LIMIT_VARIABLE, Entry, in_words, size_limit, size_of
from gpuinfra_rehearsal.folder import Folder
from gpuinfra_rehearsal.processes import marked

KIND = "rehearsal"
KEPT = "needs --rehearsals"


def rehearsals(folder: Path) -> Iterator[Entry]:
    """Yield the rehearsals in a folder. Folders of other programs are skipped."""
    roots = [path for path in sorted(folder.iterdir()) if _is_one(path)] if folder.is_dir() else []
    running = {path for path in roots if _running(path)}
    for path in roots:
        # If a stack uses other stacks, its state, lock and processes are in the folder of its foundation.
        own = (path / "state").is_dir()
        locked = path in running or (not own and bool(running))
        used = max((one.stat().st_mtime for one in (path, path / "report.json") if one.exists()), default=0.0)
        why = IN_USE if locked else KEPT
        yield Entry(kind=KIND, path=path, size=size_of(path), used=used, kept=why, locked=locked)


def remove(entry: Entry) -> bool:
    """Remove a rehearsal. Return False if it started in the meantime."""
    try:
        with Folder(root=entry.path, stack=entry.path.name).locked():
            shutil.rmtree(entry.path)
    except DeploymentError:
        return False
    return True


def size_rows(cache: Path, folder: Path) -> Iterator[Row]:
    """Yield a warning if the cache and the rehearsals in a folder are larger than the limit. Raises `UsageError` if the limit is not valid."""
    limit = size_limit()
    ours = [path for path in folder.iterdir() if _is_one(path)] if folder.is_dir() else []
    sizes = size_of(cache), sum(map(size_of, ours))
    if sum(sizes) > limit:
        found = f"{in_words(sizes[0])} in {cache} and {in_words(sizes[1])} in {folder} exceed the limit of {in_words(limit)}"
        fix = f"run `gpuinfra cache clean`, or `gpuinfra cache clean --rehearsals`, or set {LIMIT_VARIABLE} to a larger size"
        yield warning("disk", "size", found, f"at most {in_words(limit)}", fix)


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
