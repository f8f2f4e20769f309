"""Clusters with declared files and environment variables are rehearsed to verified nodes, and a variable that the image changes is the finding of its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.cases import KEYS

from .conftest import Rehearse
from .test_users import MACHINES, WHERE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 1}}}}
    software:
      environment: {{HF_HOME: /srv/huggingface}}
      files:
        - {{path: /etc/site.conf, file: setup/site.conf, owner: alice, mode: "0600"}}
    access: {{evidence_from: {evidence_from}, users: [{{name: alice, uid: 2001, ssh_keys: ["{key}"]}}]}}
"""


def written(folder: Path, cloud: str) -> Path:
    """The stack file of a cloud, and its local file."""
    path = folder / "home/Pulumi.lab.yaml"
    (path.parent / "setup").mkdir(parents=True)
    (path.parent / "setup/site.conf").write_text("a = 1\n", encoding="utf-8")
    ranges = "[203.0.113.0/24]" if cloud == "azure" else "[]"
    text = STACK.format(where=WHERE[cloud], machine=MACHINES[cloud], key=KEYS[0], evidence_from=ranges)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("cloud", WHERE)
def test_nodes_with_files_are_verified(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """On each cloud, the node with a declared file and a declared variable is verified."""
    path = written(tmp_path, cloud)
    result = rehearse("up", str(path))
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
    result = rehearse("destroy", str(path))
    assert result.code == 0, result.out + result.err


@pytest.mark.parametrize("cloud", WHERE)
def test_a_variable_that_the_image_changes_is_the_finding(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The finding names the check, the variable and both values."""
    path = written(tmp_path, cloud)
    result = rehearse("up", str(path), "--fault", "node:gpu-1:image-profile", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in (
        "S3",
        "HF_HOME is '/opt/site/huggingface' in login shells instead of '/srv/huggingface'",
        "what to do: ",
    ):
        assert words in result.out, (words, result.out)
