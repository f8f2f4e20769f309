"""The search for Capacity Blocks, with boto3 against the stand-in cloud."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.aws import offerings
from gpuinfra.clouds.aws.preflight import Preflight
from gpuinfra.clouds.offerings import Offering, Wanted
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from rehearsal.tests.cloud.test_offers import environment as environment

RESERVATION = "cr-0123456789abcdef0"
ENDS = datetime(2026, 12, 8, 11, 30, tzinfo=UTC)
NOW = datetime(2026, 12, 2, tzinfo=UTC)
WANTED = Wanted(group="gpu-block-0", machine="p5.48xlarge", nodes=2, reservation=RESERVATION, ends=ENDS, days=7)
BLOCK = {
    "offering": "block",
    "machine": "p5.48xlarge",
    "count": 2,
    "zone": "us-east-2a",
    "starts": "2026-12-09T11:30:00Z",
    "hours": 168,
    "fee": "10573.92",
}
EXTENSION = {**BLOCK, "offering": "extension", "reservation": RESERVATION, "starts": "2026-12-08T11:30:00Z"}


def found(cloud: Cloud, now: datetime = NOW, wanted: Wanted = WANTED) -> list[Offering]:
    """The result of a search. The control interface describes one block and one extension."""
    cloud.store.put("external", "cb-0123456789abcdef0", BLOCK)
    cloud.store.put("external", "cbe-0123456789abcdef0", EXTENSION)
    preflight = Preflight("us-east-2", {})
    preflight.find_credentials()
    return list(offerings.search(preflight, wanted, now))


@pytest.mark.usefixtures("environment")
def test_a_search_finds_the_extension_and_the_next_block(cloud: Cloud) -> None:
    """An offer has its times, its price, and the command that buys it. An ended block has no extension."""
    extension, block = found(cloud)
    assert (extension.kind, extension.id, extension.starts) == ("extension", "cbe-0123456789abcdef0", ENDS)
    assert extension.command == (
        "aws ec2 purchase-capacity-block-extension --capacity-block-extension-offering-id cbe-0123456789abcdef0 "
        "--capacity-reservation-id cr-0123456789abcdef0 --region us-east-2"
    )
    assert (block.kind, block.price, block.currency) == ("block", "10573.92", "USD")
    assert (block.starts, block.ends) == (
        datetime(2026, 12, 9, 11, 30, tzinfo=UTC),
        datetime(2026, 12, 16, 11, 30, tzinfo=UTC),
    )
    assert block.command == (
        "aws ec2 purchase-capacity-block --capacity-block-offering-id cb-0123456789abcdef0 "
        "--instance-platform Linux/UNIX --region us-east-2"
    )
    assert [one.kind for one in found(cloud, datetime(2026, 12, 8, 10, 30, tzinfo=UTC))] == ["block"]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"days": 8}, []),
        ({"nodes": 4}, ["extension"]),
        ({"machine": "p5e.48xlarge"}, ["extension"]),
        ({"ends": datetime(2026, 12, 10, tzinfo=UTC)}, ["extension"]),
        ({"reservation": "cr-0fedcba9876543210"}, ["block"]),
    ],
)
def test_a_search_asks_for_what_is_needed(cloud: Cloud, changes: dict[str, Any], kinds: list[str]) -> None:
    """The machine type, the number of nodes, the length and the earliest start are part of the search."""
    assert [one.kind for one in found(cloud, wanted=replace(WANTED, **changes))] == kinds


@pytest.mark.usefixtures("environment")
def test_a_refused_extension_does_not_hide_the_next_block(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block whose extension waits for its payment cannot be extended again; the search returns the next block and then the refusal."""
    cloud.store.put("external", "cb-0123456789abcdef0", BLOCK)
    preflight = Preflight("us-east-2", {})
    preflight.find_credentials()

    def refused(*_: object) -> list[Offering]:
        raise Unanswered("the block has an extension that is payment-pending", "", "wait for the payment")

    monkeypatch.setattr(offerings, "_extensions", refused)
    search = offerings.search(preflight, WANTED, NOW)
    assert next(search).kind == "block"
    with pytest.raises(Unanswered, match="payment-pending"):
        next(search)


def test_ultraservers_are_not_searched(cloud: Cloud) -> None:
    """EC2 sells UltraServers by their own type, so the answer is the command to run."""
    with pytest.raises(Unanswered) as caught:
        list(offerings.search(Preflight("us-east-1", {}), replace(WANTED, machine="p6e-gb200.36xlarge"), NOW))
    assert "--ultraserver-type TYPE" in caught.value.fix


@pytest.mark.parametrize(
    ("days", "sold"), [(0, 1), (1, 1), (14, 14), (15, 21), (21, 21), (22, 28), (182, 182), (400, 182)]
)
def test_a_length_is_one_that_aws_sells(days: int, sold: int) -> None:
    """AWS sells 1 to 14 days, or whole weeks up to 26."""
    assert offerings.allowed_days(days) == sold


def test_the_page_contains_the_permissions() -> None:
    """The policy on the page about dates allows the requests of the search."""
    page = (Path(__file__).parents[3] / "docs" / "guides" / "calendar.md").read_text(encoding="utf-8")
    assert [one for one in offerings.READS if f'"{one}"' not in page] == []
