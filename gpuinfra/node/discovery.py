"""`node.pyz discovery`: writes the configuration of Prometheus with the names of the node's account, for `gpuinfra-prometheus` on the control node.

A plan does not contain these names. In the file of the plan, `${name}` stands for the value of `NodeCloud` with that name.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Mapping, Protocol, runtime_checkable

from . import cloud
from .console import NODE, MissingPrerequisite, load
from .secrets import secrets, write

PLANNED = Path("/etc/gpuinfra-monitoring/prometheus.yml")
FOLDER = Path("/run/gpuinfra-prometheus")
NAMES = Path("/etc/gpuinfra-monitoring/prometheus-secrets.json")
"""`remote-write` -> name of its secret; empty without a remote endpoint."""
_NAME = re.compile(r"\$\{(\w+)\}")


@runtime_checkable
class NamedAccount(Protocol):
    """A cloud whose service discovery needs names of the account."""

    def account(self) -> Mapping[str, str]:
        """Return the names. Raises `CloudError` if the metadata service does not have them."""
        ...


def discovery(args: argparse.Namespace, planned: Path = PLANNED, folder: Path = FOLDER, names: Path = NAMES) -> int:
    """Write the configuration and the secret of the remote endpoint to the runtime folder of the unit. Raises `MissingPrerequisite` with the reason
    if a name or the secret cannot be read."""
    try:
        text = planned.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingPrerequisite("%s cannot be read: %s; the step 92-files writes it" % (planned, error)) from None
    if _NAME.search(text):
        text = _filled(text)
    write(folder / planned.name, text, folder.stat())
    return secrets(args, names, folder)


def _filled(text: str) -> str:
    node = cloud.of(load(NODE, "the node's configuration", "user data writes it"))
    if not isinstance(node, NamedAccount):
        raise MissingPrerequisite("nodes of this cloud cannot read the names of their account")
    try:
        names = node.account()
    except cloud.CloudError as error:
        raise MissingPrerequisite("the names of the account: %s" % error) from None

    def value(match: re.Match[str]) -> str:
        name = names.get(match[1], "")
        if not re.fullmatch(r"[\w.()-]+", name):
            raise MissingPrerequisite(
                "the metadata service returned %r as the %s of this machine" % (name[:40], match[1])
            )
        return name

    return _NAME.sub(value, text)
