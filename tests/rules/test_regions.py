"""Regions that the catalog does not contain, and machine types that it lists elsewhere."""

from __future__ import annotations

import copy
from typing import Any

import botocore.session
import pytest

from gpuinfra.base.findings import Level
from gpuinfra.clouds.aws.regions import PREFIXES, UNLISTED, partition, zone_prefix
from gpuinfra.cost.price import price
from gpuinfra.plan.make import build_plan
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.rules.cases import BASES, TODAY

PARTITIONS: list[dict[str, Any]] = (
    botocore.session.get_session().get_component("data_loader").load_data("partitions")["partitions"]
)


def test_all_regions_of_botocore_are_accepted() -> None:
    """The catalog's Regions and the other accepted ones are those of botocore, each in its partition."""
    known = {region: one["id"] for one in PARTITIONS for region in one["regions"] if not region.endswith("-global")}
    assert set(known) == {*PREFIXES, *UNLISTED}
    assert {region: partition(region) for region in known} == known


def test_the_prefix_of_zones_follows_from_the_region() -> None:
    """The inferred form of zone IDs is that of each Region whose zone IDs are known."""
    assert {region: zone_prefix(region) for region in PREFIXES} == PREFIXES
    assert (zone_prefix("cn-northwest-1"), zone_prefix("ap-southeast-6")) == ("cnnw1", "apse6")


NEW = [("aws", region) for region in ("ap-southeast-6", "cn-north-1")] + [
    ("azure", "belgiumcentral"), ("azure", "chilecentral"), ("gcp", "us-west8"), ("gcp", "asia-southeast3"),
]  # fmt: skip


@pytest.mark.parametrize(("cloud", "region"), NEW, ids=[region for _, region in NEW])
def test_a_region_outside_the_catalog_is_planned(cloud: str, region: str) -> None:
    """The declaration gets one warning that names what is unknown, and a plan without a price for its nodes."""
    declared = copy.deepcopy(BASES[cloud])
    declared["where"] = {"cloud": cloud, "region": region}
    if cloud == "azure":
        declared["access"] = {"evidence_from": ["192.0.2.0/24"]}
    spec = parse_spec(declared)
    found = check(spec, TODAY)
    assert [str(one) for one in found if one.level is Level.ERROR] == []
    (warning,) = [one for one in found if one.path == "where.region" and one.level is Level.WARN]
    for word in ("zones", "prices", "machine types", "images"):
        assert word in warning.message
    plan = build_plan(spec, TODAY)
    assert plan.region == region
    assert [
        line.usd_per_unit_hour
        for line in price(plan, TODAY).lines
        if line.pool == "gpu" and line.kind in ("on_demand", "spot")
    ] == [None]


@pytest.mark.parametrize(
    ("cloud", "text"),
    [("aws", "us-esat-1"), ("aws", "us-east-9"), ("azure", "us-east-1"), ("azure", "atlantis"), ("gcp", "us-middle1"), ("gcp", "eastus")],
)  # fmt: skip
def test_a_text_that_is_no_region_is_an_error(cloud: str, text: str) -> None:
    """A name that botocore does not know, or that does not have the form of a region's name, is an error."""
    declared = copy.deepcopy(BASES[cloud])
    declared["where"]["region"] = text
    assert "region_is_known" in {one.rule for one in check(parse_spec(declared), TODAY) if one.level is Level.ERROR}
