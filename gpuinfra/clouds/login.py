"""How an operator logs in to the nodes of a stack. A cloud's `tunnel` module creates a `Login` and a route to each node.

| cloud | user | key |
| --- | --- | --- |
| AWS | the default user of Ubuntu images | a new key for each command, which EC2 Instance Connect accepts for 60 seconds |
| Azure | the administrator of the scale sets | your own key, which `access.ssh_keys` lists |
| Google Cloud | your OS Login account | a new key for each command, which OS Login accepts until it expires |
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing
from gpuinfra.base.safe_text import one_line
from gpuinfra.inventory import Node


@dataclass(frozen=True, kw_only=True)
class Login:
    """The user and the keys for the nodes of a stack."""

    user: str
    identity: tuple[Path, ...] = ()
    """Private keys. If empty, the keys in your SSH agent and in ~/.ssh are used."""
    key_lifetime: str = ""
    """How long the cloud accepts the key, such as `3h`. Empty if it does not expire, or if each connection sends it again."""


class Tunnel(Protocol):
    """The module `tunnel` of a cloud. `resources` are those in the stack's state."""

    def login(self, folder: Path, resources: Sequence[Mapping[str, Any]]) -> Login:
        """Return the login for one command. `folder` receives its key."""
        ...

    def proxy_command(
        self, node: Node, login: Login, region: str, resources: Sequence[Mapping[str, Any]], *, direct: bool
    ) -> list[str]:
        """Return the proxy command of SSH for a node, or an empty list if SSH connects directly."""
        ...


def new_key(folder: Path) -> Path:
    """Create a key pair for one command. Returns the private key; the public key is next to it, with the suffix `.pub`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = folder / "login"
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private.with_suffix(".pub").write_bytes(public + b" gpuinfra\n")
    return private


def answer_of(words: Sequence[str], install: str) -> str:
    """Run a cloud's command-line program and return its output. `install` is the hint if the program is missing."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise EnvironmentMissing(f"{words[0]} cannot be started: {error.strerror}; {install}") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise DeploymentError(
            f"`{' '.join(words[:5])}` failed: {one_line(lines[-1], 500) if lines else 'no error message'}"
        )
    return done.stdout
