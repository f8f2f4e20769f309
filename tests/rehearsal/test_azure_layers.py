"""Three stacks on Azure, one cluster: foundation, site and nodes in one rehearsed subscription, taken down in reverse and brought up again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import REPOSITORY, Rehearse, Told, cloud_resources

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]
PAGE = REPOSITORY / "docs" / "azure.md"
STACKS = dict(
    re.findall(r"```yaml\n# Pulumi\.(azure-\w+)\.yaml: (.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
)
"""The layers as the page prints them, in the order in which they are brought up."""


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, str]:
    """Paths of the three stack files, by stack."""
    paths = {}
    for stack, text in STACKS.items():
        path = tmp_path / f"Pulumi.{stack}.yaml"
        path.write_text(f"# {text}", encoding="utf-8")
        paths[stack] = str(path)
    return paths


def _good(told: Told) -> Told:
    assert told.code == 0, told.out[-4000:] + told.err
    return told


def _made(ground: Path, stack: str) -> dict[str, str]:
    """URN -> id of what a stack's own state says that the cloud holds; stacks that use each other share a folder of states."""
    (path,) = ground.glob(f"state/.pulumi/stacks/*/{stack}.json")
    state = json.loads(path.read_text(encoding="utf-8"))["checkpoint"]["latest"].get("resources") or []
    return {one["urn"]: one["id"] for one in state if one.get("custom") and one["type"].startswith("azure-native:")}


def test_three_layers_on_azure_come_go_and_come_back(
    rehearse: Rehearse, layers: dict[str, str], tmp_path: Path
) -> None:
    """Each layer stands on the one before, and two clusters on one site leave each other alone; destroyed in reverse, each prints what it keeps; brought up again, it has the same ids, and then nothing changes."""
    early = rehearse("up", layers["azure-site"])
    assert early.code == 1
    assert "first: gpuinfra rehearse up azure-foundation" in early.err

    ground = tmp_path / "r" / "azure-foundation"  # the one cloud of stacks that use each other
    for path in layers.values():
        _good(rehearse("up", path))
    first = {stack: _made(ground, stack) for stack in layers}
    told = _good(rehearse("up", layers["azure-cluster"]))
    assert set(told.report["engine"]["operations"]) == {"same"}
    assert told.report["totals"]["nodes_verified"] == 2
    for node in told.report["nodes"]:
        assert "L1" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}

    other = tmp_path / "Pulumi.azure-eval.yaml"
    other.write_text(f"# {STACKS['azure-cluster'].replace('name: train', 'name: eval')}", encoding="utf-8")
    assert _good(rehearse("up", str(other))).report["totals"]["nodes_verified"] == 2
    _good(rehearse("destroy", layers["azure-cluster"]))
    assert set(_good(rehearse("up", str(other))).report["engine"]["operations"]) == {"same"}
    _good(rehearse("destroy", str(other)))
    _good(rehearse("up", layers["azure-cluster"]))

    kept: dict[str, set[str]] = {}
    for stack in reversed(layers):
        gone = _good(rehearse("destroy", layers[stack]))
        left = {identity for _, identity, urn in cloud_resources(ground) if f"::{_name(stack)}" in urn}
        kept[stack] = left
        for identity in left:
            (name,) = [urn.rsplit("::", 1)[1] for urn, one in first[stack].items() if one == identity]
            assert f"  {name} (" in gone.out.partition("kept on purpose")[2], name
    assert [len(kept[stack]) for stack in layers] == [18, 9, 0]

    for stack, path in layers.items():
        again = _good(rehearse("up", path))
        now = _made(ground, stack)
        assert kept[stack] <= set(now.values()), stack
        assert set(now) == set(first[stack])
        assert "replace" not in str(again.report["engine"]["operations"])
    for path in layers.values():
        assert set(_good(rehearse("up", path)).report["engine"]["operations"]) == {"same"}


def _name(stack: str) -> str:
    """What logical names of a layer begin with."""
    (name,) = re.findall(r"^    name: (\w+)$", STACKS[stack], flags=re.MULTILINE)
    return f"{name}-"
