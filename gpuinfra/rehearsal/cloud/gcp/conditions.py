"""Conditions of Google's grants: the part of the Common Expression Language that object names need.

`resource.name`, `resource.type`, `resource.service`; `startsWith`, `endsWith`, `extract`; `==`, `!=`, `&&`, `||`, `!`, brackets and strings.
A grant whose condition cannot be parsed allows nothing, so a gap shows as a denial.
https://cloud.google.com/iam/docs/conditions-overview, read 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

Expression = Callable[[Mapping[str, str]], "bool | str"]

_TOKEN = re.compile(r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>resource\.(?:name|type|service)|true|false)"""
                    r"""|(?P<call>\.(?:startsWith|endsWith|extract))|(?P<sign>&&|\|\||==|!=|!|\(|\)))""")  # fmt: skip


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """The condition as a function of the resource's attributes. Raises ValueError with the part that cannot be parsed."""
    parser = _Parser(text)
    found = parser.either()
    if parser.left():
        raise ValueError(f"{parser.left()[:40]!r} is not supported here")
    return found


def holds(text: str, attributes: Mapping[str, str]) -> bool:
    """Whether a condition holds. One that cannot be parsed does not."""
    try:
        return parse(text)(attributes) is True
    except ValueError:
        return False


class _Parser:
    """Recursive descent: either -> both -> not -> comparison -> value."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while match := _TOKEN.match(text, at):
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            at = match.end()
        self._rest = text[at:].strip()
        self._at = 0

    def left(self) -> str:
        return " ".join(value for _, value in self._tokens[self._at :]) or self._rest

    def either(self) -> Expression:
        first = self._both()
        while self._take("||"):
            one, other = first, self._both()
            first = lambda known, one=one, other=other: one(known) is True or other(known) is True  # noqa: E731
        return first

    def _both(self) -> Expression:
        first = self._not()
        while self._take("&&"):
            one, other = first, self._not()
            first = lambda known, one=one, other=other: one(known) is True and other(known) is True  # noqa: E731
        return first

    def _not(self) -> Expression:
        if self._take("!"):
            inner = self._not()
            return lambda known: inner(known) is not True
        return self._compared()

    def _compared(self) -> Expression:
        one = self._value()
        if self._take("=="):
            other = self._value()
            return lambda known: one(known) == other(known)
        if self._take("!="):
            other = self._value()
            return lambda known: one(known) != other(known)
        return one

    def _value(self) -> Expression:
        if self._take("("):
            inner = self.either()
            self._need(")")
            return inner
        kind, value = self._next()
        if kind == "text":
            found: Expression = lambda known: _text(value)  # noqa: E731
        elif kind == "name":
            found = (
                (lambda known: value == "true") if value in ("true", "false") else (lambda known: known.get(value, ""))
            )
        else:
            raise ValueError(f"{value or 'the end'!r} is not a value")
        while self._peek("call"):
            found = self._call(found)
        return found

    def _call(self, on: Expression) -> Expression:
        _, name = self._next()
        self._need("(")
        argument = self.either()
        self._need(")")
        if name == ".startsWith":
            return lambda known: str(on(known)).startswith(str(argument(known)))
        if name == ".extract":
            return lambda known: _extracted(str(on(known)), str(argument(known)))
        return lambda known: str(on(known)).endswith(str(argument(known)))

    def _take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise ValueError(f"a {sign} is missing before {self.left()[:40]!r}")

    def _peek(self, kind: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at][0] == kind

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            return "", self._rest[:40]
        self._at += 1
        return self._tokens[self._at - 1]


def _extracted(text: str, template: str) -> str:
    """The part of a text that the braces of a template match: `"a/b/c/d".extract("b/{x}/")` is `c`; empty where it does not match."""
    before, _, rest = template.partition("{")
    after = rest.partition("}")[2]
    found = text.partition(before)[2] if before in text else ""
    return found.partition(after)[0] if after and after in found else "" if after else found


def _text(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])
