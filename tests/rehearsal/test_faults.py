from __future__ import annotations

from datetime import date

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.planning import make_plan
from gpuinfra.rehearsal.faults import against_plan, node_faults, parse
from gpuinfra.rules import load_stack

TODAY = date(2026, 11, 21)


@pytest.mark.parametrize("name", ["gpu-missing", "driver-mismatch", "xid-79", "never-reports", "efa-missing"])
def test_promised_node_faults_are_there(name: str) -> None:
    """Each fault that the command promises is played by somebody and says what it does."""
    assert node_faults()[name]
    assert parse([f"node:gpu-1:{name}"], {"gpu": 4})[0].target == "gpu-1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xid-79", "starts with node: or cloud:"),
        ("node:gpu:xid-79", "'gpu' names no node"),
        ("node:gpu-0:xid-79", "names no node"),
        ("node:cpu-1:xid-79", "there is no pool 'cpu'; pools are gpu"),
        ("node:gpu-1:xid-97", "did you mean xid-79"),
        ("node:gpu-1:", "allowed are"),
        ("cloud:no-capacity", "say which pool or capacity kind"),
        ("cloud:eror:x:1", "did you mean error"),
        ("cloud:error:LustreFileSystem", "how often"),
        ("cloud:error:LustreFileSystem:0", "how often"),
        ("cloud:error:LustreFileSystem:-1", "how often"),
    ],
)
def test_faults_that_are_none_are_refused(text: str, words: str) -> None:
    """A mistyped fault is refused with what is allowed, because one that does nothing looks like one that did no harm."""
    with pytest.raises(UsageError, match="--fault") as caught:
        parse([text], {"gpu": 4})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node:gpu-5:xid-79", "gpu-1 to gpu-4"),
        ("cloud:no-capacity:flex", "allowed are gpu, gpu-reserved-0"),
        ("cloud:error:aws:fsx/fileSystem:FileSystem:1", "did you mean LustreFileSystem"),
    ],
)
def test_faults_that_cannot_happen_here_are_refused(text: str, words: str) -> None:
    """A fault on something that this stack does not hold is refused too."""
    plan = make_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    with pytest.raises(UsageError) as caught:
        against_plan(parse([text], {"gpu": 4}), plan)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["cloud:no-capacity:spot", "cloud:no-capacity:gpu", "cloud:error:LustreFileSystem:2", "node:gpu-4:xid-79"]
)
def test_faults_that_can_happen_here_are_taken(text: str) -> None:
    """Kinds, pools, the end of a type token and every node of the pool are accepted."""
    plan = make_plan(load_stack("aws-p4d", TODAY).spec, TODAY)
    against_plan(parse([text], {"gpu": 4}), plan)
