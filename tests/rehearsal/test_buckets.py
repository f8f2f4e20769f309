"""A cluster on Google Cloud that mounts buckets is rehearsed to a verified node, and a refused mount to its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  gcp:project: my-project
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    pools:
      - {name: gpu, machine: a2-ultragpu-1g, capacity: {kind: on_demand, count: 1}}
    storage:
      - {kind: object, mount: /data, bucket: my-training-data}
      - {kind: object, mount: /out, bucket: auto, read_only: false, cache_gib: 20}
"""


@pytest.fixture
def stack(tmp_path: Path) -> str:
    """The stack file."""
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(STACK, encoding="utf-8")
    return str(path)


def test_a_node_that_mounts_buckets_is_verified_under_least_permissions(rehearse: Rehearse, stack: str) -> None:
    """The node mounts an existing bucket and a created one with its two grants; destroy retains the created bucket only."""
    result = rehearse("up", stack, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    (node,) = result.report["nodes"]
    assert node["outcome"] == "verified"
    assert "L4" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}
    assert "lab-node-mount" not in result.out + result.err, "a grant that the nodes do not use is a finding"
    result = rehearse("destroy", stack, "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    kept = {one["name"]: one["id"] for one in result.report["kept"]}
    assert "lab-out-0-bucket" in kept
    assert not [name for name, id in kept.items() if name.startswith("lab-data") or "my-training-data" in id]


def test_a_refused_bucket_is_reported_with_node_step_and_cause(rehearse: Rehearse, stack: str) -> None:
    """If Cloud Storage denies access, the report names the node, the step 85-gcsfuse and the message of the client."""
    result = rehearse("up", stack, "--fault", "node:gpu-1:bucket-mount-refused", "--deadline", "600s")
    said = result.out + result.err
    assert result.code != 0, said
    assert "gpu-1" in said
    assert "85-gcsfuse" in said
    assert "Bad credentials for bucket my-training-data: permission denied" in said.replace("\n", " ")
    rehearse("destroy", stack)
