"""A cluster with declared steps is rehearsed to a verified node, and a failed step is the finding of its node."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: lab
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: g5.xlarge, capacity: {kind: on_demand, count: 1}}
    software:
      steps:
        - {name: tuning, file: setup/tuning.sh, reboot: true}
"""


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack file with a step that succeeds."""
    path = tmp_path / "home/Pulumi.lab.yaml"
    (path.parent / "setup").mkdir(parents=True)
    path.write_text(STACK, encoding="utf-8")
    (path.parent / "setup/tuning.sh").write_text("#!/bin/bash\necho tuned >/etc/tuned\n", encoding="utf-8")
    return path


def test_a_changed_script_replaces_the_node_and_its_failure_is_the_finding(rehearse: Rehearse, stack: Path) -> None:
    """The node with the step is verified. A script that fails after a change is reported with its name, exit code and last line, and the corrected script is verified again."""
    script = stack.parent / "setup/tuning.sh"
    result = rehearse("up", str(stack))
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]

    script.write_text("#!/bin/bash\necho 'license server: refused'\nexit 4\n", encoding="utf-8")
    result = rehearse("up", str(stack), "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in (
        "own-tuning is failed: the script exited with code 4; last output: license server: refused",
        "what to do: ",
    ):
        assert words in result.out, (words, result.out)

    script.write_text("#!/bin/bash\necho corrected\n", encoding="utf-8")
    result = rehearse("up", str(stack))
    assert result.code == 0, result.out + result.err
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"]
    result = rehearse("destroy", str(stack))
    assert result.code == 0, result.out + result.err
