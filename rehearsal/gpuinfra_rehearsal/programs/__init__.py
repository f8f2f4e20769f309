"""The clouds' command-line programs in a rehearsal: `aws`, `az` and `gcloud`, with the commands that gpuinfra runs.

| program | commands |
| --- | --- |
| `aws` | `ec2-instance-connect send-ssh-public-key`, `ssm start-session` |
| `az` | `network bastion tunnel` |
| `gcloud` | `compute os-login ssh-keys add`, `compute start-iap-tunnel` |

They use the operator's credentials and the endpoint variables of the real programs. They refuse other commands.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from gpuinfra.clouds.relay import relay

NAMES = ("aws", "az", "gcloud")


def install(folder: Path, python: str) -> None:
    """Write the programs into a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} -m {__name__}.{name} "$@"\n', encoding="utf-8")
        file.chmod(0o755)


def run(name: str, commands: dict[tuple[str, ...], Callable[[list[str]], int]]) -> NoReturn:
    """Run the command that the first words select."""
    words = sys.argv[1:]
    for command, action in commands.items():
        if tuple(words[: len(command)]) == command:
            sys.exit(action(words[len(command) :]))
    sys.exit(f"{name}: a rehearsal does not support the command {' '.join(words[:4])}")


def parsed(
    command: str, words: Sequence[str], required: Sequence[str], optional: Sequence[str] = ()
) -> argparse.Namespace:
    """Parse options that take a value. Option names cannot be abbreviated."""
    parser = argparse.ArgumentParser(prog=command, allow_abbrev=False)
    for option in (*required, *optional):
        parser.add_argument(option, required=option in required, default="")
    return parser.parse_args(words)


def relayed(port: int) -> int:
    """Connect standard input and output to a port on this machine."""
    try:
        stream = socket.create_connection(("127.0.0.1", port), timeout=20)
    except OSError as error:
        sys.exit(f"the node does not accept connections: {error.strerror}")
    with stream:
        relay(stream)
    return 0


def variable(name: str) -> str:
    """Return an environment variable of the rehearsal."""
    value = os.environ.get(name)
    return value or sys.exit(f"{name} is not set; this program runs only in a rehearsal")
