"""Conditions of role assignments: the subset of Azure's attribute-based language that blob requests need.

Supported: AND, OR, !, NOT and parentheses, ActionMatches, SubOperationMatches, and comparisons of one @Resource or @Request attribute with one or
more strings. A comparison with a missing attribute is false. A condition that cannot be parsed is false, so gaps
appear as denials. https://learn.microsoft.com/azure/role-based-access-control/conditions-format, retrieved 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpuinfra_rehearsal.cloud.core.conditions import Reader, tokens

_TOKEN = re.compile(
    r"\s*(?:(?P<sign>(?:AND|OR|NOT)\b|&&|\|\||!|\(|\)|\{|\}|,)|(?P<name>(?:Action|SubOperation)Matches)\b"
    r"|@(?:Resource|Request)\[(?P<attribute>[^\]]+)\]|(?P<operator>String\w+)\b|'(?P<text>(?:[^']|'')*)')"
)


SUB_OPERATION = "suboperation"
"""Key of the suboperation of a request among its attributes, such as `Blob.List`."""


def holds(condition: str, action: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a condition is true for an action. `attributes` contains the request's attributes
    (`containers:name`, `blobs:path`) and its suboperation."""
    try:
        return _Reader(condition, action, attributes).whole()
    except ValueError:
        return False


class _Reader(Reader):
    def __init__(self, condition: str, action: str, attributes: Mapping[str, str]) -> None:
        super().__init__(tokens(_TOKEN, condition))
        self._action = action
        self._attributes = {name.lower(): value for name, value in attributes.items()}

    def operand(self) -> bool | str:
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        kind, text = self.next()
        if kind == "name":
            given = self._action if text == "ActionMatches" else self._attributes.get(SUB_OPERATION, "")
            return any(_like(pattern, given) for pattern in self._set())
        if kind != "attribute":
            raise ValueError(f"{text} is not supported here")
        given = self._attributes.get(text.strip().lower())
        sort, operator = self.next()
        judge = _OPERATORS.get(operator) if sort == "operator" else None
        if judge is None:
            raise ValueError(f"{text} is not compared with a supported operator")
        wanted = self._set() if self.peek() == ("sign", "{") else [self._text()]
        return given is not None and any(judge(given, one) for one in wanted)

    def _set(self) -> list[str]:
        self.need("{")
        texts = [self._text()]
        while self.take(","):
            texts.append(self._text())
        self.need("}")
        return texts

    def _text(self) -> str:
        kind, text = self.next()
        if kind != "text":
            raise ValueError(f"{text} is not a string")
        return text.replace("''", "'")


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
