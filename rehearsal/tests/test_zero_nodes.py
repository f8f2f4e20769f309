"""A pool without nodes is rehearsed, and its nodes start when its count increases."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse
from .test_node_options import MACHINES, WHERE

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

STACK = """\
config:
  gpuinfra:cluster:
    name: lab
    where: {where}
    pools:
      - {{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: {count}}}}}
    access: {{evidence_from: {evidence_from}}}
"""


@pytest.mark.parametrize("cloud", WHERE)
def test_a_pool_without_nodes_starts_them_later(rehearse: Rehearse, tmp_path: Path, cloud: str) -> None:
    """With a count of 0, no node starts, and the handover expects none. With a count of 1, the node is verified; with 0 again, it ends."""
    path = tmp_path / "home/Pulumi.lab.yaml"
    path.parent.mkdir()

    def up(count: int, *options: str) -> list[str]:
        text = STACK.format(
            where=WHERE[cloud],
            machine=MACHINES[cloud],
            count=count,
            evidence_from="[203.0.113.0/24]" if cloud == "azure" else "[]",
        )
        path.write_text(text, encoding="utf-8")
        result = rehearse("up", str(path), *options)
        assert result.code == 0, result.out + result.err
        return [node["outcome"] for node in result.report["nodes"]]

    assert up(0) == []
    assert up(1) == ["verified"]
    assert up(0) == []
    result = rehearse("destroy", str(path))
    assert result.code == 0, result.out + result.err
