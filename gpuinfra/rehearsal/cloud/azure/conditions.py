"""Conditions of role assignments: Azure's attribute-based language, as far as requests about blobs need it.

Supported: AND, OR, ! and parentheses, ActionMatches, and comparisons of one @Resource or @Request attribute with one or
several texts. An attribute that a request does not have compares as false. A condition that cannot be parsed is false,
so a gap shows as a denial. https://learn.microsoft.com/azure/role-based-access-control/conditions-format, read 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(
    r"\s*(?:(?P<word>AND|OR)\b|(?P<mark>&&|\|\||!|\(|\)|\{|\}|,)|(?P<name>ActionMatches|SubOperationMatches)\b"
    r"|@(?P<source>Resource|Request)\[(?P<attribute>[^\]]+)\]|(?P<operator>String\w+)\b|'(?P<text>(?:[^']|'')*)')"
)
_Token = tuple[str, str]


class Unreadable(Exception):
    """The condition cannot be parsed."""


def holds(condition: str, action: str, attributes: Mapping[str, str]) -> bool:
    """Whether a condition is true for an action; `attributes` are those of the request (`containers:name`, `blobs:path`)."""
    try:
        reader = _Reader(_tokens(condition), action, attributes)
        value = reader.either()
        return value and reader.done()
    except Unreadable:
        return False


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable(text[at : at + 40])
        at = match.end()
        if match["attribute"] is not None:
            found.append(("attribute", match["attribute"].strip()))
        elif match["text"] is not None:
            found.append(("text", match["text"].replace("''", "'")))
        else:
            kind = next(kind for kind in ("word", "mark", "name", "operator") if match[kind] is not None)
            value = {"&&": "AND", "||": "OR"}.get(match[kind], match[kind])
            found.append((value, "") if value in ("AND", "OR") else (kind, value))
    return found


class _Reader:
    """Recursive descent; each part is evaluated while it is parsed."""

    def __init__(self, tokens: list[_Token], action: str, attributes: Mapping[str, str]) -> None:
        self._tokens, self._at = tokens, 0
        self._action = action
        self._attributes = {name.lower(): value for name, value in attributes.items()}

    def done(self) -> bool:
        if self._at != len(self._tokens):
            raise Unreadable("something follows")
        return True

    def either(self) -> bool:
        value = self.both()
        while self._take("OR"):
            value = self.both() or value
        return value

    def both(self) -> bool:
        value = self.one()
        while self._take("AND"):
            value = self.one() and value
        return value

    def one(self) -> bool:
        if self._take("mark", "!"):
            return not self.one()
        if self._take("mark", "("):
            value = self.either()
            self._want("mark", ")")
            return value
        kind, text = self._next()
        if kind == "name":
            patterns = self._set()
            if text == "SubOperationMatches":
                raise Unreadable(text)
            return any(_like(pattern, self._action) for pattern in patterns)
        if kind == "attribute":
            operator = self._next()
            if operator[0] != "operator":
                raise Unreadable(text)
            return self._compare(text, operator[1], self._set_or_text())
        raise Unreadable(text)

    def _compare(self, attribute: str, operator: str, wanted: list[str]) -> bool:
        given = self._attributes.get(attribute.lower())
        judge = _OPERATORS.get(operator)
        if judge is None:
            raise Unreadable(operator)
        return given is not None and any(judge(given, one) for one in wanted)

    def _set_or_text(self) -> list[str]:
        if self._tokens[self._at : self._at + 1] == [("mark", "{")]:
            return self._set()
        return [self._want("text")]

    def _set(self) -> list[str]:
        self._want("mark", "{")
        found = [self._want("text")]
        while self._take("mark", ","):
            found.append(self._want("text"))
        self._want("mark", "}")
        return found

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise Unreadable("it ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, kind: str, text: str = "") -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (kind, text):
            self._at += 1
            return True
        return False

    def _want(self, kind: str, text: str | None = None) -> str:
        found = self._next()
        if found[0] != kind or (text is not None and found[1] != text):
            raise Unreadable(found[1])
        return found[1]


def _like(pattern: str, text: str) -> bool:
    parts = [".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern)]
    return re.fullmatch("".join(parts), text, re.I | re.S) is not None


_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda given, wanted: given == wanted,
    "StringEqualsIgnoreCase": lambda given, wanted: given.lower() == wanted.lower(),
    "StringNotEquals": lambda given, wanted: given != wanted,
    "StringStartsWith": lambda given, wanted: given.startswith(wanted),
    "StringStartsWithIgnoreCase": lambda given, wanted: given.lower().startswith(wanted.lower()),
    "StringNotStartsWith": lambda given, wanted: not given.startswith(wanted),
    "StringLike": lambda given, wanted: _like(wanted, given) and given.startswith(re.split(r"[*?]", wanted)[0]),
    "StringLikeIgnoreCase": lambda given, wanted: _like(wanted, given),
}
