from __future__ import annotations

from datetime import date

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.planning import make_plan
from gpuinfra.rehearsal.faults import check_against_plan, node_faults, parse
from gpuinfra.rules import load_stack

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
    plan = make_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    with pytest.raises(UsageError) as caught:
        check_against_plan(parse([text], {"gpu": 4}), plan)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "cloud:no-capacity:spot",
        "cloud:no-capacity:gpu",
        "cloud:error:LustreFileSystem:2",
        "node:gpu-4:xid-79",
        "cloud:limited:gpu:1",
        "cloud:slow:spot:30",
        "cloud:refused:image:gpu",
        "cloud:refused:VcpuLimitExceeded:gpu:2",
        "cloud:throttled:5",
    ],
)
def test_faults_that_can_occur_in_this_plan_are_accepted(text: str) -> None:
    """Capacity kinds, pools, the end of a type token and every node of the pool are accepted."""
    plan = make_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    check_against_plan(parse([text], {"gpu": 4}), plan)
