"""Formats values of a declaration for messages: short, on one line, and without secrets.

A declaration does not contain secrets, but you can paste one by mistake, and messages appear in logs.
A string is therefore shown only if it looks like a regular value. Other strings are described.
"""

from __future__ import annotations

import re

_MAX_LENGTH = 48
_LONGEST = 200
"""Longer strings are described, because they are no value of a field, and because the search for secrets takes quadratic time."""
_PREFIX = 32
"""Number of characters that are shown of a longer string."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,= -]*")
_SECRET = re.compile(
    r"(?i)(A[KS]IA[0-9A-Z]{8})|(gh[opsur]_)|(github_pat)|(xox[abpr]-)|(\bsk-)|(eyJ[A-Za-z0-9_-]{6})|(-----BEGIN)|(AIza[0-9A-Za-z_-]{10})"
    r"|(pass(word|wd|phrase)?\b)|(secret)|(token)|(api[-_]?key)|(bearer )|(://[^/ ]*:[^/ ]*@)"
)

_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bA[KS]IA[0-9A-Z]{16}\b|\bgh[opsur]_[A-Za-z0-9]{36}|\bgithub_pat_[A-Za-z0-9_]{36}"
    r"|\bxox[abpr]-[A-Za-z0-9-]{20}|\bAIza[0-9A-Za-z_-]{35}|\bhf_[A-Za-z0-9]{30}|\bglpat-[A-Za-z0-9_-]{20}"
    r"|\bAWS_SECRET_ACCESS_KEY=[\"']?[A-Za-z0-9/+]{40}"
)
"""Complete keys and tokens, for texts that can mention the words `password` and `token`."""


def shown(value: object) -> str:
    """Return the value for a message: `'p4d.24xlarge'`, `-1`, `a list of length 3`; a secret is `a string of 64 characters`."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number of more than 20 digits"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return f"a list of length {len(value)}"
    if isinstance(value, dict):
        return f"a mapping with {len(value)} {'key' if len(value) == 1 else 'keys'}" if value else "an empty mapping"
    return f"a value of type {type(value).__name__}"


def looks_secret(text: str) -> bool:
    """Return whether a text looks like a key or a token, or is as random as a key."""
    if _SECRET.search(text):
        return True
    for run in re.findall(r"[A-Za-z0-9+/=_]{20,}", text):
        kinds = sum(bool(re.search(pattern, run)) for pattern in ("[a-z]", "[A-Z]", "[0-9]"))
        # Machine names and IDs of this length contain at most two character classes. `Standard_ND96amsr_A100_v4` passes as several short words.
        if kinds == 3 and not all(len(word) <= 10 for word in run.split("_")):
            return True
    return False


def contains_key(text: str) -> bool:
    """Return whether a text, such as a script, contains a complete private key or access token."""
    return _KEY.search(text) is not None


def _text(value: str) -> str:
    if len(value) > _LONGEST or not _PLAIN.fullmatch(value) or looks_secret(value):
        return f"a string of {len(value)} characters"
    return (
        repr(value) if len(value) <= _MAX_LENGTH else f"{value[:_PREFIX]!r} and {len(value) - _PREFIX} more characters"
    )
