"""Options that several commands have, said once: how hosts are reached over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def ssh_options(*, hosts: str, pool: str, timeout_s: int) -> Any:
    """`--hosts`, `--pool`, `--parallel`, `--timeout`, `--direct` and `--known-hosts`; the first two in the command's own words."""
    options = [
        click.option("--hosts", "hosts_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=hosts),
        click.option("--pool", metavar="POOL", help=pool),
        click.option("--parallel", type=click.IntRange(1, 512), default=64, show_default=True, help="Connections at one time."),
        click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=timeout_s, show_default=True, help="Seconds that one host may take."),
        click.option("--direct", is_flag=True, help="Connect to the nodes' private addresses, not through the cloud's tunnel."),
        click.option(
            "--known-hosts", type=click.Path(dir_okay=False, path_type=Path), multiple=True, metavar="FILE",
            help="Host keys and host CAs to believe, instead of ~/.ssh/known_hosts. May be given several times.",
        ),
    ]  # fmt: skip

    def with_options(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options
