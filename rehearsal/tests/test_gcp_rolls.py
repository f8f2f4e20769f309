"""Rolling updates of a managed instance group under the real engine."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .conftest import Finished, Rehearse

STACK = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: guest
    where: {{cloud: gcp, region: us-central1, zone: us-central1-a}}
    network:
      existing:
        id: projects/my-networks/global/networks/shared
        subnets: {{us-central1: projects/my-networks/regions/us-central1/subnetworks/gpu-nodes}}
    audit: {{trail: existing}}
    pools: [{{name: gpu, machine: a2-highgpu-8g, capacity: [{{kind: on_demand, count: {count}}}]}}]
    tags: {{{tags}}}
"""


def _instances(root: Path) -> list[dict[str, Any]]:
    """The instances of the group in launch order, also terminated ones."""
    with closing(sqlite3.connect(root / "cloud.sqlite")) as held:
        rows = held.execute("SELECT data FROM things WHERE kind = 'instance'").fetchall()
    return sorted((json.loads(data) for (data,) in rows), key=lambda one: int(one["name"].rpartition("-")[2]))


def _verified_at(root: Path, machine: str) -> float:
    """When a machine first uploaded evidence without a failed check."""
    with closing(sqlite3.connect(root / "cloud.sqlite")) as held:
        rows = held.execute("SELECT key, body, modified FROM objects ORDER BY modified").fetchall()
    for key, body, modified in rows:
        if f"/{machine}/" in key and key.endswith(".json") and not key.endswith(".proof.json"):
            checks = json.loads(body).get("checks") or []
            if checks and not [one for one in checks if one["outcome"] in ("fail", "error")]:
                return float(modified)
    raise AssertionError(f"{machine} uploaded no evidence without a failed check")


def _good(result: Finished) -> Finished:
    assert result.code == 0, result.out[-4000:] + result.err
    return result


def _declare(folder: Path, count: int, tags: str = "") -> str:
    path = folder / "Pulumi.gcp-guest.yaml"
    path.write_text(STACK.format(count=count, tags=tags), encoding="utf-8")
    return str(path)


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_group_rolls_after_a_verified_canary(rehearse: Rehearse, tmp_path: Path) -> None:
    """A new template goes to one node, and to the next one after that node is verified."""
    root = _good(rehearse("up", _declare(tmp_path, 3))).root
    result = _good(rehearse("up", _declare(tmp_path, 3, "team: vision")))
    assert result.report["totals"]["nodes_verified"] == 3
    rolled = _instances(root)[3:]
    assert [one["name"] for one in rolled] == ["gpu-4", "gpu-5", "gpu-6"]
    for before, after in itertools.pairwise(rolled):
        assert _verified_at(root, before["id"]) <= after["launched"], after["name"]


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_node_that_fails_its_checks_stops_the_update(rehearse: Rehearse, tmp_path: Path) -> None:
    """The first node with the new template fails; `up` fails, and all nodes with the old template stay."""
    root = _good(rehearse("up", _declare(tmp_path, 3))).root
    broken = rehearse("up", _declare(tmp_path, 4, "team: vision"), "--fault", "node:gpu-4:xid-79", "--deadline", "600s")
    assert broken.code == 1, broken.out[-4000:]
    assert {one["name"]: one["state"] for one in _instances(root)} == {
        "gpu-1": "running", "gpu-2": "running", "gpu-3": "running", "gpu-4": "running",
    }  # fmt: skip
