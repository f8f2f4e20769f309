"""The cache of built engines, shared by concurrent runs.

An engine is a folder that is created by a single rename after every program in it has run. A folder is not used if it has no marker
or if its files differ from the marker.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpuinfra.base.json_text import parsed
from gpuinfra.engine.module import Module

MARKER = "complete.json"
KEPT = 2
"""Number of engines of one kind to keep: the current engine and the previous one, for older checkouts. Each uses 115 MB."""
IN_USE_S = 86_400.0
"""An engine that was used within this time may still be running, so it is kept."""


def cache_folder() -> Path:
    """Return `GPUINFRA_CACHE`, or `gpuinfra` in the user's cache folder."""
    if named := os.environ.get("GPUINFRA_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard requires programs to ignore relative paths.
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return folder / "gpuinfra"


def kept(cache: Path, module: Module, programs: tuple[str, ...]) -> Path | None:
    """Return the folder that contains these programs if the folder is complete."""
    folder = _folder(cache, module, programs)
    copied = False
    try:
        marker = parsed((folder / MARKER).read_text())
        for name, about in marker["files"].items():
            path = folder / name
            stat = path.stat()
            same = (stat.st_size, stat.st_mtime_ns) == (about["size"], about["mtime_ns"])
            if same:
                continue
            # A copied cache has different times, so its content is compared.
            if stat.st_size != about["size"] or _sha256(path) != about["sha256"]:
                return None
            about["mtime_ns"], copied = stat.st_mtime_ns, True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with contextlib.suppress(OSError):  # A read-only cache is still usable.
        if copied:
            _replace(folder / MARKER, marker)
        os.utime(folder / MARKER)
    return folder


def altered(folder: Path) -> list[str]:
    """Return the files of a cached engine whose checksum differs from the checksum recorded after the build.

    A folder without a record has no such files, because you installed its engine yourself.
    """
    try:
        files = parsed((folder / MARKER).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name, about in files.items() if not _is(folder / name, about)]


def _is(path: Path, about: Mapping[str, object]) -> bool:
    try:
        return _sha256(path) == about["sha256"]
    except (OSError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def lock(cache: Path, module: Module, programs: tuple[str, ...], progress: Callable[[str], None]) -> Iterator[None]:
    """Lock the build of these programs. The kernel releases the lock when this process ends."""
    folder = _folder(cache, module, programs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            progress(f"engine: waiting for {holder}, which is building the same engine")
            started = time.monotonic()
            fcntl.flock(file, fcntl.LOCK_EX)
            progress(f"engine: waited {time.monotonic() - started:.0f} s")
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


@contextlib.contextmanager
def workplace(cache: Path, module: Module, programs: tuple[str, ...]) -> Iterator[Path]:
    """Create an empty folder next to the cached engines and remove the folders of killed runs. The caller holds the lock."""
    folder = _folder(cache, module, programs)
    prefix = f".building-{folder.name}-"
    for left in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    place.chmod(0o755)  # mkdtemp creates a private folder, but several users can share the cache.
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def keep(place: Path, cache: Path, module: Module, programs: tuple[str, ...]) -> Path:
    """Move the contents of `place` into the cache. The caller holds the lock."""
    folder = _folder(cache, module, programs)
    files = {}
    for path in sorted(place.iterdir()):
        digest = _sha256(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        stat = path.stat()
        files[path.name] = {"sha256": digest, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    marker = {"version": module.version, "sources": module.digest, "files": files}
    with (place / MARKER).open("w") as file:
        json.dump(marker, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if folder.exists():  # The folder is incomplete. Otherwise, `kept` would have found it.
        shutil.rmtree(folder)
    place.rename(folder)
    parent = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    prune(cache, module, programs)
    return folder


def prune(cache: Path, module: Module, programs: tuple[str, ...]) -> list[Path]:
    """Remove cached engines of this kind, except the newest two and engines that were used in the last day. Return the removed folders.

    A folder that is locked or cannot be removed is skipped.
    """
    ending = module.ending(programs)
    used = {path: last_used(path) for path in (cache / "engine").glob(f"*{ending}") if not path.name.startswith(".")}
    newest_first = sorted((path for path in used if path.is_dir()), key=lambda path: used[path], reverse=True)
    gone = []
    for path in newest_first[KEPT:]:
        if time.time() - used[path] < IN_USE_S:
            continue
        with contextlib.suppress(OSError), path.with_name(f"{path.name}.lock").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Remove the marker first, so that a concurrent run does not use a half-removed engine.
            (path / MARKER).unlink(missing_ok=True)
            shutil.rmtree(path)
            gone.append(path)
    return gone


def last_used(folder: Path) -> float:
    """Return the time when this engine was last used, or the modification time of the folder if the marker is missing."""
    for path in (folder / MARKER, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def remembered_version(cache: Path, path: Path) -> str | None:
    """Return the recorded output of `pulumi version` for exactly this file. Running the command takes a tenth of a second."""
    try:
        versions = parsed((cache / "known-engines.json").read_text())
        answer = versions[_identity(path)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return answer if isinstance(answer, str) else None


def remember_version(cache: Path, path: Path, version: str) -> None:
    """Record the version. If the cache is read-only, the version is not recorded, which only makes later runs slower."""
    note = cache / "known-engines.json"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        try:
            versions = parsed(note.read_text())
        except (OSError, ValueError):
            versions = {}
        if not isinstance(versions, dict):
            versions = {}
        # Keep the last 16 entries. Entries of removed files are never used again.
        versions = dict([*versions.items()][-15:]) | {_identity(path): version}
        _replace(note, versions)


def _identity(path: Path) -> str:
    real = path.resolve()
    stat = real.stat()
    return f"{path} {real} {stat.st_size} {stat.st_mtime_ns}"


def _replace(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.stem}-", delete=False) as file:
        json.dump(content, file)
    os.replace(file.name, path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder(cache: Path, module: Module, programs: tuple[str, ...]) -> Path:
    return cache / "engine" / module.key(programs)
