"""The programs of single components in `examples/components`, which `rehearsal/tests/test_component_programs.py` rehearses."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpuinfra import Aws, Azure, ClusterSpec, Gcp, OnDemand, Pool, Reserved, make_plan
from gpuinfra.base.errors import SpecError
from gpuinfra.base.registry import CLOUDS
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec, read_stack
from gpuinfra.spec.logs import Logs
from gpuinfra.spec.monitoring import Monitoring
from tests.clouds.recorder import Recording, record
from tests.clouds.stacks import TODAY, recording_of_spec

EXAMPLES = Path(__file__).parents[2] / "examples" / "components"
READY = "gpuinfra:index:NodesReady"


def spec_of(cloud: str) -> ClusterSpec:
    """The declaration of the example of a cloud."""
    return read_stack(EXAMPLES / cloud / "Pulumi.dev.yaml").spec


def recording_of_program(cloud: str, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The registrations of the example of a cloud."""
    monkeypatch.setattr("gpuinfra.stack.declared", lambda: spec_of(cloud))

    def program() -> None:
        runpy.run_path(str(EXAMPLES / cloud / "__main__.py"))

    return record(program)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nodes_are_verified_as_in_a_cluster(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`NodesReady` of a program has the same inputs as in `GpuCluster`: evidence, identity, expectation, number of nodes and deadline."""
    told, cluster = (
        _ready(one) for one in (recording_of_program(cloud, monkeypatch), recording_of_spec(spec_of(cloud)))
    )
    assert told == cluster
    assert told["deadlineS"] == 3600
    assert told["pools"][0]["groups"][0]["count"] == 1


def _ready(recording: Recording) -> Any:
    """The inputs of the wait. On Azure, the ID of a group contains its resource group, which a program names itself."""
    inputs = json.loads(json.dumps(recording.one(READY, "train-ready").inputs, default=str))
    for pool in inputs["pools"]:
        for group in pool["groups"]:
            assert group.pop("group")
            assert group.pop("templateVersion")
    return inputs


A100 = {"aws": "p4d.24xlarge", "azure": "Standard_ND96amsr_A100_v4", "gcp": "a2-highgpu-8g"}
WRONG: dict[str, tuple[Any, str, Any, str]] = {
    "aws region": (Aws(region="us-east-9"), A100["aws"], OnDemand(count=2), "where.region"),  # pyright: ignore[reportArgumentType]
    "aws zone": (Aws(region="us-east-1", zone="use1-az99"), A100["aws"], OnDemand(count=2), "where.zone"),  # pyright: ignore[reportArgumentType]
    "aws machine": (Aws(region="us-east-1"), "p9", OnDemand(count=2), "pools[0].machine"),
    "aws capacity": (Aws(region="us-east-1"), A100["aws"], Reserved(count=2), "pools[0].capacity[0]"),
    "azure region": (Azure(region="mars"), A100["azure"], OnDemand(count=2), "where.region"),  # pyright: ignore[reportArgumentType]
    "azure zone": (Azure(region="southcentralus", zone="9"), A100["azure"], OnDemand(count=2), "where.zone"),  # pyright: ignore[reportArgumentType]
    "azure machine": (Azure(region="southcentralus"), "p9", OnDemand(count=2), "pools[0].machine"),
    "azure capacity": (Azure(region="southcentralus"), A100["azure"], Reserved(count=2), "pools[0].capacity[0].kind"),
    "gcp region": (Gcp(region="mars-1"), A100["gcp"], OnDemand(count=2), "where.region"),  # pyright: ignore[reportArgumentType]
    "gcp zone": (Gcp(region="us-central1", zone="us-east1-b"), A100["gcp"], OnDemand(count=2), "where.zone"),
    "gcp machine": (Gcp(region="us-central1"), "p9", OnDemand(count=2), "pools[0].machine"),
    "gcp capacity": (Gcp(region="us-central1"), A100["gcp"], Reserved(count=2), "pools[0].capacity[0]"),
}
"""Name -> where, machine and capacity of a declaration, and the field of its error."""


@pytest.mark.parametrize("name", WRONG)
def test_a_declaration_in_python_has_the_findings_of_a_stack_file(name: str) -> None:
    """A wrong region, zone, machine or capacity is one error that the engine shows without a traceback, with the findings of the same YAML."""
    where, machine, capacity, field = WRONG[name]
    spec = ClusterSpec(name="train", where=where, pools=[Pool(name="gpu", machine=machine, capacity=[capacity])])
    written = {
        "name": "train",
        "where": {"cloud": spec.cloud, **where.model_dump(exclude_unset=True)},
        "pools": [{"name": "gpu", "machine": machine, "capacity": {"kind": capacity.kind, "count": 2}}],
    }
    findings = check(parse_spec(written), TODAY)
    assert field in {finding.path for finding in findings if finding.level == "error"}
    with pytest.raises(SpecError) as refused:
        make_plan(spec, TODAY)
    assert isinstance(refused.value, pulumi.RunError)
    assert str(refused.value) == "\n".join(str(finding) for finding in findings)


def test_a_mapping_is_checked_as_a_stack_file() -> None:
    """A declaration can be a mapping: a misspelled field is an error without a traceback."""
    with pytest.raises(pulumi.RunError, match="machin"):
        make_plan(
            {
                "name": "train",
                "where": {"cloud": "aws", "region": "us-east-1"},
                "pools": [{"name": "gpu", "machin": "p4d.24xlarge"}],
            }
        )


@pytest.mark.parametrize("section", ["monitoring", "logs"])
def test_a_section_that_only_a_cluster_creates_is_refused(section: str) -> None:
    """Without the control node or the log group, the nodes of a program of components would never be verified."""
    spec = spec_of("aws").model_copy(update={section: {"monitoring": Monitoring(), "logs": Logs()}[section]})
    with pytest.raises(
        pulumi.RunError, match=f"error: {section} is not possible in a program of single components; use GpuCluster"
    ):
        make_plan(spec, TODAY)


def test_a_wait_without_pools_is_refused() -> None:
    """`NodesReady` without a pool is an error, because it would wait for nothing."""
    from gpuinfra.clouds import aws

    def program() -> None:
        plan = make_plan(spec_of("aws"), TODAY)
        aws.NodesReady("ready", aws.NodesReadyArgs(scope=aws.Scope.of(plan), plan=plan.handover, pools=[]))

    with pytest.raises(pulumi.RunError, match="pools is empty"):
        record(program)
