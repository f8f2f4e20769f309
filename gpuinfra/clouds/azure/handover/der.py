"""A DER reader for signed messages. It accepts only definite lengths and requires that every byte belongs to an element.

It does not verify anything. To verify certificates and keys, pass them to `cryptography`.
"""

from __future__ import annotations

from dataclasses import dataclass

INTEGER, OCTET_STRING, OID, SEQUENCE, SET = 0x02, 0x04, 0x06, 0x30, 0x31
MAX_BYTES = 1 << 20
"""Size limit. A signed message from a cloud has a few thousand bytes."""


class NotDer(ValueError):
    """The bytes are not valid DER."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element: tag, content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes

    def children(self) -> list[Element]:
        """Return the elements inside a constructed element. Raises `NotDer`."""
        if not self.tag & 0x20:
            raise NotDer(f"an element with tag {self.tag:#x} is not constructed")
        elements, rest = [], self.content
        while rest:
            element = _first(rest)
            elements.append(element)
            rest = rest[len(element.whole) :]
        return elements

    def expect(self, tag: int) -> Element:
        """Return this element if it has the given tag. Otherwise, raise `NotDer`."""
        if self.tag != tag:
            raise NotDer(f"an element has tag {self.tag:#x}, expected {tag:#x}")
        return self

    def oid(self) -> str:
        """Return an object identifier in dotted form."""
        self.expect(OID)
        numbers, value = [], 0
        for byte in self.content:
            value = value << 7 | byte & 0x7F
            if not byte & 0x80:
                numbers.append(value)
                value = 0
        if not numbers:
            raise NotDer("an object identifier is empty")
        first = min(numbers[0] // 40, 2)
        return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:]))

    def integer(self) -> int:
        """Return the value of an integer."""
        return int.from_bytes(self.expect(INTEGER).content, "big", signed=True)


def read(data: bytes) -> Element:
    """Parse data that must consist of exactly one element. Raises `NotDer`."""
    if len(data) > MAX_BYTES:
        raise NotDer(f"{len(data)} bytes exceed the limit of {MAX_BYTES}")
    element = _first(data)
    if len(element.whole) != len(data):
        raise NotDer("trailing bytes after the element")
    return element


def _first(data: bytes) -> Element:
    if len(data) < 2 or data[0] & 0x1F == 0x1F:
        raise NotDer("an element is truncated or has a long tag")
    size, start = data[1], 2
    if size & 0x80:
        digits = size & 0x7F
        if not 1 <= digits <= 4 or len(data) < 2 + digits:
            raise NotDer("an element's length is indefinite, too long or truncated")
        size, start = int.from_bytes(data[2 : 2 + digits], "big"), 2 + digits
    if len(data) < start + size:
        raise NotDer("an element is truncated")
    return Element(data[0], data[start : start + size], data[: start + size])
