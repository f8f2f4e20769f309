"""Errors about files and folders that cannot be written."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing, GpuinfraError, UsageError

_WRONG_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an error that does not name a file, such as that of a full disk."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


def cannot_write(path: Path, problem: OSError, fix: str) -> GpuinfraError:
    """Return a usage error for a path that cannot be a file, and otherwise an error about this machine, such as a full disk."""
    full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = UsageError if problem.errno in _WRONG_PATH else EnvironmentMissing
    return kind(f"{path} cannot be written: {problem.strerror}; {'free space on the disk, or ' if full else ''}{fix}")
