"""The price chart of a plan: lines, break-even points and labels."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.cost.compare import ComparisonRow
from gpuinfra.report import price_chart
from gpuinfra.report.plan_json import plan_report

SVG = "{http://www.w3.org/2000/svg}"


def way(name: str, month: float, usual: float | None) -> ComparisonRow:
    """A purchase option; `usual` is the price of on-demand if the option is billed in full."""
    return ComparisonRow(
        way=name, usd_per_hour=month / 730, usd_per_month=month, billed_in_full=usual is not None,
        break_even_hours=730 * month / usual if usual else None, read=date(2026, 1, 1), source="a list", note="",
    )  # fmt: skip


def drawn(*ways: ComparisonRow) -> ElementTree.Element:
    """The image."""
    return ElementTree.fromstring(price_chart.chart(ways))


def test_a_break_even_point_is_on_the_line_of_on_demand() -> None:
    """An option that is billed in full is horizontal, and its mark is where the line of on-demand reaches its price."""
    image = drawn(way("on_demand", 1000, None), way("block", 400, 1000), way("spot", 300, None))
    x1, y1, x2, y2 = (
        float(next(one for one in image.iter(f"{SVG}line") if one.get("class") == "way").attrib[name])
        for name in ("x1", "y1", "x2", "y2")
    )
    (mark,) = image.iter(f"{SVG}circle")
    x, y = float(mark.attrib["cx"]), float(mark.attrib["cy"])
    assert (x - x1) / (x2 - x1) == pytest.approx(0.4, abs=0.001)
    assert (y - y1) / (y2 - y1) == pytest.approx(0.4, abs=0.001)
    level = [one for one in image.iter(f"{SVG}line") if one.get("class") == "way"][1]
    assert level.attrib["y1"] == level.attrib["y2"] == mark.attrib["cy"]
    (spot,) = [one for one in image.iter(f"{SVG}line") if one.get("class") == "spot"]
    assert float(spot.attrib["y1"]) == y1


def test_an_option_that_is_never_cheaper_has_no_mark() -> None:
    """A break-even point after the end of the month is not drawn."""
    assert list(drawn(way("block", 1200, 1000), way("on_demand", 1000, None)).iter(f"{SVG}circle")) == []


@pytest.mark.parametrize("months", [(1000, 999, 998, 997, 2, 1), (5, 5, 5, 5, 5, 5), (6000, 40, 30, 20, 10, 0)])
def test_labels_are_in_order_and_do_not_overlap(months: tuple[float, ...]) -> None:
    """Options with nearly equal prices have one label each, in the image and below each other."""
    image = drawn(*(way(f"kind-{index}", month, None) for index, month in enumerate(months)))
    labels = [one for one in image.iter(f"{SVG}text") if str(one.text).startswith("kind-")]
    assert [str(one.text)[5] for one in labels] == list("012345")
    heights = [float(one.attrib["y"]) for one in labels]
    assert all(below - above >= price_chart.LINE - 0.11 for above, below in pairwise(heights))
    assert heights[0] >= 12
    assert heights[-1] <= price_chart.TOP + price_chart.HEIGHT + price_chart.LINE


def test_one_option_has_no_chart() -> None:
    """Without a second option there is nothing to compare."""
    assert price_chart.chart([way("on_demand", 1000, None)]) == ""
    assert price_chart.chart([]) == ""


def test_the_description_of_a_shipped_stack_has_every_option() -> None:
    """A screen reader gets the price of each option and the hours from which it is cheaper."""
    ways = plan_report(shipped("stacks") / "Pulumi.aws-p4d.yaml", date(2026, 11, 21)).ways
    described = str(drawn(*ways).get("aria-label"))
    assert "on-demand 64,116 USD; " in described
    assert "block 34,456 USD, cheaper than on-demand from 392 hours" in described
    assert described.count(" USD") == len(ways)
