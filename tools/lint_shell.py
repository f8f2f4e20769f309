"""Runs shellcheck and shfmt on all shell files in git. Both tools are installed from wheels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def main() -> int:
    """Return exit code 0 if all files are clean."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = sorted(name for name in listed.stdout.split("\0") if name and is_shell(ROOT / name))
    if not files:
        print("no shell files", file=sys.stderr)
        return 1
    commands = [
        # SC1128: cloud-init reads the type of a boot hook from its first line, and runs it with the interpreter in the second one.
        [BIN / "shellcheck", "--exclude=SC1128", "--external-sources", "--source-path=SCRIPTDIR", *files],
        [BIN / "shfmt", "--diff", "--indent", "2", "--case-indent", *files],
    ]
    return max(subprocess.run(command, cwd=ROOT).returncode for command in commands)


def is_shell(path: Path) -> bool:
    """Return whether the file is a shell script, by its name or first line. Recordings are data and do not count."""
    if "recordings" in path.parts or not path.is_file():
        return False
    if path.suffix in {".sh", ".bash"}:
        return True
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and first.rstrip().endswith((b"/bash", b"/sh", b" bash", b" sh"))


if __name__ == "__main__":
    sys.exit(main())
