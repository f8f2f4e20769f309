"""Reads JSON from files, nodes, clouds and other programs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NoReturn

from gpuinfra.base.safe_text import printable

MAX_BYTES, MAX_ENTRIES, MAX_DEPTH = 8 * 1024 * 1024, 200_000, 40
"""Limits of a document from outside: its size, the number of its values, and the depth of its lists and objects."""
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_STEP = bytes.maketrans(b"[{]}", b"\x01\x01\x00\x00")
_OTHERS = bytes(set(range(256)) - set(b"[{]}"))


def parsed(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises `ValueError` if the text is not JSON, or if it is nested too deeply for Python's parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None


def bounded(data: bytes, limit: int = MAX_BYTES, clean: Callable[[str], str] = printable) -> Any:
    """Return the value of JSON from a writer that is not trusted. Raises `ValueError` if it is not JSON in UTF-8, or exceeds a limit.

    `clean` makes each text and each name of a field safe to show.

    The limits are checked before the text is parsed, because a list of empty lists takes fifty times its size in memory. Bytes that are not
    UTF-8 are replaced. Numbers are finite, and integers have at most 20 digits.
    """
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit} bytes")
    outside = _STRINGS.sub(b"", data)
    if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MAX_ENTRIES:
        raise ValueError(f"it has more than {MAX_ENTRIES} entries")
    steps = outside.translate(_STEP, _OTHERS)
    if max(accumulate(steps, lambda depth, opens: depth + (1 if opens else -1), initial=0)) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_no_number)
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    return _cleaned(value, clean)


def _cleaned(value: object, clean: Callable[[str], str]) -> object:
    """Return a value whose depth is bounded with safe texts."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _cleaned(inner, clean) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner, clean) for inner in value]
    return value


def _whole(text: str) -> int:
    if len(text) > 21:
        raise ValueError("it contains an integer of more than 20 digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it contains a number that is not finite")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"it contains {text}, which is not JSON")
