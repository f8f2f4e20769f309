"""What every command of the node part shares: exit codes, where things are, and how it speaks to people."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

OK, NOT_VERIFIED, WRONG_USE, ENVIRONMENT = 0, 1, 2, 3
NODE = Path("/etc/gpuinfra/node.json")
STATE = Path("/var/lib/gpuinfra/state.json")
BUNDLE = Path("/opt/gpuinfra/current")


class Missing(Exception):
    """The environment lacks something; the message says what and what to do."""


def say(line: str, console: bool = False) -> None:
    """One line for people on stderr, and on the console where nobody is logged in to see stderr."""
    from .words import harmless

    line = "gpuinfra: %s" % harmless(line).replace("\n", " ")
    print(line, file=sys.stderr)
    if console:
        try:
            handle = os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            os.write(handle, (line + "\r\n").encode("utf-8", "replace"))
            os.close(handle)
        except OSError:
            pass  # no console here


def load(path: Path, what: str, mend: str) -> dict[str, Any]:
    """A file that has to be there: what it is, and what to do where it is not."""
    found = optional(path)
    if found is None:
        raise Missing("%s is not at %s; %s" % (what, path, mend))
    return found


def optional(path: Path) -> dict[str, Any] | None:
    """A JSON object of a file, None where there is no file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Missing("%s cannot be read: %s" % (path, error)) from None
    if not isinstance(value, dict):
        raise Missing("%s holds no JSON object" % path)
    return value
