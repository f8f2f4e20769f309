"""What a person logs in with: the agent, and private keys with their certificates."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

import paramiko


def agent() -> paramiko.Agent | None:
    """The person's agent; each login asks over a connection of its own, because the client takes turns badly."""
    try:
        return paramiko.Agent()
    except (paramiko.SSHException, OSError):
        return None


@cache
def default_keys() -> tuple[Path, ...]:
    """What OpenSSH would take where nothing is named."""
    folder = Path("~/.ssh").expanduser()
    return tuple(path for name in ("id_ed25519", "id_ecdsa", "id_rsa") if (path := folder / name).is_file())


_KEYS: dict[Path, paramiko.PKey | str] = {}
_KEYS_GUARD = threading.Lock()


def private_key(path: Path, reasons: list[str]) -> paramiko.PKey | None:
    """A private key with its certificate; read once, because unlocking hundreds of times costs minutes."""
    with _KEYS_GUARD:
        if path not in _KEYS:
            try:
                _KEYS[path] = paramiko.PKey.from_path(path)
            except (paramiko.SSHException, OSError, ValueError, TypeError) as error:
                locked = "passphrase" in str(error).lower() or "password" in str(error).lower()
                _KEYS[path] = f"{path} is locked: ssh-add it" if locked else f"{path} cannot be used: {error}"
        found = _KEYS[path]
    if isinstance(found, str):
        reasons.append(found)
        return None
    return found
