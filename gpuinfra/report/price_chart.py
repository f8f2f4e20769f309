"""Draws the monthly price of the same nodes over their hours of use, for each purchase option.

On-demand, spot and flex nodes are billed for the hours of use: a line that rises from zero. Commitments, reservations
and blocks are billed in full: a horizontal line. A mark on the line of on-demand shows the hours above which an option
that is billed in full costs less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cost.compare import ComparisonRow
from gpuinfra.cost.model import HOURS_PER_MONTH
from gpuinfra.report.prices import usd

WIDTH, LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 940.0, 90.0, 250.0, 16.0, 240.0, 52.0
"""Pixels: width of the image, margins around the lines, and height of the lines."""
LINE = 17.0
"""Pixels between two texts."""
HOURS = (0, 146, 292, 438, 584, HOURS_PER_MONTH)
"""Marked hours of use per month: fifths of a month of 730 hours."""
PRICES = 4
"""Number of marked prices above zero."""


def chart(ways: Sequence[ComparisonRow]) -> str:
    """Return an SVG image for a page, whose stylesheet has the colors. Empty if there is nothing to compare."""
    if len(ways) < 2:
        return ""
    height = TOP + HEIGHT + BOTTOM
    label = "price per month by hours of use: " + "; ".join(_described(one) for one in ways)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(label, quote=True)}" class="diagram">'
    )
    return "\n".join([head, *_draw(ways, max(one.usd_per_month for one in ways)), "</svg>"])


def _described(comparison_row: ComparisonRow) -> str:
    hours = comparison_row.break_even_hours
    cheaper = f", cheaper than on-demand from {hours:,.0f} hours" if hours is not None else ""
    return f"{_name(comparison_row)} {usd(comparison_row.usd_per_month, 0)} USD{cheaper}"


def _name(comparison_row: ComparisonRow) -> str:
    return comparison_row.way.replace("_", "-")


def _draw(ways: Sequence[ComparisonRow], highest: float) -> Iterator[str]:
    for hours in HOURS:
        yield _line(_x(hours), TOP, _x(hours), TOP + HEIGHT, "grid")
        yield _text(_x(hours), TOP + HEIGHT + LINE, f"{hours} h", "middle")
    yield _text(_x(HOURS_PER_MONTH / 2), TOP + HEIGHT + 2 * LINE + 6, "hours of use per month", "middle")
    for step in range(PRICES + 1):
        price = highest * step / PRICES
        yield _line(_x(0), _y(price, highest), _x(HOURS_PER_MONTH), _y(price, highest), "grid")
        yield _text(LEFT - 8, _y(price, highest) + 4, usd(price, 0), "end")
    for way, at in zip(ways, _labels([_y(one.usd_per_month, highest) for one in ways]), strict=True):
        end = _y(way.usd_per_month, highest)
        kind = "spot" if way.way.startswith(CapacityKind.SPOT.value) else "way"
        yield _line(_x(0), end if way.billed_in_full else _y(0, highest), _x(HOURS_PER_MONTH), end, kind)
        yield _line(_x(HOURS_PER_MONTH), end, _x(HOURS_PER_MONTH) + 14, at, "grid")
        yield _text(_x(HOURS_PER_MONTH) + 18, at + 4, f"{_name(way)}: {usd(way.usd_per_month, 0)} USD", "start")
    for way in ways:
        if way.break_even_hours is not None and way.break_even_hours <= HOURS_PER_MONTH:
            x, y = _x(way.break_even_hours), _y(way.usd_per_month, highest)
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="way"/>'
            yield _text(x - 8, y - 6, f"{way.break_even_hours:,.0f} h", "end")


def _x(hours: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * hours / HOURS_PER_MONTH


def _y(price: float, highest: float) -> float:
    return TOP + HEIGHT * (1 - price / highest if highest else 1)


def _labels(ends: Sequence[float]) -> list[float]:
    """Return the height of each label: next to the end of its line, and below the label before it. The ends are in order, highest price first."""
    placed: list[float] = []
    for end in ends:
        placed.append(max(end, placed[-1] + LINE) if placed else end)
    limit = TOP + HEIGHT
    for index in reversed(range(len(placed))):
        placed[index] = limit = min(placed[index], limit)
        limit -= LINE
    return placed


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
