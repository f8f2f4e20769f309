"""Cluster definitions of public projects are rehearsed to verified nodes on the three clouds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.peers.test_peers import SPECS

from .conftest import Rehearse

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]

PEERS = {
    "aws": (1, 9, 17, 20, 28, 61),
    "azure": (48, 53, 54, 56),
    "gcp": (33, 38, 43, 46),
}
"""Rows of `docs/internals/peers.md`: reserved, on-demand, spot and flex-start capacity, nodes without internet access, Lustre,
home directories, and mounted buckets."""
MOST = 2
"""Nodes of a pool in the rehearsal."""


def reduced(number: int, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Write the declaration of a row with at most two nodes per pool. Returns the path and the capacity of the pools."""
    yaml = YAML(typ="safe")
    cluster: dict[str, Any] = yaml.load(SPECS[number])
    capacity = [pool["capacity"] for pool in cluster["pools"]]
    for entry in capacity:
        entry["count"] = min(entry["count"], MOST)
    path = folder / SPECS[number].name
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(cluster, file)
    return path, capacity


@pytest.mark.parametrize(
    ("cloud", "number"), [(cloud, number) for cloud, numbers in PEERS.items() for number in numbers]
)
def test_a_peer_is_rehearsed_to_verified_nodes(rehearse: Rehearse, tmp_path: Path, cloud: str, number: int) -> None:
    """The nodes of the definition are verified, and `destroy` succeeds."""
    path, capacity = reduced(number, tmp_path)
    result = rehearse("up", str(path))
    assert result.code == 0, result.out[-6000:] + result.err
    if any(entry["kind"] == "flex" for entry in capacity):
        # The first `up` only requests the nodes of a queue.
        result = rehearse("up", str(path))
        assert result.code == 0, result.out[-6000:] + result.err
    nodes = sum(entry["count"] for entry in capacity)
    assert [node["outcome"] for node in result.report["nodes"]] == ["verified"] * nodes
    assert result.report["cloud"] == cloud
    result = rehearse("destroy", str(path))
    assert result.code == 0, result.out[-6000:] + result.err
