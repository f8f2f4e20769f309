"""Three stacks for one cluster on Azure: foundation, site and nodes in one rehearsed subscription."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import REPOSITORY, Finished, Rehearse, cloud_resources

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]
PAGE = REPOSITORY / "docs" / "guides" / "layers.md"
STACKS = dict(
    re.findall(r"```yaml\n# Pulumi\.(azure-\w+)\.yaml: (.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
)
"""The layers as the page prints them, in the order in which they are brought up."""


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, str]:
    """Stack -> path of its file."""
    paths = {}
    for stack, text in STACKS.items():
        path = tmp_path / f"Pulumi.{stack}.yaml"
        path.write_text(f"# {text}", encoding="utf-8")
        paths[stack] = str(path)
    return paths


def _good(result: Finished) -> Finished:
    assert result.code == 0, result.out[-4000:] + result.err
    return result


def _created(ground: Path, stack: str) -> dict[str, str]:
    """URN -> id of each resource in the states of the stacks."""
    (path,) = ground.glob(f"state/.pulumi/stacks/*/{stack}.json")
    state = json.loads(path.read_text(encoding="utf-8"))["checkpoint"]["latest"].get("resources") or []
    return {one["urn"]: one["id"] for one in state if one.get("custom") and one["type"].startswith("azure-native:")}


def test_three_layers_on_azure(rehearse: Rehearse, layers: dict[str, str], tmp_path: Path) -> None:
    """Each layer uses the one below, and two clusters share a site; destroyed in reverse, each lists what it retains; the next up has the same ids."""
    early = rehearse("up", layers["azure-site"])
    assert early.code == 1
    assert "run: gpuinfra rehearse up azure-foundation" in early.err

    ground = tmp_path / "r" / "azure-foundation"  # the one cloud of stacks that use each other
    for path in layers.values():
        _good(rehearse("up", path))
    first = {stack: _created(ground, stack) for stack in layers}
    result = _good(rehearse("up", layers["azure-cluster"]))
    assert set(result.report["engine"]["operations"]) == {"same"}
    assert result.report["totals"]["nodes_verified"] == 2
    for node in result.report["nodes"]:
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
            assert f"  {name} (" in gone.out.partition("retained resources")[2], name
    assert [len(kept[stack]) for stack in layers] == [18, 15, 0]

    for stack, path in layers.items():
        again = _good(rehearse("up", path))
        now = _created(ground, stack)
        assert kept[stack] <= set(now.values()), stack
        assert set(now) == set(first[stack])
        assert "replace" not in str(again.report["engine"]["operations"])
    for path in layers.values():
        assert set(_good(rehearse("up", path)).report["engine"]["operations"]) == {"same"}


def _name(stack: str) -> str:
    """The prefix of logical names in a layer."""
    (name,) = re.findall(r"^    name: (\w+)$", STACKS[stack], flags=re.MULTILINE)
    return f"{name}-"
