"""The time of a plan: which parts it has, and how unknown durations appear."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.clouds import timing
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.timing import ChainPart, Duration, ReadyTime, Timing, ready_time
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report.plan_json import plan_report
from gpuinfra.report.plan_page import page
from gpuinfra.report.plan_tables import time_table
from gpuinfra.report.plan_text import text
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, plan_of
from tests.rules.cases import declaration, lustre, pool
from tests.typed import present


def planned(cloud: str, changes: dict[str, Any]) -> Plan:
    """The plan of a declaration with changes."""
    return build_plan(parse_spec(declaration((cloud, changes))), TODAY)


def time_of(plan: Plan) -> ReadyTime:
    """The time of a plan."""
    found = ready_time(plan, cloud_of(plan.cloud).timing)
    assert found is not None
    return found


def without_rows(parts: tuple[ChainPart, ...]) -> list[tuple[str, float | None]]:
    """Steps on the nodes with their minutes."""
    return [(one.step, one.minutes) for one in parts if not one.type]


def test_an_unknown_duration_is_shown_and_never_counted() -> None:
    """The launch of the nodes has no minutes and a source, and the sum is a lower limit."""
    found = time_of(plan_of("aws-p4d"))
    (launch,) = [one for one in found.parts if one.step == "launch and first boot"]
    assert (launch.minutes, launch.name) == (None, "train-gpu-reserved-0")
    assert "no public figure" in launch.source
    assert not found.complete
    assert found.minutes == pytest.approx(10.85)
    assert found.in_words == "at least 10.8 minutes until verified nodes; the duration of 3 steps is unknown"


def test_a_chain_of_unknown_durations_has_no_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no duration of the chain is known, the text contains no number."""
    monkeypatch.setattr(timing, "FABRIC_TEST", Duration(seconds=None, source="a test"))
    found = time_of(plan_of("aws-cluster"))
    assert found.minutes == 0
    assert found.in_words == "an unknown time until verified nodes"


def test_a_lower_limit_is_marked() -> None:
    """A duration that is a lower limit is shown as `at least`, in the table and in the sum."""
    found = time_of(plan_of("azure-ndv4"))
    shown = [row[1].text for row in time_table(found).rows]
    assert shown[0] == "at least 1.3"
    assert shown[3] == "17.0"
    assert shown[-1] == "at least 0.5"
    assert found.in_words.startswith("at least ")


