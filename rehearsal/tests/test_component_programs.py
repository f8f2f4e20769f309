"""The programs of single components in `examples/components`, rehearsed in a folder with a project of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS

from .conftest import REPOSITORY, Finished, Rehearse

EXAMPLES = REPOSITORY / "examples" / "components"
WRONG = """make_plan(
    ClusterSpec(
        name="train",
        where=Aws(region="us-east-9", zone="use1-az4"),
        pools=[Pool(name="gpu", machine="p9", capacity=[Spot(count=1)])],
    )
)"""


def example(cloud: str, folder: Path) -> Path:
    """The stack file in a copy of the example of a cloud, which names the plugin by an absolute path."""
    copy = shutil.copytree(EXAMPLES / cloud, folder / cloud)
    project = copy / "Pulumi.yaml"
    project.write_text(project.read_text().replace("../../../plugin", str(REPOSITORY / "plugin")))
    return copy / "Pulumi.dev.yaml"


def components(done: Finished) -> set[str]:
    """The types of components in the state."""
    return {one["type"].rpartition(":")[2] for one in done.state if one["type"].startswith("gpuinfra:")}


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_program_of_components_ends_with_verified_nodes(rehearse: Rehearse, cloud: str, tmp_path: Path) -> None:
    """A program without `GpuCluster` is deployed on each cloud, and its node is verified."""
    done = rehearse("up", str(example(cloud, tmp_path)))
    assert done.code == 0, done.out + done.err
    assert {"Network", "SharedFilesystem", "NodePool", "NodesReady"} < components(done)
    assert "GpuCluster" not in components(done)
    (stack,) = (one for one in done.state if one["type"] == "pulumi:pulumi:Stack")
    assert stack["outputs"]["summary"] == "1 of 1 nodes and 8 GPUs verified"


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_broken_node_fails_a_program_of_components(rehearse: Rehearse, cloud: str, tmp_path: Path) -> None:
    """A lost GPU fails the deployment, and the output names the node, the check and what to do."""
    fault = ("--fault", "node:gpu-1:gpu-missing", "--deadline", "1200s")
    done = rehearse("up", str(example(cloud, tmp_path)), *fault)
    assert done.code == 1, done.out + done.err
    for words in ("G1 gpu_count: found 7, expected 8 GPUs", "what to do: "):
        assert words in done.out
    assert done.report["totals"]["gpus_verified"] == 0


@pytest.mark.long
def test_a_wrong_declaration_in_python_is_one_error(rehearse: Rehearse, tmp_path: Path) -> None:
    """A declaration in the program has the findings of a stack file, without a traceback, and nothing is created."""
    stack = example("aws", tmp_path)
    program = stack.parent / "__main__.py"
    names = "from gpuinfra import Aws, ClusterSpec, Pool, Spot, make_plan"
    text = program.read_text().replace("from gpuinfra import make_plan", names)
    program.write_text(text.replace("make_plan(declared())", WRONG))
    stack.write_text("config: {}\n")
    done = rehearse("preview", str(stack), "--without-nodes")
    text = done.out + done.err
    assert done.code == 1, text
    for words in ("pools[0].machine is 'p9', which is not in the AWS catalog", "where.region is 'us-east-9'"):
        assert words in text
    assert "Traceback" not in text
    assert not done.report["engine"]["operations"].get("create")
