"""The fabric test in the plan and in the permissions of the nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuinfra.bundle import build
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report.plan_json import plan_report
from gpuinfra.report.plan_text import text
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.rules.cases import declaration

OFF = {"handover.fabric_test": "off"}
GB200 = {"pools.0.machine": "Standard_ND128isr_NDR_GB200_v6"}
"""A machine type on Azure with a fabric for which no bandwidth between two nodes is known."""


def planned(cloud: str, changes: dict[str, Any]) -> Plan:
    """The plan of a changed declaration."""
    return build_plan(parse_spec(declaration((cloud, changes))), TODAY)


def decided(plan: Plan, pool: str = "gpu") -> tuple[str, str]:
    """The decision about the fabric test of a pool, and its reason."""
    (found,) = [one for one in plan.decisions if one.path == f"{pool}.fabric_test"]
    return found.chosen, found.why


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_test_is_required_by_default_where_it_is_possible(cloud: str) -> None:
    """Check B8 is in the plan unless the declaration disables the test, and a decision states the reason."""
    for changes, there in (({}, True), ({"handover.fabric_test": "required"}, True), (OFF, False)):
        plan = planned(cloud, changes)
        assert plan.pools[0].fabric_test is there
        assert ("B8" in plan.pools[0].expectation["required"]) is there  # pyright: ignore[reportOperatorIssue]
        mode, why = decided(plan)
        assert mode == ("required" if there else "off")
        assert ("the declaration" in why) is bool(changes)
        assert "is known" in why if there else "disables it" in why


@pytest.mark.parametrize(
    ("cloud", "changes", "why"),
    [
        ("aws", {"pools.0.machine": "m7i.xlarge"}, "m7i.xlarge has no GPUs"),
        ("aws", {"pools.0.machine": "g5.xlarge"}, "g5.xlarge has no fabric"),
        ("aws", {"pools.0.fabric": "none"}, "the declaration does not use the fabric of the pool"),
        ("aws", {"pools.0.mig": ["1g.5gb"] * 7}, "the pool uses MIG, and NCCL measures whole GPUs only"),
        (
            "aws",
            {"pools.0.machine": "g6e.48xlarge"},
            "no bandwidth between two healthy g6e.48xlarge nodes is published (searched 2026-11-28)",
        ),
        (
            "azure",
            GB200,
            "no bandwidth between two healthy Standard_ND128isr_NDR_GB200_v6 nodes is published (searched 2026-11-28)",
        ),
    ],
)
def test_pools_that_cannot_run_the_test_do_not_require_it(cloud: str, changes: dict[str, Any], why: str) -> None:
    """Nodes without GPUs or a fabric, with MIG, or without a known bandwidth between two nodes have no check B8, and the plan states the reason."""
    plan = planned(cloud, changes)
    assert not plan.pools[0].fabric_test
    assert decided(plan) == ("off", why)


def test_a_floor_of_one_node_disables_the_test_by_default() -> None:
    """If one node is enough, it can be the only node that launches, and it would wait for a partner until the deadline."""
    one, two = ({"handover.wait": "floor", "handover.floor": floor} for floor in (1, 2))
    plan = planned("aws", one)
    assert not plan.pools[0].fabric_test
    assert decided(plan) == (
        "off",
        "handover.floor is 1, and the only node that launches has no partner; set it to 2 or more for the test",
    )
    assert planned("aws", two).pools[0].fabric_test
    assert planned("aws", {**one, "handover.fabric_test": "required"}).pools[0].fabric_test


def test_the_number_of_nodes_does_not_change_the_bundle() -> None:
    """A pool that grows to a second node does not replace its first node: the bundle is the same, and only the handover requires no result of a single node."""
    one, two = (planned("aws", {"pools.0.capacity": [{"kind": "on_demand", "count": count}]}) for count in (1, 2))
    assert decided(one) == decided(two)
    assert build(one.pools[0]).sha256 == build(two.pools[0]).sha256


@pytest.mark.parametrize(
    ("changes", "known"), [({}, True), ({"fabric_devices": 2}, False), ({"gpus": 4}, False), ({"gpus": 8}, True)]
)
def test_a_declared_machine_type_keeps_the_floor_only_with_the_same_devices(
    changes: dict[str, Any], known: bool
) -> None:
    """The bandwidth between two nodes with fewer fabric devices or GPUs is unknown, so they have no test that all of them would fail."""
    machines = [{"name": "p4x.24xlarge", "like": "p4d.24xlarge", **changes}]
    assert planned("aws", {"machines": machines, "pools.0.machine": "p4x.24xlarge"}).pools[0].fabric_test is known


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "fabric test required: the bandwidth between two healthy p4d.24xlarge nodes is known"),
        (
            {"pools.0.capacity": [{"kind": "on_demand", "count": 1}]},
            "nodes is known; the only node of the pool is handed over without it",
        ),
        (OFF, "fabric test off: the declaration disables it; the paths between the nodes are not measured"),
        ({"pools.0.machine": "g6e.48xlarge"}, "fabric test off: no bandwidth between two healthy g6e.48xlarge"),
        ({"pools.0.machine": "m7i.xlarge"}, ""),
    ],
)
def test_the_plan_shows_the_mode_and_the_reason(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    """Each pool with a fabric has a line about its test; a pool without a fabric has none."""
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(yaml.safe_dump({"config": {"gpuinfra:cluster": declaration(("aws", changes))}}), encoding="utf-8")
    shown = " ".join(text(plan_report(path, TODAY)).split())
    assert line in shown if line else "fabric test" not in shown


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_test_needs_no_permission_of_the_nodes(cloud: str) -> None:
    """Nodes read what the operator writes next to the bundle, so the policies and grants are the same with and without the test."""
    resources = []
    for changes in ({}, OFF):
        more = {"access.evidence_from": ["203.0.113.0/24"]} if cloud == "azure" else {}
        recorded = recording_of_spec(declaration((cloud, {**changes, **more})))
        kinds = ("Policy", "RoleAssignment", "IAMMember", "RoleDefinition")
        kept = [one for one in recorded.custom if one.type.endswith(kinds)]
        resources.append(sorted((one.name, json.dumps(one.inputs, sort_keys=True, default=str)) for one in kept))
    assert resources[0] == resources[1] != []
