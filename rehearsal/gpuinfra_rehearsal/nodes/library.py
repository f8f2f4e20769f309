"""The stand-in commands for all nodes of a rehearsal: one byte-compiled copy, packaged as `standin`.

The installation can be read-only and without byte code, and compiling on every call takes longer than the call itself.
The copy is replaced when its content changes.
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
_PACKAGES = ("devices", "tools")
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")

_MAIN = """#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/run/standin/lib")
from standin.tools.dispatch import main
sys.exit(main(sys.argv))
"""

_INIT = """import sys
sys.path.insert(0, "/run/standin/lib")
from standin.tools.init import main
sys.exit(main(sys.argv))
"""


@dataclass(frozen=True, kw_only=True)
class ToolLibrary:
    """The copy of the tools, and the changes that it makes to a node's /usr."""

    folder: Path
    launchers: dict[str, str]
    """Launchers keyed by path in the node, for commands in every image."""
    hidden: frozenset[str]
    """Names of host commands that are hidden from nodes."""

    @staticmethod
    def make(folder: Path) -> ToolLibrary:
        """Copy and compile once. Several processes can call this concurrently."""
        digest = _digest()
        target = folder / digest
        if not (target / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
            for name in _PACKAGES:
                shutil.copytree(_REHEARSAL / name, partial / "standin" / name, ignore=_SKIPPED)
            (partial / "standin/__init__.py").touch()
            compileall.compile_dir(partial, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
            for name, text in (("tool", _MAIN), ("init", _INIT)):
                (partial / name).write_text(text, encoding="utf-8")
                (partial / name).chmod(0o755)
            (partial / "complete").touch()
            partial.chmod(0o755)
            with contextlib.suppress(OSError):  # another process finished first
                partial.rename(target)
            shutil.rmtree(partial, ignore_errors=True)
        for old in folder.iterdir():
            if old != target and not old.name.startswith(".partial"):
                shutil.rmtree(old, ignore_errors=True)
        commands = json.loads((target / "standin/tools/commands.json").read_text(encoding="utf-8"))
        universe = json.loads((target / "standin/tools/universe.json").read_text(encoding="utf-8"))
        packaged = {
            os.path.basename(path) for package in universe["packages"].values() for path in package.get("commands", [])
        }
        names = {os.path.basename(path) for path in commands["always"]}
        return ToolLibrary(
            folder=target,
            launchers=dict.fromkeys(commands["always"], LAUNCHER),
            hidden=frozenset(names | packaged | set(commands["hidden"])),
        )


def _digest() -> str:
    hasher = hashlib.sha256()
    for name in _PACKAGES:
        for path in sorted((_REHEARSAL / name).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                hasher.update(f"{name}/{path.relative_to(_REHEARSAL / name)}\0".encode())
                hasher.update(path.read_bytes())
    hasher.update((_MAIN + _INIT).encode())
    return hasher.hexdigest()[:16]
