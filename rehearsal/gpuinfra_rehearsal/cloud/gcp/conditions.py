"""Conditions of Google Cloud grants: the subset of the Common Expression Language that object names need.

`resource.name`, `resource.type`, `resource.service`; `api.getAttribute` with a default, or with `hasOnly` for a list; `startsWith`, `endsWith`,
`extract`; `==`, `!=`, `&&`, `||`,
`!`, parentheses and strings. A grant whose condition cannot be parsed allows nothing, so gaps appear as denials.
https://cloud.google.com/iam/docs/conditions-overview, retrieved 2026-11-21.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuinfra_rehearsal.cloud.core.conditions import Reader, Value, tokens

_TOKEN = re.compile(r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<name>resource\.(?:name|type|service)|true|false)"""
                    r"""|api\.getAttribute\(\s*["'](?P<api>[\w./-]+)["']\s*,\s*(?:""|'')\s*\)"""
                    r"""|api\.getAttribute\(\s*["'](?P<only>[\w./-]+["']\s*,\s*\[\]\s*\)\.hasOnly\(\[[^\]]*)\]\)"""
                    r"""|(?P<call>\.(?:startsWith|endsWith|extract))|(?P<sign>&&|\|\||==|!=|!|\(|\)))""")  # fmt: skip


def check(text: str) -> None:
    """Raise ValueError with the part of a condition that cannot be parsed."""
    _Reader(text, {}).whole()


def holds(text: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a condition holds. A condition that cannot be parsed does not hold."""
    try:
        return _Reader(text, attributes).whole()
    except ValueError:
        return False


class _Reader(Reader):
    def __init__(self, text: str, attributes: Mapping[str, str]) -> None:
        super().__init__(tokens(_TOKEN, text))
        self._attributes = attributes

    def operand(self) -> Value:
        value = self._value()
        if self.take("=="):
            return value == self._value()
        if self.take("!="):
            return value != self._value()
        return value

    def _value(self) -> Value:
        if self.take("("):
            inner = self.either()
            self.need(")")
            return inner
        kind, text = self.next()
        if kind == "text":
            value: Value = re.sub(r"\\(.)", r"\1", text[1:-1])
        elif kind == "api":
            value = self._attributes.get(text, "")
        elif kind == "only":
            key, listed = re.split(r"[\"']", text, maxsplit=1)
            values = self._attributes.get(key, "").split()
            value = set(values) <= set(re.findall(r"[\"']([^\"',]+)[\"']", listed))
        elif kind == "name":
            value = text == "true" if text in ("true", "false") else self._attributes.get(text, "")
        else:
            raise ValueError(f"{text[:40] or 'the end'!r} is not a value")
        while self.peek()[0] == "call":
            value = self._call(str(value))
        return value

    def _call(self, on: str) -> Value:
        _, name = self.next()
        self.need("(")
        argument = str(self.either())
        self.need(")")
        if name == ".startsWith":
            return on.startswith(argument)
        return _extracted(on, argument) if name == ".extract" else on.endswith(argument)


def _extracted(text: str, template: str) -> str:
    """Return the part of a text that the braces of a template match: `"a/b/c/d".extract("b/{x}/")` is `c`. Empty if
    there is no match."""
    before, _, rest = template.partition("{")
    after = rest.partition("}")[2]
    tail = text.partition(before)[2] if before in text else ""
    return tail.partition(after)[0] if after and after in tail else "" if after else tail
