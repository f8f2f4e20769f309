"""A cluster with declared steps is rehearsed to a verified node on each cloud, and a failed step or a wrong checksum is the finding of its node."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_users import MACHINES, WHERE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

URL = "https://example.com/agent.sh"
DIGEST = hashlib.sha256(b"the published script").hexdigest()
STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 1}}}}
    access: {{evidence_from: {evidence_from}}}
    software:
      steps:
        - {{name: tuning, file: setup/tuning.sh, reboot: true}}
        - {{name: agent, url: "{url}", sha256: {digest}}}
"""


def written(folder: Path, cloud: str) -> Path:
    """The stack file of a cloud, with a script that succeeds."""
    path = folder / "home/Pulumi.lab.yaml"
    (path.parent / "setup").mkdir(parents=True)
    ranges = "[203.0.113.0/24]" if cloud == "azure" else "[]"
    text = STACK.format(where=WHERE[cloud], machine=MACHINES[cloud], evidence_from=ranges, url=URL, digest=DIGEST)
    path.write_text(text, encoding="utf-8")
    (path.parent / "setup/tuning.sh").write_text("#!/bin/bash\necho tuned >/etc/tuned\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("cloud", WHERE)
def test_a_changed_script_replaces_the_node_and_its_failure_is_the_finding(
    rehearse: Rehearse, tmp_path: Path, cloud: str
) -> None:
    """The node with the step is verified. A script that fails after a change is reported with its name, exit code and last line,
    and the corrected script is verified again."""
    stack = written(tmp_path, cloud)
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


@pytest.mark.parametrize("cloud", WHERE)
def test_a_script_with_another_checksum_does_not_run(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """The finding names the step, the URL and the declared checksum."""
    stack = written(tmp_path, cloud)
    result = rehearse("up", str(stack), "--fault", "node:gpu-1:script-corrupt", "--deadline", "1200s")
    assert result.code == 1, result.out + result.err
    for words in (f"own-agent is failed: the script of {URL} has the SHA-256 ", f"requires {DIGEST}", "what to do: "):
        assert words in result.out, (words, result.out)
