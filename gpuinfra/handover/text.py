"""Parses text in the clouds' responses."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime

HOST_KEY_TYPES = frozenset(
    {"ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"}
)
MAX_HOST_KEYS = 8
MAX_HOST_KEY = 4096
"""Maximum length of a key. The longest key that OpenSSH generates has 16,384 bits and is shorter."""
_HOST_KEY = re.compile(r"([a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})")


def host_keys(listed: object) -> tuple[str, ...]:
    """Return the SSH host keys from evidence or from a state, each as `TYPE KEY` on one line. Other values are dropped.

    The lines are written to known_hosts files, where a line break or a marker would add trust for other hosts.
    """
    return tuple(one for one in listed[:MAX_HOST_KEYS] if _is_host_key(one)) if isinstance(listed, list) else ()


def _is_host_key(line: object) -> bool:
    match = _HOST_KEY.fullmatch(line) if isinstance(line, str) and len(line) <= MAX_HOST_KEY else None
    if match is None or match[1] not in HOST_KEY_TYPES:
        return False
    try:
        blob = base64.b64decode(match[2], validate=True)
    except (binascii.Error, ValueError):
        return False
    name = match[1].encode()
    # The key data repeats the key type, preceded by the length of the type in four bytes.
    return blob.startswith(len(name).to_bytes(4, "big") + name) and len(blob) > 4 + len(name)


def moment(text: object) -> datetime | None:
    """Parse an RFC 3339 time. If the time has no time zone, UTC is assumed. Return None if the time cannot be parsed."""
    try:
        parsed = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed and parsed.tzinfo is None else parsed