def test_the_known_sum_is_exact_without_unknown_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With known durations only, the time is not a lower limit."""
    known = Duration(seconds=60, source="a test")
    table = present(cloud_of("aws").timing)
    every = replace(table, durations=dict.fromkeys(table.durations, known))
    monkeypatch.setattr(type(cloud_of("aws")), "timing", every)
    monkeypatch.setattr(timing, "STEPS", known)
    monkeypatch.setattr(timing, "FABRIC_TEST", known)
    found = time_of(plan_of("aws-p4d"))
    assert found.complete
    assert found.in_words == f"{len(found.parts)}.0 minutes until verified nodes"


def test_a_plain_image_adds_the_driver() -> None:
    """Only an image without a driver adds the time to install it."""
    assert ("bootstrap step 30-driver", 3.0) in without_rows(time_of(planned("aws", {"software.image": "plain"})).parts)
    assert "bootstrap step 30-driver" not in dict(without_rows(time_of(planned("aws", {})).parts))


@pytest.mark.parametrize(("level", "minutes"), [(1, None), (2, 2.0), (3, 15.0), (4, 15.0)])
def test_burn_in_adds_its_level(level: int, minutes: float | None) -> None:
    """DCGM diagnostics of level 2 and higher add minutes."""
    found = without_rows(time_of(planned("aws", {"handover": {"burn_in": level}})).parts)
    assert dict(found).get(f"DCGM diagnostics, level {level}") == minutes


def test_a_fabric_test_adds_its_lower_limit() -> None:
    """A required fabric test is the last step of the nodes of a pool with several nodes."""
    found = dict(without_rows(time_of(planned("aws", {})).parts))
    assert found["fabric test"] == 0.5
    one = {"pools.0.capacity": [{"kind": "on_demand", "count": 1}]}
    for changes in ({"handover": {"fabric_test": "off"}}, one):
        assert "fabric test" not in dict(without_rows(time_of(planned("aws", changes)).parts))


def test_the_pool_with_the_longest_steps_is_shown() -> None:
    """With two pools, the group at the end of the chain belongs to the pool whose steps take longest."""
    plan = planned("aws", {"pools": [pool("login", "m7i.xlarge", 1), pool("gpu", "p5.48xlarge", 2)], "software.image": "plain"})  # fmt: skip
    (launch,) = [one for one in time_of(plan).parts if one.step == "launch and first boot"]
    assert launch.name == "train-gpu-on-demand-0"


def test_the_link_to_a_bucket_is_on_the_chain_before_the_nodes() -> None:
    """A file system is linked to its bucket before the nodes start, and the link has no known duration."""
    parts = time_of(plan_of("aws-p4d")).parts
    types = [one.type for one in parts if one.type]
    assert types[-3:] == [
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        "aws:autoscaling/group:Group",
    ]
    assert [one.minutes for one in parts if one.type == types[-2]] == [None]
    slow = Duration(seconds=3600, source="a test")
    table = present(cloud_of("aws").timing)
    found = _with(plan_of("aws-p4d"), replace(table, durations={**table.durations, types[-2]: slow}))
    assert found.minutes == pytest.approx(70.85)


def _with(plan: Plan, table: Timing) -> ReadyTime:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cloud_of(plan.cloud)), "timing", table)
        return time_of(plan)


def test_a_cloud_without_durations_has_no_time() -> None:
    """A cloud without durations has no time, and its plans have no section about it."""
    assert ready_time(plan_of("aws-p4d"), None) is None


def test_a_stack_without_nodes_ends_with_its_last_resource() -> None:
    """The time of a site is the time until its resources exist."""
    found = time_of(plan_of("aws-site"))
    assert found.until == "all resources exist"
    assert [one.step for one in found.parts] == ["create", "create", "create"]


@pytest.mark.parametrize(("minutes", "warned"), [(9, True), (10, False), (30, False)])
def test_a_site_time_below_the_time_of_a_file_system_is_a_warning(minutes: int, warned: bool) -> None:
    """`recovery.site_minutes` is compared with the duration that the plan uses."""
    second = {"region": "us-west-2", "mode": "cold", "rpo_minutes": 90, "rto_minutes": 120, "checkpoint_gib": 100, "checkpoint_minutes": 30}  # fmt: skip
    spec = parse_spec(declaration(("aws", {"storage": lustre(bucket="auto"), "recovery": {**second, "site_minutes": minutes}})))  # fmt: skip
    found = [one for one in check(spec, TODAY) if one.rule == "recovery_site_time_covers_file_systems"]
    assert bool(found) == warned
    if warned:
        assert str(found[0]).startswith("warn: recovery.site_minutes is 9, but a file system alone takes 10 minutes: ")


def test_text_page_and_json_show_the_same_time() -> None:
    """The text, the page and `--json` contain the sentence and each part; the page and `--json` also contain the sources."""
    report = plan_report(shipped("stacks") / "Pulumi.azure-ndv4.yaml", TODAY)
    found: Any = report.as_dict()["time"]
    assert found["in_words"] == time_of(plan_of("azure-ndv4")).in_words
    assert f"time      {found['in_words']}" in text(report)
    html = unescape(page(report))
    assert found["in_words"][1:] in html
    for one in found["parts"]:
        assert (one["name"] or one["step"]) in text(report)
        assert all(address in html for address in re.findall(r"https://[^\s,;]+", one["source"]))
