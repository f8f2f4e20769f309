"""Parses the conditions of grants by recursive descent and evaluates each part while parsing.

This module handles the operators that the clouds' languages share: and, or, not, parentheses. A cloud's subclass parses
the operands.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

Token = tuple[str, str]
Value = bool | str


def tokens(pattern: re.Pattern[str], text: str) -> list[Token]:
    """Return (pattern group, text) for each token. Text that the pattern does not match becomes the last token,
    `rest`."""
    tokens_read: list[Token] = []
    at = 0
    while match := pattern.match(text, at):
        kind = str(match.lastgroup)
        tokens_read.append((kind, match[kind]))
        at = match.end()
    rest = text[at:].strip()
    return [*tokens_read, ("rest", rest)] if rest else tokens_read


class Reader(ABC):
    """Raises ValueError with the part that cannot be parsed. Operators and parentheses are tokens of kind
    `sign`."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at = tokens, 0

    def whole(self) -> bool:
        """Return whether the condition holds."""
        value = self.either()
        if self.left():
            raise ValueError(f"{self.left()[:40]!r} is not supported here")
        return value is True

    @abstractmethod
    def operand(self) -> Value:
        """Parse one operand."""

    def either(self) -> Value:
        value = self._both()
        while self.take("||", "OR"):
            other = self._both()
            value = value is True or other is True
        return value

    def _both(self) -> Value:
        value = self._one()
        while self.take("&&", "AND"):
            other = self._one()
            value = value is True and other is True
        return value

    def _one(self) -> Value:
        if self.take("!", "NOT"):
            return self._one() is not True
        return self.operand()

    def left(self) -> str:
        """Return the text that is not yet parsed."""
        return " ".join(text for _, text in self._tokens[self._at :])

    def peek(self) -> Token:
        """Return the next token, or two empty strings at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def next(self) -> Token:
        """Consume the next token."""
        token = self.peek()
        self._at += 1
        return token

    def take(self, *signs: str) -> bool:
        """Consume the next token if it is one of these signs."""
        kind, text = self.peek()
        is_sign = kind == "sign" and text in signs
        self._at += is_sign
        return is_sign

    def need(self, sign: str) -> None:
        """Consume a required sign."""
        if not self.take(sign):
            raise ValueError(f"expected {sign} before {self.left()[:40]!r}")
