"""Rolling replacement of an Auto Scaling group under the real engine."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from .conftest import Finished, Rehearse

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: guest
    where: {{cloud: aws, region: us-east-1, zone: use1-az4}}
    network: {{existing: {{id: vpc-0123456789abcdef0, subnets: {{use1-az4: subnet-0123456789abcdef0}}}}}}
    audit: {{trail: existing}}
    pools: [{{name: gpu, machine: p4d.24xlarge, capacity: {{kind: on_demand, count: 3}}}}]
    software: {{{software}}}
"""


def _declare(path: Path, software: str = "") -> str:
    path.write_text(STACK.format(software=software), encoding="utf-8")
    return str(path)


def _instances(root: Path) -> dict[str, tuple[int, str]]:
    """Name -> (template version, state)."""
    with closing(sqlite3.connect(root / "cloud.sqlite")) as held:
        rows = held.execute("SELECT data FROM things WHERE kind = 'instance'").fetchall()
    return {one["name"]: (one["template_version"], one["state"]) for (data,) in rows for one in [json.loads(data)]}


def _up(rehearse: Rehearse, stack: str, code: int, *options: str) -> Finished:
    result = rehearse("up", stack, *options)
    assert result.code == code, result.out[-4000:] + result.err
    return result


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_group_rolls_after_a_verified_canary_and_stops_at_a_broken_one(rehearse: Rehearse, tmp_path: Path) -> None:
    """A broken bundle replaces one node of three, and `up` fails; a good one replaces all, the others after the canary is verified."""
    path = tmp_path / "Pulumi.aws-guest.yaml"
    root = _up(rehearse, _declare(path), 0).root
    assert _instances(root) == {f"gpu-{number}": (1, "running") for number in (1, 2, 3)}

    changed = _declare(path, 'cuda: "12.8"')
    result = _up(rehearse, changed, 1, "--fault", "node:gpu-4:gpu-missing")
    assert "the first node of a replacement failed" in result.out
    running = {name: version for name, (version, state) in _instances(root).items() if state == "running"}
    assert sorted(running.values()) == [1, 1, 2]
    assert running["gpu-4"] == 2

    other = _declare(path, 'cuda: "12.8", os: ubuntu-24.04')
    result = _up(rehearse, other, 0)
    assert result.report["totals"]["nodes_verified"] == 3
    running = {name: version for name, (version, state) in _instances(root).items() if state == "running"}
    assert set(running.values()) == {3}
    assert "the canary is verified" in result.out + (root / "engine.log").read_text(encoding="utf-8")
