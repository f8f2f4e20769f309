"""How a message shows what a person wrote: short, on one line, and never a secret.

A declaration holds no secrets, but people paste them into odd places, and messages end up in logs.
So a text is shown only when it looks like something that could be meant here, and described otherwise.
"""

from __future__ import annotations

import re

LONGEST = 48
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+ -]*")
_SECRET = re.compile(
    r"(?i)(A[KS]IA[0-9A-Z]{8})|(gh[opsur]_)|(github_pat)|(xox[abpr]-)|(\bsk-)|(eyJ[A-Za-z0-9_-]{6})|(-----BEGIN)|(AIza[0-9A-Za-z_-]{10})"
    r"|(pass(word|wd|phrase)?\b)|(secret)|(token)|(api[-_]?key)|(bearer )|(://[^/ ]*:[^/ ]*@)"
)


def shown(value: object) -> str:
    """`'p4d.24xlarge'`, `-1`, `a list of 3`, `a text of 64 characters`."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number of more than 20 digits"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}" if value else "an empty mapping"
    return f"a value of type {type(value).__name__}"


def looks_secret(text: str) -> bool:
    """True for keys, tokens and anything as random as one."""
    if _SECRET.search(text):
        return True
    for run in re.findall(r"[A-Za-z0-9+/=_]{20,}", text):
        kinds = sum(bool(re.search(pattern, run)) for pattern in ("[a-z]", "[A-Z]", "[0-9]"))
        # Names of machines and ids mix at most two kinds at that length; `Standard_ND96amsr_A100_v4` is words and passes.
        if kinds == 3 and not all(len(word) <= 10 for word in run.split("_")):
            return True
    return False


def _text(value: str) -> str:
    if len(value) > LONGEST or not _PLAIN.fullmatch(value) or looks_secret(value):
        return f"a text of {len(value)} characters" if value else "an empty text"
    return repr(value)
