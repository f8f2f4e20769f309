"""Every shipped stack clones to two other regions of its cloud and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.base.shipped import shipped
from gpuinfra.plan.profile import profile_of
from gpuinfra.region.clone import MODES, ClonedFile
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.network import network_of
from gpuinfra.report.plan_json import plan_report
from gpuinfra.spec.load import parse_spec, read_stack
from tests.region.clone.stacks import REGIONS, SHIPPED, TODAY, cloned, differences, file_of, saved

CASES = [(stack, region) for stack in SHIPPED for region in REGIONS[stack.split("-")[0]]]
WITH_NETWORK = [
    stack
    for stack in SHIPPED
    if "site" in (spec := read_stack(file_of(stack)).spec).made_layers and not spec.network.existing
]
"""Stacks that create a network."""
MAY_CHANGE = {
    "where.region", "where.zone", "network.cidr", "network.existing", "use.foundation", "use.site", "software.registry", "recovery.region",
        "recovery.mode", "recovery.site_minutes", "storage[0].export_paused",
    "pools[0].capacity[0].kind",
}  # fmt: skip
"""Fields of the shipped stacks that a clone in another region may change."""
CAPACITY = {
    "id",
    "group_arn",
    "holds",
    "zone",
    "placement_group",
    "overflow",
    "starts_at",
    "ends_at",
    "strategy",
    "max_price_usd",
}
LOST = {
    "aws-existing-network": {"network.existing"},
    "azure-existing-network": {"network.existing"},
    "gcp-existing-network": {"network.existing", "where.zone"},
    "aws-p4d": {"pools[0].capacity[0].kind", "capacity"},
    "aws-recovery": {
        "pools[0].capacity[0].kind",
        "capacity",
        "recovery.region",
        "recovery.mode",
        "recovery.site_minutes",
    },
    "aws-monitoring": {"where.zone"},
    "gcp-monitoring": {"where.zone"},
    "aws-p5-block": {"pools[0].capacity[0].kind", "capacity"},
    "azure-ndv5": {"where.zone"},
    "azure-recovery": {"recovery.region", "recovery.mode", "recovery.site_minutes"},
    "gcp-a3mega": {"pools[0].capacity[0].kind", "capacity", "where.zone"},
    "gcp-recovery": {
        "pools[0].capacity[0].kind",
        "capacity",
        "where.zone",
        "recovery.region",
        "recovery.mode",
        "recovery.site_minutes",
    },
    "gcp-a3ultra": {"pools[0].capacity[0].kind", "capacity"},
}
"""Stack -> fields that the clone of the clone does not restore: reservations, blocks and networks, and zones that the catalog does not list."""


def _fields(found: set[str]) -> set[str]:
    """The fields of a reservation or block under one name."""
    return {
        "capacity" if one.startswith("pools[0].capacity[0].") and one.rpartition(".")[2] in CAPACITY else one
        for one in found
    }


def test_cases_are_every_shipped_stack_in_two_regions() -> None:
    """Each stack file that ships with the package is in the cases, with two regions of its cloud that are not its own."""
    files = {path.name for path in shipped("stacks").glob("*.yaml")}
    assert {file_of(stack).name for stack, _ in CASES} == files
    assert len(files) >= 17
    for stack in SHIPPED:
        where = read_stack(file_of(stack)).spec.where
        regions = {region for one, region in CASES if one == stack}
        assert len(regions - {where.region}) == 2
        assert regions <= set(profile_of(where.cloud).regions)


@pytest.mark.parametrize(("stack", "region"), CASES)
def test_clone_and_clone_back(stack: str, region: str, tmp_path: Path) -> None:
    """The clone and the clone of the clone have plans without errors, and differ from the stack only in the named fields."""
    source = read_stack(file_of(stack))
    there = saved(cloned(file_of(stack), region, mode="hot"), tmp_path)
    report = plan_report(there, TODAY)
    assert report.ok
    assert report.plan is not None
    assert report.plan.region == region
    made = read_stack(there)
    changed = _fields(differences(source.spec.model_dump(), made.spec.model_dump()))
    assert changed <= {*MAY_CHANGE, "capacity"}
    assert made.name == f"{stack}-{region}"

    back = cloned(there, source.spec.where.region, mode="hot")
    assert back.files[0].stack == stack
    again = tmp_path / "back"
    again.mkdir()
    home = saved(back, again)
    assert plan_report(home, TODAY).ok
    restored = read_stack(home)
    lost = _fields(differences(source.spec.model_dump(), restored.spec.model_dump()))
    assert lost <= LOST.get(stack, set())
    assert restored.config == source.config
    assert "gpuinfra:clone-of" not in restored.config


@pytest.mark.parametrize("stack", SHIPPED)
def test_fields_that_may_differ_are_those_that_do(stack: str, tmp_path: Path) -> None:
    """The fields that the clone of the clone loses are exactly the named ones, over both regions."""
    source = read_stack(file_of(stack)).spec
    lost: set[str] = set()
    for region in REGIONS[source.cloud]:
        there = saved(cloned(file_of(stack), region, mode="hot"), tmp_path)
        home = saved(cloned(there, source.where.region, mode="hot"), tmp_path)
        lost |= _fields(differences(source.model_dump(), read_stack(home).spec.model_dump()))
    assert lost == LOST.get(stack, set())


def test_every_field_that_may_change_changes_in_a_stack() -> None:
    """No field is in the list of fields that may change without a stack that needs it."""
    changed: set[str] = set()
    for stack, region in CASES:
        source = read_stack(file_of(stack)).spec
        made = parse_spec(cloned(file_of(stack), region, mode="hot").files[0].declaration)
        changed |= _fields(differences(source.model_dump(), made.model_dump()))
    assert changed == {*MAY_CHANGE, "capacity"}


@pytest.mark.parametrize("stack", SHIPPED)
@pytest.mark.parametrize("mode", ["cold", "pilot-light"])
def test_each_file_of_a_mode_clones_back(mode: str, stack: str, tmp_path: Path) -> None:
    """In modes cold and pilot-light, each file of the clone has a clone back with a plan without errors and the recorded name."""
    source = read_stack(file_of(stack))
    result = cloned(file_of(stack), REGIONS[source.spec.cloud][0], mode=mode)
    saved(result, tmp_path)
    for one in result.files:
        extra = {"values": (("recovery.site_minutes", 30),)} if _needs_site_minutes(one) else {}
        back = cloned(tmp_path / one.path.name, source.spec.where.region, **extra)
        assert back.ok, [str(finding) for finding in back.findings]
        (file,) = back.files
        assert file.stack == (f"{stack}-base" if one.role == "base" else stack)
        file.path.write_text(file.text, encoding="utf-8")
        assert plan_report(file.path, TODAY).ok


def _needs_site_minutes(file: ClonedFile) -> bool:
    """Whether a clone back in mode cold needs the time of the site, which the other modes remove."""
    return file.declaration.get("recovery", {}).get("mode") == "pilot-light"


@pytest.mark.parametrize("stack", WITH_NETWORK)
def test_networks_do_not_overlap(stack: str) -> None:
    """The stack and its clones in several regions have ranges that do not overlap, so that all of them can be peered."""
    source = read_stack(file_of(stack)).spec
    ranges = [network_of(source.network.cidr)]
    for region in REGIONS[source.cloud]:
        result = cloned(file_of(stack), region)
        ranges.append(network_of(result.files[0].declaration["network"]["cidr"]))
    for i, one in enumerate(ranges):
        assert one is not None
        assert not any(one.overlaps(other) for other in ranges[i + 1 :] if other)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stack", SHIPPED)
def test_modes_have_valid_files(stack: str, mode: str, tmp_path: Path) -> None:
    """Each mode writes files without errors. Pilot-light separates the nodes from the layers that are deployed in advance."""
    region = REGIONS[stack.split("-")[0]][0]
    result = cloned(file_of(stack), region, mode=mode)
    saved(result, tmp_path)
    for one in result.files:
        report = plan_report(tmp_path / one.path.name, TODAY)
        assert report.ok, [str(f) for f in report.findings if f.level is Level.ERROR]
    layers = read_stack(file_of(stack)).spec.made_layers
    if mode == "pilot-light" and "cluster" in layers and len(layers) > 1:
        base, nodes = (read_stack(tmp_path / one.path.name).spec for one in result.files)
        assert base.pools == ()
        assert set(base.made_layers) == set(layers) - {"cluster"}
        assert nodes.made_layers == ("cluster",)
        assert nodes.use.site == f"organization/gpuinfra/{result.files[0].stack}"
        assert result.standing is not None
        assert result.after is not None
        first, whole = result.standing_estimate or result.standing, result.estimate or result.after
        if whole.nodes_priced:
            assert first.usd_per_hour < whole.usd_per_hour
            if "foundation" in layers:
                assert base.budget.limit_usd_per_month is not None
                # A declared limit is kept.
                declared = read_stack(file_of(stack)).spec.budget.limit_usd_per_month
                assert base.budget.limit_usd_per_month >= whole.usd_per_month or declared
    else:
        assert len(result.files) == 1


def test_each_change_has_its_reason_in_the_file() -> None:
    """The line above each changed line has the path and the reason of the change."""
    result = cloned(file_of("aws-p4d"), "us-west-2")
    lines = result.files[0].text.splitlines()
    for change in result.changes:
        assert any(line.strip() == f"# clone: {change.path}: {change.reason}" for line in lines), change.path
    at = next(i for i, line in enumerate(lines) if "pools[0].capacity[0]:" in line)
    assert lines[at + 1].strip() == "- {kind: on_demand, count: 2}"


def test_clone_of_a_clone_drops_the_earlier_reasons(tmp_path: Path) -> None:
    """The comments of an earlier clone are replaced, not repeated."""
    there = saved(cloned(file_of("aws-cluster"), "us-west-2"), tmp_path)
    back = cloned(there, "us-east-1")
    text = "".join(
        line for line in back.files[0].text.splitlines(keepends=True) if not line.strip().startswith("# clone:")
    )
    assert text == file_of("aws-cluster").read_text()


PRIMARIES = [stack for stack in SHIPPED if read_stack(file_of(stack)).spec.recovery]


@pytest.mark.parametrize("stack", PRIMARIES)
def test_a_second_region_ships_with_each_stack_that_declares_one(stack: str) -> None:
    """The file in `stacks/second-region` is what `gpuinfra clone` writes now, and its plan has no errors."""
    source = read_stack(file_of(stack))
    assert source.spec.recovery is not None
    region, mode = source.spec.recovery.region, source.spec.recovery.mode
    path = shipped("stacks") / "second-region" / f"Pulumi.{stack}-{region}.yaml"
    (made,) = clone(source, source.path.read_text(), CloneRequest(region=region, mode=mode), TODAY, output=path).files
    assert path.read_text() == made.text
    assert plan_report(path, TODAY).ok


def test_the_folder_has_no_other_second_region() -> None:
    """Each file in `stacks/second-region` belongs to a stack that declares this second region."""
    found = {path.name for path in (shipped("stacks") / "second-region").iterdir()}
    regions = {stack: spec.recovery for stack in PRIMARIES if (spec := read_stack(file_of(stack)).spec)}
    assert found == {f"Pulumi.{stack}-{one.region}.yaml" for stack, one in regions.items() if one}
