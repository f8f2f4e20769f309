"""Prices from the price files that clouds publish. `gpuinfra/clouds/<cloud>/public_prices.py` reads the files of a cloud."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Protocol, TextIO

from gpuinfra.catalog.records import CapacityKind


@dataclass(frozen=True)
class PublicPrice:
    """The price of a machine type in USD per node per hour."""

    machine: str
    kind: CapacityKind
    region: str
    usd: float


@dataclass(frozen=True)
class PublicFile:
    """The prices of machine types in a file, and its date."""

    source: str
    read: date
    prices: tuple[PublicPrice, ...]


class NotUsable(Exception):
    """A file of a known form that contains no usable prices. The arguments are the message and the hint of the finding."""


class PublicPrices(Protocol):
    """The module `public_prices` of a cloud. Both functions raise `NotUsable`."""

    @property
    def FORM(self) -> str:
        """Description of the files, for messages."""
        ...

    def table(self, file: TextIO) -> PublicFile | None:
        """Read a table. Return None if the file has another form."""
        ...

    def document(self, value: object, today: date) -> PublicFile | None:
        """Read the value of a JSON file. `today` is used if the file has no date. Return None if the file has another form."""
        ...


def number(value: object) -> float | None:
    """Return a price above 0, or None."""
    try:
        price = float(str(value))
    except ValueError:
        return None
    return price if 0 < price < 1e7 else None


def day(text: object) -> date:
    """Return the date at the start of a timestamp. Raises `NotUsable` if there is none."""
    try:
        return date.fromisoformat(str(text)[:10])
    except ValueError:
        raise NotUsable("has no publication date", "download the file again") from None
