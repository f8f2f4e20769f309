"""Writes files that people also edit, such as stack files: under the version that was read, whole, and through no link.

A write replaces exactly the content that the command read. If the content differs at the moment of the write, the file stays and the command ends
with `FileChanged`. The new content is written to a file of its own with a random name in the same folder, which exists only after an exclusive
creation, so nothing that exists is overwritten and no link is followed. It reaches the disk before it gets its final name.

On Linux and macOS, one operation of the kernel exchanges the new and the old file. The old file is compared once more afterwards, and put back if
an edit arrived in between. On file systems without this operation, the last comparison is immediately before the new file gets its name.

After a kill, the file contains the old or the new content. A file `.gpuinfra-*.tmp` that remains in the folder contains the other one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base.errors import UsageError, reason_of
from gpuinfra.base.file_errors import cannot_write

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
NEW_MODE = 0o644
"""Mode of a file that did not exist."""


class FileChanged(UsageError):
    """The file does not contain what the command read. It was not written."""


@dataclass(frozen=True, kw_only=True)
class FileVersion:
    """A file as it was read. A write replaces this content and no other."""

    path: Path
    """Path as a person specified it, for messages."""
    place: Path
    """Path of the file itself."""
    data: bytes | None
    """The content, or None if there is no file."""
    follows: bool = False
    """Whether `path` may be a link. The link stays, and the file that it names is replaced."""

    @property
    def text(self) -> str:
        """The content as text. Raises `UsageError` if it is not UTF-8."""
        try:
            return (self.data or b"").decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as problem:
            raise UsageError(f"{self.path} cannot be read: {problem}; save the file as UTF-8") from None

    @property
    def is_current(self) -> bool:
        """Whether the file still has this content."""
        return _place(self.path, follows=self.follows) == self.place and _content(self.place) == self.data


def existing(path: Path) -> FileVersion:
    """Return the content of a file that exists. If the path is a link, a later write replaces the file that the link names now.
    Raises `UsageError` if it cannot be read."""
    try:
        place = _place(path, follows=True)
        return FileVersion(path=path, place=place, data=place.read_bytes(), follows=True)
    except (OSError, RuntimeError) as problem:
        raise UsageError(f"{path} cannot be read: {reason_of(problem)}") from None


def replaceable(path: Path) -> FileVersion:
    """Return what a new file replaces: the content of the file with this path, or nothing. Raises `UsageError` for a link."""
    if path.is_symlink():
        raise UsageError(f"{path} is a link; specify the path of the file itself, or remove the link")
    try:
        with contextlib.suppress(FileNotFoundError):
            return FileVersion(path=path, place=_place(path, follows=False), data=path.read_bytes())
    except OSError as problem:
        raise UsageError(f"{path} cannot be replaced: {reason_of(problem)}") from None
    return absent(path)


def absent(path: Path) -> FileVersion:
    """Return the version for a file that must not exist yet."""
    return FileVersion(path=path, place=_place(path, follows=False), data=None)


def replace_file(read: FileVersion, text: str, fix: str) -> FileVersion:
    """Replace one file. See `replace_files`."""
    return replace_files([(read, text)], fix)[0]


def replace_files(changes: Sequence[tuple[FileVersion, str]], fix: str) -> list[FileVersion]:
    """Replace all of these files or none, and return their new versions. The mode and the group of existing files are kept.

    Raises `FileChanged` if one of them does not have the content that was read, and otherwise the error of `cannot_write` with `fix`.
    """
    drafts: list[_Draft] = []
    draft = None
    try:
        for read, text in changes:
            draft = _Draft(read, text.encode())
            drafts.append(draft)
            draft.stage()
        for draft in drafts:
            draft.commit()
    except OSError as problem:
        _undo(drafts)
        raise cannot_write(draft.read.path if draft else Path(), problem, fix) from None
    except BaseException:
        _undo(drafts)
        raise
    for draft in drafts:
        draft.remove()
    return [draft.written for draft in drafts]


class _Draft:
    """The new content of one file, in a file of its own until `commit`."""

    def __init__(self, read: FileVersion, data: bytes) -> None:
        self.read = read
        self.written = FileVersion(path=read.path, place=read.place, data=data, follows=read.follows)
        self.draft = read.place.with_name(f".gpuinfra-{secrets.token_hex(8)}.tmp")
        self.is_staged, self.is_committed = False, False

    def stage(self) -> None:
        """Write the content to the disk."""
        old = self.read.place.stat() if self.read.data is not None else None
        handle = os.open(self.draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.is_staged = True
        with os.fdopen(handle, "wb") as file:
            file.write(self.written.data or b"")
            file.flush()
            if old:
                with contextlib.suppress(PermissionError):  # You are not in the group of the file.
                    os.fchown(handle, -1, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode) if old else NEW_MODE)
            os.fsync(handle)

    def commit(self) -> None:
        """Give the file its name. Afterwards, the draft is the earlier file, if there is one. Raises `FileChanged`."""
        if not self.read.is_current:
            raise _changed(self.read)
        if self.read.data is None:
            self._create()
        elif exchange(self.draft, self.read.place):
            if _content(self.draft) != self.read.data:
                self._put_back()
                raise _changed(self.read)
        else:
            os.replace(self.draft, self.read.place)
            self.is_staged = False
        self.is_committed = True
        _sync(self.read.place.parent)

    def _create(self) -> None:
        try:
            os.link(self.draft, self.read.place)
        except FileExistsError:
            raise _changed(self.read) from None
        except (
            OSError
        ) as problem:  # A file system without hard links. An exclusive creation keeps what appears meanwhile.
            if problem.errno not in _NO_LINKS:
                raise
            os.close(
                os.open(self.read.place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, NEW_MODE)
            )
            os.replace(self.draft, self.read.place)
            self.is_staged = False

    def undo(self) -> None:
        """Put the earlier file back, unless the new one was edited."""
        if self.is_committed and self.written.is_current:
            if self.read.data is None:
                self.read.place.unlink()
            elif self.is_staged:
                self._put_back()

    def _put_back(self) -> None:
        """Exchange the files again. An edit of the new file that arrives at this moment stays in the draft, which is then kept."""
        exchange(self.draft, self.read.place)
        self.is_staged = _content(self.draft) == self.written.data

    def remove(self) -> None:
        """Remove the draft, or the earlier file. Neither is needed any more."""
        if self.is_staged:
            with contextlib.suppress(OSError):
                self.draft.unlink()
                self.is_staged = False


def _undo(drafts: Sequence[_Draft]) -> None:
    for draft in reversed(drafts):
        with contextlib.suppress(OSError):
            draft.undo()
        draft.remove()


def _changed(read: FileVersion) -> FileChanged:
    if read.data is None:
        return FileChanged(
            f"{read.path} already exists, because another program created it meanwhile; the file was kept; run the command again"
        )
    return FileChanged(
        f"{read.path} changed after this command read it; the change was kept and nothing was written; run the command again"
    )


def _place(path: Path, *, follows: bool) -> Path:
    return path.resolve() if follows else path.parent.resolve() / path.name


def _content(path: Path) -> bytes | None:
    """Return the content of a regular file, or None if there is no such file. A link is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None


def exchange(path: Path, other: Path) -> bool:
    """Exchange the names of two files in one step. Return whether the system and the file system can do this.

    `renameat2(2)` of Linux has the flag `RENAME_EXCHANGE` (2), `renamex_np(2)` of macOS the flag `RENAME_SWAP` (2).
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(path), os.fsencode(other)
    if sys.platform == "darwin":
        return library.renamex_np(*names, 2) == 0
    at = -100  # AT_FDCWD
    rename = getattr(library, "renameat2", None)
    return rename is not None and rename(at, names[0], at, names[1], 2) == 0


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk. Without this, a power loss can leave the earlier file, which is complete too."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
