"""Rolling updates of a scale set under the real engine."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .conftest import Finished, Rehearse

NETWORK = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Network/virtualNetworks/corp"
STACK = """\
config:
  azure-native:location: southcentralus
  gpuinfra:cluster:
    name: guest
    where: {{cloud: azure, region: southcentralus}}
    network: {{existing: {{id: {network}, subnets: {{southcentralus: {network}/subnets/gpu}}}}}}
    audit: {{trail: existing}}
    pools: [{{name: gpu, machine: {machine}, capacity: {{kind: on_demand, count: 3}}}}]
    access: {{evidence_from: [203.0.113.0/24]}}
    software: {{{software}}}
    tags: {{{tags}}}
"""
SET = "azure-native:compute:VirtualMachineScaleSet"
A100_80, A100_40 = "Standard_ND96amsr_A100_v4", "Standard_ND96asr_v4"


def _good(result: Finished) -> Finished:
    assert result.code == 0, result.out[-4000:] + result.err
    return result


def _rows(root: Path, sql: str, *args: object) -> list[tuple[Any, ...]]:
    """Rows of the stand-in cloud's file."""
    with closing(sqlite3.connect(root / "cloud.sqlite")) as held:
        return held.execute(sql, args).fetchall()


def _last_call(root: Path) -> int:
    return int(_rows(root, "SELECT coalesce(max(n), 0) FROM calls")[0][0])


def _updated(root: Path, since: int, verb: str) -> list[tuple[str, float]]:
    """(machine, time) of each machine that got another model, in order."""
    machines = [json.loads(data) for (data,) in _rows(root, "SELECT data FROM things WHERE kind = 'instance'")]
    numbers = {(one["group"], one["index"]): str(one["id"]) for one in machines}
    found = []
    for done, id_, at in _rows(root, "SELECT verb, id, at FROM calls WHERE n > ? ORDER BY n", since):
        if done in ("upgrade", "reimage"):
            assert done == verb, id_
            group, _, index = id_.rpartition("/virtualMachines/")
            found.append((numbers[group, int(index)], float(at)))
    return found


def _verified(root: Path, machine: str, after: float) -> float:
    """When a machine first uploaded evidence without a failed check, after a moment."""
    sql = "SELECT key, body, modified FROM objects WHERE modified > ? ORDER BY modified"
    for key, body, modified in _rows(root, sql, after):
        if f"/{machine}/" in key and key.endswith(".json") and not key.endswith(".proof.json"):
            checks = json.loads(body).get("checks") or []
            if checks and not [one for one in checks if one["outcome"] in ("fail", "error")]:
                return float(modified)
    raise AssertionError(f"{machine} put no evidence after {after}")


def _assert_one_by_one(root: Path, since: int, verb: str) -> None:
    """Each of the three machines is updated once, and each after the one before was verified."""
    order = _updated(root, since, verb)
    assert len({machine for machine, _ in order}) == len(order) == 3
    for (machine, at), (_, following) in itertools.pairwise(order):
        assert at < _verified(root, machine, at) <= following, machine


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_a_scale_set_rolls_after_a_verified_canary(rehearse: Rehearse, tmp_path: Path) -> None:
    """A tag moves no node; software and image go to one node of three, and to the others after it is verified; another size is another set."""
    path = tmp_path / "Pulumi.azure-guest.yaml"

    def declare(software: str = "", tags: str = "", machine: str = A100_80) -> str:
        path.write_text(STACK.format(network=NETWORK, software=software, tags=tags, machine=machine), encoding="utf-8")
        return str(path)

    root = _good(rehearse("up", declare())).root
    tags = "team: vision"
    since = _last_call(root)
    result = _good(rehearse("up", declare(tags=tags)))
    assert result.report["engine"]["operations"]["update"] > 5
    assert _updated(root, since, "none") == []

    since = _last_call(root)
    result = _good(rehearse("up", declare(tags=tags, software='cuda: "12.8"')))
    assert result.report["totals"]["nodes_verified"] == 3
    _assert_one_by_one(root, since, "upgrade")

    since = _last_call(root)
    result = _good(rehearse("up", declare(tags=tags, software='cuda: "12.8", os: ubuntu-24.04')))
    assert result.report["totals"]["nodes_verified"] == 3
    _assert_one_by_one(root, since, "reimage")

    other = declare(tags=tags, software='cuda: "12.8", os: ubuntu-24.04', machine=A100_40)
    result = _good(rehearse("preview", other))
    shown = [one for run in result.report["engine"]["runs"] for one in run["changed"] if "azure-native:" in one]
    assert {one.split("$")[-1].split("::")[0] for one in shown if one.startswith("replace ")} == {SET}, shown
    since = _last_call(root)
    result = _good(rehearse("up", other))
    assert {(node["machine"], node["outcome"]) for node in result.report["nodes"]} == {(A100_40, "verified")}
    done = [
        verb for verb, kind in _rows(root, "SELECT verb, type FROM calls WHERE n > ? ORDER BY n", since) if kind == SET
    ]
    assert done[:2] == ["delete", "create"], done
