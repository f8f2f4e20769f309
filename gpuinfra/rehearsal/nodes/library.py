"""The stand-in commands as a node sees them: one byte-compiled copy for all nodes of a rehearsal.

A copy, because the installation may be read-only and its byte code missing, and compiling at each of a thousand calls costs more
than the call. It is replaced when its content changes.
"""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

_REHEARSAL = Path(__file__).resolve().parent.parent
LAUNCHER = "/run/standin/lib/tool"
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")

_MAIN = """#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/run/standin/lib")
from tools.dispatch import main
sys.exit(main(sys.argv))
"""

_INIT = """import sys
sys.path.insert(0, "/run/standin/lib")
from tools.init import main
sys.exit(main(sys.argv))
"""


@dataclass(frozen=True, kw_only=True)
class Library:
    """The copied tools, and what they mean for a node's /usr."""

    folder: Path
    launchers: dict[str, str]
    """Path in the node -> the launcher, for commands that every image has."""
    hidden: frozenset[str]
    """Names that a node must not get from the host."""

    @staticmethod
    def make(folder: Path) -> Library:
        """Copy and compile once; several processes may do so at the same time."""
        digest = _digest()
        target = folder / digest
        if not (target / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
            shutil.copytree(_REHEARSAL / "devices", partial, ignore=_SKIPPED, dirs_exist_ok=True)
            shutil.copytree(_REHEARSAL / "tools", partial / "tools", ignore=_SKIPPED)
            compileall.compile_dir(partial, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
            for name, text in (("tool", _MAIN), ("init", _INIT)):
                (partial / name).write_text(text, encoding="utf-8")
                (partial / name).chmod(0o755)
            (partial / "complete").touch()
            partial.chmod(0o755)
            with contextlib.suppress(OSError):  # another process was first
                partial.rename(target)
            shutil.rmtree(partial, ignore_errors=True)
        for old in folder.iterdir():
            if old != target and not old.name.startswith(".partial"):
                shutil.rmtree(old, ignore_errors=True)
        commands = json.loads((target / "tools/commands.json").read_text(encoding="utf-8"))
        universe = json.loads((target / "tools/universe.json").read_text(encoding="utf-8"))
        brought = {
            os.path.basename(path) for package in universe["packages"].values() for path in package.get("commands", [])
        }
        always = [path for path in commands["always"]]
        names = {os.path.basename(path) for path in always}
        return Library(
            folder=target,
            launchers=dict.fromkeys(always, LAUNCHER),
            hidden=frozenset(names | brought | set(commands["hidden"])),
        )


def _digest() -> str:
    hasher = hashlib.sha256()
    for name in ("devices", "tools"):
        for path in sorted((_REHEARSAL / name).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                hasher.update(f"{name}/{path.relative_to(_REHEARSAL / name)}\0".encode())
                hasher.update(path.read_bytes())
    hasher.update((_MAIN + _INIT).encode())
    return hasher.hexdigest()[:16]
