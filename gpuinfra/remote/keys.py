"""Login keys: the SSH agent, and private keys with their certificates."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

import paramiko

from gpuinfra.base.errors import reason_of


def ssh_agent() -> paramiko.Agent | None:
    """Connect to the user's SSH agent. Each login opens a separate connection, because paramiko's client is not safe for concurrent use."""
    try:
        return paramiko.Agent()
    except (paramiko.SSHException, OSError):
        return None


@cache
def default_keys() -> tuple[Path, ...]:
    """Return OpenSSH's default keys."""
    folder = Path("~/.ssh").expanduser()
    return tuple(path for name in ("id_ed25519", "id_ecdsa", "id_rsa") if (path := folder / name).is_file())


_KEYS: dict[Path, paramiko.PKey | str] = {}
_KEYS_GUARD = threading.Lock()


def private_key(path: Path, reasons: list[str]) -> paramiko.PKey | None:
    """Load a private key with its certificate. The key is loaded once, because decrypting it for hundreds of hosts would take minutes."""
    with _KEYS_GUARD:
        if path not in _KEYS:
            try:
                _KEYS[path] = paramiko.PKey.from_path(path)
            except (paramiko.SSHException, OSError, ValueError, TypeError) as error:
                locked = "passphrase" in str(error).lower() or "password" in str(error).lower()
                _KEYS[path] = (
                    f"{path} has a passphrase; add the key to the agent (ssh-add)"
                    if locked
                    else f"{path} cannot be used: {reason_of(error)}"
                )
        key = _KEYS[path]
    if isinstance(key, str):
        reasons.append(key)
        return None
    return key
