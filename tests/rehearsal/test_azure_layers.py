"""Three stacks on Azure, one cluster: foundation, site and nodes in one rehearsed subscription, taken down in reverse and brought up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, Told, cloud_resources

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_nodes")]
LUSTRE = (
    "{kind: lustre, mount: /scratch, capacity_gib: 16384, throughput_mb_s_per_tib: 250, bucket: auto, "
    "importer_id: 00000000-0000-4000-8000-000000000000}"
)
STACKS = {
    "azure-foundation": "name: base\n    layers: [foundation]\n    access: {evidence_from: [203.0.113.0/24]}",
    "azure-site": (
        "name: lab\n    layers: [site]\n    use: {foundation: organization/gpuinfra/azure-foundation}\n"
        f"    storage: [{LUSTRE}]"
    ),
    "azure-cluster": (
        "name: train\n    use: {foundation: organization/gpuinfra/azure-foundation, site: organization/gpuinfra/azure-site}\n"
        "    pools: [{name: gpu, machine: Standard_ND96amsr_A100_v4, capacity: {kind: on_demand, count: 2}}]\n"
        f"    storage: [{LUSTRE}]"
    ),
}
"""The layers in the order in which they are brought up."""


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, str]:
    """Paths of the three stack files, by stack."""
    paths = {}
    for stack, declared in STACKS.items():
        path = tmp_path / f"Pulumi.{stack}.yaml"
        where = "where: {cloud: azure, region: southcentralus}"
        path.write_text(
            f"config:\n  azure-native:location: southcentralus\n  gpuinfra:cluster:\n    {where}\n    {declared}\n"
        )
        paths[stack] = str(path)
    return paths


def _good(told: Told) -> Told:
    assert told.code == 0, told.out[-4000:] + told.err
    return told


def _made(told: Told) -> dict[str, str]:
    """URN -> id of what a stack's own state says that the cloud holds."""
    return {
        one["urn"]: one["id"] for one in told.state if one.get("custom") and one["type"].startswith("azure-native:")
    }


def test_three_layers_on_azure_come_go_and_come_back(rehearse: Rehearse, layers: dict[str, str]) -> None:
    """Each layer stands on the one before; destroyed in reverse, each prints what it keeps; brought up again, it has the same ids, and then nothing changes."""
    early = rehearse("up", layers["azure-site"])
    assert early.code == 1
    assert "first: gpuinfra rehearse up azure-foundation" in early.err

    first = {stack: _made(_good(rehearse("up", path))) for stack, path in layers.items()}
    told = _good(rehearse("up", layers["azure-cluster"]))
    assert set(told.report["engine"]["operations"]) == {"same"}
    assert told.report["totals"]["nodes_verified"] == 2
    for node in told.report["nodes"]:
        assert "L1" in {check["id"] for check in node["checks"] if check["outcome"] == "pass"}

    kept: dict[str, set[str]] = {}
    for stack in reversed(layers):
        gone = _good(rehearse("destroy", layers[stack]))
        left = {identity for _, identity, urn in cloud_resources(gone.root) if f"::{_name(stack)}" in urn}
        kept[stack] = left
        for identity in left:
            (name,) = [urn.rsplit("::", 1)[1] for urn, one in first[stack].items() if one == identity]
            assert f"  {name} (" in gone.out.partition("kept on purpose")[2], name
    assert [len(kept[stack]) for stack in layers] == [18, 9, 0]

    for stack, path in layers.items():
        again = _good(rehearse("up", path))
        now = _made(again)
        assert kept[stack] <= set(now.values()), stack
        assert set(now) == set(first[stack])
        assert "replace" not in str(again.report["engine"]["operations"])
    for path in layers.values():
        assert set(_good(rehearse("up", path)).report["engine"]["operations"]) == {"same"}


def _name(stack: str) -> str:
    """What logical names of a layer begin with."""
    return STACKS[stack].split("\n", 1)[0].removeprefix("name: ") + "-"
