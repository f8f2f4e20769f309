"""Parse the tables that `nvidia-smi --query-... --format=csv` prints, by column name and never by position.

A cell can contain an error token even if the exit code is 0, so each cell is parsed as a value, an absent value or a failure.
A public ECC check that reads columns by position tests a column that its query does not contain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .outcome import Unreadable, shortened
from .probes import OLDER_NAMES

ABSENT = frozenset(
    (
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "Not Supported",
        "[Not Available]",
        "",
        "[Requested functionality has been deprecated]",
        "Requested functionality has been deprecated",
    )
)
"""The device does not have the feature. Each check decides whether that is acceptable."""

FAILURE = re.compile(
    r"unknown error|gpu is lost|lost|requires reset|reset required|insufficient permissions|unable to determine|"
    r"^\[?err|timeout|\[?error\]?$",
    re.IGNORECASE,
)
"""The driver could not read the value: a failure, never `absent`."""


@dataclass(frozen=True)
class GpuRow:
    """One GPU of a table."""

    cells: dict[str, str]

    def get(self, column: str) -> str:
        """Return the cell of a column. Raises `Unreadable` if the column was not printed."""
        for name in (column, OLDER_NAMES.get(column, "")):
            if name in self.cells:
                return self.cells[name]
        raise Unreadable("nvidia-smi printed no column %s" % column)

    def number(self, column: str) -> float | None:
        """Return the cell as a number without its unit, or None if the device does not have the feature."""
        return number(self.get(column), column)

    @property
    def label(self) -> str:
        """The GPU's index, address and serial number, for messages."""
        return label(self.cells.get("index", "?"), self.cells.get("pci.bus_id", ""), self.cells.get("serial", ""))


@dataclass(frozen=True)
class GpuTable:
    """A table with a header."""

    header: tuple[str, ...]
    rows: tuple[GpuRow, ...]


def label(index: object, pci: str, serial: str = "") -> str:
    """`GPU 3 at 00000000:90:1D.0 (serial 1650522003820)`."""
    words = "GPU %s" % index
    if pci and pci not in ABSENT:
        words += " at %s" % pci
    if serial and serial not in ABSENT and not FAILURE.search(serial):
        words += " (serial %s)" % serial
    return shortened(words, 100)


def absent(cell: str) -> bool:
    """Return True if the device does not have the feature."""
    return cell.strip() in ABSENT


@lru_cache(maxsize=4096)
def failure(cell: str) -> bool:
    """Return True if the driver could not read the value."""
    return bool(FAILURE.search(cell.strip()))


def denied(cell: str) -> bool:
    """Return True if the driver refuses to show the value, which is not a fault of the GPU. A check that needs the value cannot judge it."""
    return cell.strip().strip("[]") == "Insufficient Permissions"


_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?:\s?(?:%|W|C|MiB|MHz|us|ms|GB/s|Gb/s|mV|x))?$")


def number(cell: str, column: str) -> float | None:
    """Return a cell as a number, or None if absent. Raises `Unreadable` for anything else."""
    cell = cell.strip()
    if absent(cell):
        return None
    match = _NUMBER.match(cell)
    if match is None:
        raise Unreadable("column %s contains %r, expected a number" % (column, shortened(cell, 40)))
    return float(match.group(1))


def parse(text: str, free_last: bool = False) -> GpuTable:
    """Parse CSV as nvidia-smi writes it: cells separated by comma and space, no quotes, units in the header.

    `free_last`: the last column contains free text with commas.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise Unreadable("nvidia-smi printed no table")
    header = tuple(map(_column, lines[0].split(",")))
    if any(not re.match(r"^[A-Za-z][A-Za-z0-9_.]*$", name) for name in header):
        raise Unreadable("the first line is not a header: %s" % shortened(lines[0], 80))
    if len(set(header)) != len(header):
        raise Unreadable("a column is duplicated: %s" % shortened(lines[0], 80))
    rows = []
    for at, line in enumerate(lines[1:], start=2):
        cells = [cell.strip() for cell in (line.split(",", len(header) - 1) if free_last else line.split(","))]
        if len(cells) != len(header):
            raise Unreadable(
                "line %d has %d cells, expected %d: %s" % (at, len(cells), len(header), shortened(line, 80))
            )
        rows.append(GpuRow(dict(zip(header, cells))))
    return GpuTable(header, tuple(rows))


def _column(cell: str) -> str:
    """Return the name of a column without its unit, such as `[MiB]`."""
    name, _, unit = cell.strip().partition("[")
    return name.rstrip() if unit.find("]") == len(unit) - 1 else cell.strip()
