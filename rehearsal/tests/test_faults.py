from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.node.judge import judge
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.steps import OWN
from gpuinfra.rules import load_stack
from gpuinfra_rehearsal.devices import faults as device_faults
from gpuinfra_rehearsal.faults import STEPS, check_against_plan, node_faults, parse
from tests.node.healthy import JOURNAL, probes, state

TODAY = date(2026, 11, 21)


@pytest.mark.parametrize("name", ["gpu-missing", "driver-mismatch", "xid-79", "never-reports", "efa-missing"])
def test_documented_node_faults_exist(name: str) -> None:
    """Each documented fault is simulated and has a description."""
    assert node_faults()[name]
    assert parse([f"node:gpu-1:{name}"], {"gpu": 4})[0].target == "gpu-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xid-79", "starts with node: or cloud:"),
        ("node:gpu:xid-79", "'gpu' is not a node name"),
        ("node:gpu-0:xid-79", "is not a node name"),
        ("node:cpu-1:xid-79", "'cpu' is not a pool; allowed: gpu"),
        ("node:gpu-1:xid-97", "did you mean xid-79"),
        ("node:gpu-1:", "allowed:"),
        ("cloud:no-capacity", "the pool, capacity kind or zone is missing"),
        ("cloud:eror:x:1", "did you mean error"),
        ("cloud:limited:gpu", "example: cloud:limited:spot:1"),
        ("cloud:slow:gpu:0", "example: cloud:slow:gpu:30"),
        ("cloud:refused:image", "example: cloud:refused:image:gpu"),
        ("cloud:throttled", "the number of requests is missing"),
        ("cloud:error:LustreFileSystem", "the resource type or the count is missing"),
        ("cloud:error:LustreFileSystem:0", "the resource type or the count is missing"),
        ("cloud:error:LustreFileSystem:-1", "the resource type or the count is missing"),
    ],
)
def test_unknown_faults_are_rejected(text: str, words: str) -> None:
    """A mistyped fault is rejected with the allowed values, because a run without an effect would look like a success."""
    with pytest.raises(UsageError, match="--fault") as caught:
        parse([text], {"gpu": 4})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node:gpu-5:xid-79", "gpu-1 to gpu-4"),
        ("cloud:no-capacity:flex", "allowed: gpu, gpu-reserved-0"),
        ("cloud:limited:flex:1", "allowed: gpu, gpu-reserved-0"),
        ("cloud:refused:image:flex", "allowed: gpu, gpu-reserved-0"),
        ("cloud:refused:imag:gpu", "no message of aws with the kind or code imag is recorded"),
        ("cloud:error:aws:fsx/fileSystem:FileSystem:1", "did you mean LustreFileSystem"),
    ],
)
def test_faults_that_cannot_occur_in_this_plan_are_rejected(text: str, words: str) -> None:
    """A fault on a node, capacity kind or type that this stack does not have is rejected."""
    plan = build_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    with pytest.raises(UsageError) as caught:
        check_against_plan(parse([text], {"gpu": 4}), plan)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("stack", "fault", "missing"),
    [
        ("aws-p4d", "fabric-port-down", "check N2 or N7"),
        ("aws-p4d", "fabric-unhealthy", "check F2"),
        ("azure-ndv5", "efa-missing", "check N1"),
        ("gcp-a3mega", "efa-missing", "check N1"),
        ("gcp-a3ultra", "fabric-no-key", "check N9"),
        ("aws-p4d", "home-mount-refused", "step 62-home"),
        ("aws-p4d", "bucket-missing", "step 85-*"),
        ("aws-p4d", "script-corrupt", "step own-*"),
        ("aws-p4d", "packages-missing", "step 95-packages"),
    ],
)
def test_node_faults_of_devices_and_steps_that_the_pool_does_not_have_are_rejected(
    stack: str, fault: str, missing: str
) -> None:
    """The error names the machine type, and the check or the step that the nodes do not run."""
    plan = build_plan(load_stack(stack, TODAY).spec, TODAY)
    with pytest.raises(UsageError) as caught:
        check_against_plan(parse([f"node:gpu-1:{fault}"], {"gpu": 4}), plan)
    assert f"no effect in pool gpu ({plan.pools[0].machine})" in str(caught.value)
    assert str(caught.value).endswith(f"because its nodes do not run {missing}")


@pytest.mark.parametrize("stack", ["aws-p4d", "azure-ndv4", "azure-ndv5", "gcp-a3high", "gcp-a3mega", "gcp-a3ultra"])
def test_a_device_fault_is_accepted_if_and_only_if_a_check_of_the_pool_detects_it(stack: str) -> None:
    """The output of a stand-in node with the fault, judged by the checks of the pool,
    differs from that of a healthy node for each accepted fault, and for no other."""
    plan = build_plan(load_stack(stack, TODAY).spec, TODAY)
    wanted: dict[str, Any] = dict(plan.pools[0].expectation)

    def unusual(*faults: str) -> set[tuple[object, object]]:
        node = state(*faults, expectation=wanted)
        node["driver"]["open"] = wanted["open_module"]
        checks = judge(probes(expectation=wanted, device_state=node), wanted, journal=JOURNAL)
        return {(one["id"], one["outcome"]) for one in checks if one["outcome"] not in ("pass", "skip")}

    def accepted(fault: str) -> bool:
        try:
            check_against_plan(parse([f"node:gpu-1:{fault}"], {"gpu": 4}), plan)
        except UsageError:
            return False
        return True

    healthy = unusual()
    assert {one for one in device_faults() if accepted(one)} == {
        one for one in device_faults() if unusual(one) - healthy
    }


@pytest.mark.parametrize("name", STEPS)
def test_the_step_of_a_fault_exists(name: str) -> None:
    """Each fault with a step is a node fault, and the bootstrap contains a step whose name starts like that."""
    assert name in node_faults()
    steps = [one.stem for one in Path("bootstrap").glob("*.sh")]
    assert any(one.startswith(STEPS[name]) for one in (*steps, OWN))


@pytest.mark.parametrize(
    "text",
    [
        "cloud:no-capacity:spot",
        "cloud:no-capacity:gpu",
        "cloud:error:LustreFileSystem:2",
        "node:gpu-4:xid-79",
        "node:gpu-1:efa-missing",
        "node:gpu-1:lustre-mount-fails",
        "node:gpu-1:never-reports",
        "node:gpu-1:accounts-locked",
        "cloud:limited:gpu:1",
        "cloud:slow:spot:30",
        "cloud:refused:image:gpu",
        "cloud:refused:VcpuLimitExceeded:gpu:2",
        "cloud:throttled:5",
    ],
)
def test_faults_that_can_occur_in_this_plan_are_accepted(text: str) -> None:
    """Capacity kinds, pools, the end of a type token and every node of the pool are accepted."""
    plan = build_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    check_against_plan(parse([text], {"gpu": 4}), plan)
