"""`node.pyz files`: reads the files and the environment variables that an expectation declares. It measures and does not judge.

`stat` prints owners as names, as the bootstrap step that writes the files sees them. A login shell prints the variables, because
a later script in `/etc/profile.d` can change a variable.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

from .console import MissingPrerequisite, load

SCHEMA = "gpuinfra.files/1"
MAX_BYTES = 1 << 20
"""Maximum number of bytes that are read of each file, because a changed file can be large. Declared files are smaller."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL_S = 30


def files(path: Path) -> dict[str, Any]:
    """Return one JSON object: each file that an expectation declares with its SHA-256, owner, group, mode and problem,
    and the declared variables of a login shell."""
    expectation = load(path, "the bundle's expectation", "start gpuinfra-bootstrap, or set --expectation FILE")
    declared = [str(one["path"]) for one in expectation.get("files", [])]
    names = sorted(expectation.get("variables", {}))
    return {"schema": SCHEMA, "files": [_file(path) for path in declared], "variables": _variables(names)}


def _file(path: str) -> dict[str, str]:
    state = {"path": path, "sha256": "", "owner": "", "group": "", "mode": "", "problem": ""}
    try:
        if Path(path).is_symlink() or not Path(path).is_file():
            state["problem"] = "not a regular file" if Path(path).exists() else "does not exist"
            return state
        with open(path, "rb") as stream:
            state["sha256"] = hashlib.sha256(stream.read(MAX_BYTES)).hexdigest()
    except OSError as error:
        state["problem"] = "cannot be read: %s" % error.strerror
        return state
    done = _run(["stat", "-c", "%U %G %a", "--", path])
    words = done.split()
    if len(words) != 3:
        state["problem"] = "stat failed"
        return state
    state.update(owner=words[0], group=words[1], mode=words[2].rjust(4, "0"))
    return state


def _variables(names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    shown = _run(["bash", "-l", "-c", "exec env -0"], {"PATH": _PATH, "HOME": "/", "LC_ALL": "C"})
    lines = (line.partition("=") for line in shown.split("\0"))
    return {name: value for name, _, value in lines if name in names}


def _run(argv: list[str], environment: dict[str, str] | None = None) -> str:
    """Return the standard output of a command, and an empty text if it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_SHELL_S,
        )
    except FileNotFoundError:
        raise MissingPrerequisite("%s is not installed" % argv[0]) from None
    except subprocess.TimeoutExpired:
        raise MissingPrerequisite("%s did not end within %d s" % (" ".join(argv[:3]), _SHELL_S)) from None
    return done.stdout.decode("utf-8", "backslashreplace") if done.returncode == 0 else ""
