"""Programs in YAML and TypeScript, rehearsed with the real engine, and the same stack from a Python program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.engine import find_engine
from gpuinfra.engine.hosts import find_host

from .conftest import REPOSITORY, Finished, Rehearse, command, run

EXAMPLES = REPOSITORY / "examples"
PYTHON_PROGRAM = """
import pulumi
from gpuinfra import GpuCluster
from gpuinfra.stack import declared
for name, value in GpuCluster("train", declared()).outputs.items():
    if name in ("summary", "nodes", "evidence_bucket"):
        pulumi.export(name, value)
"""


def example(name: str, folder: Path) -> Path:
    """A copy of an example that names the plugin by an absolute path."""
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("node_modules", "sdks", ".rehearsal"))
    project = copy / "Pulumi.yaml"
    project.write_text(project.read_text().replace("../../plugin", str(REPOSITORY / "plugin")))
    return copy


def assert_verified(done: Finished, nodes: int = 1) -> None:
    """The command succeeded, and the state has the component and its verified nodes."""
    assert done.code == 0, done.out + done.err
    ready = only(done, "gpuinfra:index:NodesReady")
    assert ready["outputs"]["nodesVerified"] == nodes
    cluster = only(done, "gpuinfra:index:GpuCluster")
    assert cluster["outputs"]["nodes_verified"] == nodes


def only(done: Finished, type_: str) -> dict[str, Any]:
    """The resource of a type in the state."""
    (found,) = (one for one in done.state if one["type"] == type_)
    return dict(found)


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_yaml_program_deploys_a_verified_cluster(rehearse: Rehearse, cloud: str, tmp_path: Path) -> None:
    """The YAML example creates a cluster on each cloud, its nodes are verified, and the outputs of the stack have their values."""
    stack = example("yaml", tmp_path) / f"Pulumi.{cloud}.yaml"
    done = rehearse("up", str(stack))
    assert_verified(done)
    outputs = only(done, "pulumi:pulumi:Stack")["outputs"]
    assert outputs["summary"] == "1 of 1 nodes and 8 GPUs verified"
    assert outputs["nodes"][0]["outcome"] == "verified"
    assert outputs["evidence_bucket"]


@pytest.mark.long
def test_stack_of_a_yaml_program_continues_in_python(rehearse: Rehearse, tmp_path: Path) -> None:
    """A Python program with the same project name and outputs changes nothing in a stack that a YAML program deployed."""
    folder = example("yaml", tmp_path)
    stack = str(folder / "Pulumi.aws.yaml")
    done = rehearse("up", stack, "--without-nodes")
    assert done.code == 0, done.out + done.err
    before = {one["urn"]: one.get("id") for one in done.state if not one["type"].startswith("pulumi:providers")}
    (folder / "Pulumi.yaml").write_text(
        f"name: train-yaml\nruntime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}\n"
        f"plugins: {{providers: [{{name: gpuinfra, path: {REPOSITORY / 'plugin'}}}]}}\n"
    )
    (folder / "__main__.py").write_text(PYTHON_PROGRAM)
    done = rehearse("up", stack, "--without-nodes")
    assert done.code == 0, done.out + done.err
    after = {one["urn"]: one.get("id") for one in done.state if not one["type"].startswith("pulumi:providers")}
    assert after == before


@pytest.mark.long
def test_retained_resources_of_a_yaml_program_are_adopted(rehearse: Rehearse, tmp_path: Path) -> None:
    """After a destroy, the next `up` imports the retained resources under the component and keeps them."""
    stack = str(example("yaml", tmp_path) / "Pulumi.aws.yaml")
    done = [rehearse(action, stack, "--without-nodes") for action in ("up", "destroy", "up")]
    assert [one.code for one in done] == [0, 0, 0], "".join(one.out + one.err for one in done)
    retained = {entry["what"] for entry in only(done[-1], "gpuinfra:index:GpuCluster")["outputs"]["kept"]}
    created = done[-1].report["engine"]["operations"]["create"]
    resources = [one for one in done[-1].state if one.get("custom") and not one["type"].startswith("pulumi:")]
    assert created <= len(resources) - len(retained)


@pytest.mark.long
def test_wrong_yaml_program_fails_with_one_error(rehearse: Rehearse, tmp_path: Path) -> None:
    """A wrong value in the declaration of a program is reported at the component, without a traceback."""
    folder = example("yaml", tmp_path)
    project = folder / "Pulumi.yaml"
    project.write_text(
        project.read_text().replace(
            "    type: gpuinfra:GpuCluster\n",
            "    type: gpuinfra:GpuCluster\n    properties:\n"
            "      spec: {name: train, where: {cloud: aws, region: us-east-1}, pools: [{name: gpu, machine: p9, capacity: {kind: spot, count: 1}}]}\n",
        )
    )
    done = rehearse("preview", str(folder / "Pulumi.aws.yaml"), "--without-nodes")
    assert done.code != 0
    text = done.out + done.err
    assert "GpuCluster resource 'train' has a problem" in text
    assert "pools[0].machine" in text
    assert "Traceback" not in text
    assert "Exception calling application" not in text


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
@pytest.mark.usefixtures("needs_nodes")
def test_typescript_program_deploys_a_verified_cluster(rehearse: Rehearse, tmp_path: Path) -> None:
    """The TypeScript example compiles with the SDK that Pulumi generates from the schema, and creates a verified cluster."""
    folder = example("typescript", tmp_path)
    generate_sdk(folder)
    script(folder, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
    sdk = folder / "sdks" / "gpuinfra"
    script(folder, "npx", "tsc", "-p", str(sdk), "--types", "node")
    shutil.copy(sdk / "package.json", sdk / "bin")
    script(folder, "npx", "tsc", "-p", ".")
    assert_verified(rehearse("up", str(folder / "Pulumi.aws.yaml")))


def generate_sdk(folder: Path) -> None:
    """Generate the SDK as docs/guides/other-languages.md describes."""
    engine = find_engine()
    host = find_host("nodejs", engine)
    schema = run(command("schema", "--package"), folder)
    assert schema.code == 0, schema.err
    (folder / "schema.json").write_text(schema.out)
    environment = engine.environ() | {"PULUMI_HOME": str(folder / "home"), "PULUMI_SKIP_UPDATE_CHECK": "1"}
    if host is not None:
        environment["PATH"] = f"{host}{os.pathsep}{environment['PATH']}"
    words = ("package", "gen-sdk", "schema.json", "--language", "nodejs", "--local", "--out", "generated")
    script(folder, str(engine.path), *words, env=environment)
    (folder / "sdks").mkdir()
    (folder / "generated" / "nodejs").rename(folder / "sdks" / "gpuinfra")


def script(folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
