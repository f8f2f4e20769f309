"""The folders and programs that random command lines get: writable, full, read-only or without permission; without programs, or with failing ones.

Requires user and mount namespaces: `unshare --user --map-root-user --mount`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

PLACES = ("writable", "writable", "writable", "full", "read-only", "forbidden")
"""Half of the command lines run in a folder that can be written to."""
SIZE = 4 << 20
"""Size of a file system in bytes."""
TOOLS = (
    "pulumi",
    "pulumi-language-python",
    "git",
    "ssh",
    "scp",
    "ssh-keygen",
    "rsync",
    "aws",
    "az",
    "gcloud",
    "session-manager-plugin",
)
ANSWERS = (
    *(b"", b"{}", b"[]", b"null", b"7", b'"text"', b"{", b"\xff\xfe\x00", b"\x1b[31mred\xe2\x80\xae\n", b'{"deployment": null}', b'{"deployment": {"resources": null}}'),
    *(b'{"deployment": {"resources": [7, {}, {"type": 7, "urn": null}]}}', b'{"deployment": {"resources": "text"}}', b'{"url": null, "user": [], "changeSummary": {}, "steps": []}', b"error: no stack named x found", b"[" * 3000),
    *(b'{"deployment": {"resources": [{"urn": "urn:pulumi:x::y::pulumi:pulumi:Stack::z", "type": "pulumi:pulumi:Stack", "outputs": {"gpuinfra": 7, "nodes": "x", "cluster": []}}]}}', b'{"changeSummary": 7, "steps": [7]}'),
)  # fmt: skip
"""What a failing program prints."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_REMOUNT, _READ_ONLY = 0x20, 0x01
_OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


class Place:
    """A working folder, a home folder and a folder for temporary files on a separate file system."""

    def __init__(self, kind: str, root: Path, template: Path) -> None:
        self.kind, self.root, self.template = kind, root, template
        root.mkdir()
        _mount(root, "tmpfs", 0, f"size={SIZE}")
        self.fill()
        if kind == "read-only":
            _mount(root, "tmpfs", _REMOUNT | _READ_ONLY, "")
        if kind == "forbidden":
            for path in [root, *(one for one in root.rglob("*") if not one.is_symlink())]:
                path.chmod(0o555 if path.is_dir() else 0o000 if "twice" in path.name else 0o444)

    def fill(self) -> None:
        """Copy the files of the template, and use the remaining space if the file system is to be full."""
        for left in self.root.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        shutil.copytree(self.template, self.root, symlinks=True, dirs_exist_ok=True)

    def reset(self, mutant: bytes, project: bytes | None) -> None:
        """Restore the files, and write a new stack file and sometimes a new project file. Files that cannot be changed stay the same."""
        if self.kind in ("read-only", "forbidden"):
            return
        self.fill()
        (self.root / "work/Pulumi.mutant.yaml").write_bytes(mutant)
        if project is not None:
            (self.root / "work/Pulumi.yaml").write_bytes(project)
        if self.kind == "full":
            with contextlib.suppress(OSError), (self.root / "ballast").open("wb", buffering=0) as file:
                while file.write(bytes(1 << 16)):
                    pass

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Use the working folder. In the forbidden folder, root obeys the permissions of files."""
        os.chdir(self.root / "work")
        if self.kind != "forbidden":
            yield
            return
        with _without_override():
            yield


def programs(chance: random.Random, folder: Path) -> None:
    """Create programs that print something unexpected and mostly fail."""
    for name in TOOLS:
        path, answer = folder / name, folder / f".{name}.out"
        if chance.random() < 0.15:
            path.unlink(missing_ok=True)
            continue
        answer.write_bytes(chance.choice(ANSWERS))
        code, to = chance.choice((0, 0, 1, 1, 255)), chance.choice((">&1", ">&2"))
        version = (
            'if [ "$1" = version ]; then echo v9.0.0; exit; fi\n' if name == "pulumi" and chance.random() < 0.9 else ""
        )
        script = f"#!/bin/sh\n{version}/bin/cat {answer} {to}\nexit {code}\n"
        # The kernel does not start a program whose interpreter is missing, or that is not a program.
        path.write_text(chance.choice((*[script] * 9, "#!/missing\n", "\x00\x01")))
        path.chmod(0o755)


def _mount(target: Path, kind: str, flags: int, options: str) -> None:
    if _LIBC.mount(b"none", os.fsencode(target), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


@contextlib.contextmanager
def _without_override() -> Iterator[None]:
    """Drop the capabilities that ignore the permissions of files. `struct __user_cap_data_struct` in linux/capability.h."""
    header, data = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), ctypes.create_string_buffer(24)
    if _LIBC.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    before = data.raw
    values = list(struct.unpack("6I", before))
    values[0] &= ~_OVERRIDE
    if _LIBC.capset(header, ctypes.create_string_buffer(struct.pack("6I", *values))):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        _LIBC.capset(header, ctypes.create_string_buffer(before))


def problem_of(place: Place) -> str | None:
    """Return what is wrong with a place before a command line runs, or None. A place without its property would make the test useless."""
    probe = place.root / "work/probe"
    expected = {"full": errno.ENOSPC, "read-only": errno.EROFS, "forbidden": errno.EACCES, "writable": None}[place.kind]
    found = None
    with place.entered():
        try:
            probe.write_bytes(bytes(5000))
        except OSError as error:
            found = error.errno
    probe.unlink(missing_ok=True) if place.kind in ("full", "writable") else None
    if found != expected or not stat.S_ISDIR(place.root.stat().st_mode):
        return f"{place.kind}: error number {found} instead of {expected}"
    return None
