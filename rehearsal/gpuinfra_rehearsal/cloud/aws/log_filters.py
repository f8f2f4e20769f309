"""Evaluates filter patterns of CloudWatch Logs for JSON events: comparisons of strings, with `*` or a regular expression, joined by `&&` or `||`.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html and regex-expressions.html, retrieved 2026-11-30. A pattern that the
service refuses raises `ValueError`, and so does one with other operators, which the stand-in does not know.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_CHARACTERS, MOST_REGEXES = 1024, 2
_COMPARISON = re.compile(r'\s*\$((?:\.\w+)+)\s*(=|!=)\s*(?:"([^"]*)"|%([^%]*)%)\s*')
_REGEX = re.compile(r"(?:[A-Za-z0-9:_#=@/;,\-^$?\[\]{}|*+.]|\\.)*")
"""Characters that a regular expression can contain. There are neither groups nor spaces."""


def matches(pattern: str, message: str) -> bool:
    """Return whether an event matches."""
    alternatives = parsed(pattern)
    try:
        event = json.loads(message)
    except ValueError:
        return False
    return any(all(_holds(event, *one) for one in together) for together in alternatives)


def parsed(pattern: str) -> list[list[tuple[str, str, re.Pattern[str]]]]:
    """Return the path, the operator and the value of each comparison: one of the outer lists matches with all of its comparisons."""
    body = re.fullmatch(r"\{(.*)\}", pattern.strip())
    if body is None or len(pattern) > MOST_CHARACTERS:
        raise ValueError("not a JSON pattern, or too long")
    if body[1].count("%") > 2 * MOST_REGEXES:
        raise ValueError("too many regular expressions")
    alternatives = []
    for part in _split(body[1], "||"):
        together = []
        for comparison in _split(part, "&&"):
            match = _COMPARISON.fullmatch(comparison)
            if match is None:
                raise ValueError(f"cannot parse {comparison}")
            path, operator, text, regex = match.groups()
            if regex is not None and not _REGEX.fullmatch(regex):
                raise ValueError(f"the regular expression contains other characters: {regex}")
            value = re.compile(regex) if regex is not None else _wildcards(text)
            together.append((path, operator, value))
        alternatives.append(together)
    return alternatives


def _split(text: str, operator: str) -> list[str]:
    """Split outside of strings and regular expressions."""
    parts, start, quote, at = [], 0, "", 0
    while at < len(text):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in '"%':
            quote = letter
        elif text.startswith(operator, at):
            parts.append(text[start:at])
            start = at + len(operator)
            at = start
            continue
        at += 1
    return [*parts, text[start:]]


def _wildcards(text: str) -> re.Pattern[str]:
    return re.compile("^" + ".*".join(map(re.escape, text.split("*"))) + "$", re.DOTALL)


def _holds(event: Any, path: str, operator: str, value: re.Pattern[str]) -> bool:
    for name in path.split(".")[1:]:
        event = event.get(name) if isinstance(event, dict) else None
    if not isinstance(event, str):
        return False
    return (value.search(event) is not None) is (operator == "=")
