"""`gpuinfra cp`: runs OpenSSH's scp with the host keys from the handover or from a hosts file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.cli.openssh import host_of, in_folder, opened, program
from gpuinfra.cli.options import FILE, stack_options
from gpuinfra.cli.stacks import Stacks

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host

FORM = "gpuinfra cp STACK FILE... NODE:PATH, or gpuinfra cp STACK NODE:PATH... FOLDER"
_REMOTE = re.compile(r"([^/:]+):(.*)", re.DOTALL)
"""A file on a node. As in scp, a local name with a colon needs a path: ./a:b."""


@click.command("cp")
@click.argument("words", nargs=-1, required=True, metavar="[STACK] SOURCE... DESTINATION")
@click.option("-r", "--recursive", is_flag=True, help="Copy folders and their contents.")
@click.option("--hosts", "hosts_file", type=FILE, metavar="FILE", help="Find the nodes in this hosts file (docs/guides/remote.md). Omit STACK.")  # fmt: skip
@click.option("--direct", is_flag=True, help="Connect to the private address instead of through the cloud's tunnel.")
@stack_options
def command(words: tuple[str, ...], recursive: bool, hosts_file: Path | None, direct: bool, stacks: Stacks) -> int:
    """Copy files between this machine and nodes of STACK.

    A file on a node is NODE:PATH, where NODE is a label (gpu-1) or an instance ID. PATH is relative to the home folder of the
    login user. The exit code is 0 if every file was copied.
    """
    scp = program("scp")
    stack = None if hosts_file else words[0]
    operands = list(words if hosts_file else words[1:])
    if len(operands) < 2:
        raise UsageError(f"a source and a destination are required; run: {FORM}")
    remote = [_REMOTE.fullmatch(one) for one in operands]
    if {bool(one) for one in remote[:-1]} != {not remote[-1]}:
        raise UsageError(f"either all sources or the destination must be on a node, but not both; run: {FORM}")
    with opened(stack, hosts_file, direct, stacks) as hosts:
        chosen: list[Host] = []
        for at, place in enumerate(remote):
            if place:
                chosen.append(host_of(hosts, place[1]))
                operands[at] = f"{chosen[-1].name}:{place[2]}"
        with in_folder(hosts, chosen) as file:
            options = ["-F", str(file), *(["-r"] if recursive else [])]
            return 0 if subprocess.call([scp, *options, "--", *operands]) == 0 else 1
