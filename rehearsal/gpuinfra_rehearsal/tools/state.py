"""Reads and changes the state of a stand-in node from within the node.

`nodes/state.py` owns the schema and writes the first version.
This module uses the C scanner of `json` directly, because importing `json` and `re` takes as long as Python's startup.
"""

from __future__ import annotations

# ruff: noqa: SIM105 - contextlib takes longer to import than most of these commands run
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

RUN = "/run/standin"
FOLDER = RUN + "/state"
PATH = FOLDER + "/standin.json"
UNITS = RUN + "/units.json"
LIB = RUN + "/lib"

State = dict


def read_text(path: str, default: str | None = None) -> str:
    """Return the text of a file, or `default` if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        if default is None:
            raise
        return default


def loads(text: str) -> object:
    """Convert JSON to Python, with the C scanner if it exists."""
    try:
        from _json import make_scanner  # type: ignore[import-not-found]
    except ImportError:
        import json

        return json.loads(text)
    context: Any = _Context
    return make_scanner(context)(text.strip(), 0)[0]


def dumps(value: object, indent: str = "") -> str:
    """Convert Python to JSON, without importing `json`."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return _quote(value)
    deeper = indent + " "
    if isinstance(value, dict):
        if not value:
            return "{}"
        rows = [f"{deeper}{_quote(str(key))}: {dumps(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    rows = [dumps(item, deeper) for item in value]  # type: ignore[union-attr]
    return "[" + ", ".join(rows) + "]"


def read_state(path: str = PATH) -> State:
    """Return the current state of the node."""
    return loads(read_text(path))  # type: ignore[return-value]


def change_state(change: Callable[[State], object], folder: str = FOLDER) -> State:
    """Apply `change` to the state under a lock and replace the file atomically. Returns the new state."""
    import fcntl

    lock = os.open(folder + "/lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read_state(folder + "/standin.json")
        change(state)
        write_atomically(folder + "/standin.json", dumps(state) + "\n")
        return state
    finally:
        os.close(lock)


def write_atomically(path: str, text: str) -> None:
    """Replace `path` atomically."""
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(partial, path)


def write_file(path: str, text: str, mode: int = 0o644) -> None:
    """Write `path` and create its folders."""
    make_folder(path.rpartition("/")[0])
    try:
        if os.lstat(path).st_mode & 0o170000 == 0o120000:
            os.unlink(path)  # a link to a host file: replace the link instead of writing to its target
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def make_folder(path: str) -> None:
    """`mkdir -p`."""
    if not path or exists(path):
        return
    make_folder(path.rpartition("/")[0])
    try:
        os.mkdir(path)
    except FileExistsError:
        pass


def link(target: str, path: str) -> None:
    """Make `path` a symbolic link to `target`. Replaces an existing file."""
    make_folder(path.rpartition("/")[0])
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    os.symlink(target, path)


def exists(path: str) -> bool:
    """Return whether `path` exists. Links are followed."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def units() -> dict[str, dict]:
    """Return the state of each systemd unit, as last written by init."""
    text = read_text(UNITS, "{}")
    return loads(text)  # type: ignore[return-value]


def unit_active(name: str) -> bool:
    """Return whether a unit is active."""
    return units().get(name, {}).get("active") == "active"


def walk(folder: str) -> Iterator[str]:
    """Return all files below `folder`, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = f"{folder}/{name}"
        if os.lstat(path).st_mode & 0o170000 == 0o040000:
            yield from walk(path)
        else:
            yield path


def fail(text: str, code: int = 1) -> int:
    """Print to stderr and return an exit code."""
    sys.stderr.write(text + "\n")
    return code


class _Context:
    """Decoder settings that `_json.make_scanner` reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict = {}


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char) or (char if char >= " " else f"\\u{ord(char):04x}") for char in text) + '"'
