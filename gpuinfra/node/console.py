"""Exit codes, paths and messages that all commands in the node program share."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

OK, NOT_VERIFIED, WRONG_USE, ENVIRONMENT, NO_PARTNER = 0, 1, 2, 3, 4
NODE = Path("/etc/gpuinfra/node.json")
STATE = Path("/var/lib/gpuinfra/state.json")
BUNDLE = Path("/opt/gpuinfra/current")


class MissingPrerequisite(Exception):
    """A prerequisite is missing. The message names the prerequisite and the action to take."""

    code = ENVIRONMENT


def print_message(line: str, console: bool = False) -> None:
    """Print one line on stderr, and on the system console for units without a terminal."""
    from .outcome import escaped

    line = "gpuinfra: %s" % escaped(line).replace("\n", " ")
    print(line, file=sys.stderr)
    if console:
        try:
            handle = os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            os.write(handle, (line + "\r\n").encode("utf-8", "replace"))
            os.close(handle)
        except OSError:
            pass  # no console


def load(path: Path, what: str, fix: str) -> dict[str, Any]:
    """Load a required JSON file. `what` describes it, and `fix` states what to do if it is missing."""
    document = optional(path)
    if document is None:
        raise MissingPrerequisite("%s does not exist at %s; %s" % (what, path, fix))
    return document


def optional(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if the file does not exist."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MissingPrerequisite("cannot read %s: %s" % (path, error)) from None
    if not isinstance(value, dict):
        raise MissingPrerequisite("%s contains no JSON object" % path)
    return value
