"""Renders the answer of `gpuinfra size` as a page, with a plot of price against time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from gpuinfra.catalog.records import CapacityKind
from gpuinfra.report.html import render
from gpuinfra.report.size_text import advice, candidate_page_table, job, named, span, why
from gpuinfra.report.tables import Column, Table
from gpuinfra.sizing.advice import SizingAnswer
from gpuinfra.sizing.candidates import SizedCandidate
from gpuinfra.sizing.measured import SizingGoal

WIDTH, LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 940.0, 100.0, 250.0, 28.0, 340.0, 56.0
"""Pixels: width of the image, margins around the plot, and height of the plot."""
MOST_DRAWN = 60
LABELS = 8
"""Number of candidates with a label: the cheapest and the fastest first."""
LINE = 15.0


def page(answer: SizingAnswer, rows: int) -> str:
    """Render the page."""
    from markupsafe import Markup

    cheap, fast = answer.cheapest, answer.fastest
    serving = answer.request.goal is SizingGoal.INFERENCE
    shown = answer.candidates[:rows]
    return render(
        "size.html.j2",
        kind="Size",
        title=f"Machines for {answer.request.model.name}",
        outcome="planned",
        status="sized",
        subtitle=job(answer),
        banners=["This is an estimate: the ranges contain 80% of published runs. Nothing was created."],
        tiles=[
            (f"{cheap.usd.middle:,.0f} USD", "cheapest"),
            (span(cheap.days), "days of the cheapest"),
            (span(fast.days), "days of the fastest"),
            (len(answer.candidates), "candidates"),
        ],
        origin=f"{len(answer.candidates)} candidates",
        chart="" if serving else Markup(chart(answer)),
        advice=Table([Column(""), Column("advice", wrap=True)], list(advice(answer))),
        candidates=candidate_page_table(shown, serving=serving),
        sources=[(named(one), Table(["number", Column("source", wrap=True)], why(answer, one))) for one in _explained(answer)],
    )  # fmt: skip


def _explained(answer: SizingAnswer) -> tuple[SizedCandidate, ...]:
    return (answer.cheapest,) if answer.cheapest is answer.fastest else (answer.cheapest, answer.fastest)


def chart(answer: SizingAnswer) -> str:
    """Return an SVG image: the price of each candidate against its days, both on a logarithmic scale, with the range of the days."""
    drawn = sorted(
        {id(one): one for one in (*answer.candidates[:MOST_DRAWN], answer.fastest)}.values(),
        key=lambda one: one.usd.middle,
    )
    label = "price in USD against days by wall time: " + "; ".join(
        f"{named(one)} {one.usd.middle:,.0f} USD, {one.days.middle:,.1f} days" for one in drawn[:LABELS]
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {TOP + HEIGHT + BOTTOM:.0f}" role="img" '
        f'aria-label="{escape(label, quote=True)}" class="diagram">'
    )
    return "\n".join([head, *_drawn(drawn, answer), "</svg>"])


def _drawn(drawn: Sequence[SizedCandidate], answer: SizingAnswer) -> Iterator[str]:
    days = _Scale(
        [value for one in drawn for value in (one.days.low, one.days.high)]
        + ([answer.request.days] if answer.request.days else [])
    )
    usd = _Scale([one.usd.middle for one in drawn])

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * days.at(value)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - usd.at(value))

    for value in days.marks:
        yield _line(x(value), TOP, x(value), TOP + HEIGHT, "grid")
        yield _text(x(value), TOP + HEIGHT + 18, f"{value:,g}", "middle")
    yield _text(LEFT + (WIDTH - LEFT - RIGHT) / 2, TOP + HEIGHT + 42, "days by wall time (line: range)", "middle")
    yield _text(LEFT - 8, TOP - 12, "USD", "end")
    for value in usd.marks:
        yield _line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid")
        yield _text(LEFT - 8, y(value) + 4, f"{value:,.0f}", "end")
    if limit := answer.request.days:
        yield _line(x(limit), TOP, x(limit), TOP + HEIGHT, "spot")
        yield _text(x(limit) + 4, TOP + 12, f"{limit:g} days", "start")
    for candidate in drawn:
        kind = "spot" if candidate.kind is CapacityKind.SPOT else "way"
        yield _line(
            x(candidate.days.low), y(candidate.usd.middle), x(candidate.days.high), y(candidate.usd.middle), kind
        )
        place = f'cx="{x(candidate.days.middle):.1f}" cy="{y(candidate.usd.middle):.1f}"'
        yield f'<circle {place} r="4" class="way"><title>{escape(named(candidate))}</title></circle>'
    labeled = sorted(
        {id(one): one for one in (answer.cheapest, answer.fastest, *drawn[:LABELS])}.values(),
        key=lambda one: -one.usd.middle,
    )
    places: list[float] = []
    for candidate in labeled:
        end = y(candidate.usd.middle)
        places.append(max(end, places[-1] + LINE) if places else end)
    limit_y = TOP + HEIGHT
    for index in reversed(range(len(places))):
        places[index] = limit_y = min(places[index], limit_y)
        limit_y -= LINE
    for candidate, place in zip(labeled, places, strict=True):
        yield _line(x(candidate.days.high), y(candidate.usd.middle), WIDTH - RIGHT + 8, place, "grid")
        yield _text(
            WIDTH - RIGHT + 12,
            place + 4,
            f"{candidate.nodes} x {candidate.machine.name.removeprefix('Standard_')} {candidate.way.replace('_', '-')}",
            "start",
        )


class _Scale:
    """A logarithmic scale from 0 to 1."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(values), max(values)
        self.low, self.high = math.log10(low / 1.15), math.log10(high * 1.15)

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return (math.log10(value) - self.low) / (self.high - self.low)

    @property
    def marks(self) -> tuple[float, ...]:
        """Round values on the scale: 1, 2 and 5 times powers of ten."""
        exponents = range(math.floor(self.low), math.ceil(self.high) + 1)
        values = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
        return tuple(value for value in values if self.low <= math.log10(value) <= self.high)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
