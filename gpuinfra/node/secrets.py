"""`node.pyz secrets`: reads the secrets of the receivers of alerts with the node's identity, for `gpuinfra-alertmanager` on the control node.
`node.pyz discovery` also reads the secret of the remote endpoint, for `gpuinfra-prometheus`.

Each secret becomes a file in the runtime folder of the unit, which is in memory. The file belongs to the user of the unit.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from . import cloud
from .console import NODE, OK, MissingPrerequisite, load

NAMES = Path("/etc/gpuinfra-monitoring/secrets.json")
"""Receiver, or `remote-write` -> name of its secret."""
FOLDER = Path("/run/gpuinfra-alertmanager")


@runtime_checkable
class SecretStore(Protocol):
    """A cloud whose secrets a node can read."""

    def secret(self, name: str) -> str:
        """Return the value of a secret. Raises `CloudError` if the request fails."""
        ...


def secrets(args: argparse.Namespace, names: Path = NAMES, folder: Path = FOLDER) -> int:
    """Write a file for each secret. Raises `MissingPrerequisite` with the reason if one cannot be read."""
    del args
    wanted = load(names, "the list of secrets", "the step 92-files writes it on the control node")
    if not wanted:
        return OK
    store = cloud.of(load(NODE, "the node's configuration", "user data writes it"))
    if not isinstance(store, SecretStore):
        raise MissingPrerequisite("nodes of this cloud cannot read secrets")
    owner = folder.stat()
    for user, name in sorted(wanted.items()):
        try:
            value = store.secret(str(name)).strip()
        except cloud.CloudError as error:
            raise MissingPrerequisite(
                "the secret of %s: %s; create the secret, or correct monitoring" % (user, error)
            ) from None
        write(folder / str(user), value, owner)
    return OK


def write(path: Path, text: str, owner: os.stat_result) -> None:
    """Write a file that only its owner can read, in the runtime folder of a unit."""
    draft = path.with_name(path.name + ".new")
    try:
        draft.unlink()  # a killed run left it, with any mode
    except FileNotFoundError:
        pass
    handle = os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        # By the open file: the user of the unit can write in the folder, and could replace the name with a link.
        os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
    draft.replace(path)
