"""useradd, usermod, chown, stat and sshd: users are lines in /etc/passwd, /etc/group and /etc/shadow. Files belong to root, the only user of a node.

`chown` records another owner in the state, and `stat` prints it.
"""

from __future__ import annotations

import os
import sys

from .passthrough import become_real
from .state import change_state, exists, fail, read_state, read_text, walk, write_file

PASSWD, GROUP, SHADOW = "/etc/passwd", "/etc/group", "/etc/shadow"
_DEFAULT_KEYS = ".ssh/authorized_keys .ssh/authorized_keys2"


def useradd(argv: list[str]) -> int:
    """`useradd --uid ID --user-group --no-create-home --home-dir PATH --shell PATH --password HASH NAME`."""
    options, name = _options(argv, ("--uid", "--home-dir", "--shell", "--password"))
    if _locked("useradd"):
        return 1
    rows, number = _rows(PASSWD), options["--uid"]
    if any(row[0] == name for row in rows):
        return fail(f"useradd: user '{name}' already exists", 9)
    if any(row[2] == number for row in rows):
        return fail(f"useradd: UID {number} is not unique", 4)
    home, shell = options["--home-dir"], options["--shell"]
    _write(PASSWD, [*rows, [name, "x", number, number, "", home, shell]])
    _write(GROUP, [*_rows(GROUP), [name, "x", number, ""]])
    shadow = [name, options["--password"], "20000", "0", "99999", "7", "", "", ""]
    _write(SHADOW, [*_rows(SHADOW), shadow], 0o640)
    return 0


def usermod(argv: list[str]) -> int:
    """`usermod --expiredate DAYS NAME`."""
    options, name = _options(argv, ("--expiredate",))
    if _locked("usermod"):
        return 1
    rows = _rows(SHADOW)
    if all(row[0] != name for row in rows):
        return fail(f"usermod: user '{name}' does not exist", 6)
    changed = [[*row[:7], options["--expiredate"], *row[8:]] if row[0] == name else row for row in rows]
    _write(SHADOW, changed, 0o640)
    return 0


def chown(argv: list[str]) -> int:
    """Check the owner and the paths, and record the owner of files. The kernel allows only root as the new owner."""
    words = [word for word in argv if not word.startswith("-")]
    user, _, group = words[0].partition(":")
    if {user, group} <= {"root", "0", ""} or argv[0].startswith("--reference"):
        return become_real("chown", argv)
    for kind, value, path in (("user", user, PASSWD), ("group", group, GROUP)):
        if value and not value.isdigit() and all(row[0] != value for row in _rows(path)):
            return fail(f"chown: invalid {kind}: '{words[0]}'")
    missing = [path for path in words[1:] if not exists(path)]
    if missing:
        return fail(f"chown: cannot access '{missing[0]}': No such file or directory")
    if "-R" not in argv:
        recorded = {_file_key(path): [user or "root", group or "root"] for path in words[1:]}
        change_state(lambda state: state.setdefault("owners", {}).update(recorded))
    return 0


def stat(argv: list[str]) -> int:
    """`stat -c FORMAT [--] PATH` with the recorded owner in place of %U and %G."""
    owner = None
    if argv[:1] == ["-c"] and len(argv) > 2 and exists(argv[-1]):
        owner = read_state().get("owners", {}).get(_file_key(argv[-1]))
    if owner is None:
        return become_real("stat", argv)
    return become_real("stat", [argv[0], argv[1].replace("%U", owner[0]).replace("%G", owner[1]), *argv[2:]])


def _file_key(path: str) -> str:
    """Return a key of a file that a rename does not change, and that a later file with the same inode does not have."""
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}"


def sshd(argv: list[str]) -> int:
    """`sshd -T` prints the effective configuration. The first value of a keyword applies."""
    if "-T" not in argv:
        return fail("sshd: the stand-in supports only -T")
    lines = [line.split() for path in sorted(walk("/etc/ssh/sshd_config.d")) for line in read_text(path).splitlines()]
    keys = next((" ".join(words[1:]) for words in lines if words and words[0] == "AuthorizedKeysFile"), _DEFAULT_KEYS)
    sys.stdout.write(f"port 22\nusepam yes\nauthorizedkeysfile {keys}\n")
    return 0


def _locked(command: str) -> bool:
    if "accounts-locked" not in read_state()["faults"]:
        return False
    sys.stderr.write(f"{command}: cannot lock {PASSWD}; try again later.\n")
    return True


def _options(argv: list[str], with_value: tuple[str, ...]) -> tuple[dict[str, str], str]:
    """Return the options with a value, and the last word."""
    return {word: argv[i + 1] for i, word in enumerate(argv) if word in with_value}, argv[-1]


def _rows(path: str) -> list[list[str]]:
    return [line.split(":") for line in read_text(path, "").splitlines()]


def _write(path: str, rows: list[list[str]], mode: int = 0o644) -> None:
    write_file(path, "".join(":".join(row) + "\n" for row in rows), mode)
