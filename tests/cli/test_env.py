"""`gpuinfra env`: what a launcher needs to know about the nodes in a state."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.cli import env, options
from gpuinfra.cli.stacks import stacks_of
from gpuinfra.inventory import TYPE


def node(at: int, **fields: object) -> dict[str, Any]:
    """A verified node as the handover writes it to the state."""
    name, id = f"gpu-{at}", f"i-{at:017}"
    return {
        "label": name,
        "instanceId": id,
        "pool": "gpu",
        "privateIp": f"10.0.0.{at}",
        "outcome": "verified",
        **fields,
    }


def ask(monkeypatch: pytest.MonkeyPatch, nodes: list[dict[str, Any]], *words: str) -> Result:
    """Run the command on a state with these nodes."""
    state = [{"type": TYPE, "outputs": {"nodes": nodes}}]
    stacks = replace(stacks_of({}), open=lambda name: nullcontext(state))
    monkeypatch.setattr(
        options, "stacks_of", lambda given: [given.pop(name) for name in ("rehearsal", "folder")] and stacks
    )
    return CliRunner().invoke(env.command, ["aws-p4d", *words], standalone_mode=False)


def test_a_shell_gets_the_nodes_and_the_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only verified nodes count, in their order, and the first is the master."""
    nodes = [node(1, outcome="failed"), node(2), node(3)]
    said = ask(monkeypatch, nodes).output.splitlines()
    assert said == [
        "export NNODES=2",
        "export GPUS_PER_NODE=8",
        "export MASTER_ADDR=10.0.0.2",
        "export MASTER_PORT=29500",
        "export GPUINFRA_NODES=10.0.0.2,10.0.0.3",
        "# mounts: /scratch",
        "# fabric: efa; on the nodes, /etc/profile.d/gpuinfra-nccl.sh sets the environment variables of NCCL",
    ]


def test_mpirun_gets_a_hostfile_and_programs_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostfile has the GPUs as slots. The JSON object has the same nodes."""
    nodes = [node(1), node(2), node(3)]
    assert ask(monkeypatch, nodes, "--hostfile", "-N", "2").output == "10.0.0.1 slots=8\n10.0.0.2 slots=8\n"
    found = json.loads(ask(monkeypatch, nodes, "--json").output)
    assert (found["schema"], found["fabric"], found["mounts"]) == ("gpuinfra.env/1", "efa", ["/scratch"])
    assert [one["address"] for one in found["nodes"]] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert found["environment"]["NNODES"] == "3"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-N", "3"), "-N is 3, but only these nodes are verified: gpu-1, gpu-2; specify at most 2"),
        (("--pool", "cpu"), "--pool is 'cpu'; allowed: gpu"),
        (("--json", "--hostfile"), "cannot be combined"),
    ],
)
def test_what_cannot_be_printed_is_one_error(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    """Too few nodes, an unknown pool and two forms of output end with one message."""
    said = ask(monkeypatch, [node(1), node(2)], *words)
    assert problem in str(said.exception)
    assert said.output == ""
