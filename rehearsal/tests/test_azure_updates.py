"""Changes of a cluster on Azure under the real engine: rejected changes, replacements and rolling updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Finished, Rehearse, cloud_resources

SITE = """\
config:
  azure-native:location: uksouth
  gpuinfra:cluster:
    name: lab
    where: {{cloud: azure, region: uksouth, zone: "{zone}"}}
    layers: [foundation, site]
    storage: [{storage}]
    budget: {{limit_usd_per_month: 1000}}  # otherwise, the limit changes with the price of the file system
    access: {{evidence_from: [203.0.113.0/24]}}
"""
LUSTRE = "{{kind: lustre, mount: /scratch, capacity_gib: {size}, throughput_mb_s_per_tib: 500{more}}}"
IMPORTED = ", bucket: auto, importer_id: 00000000-0000-4000-8000-000000000000"


def _ids(result: Finished) -> dict[str, str]:
    """Logical name -> id of each resource in the cloud."""
    return {urn.rsplit("::", 1)[1]: identity for _, identity, urn in cloud_resources(result.root)}


@pytest.mark.long
@pytest.mark.parametrize("more", ["", IMPORTED], ids=["the only copy", "fed from a container"])
def test_a_resized_file_system_is_a_replacement_and_is_rejected(rehearse: Rehearse, tmp_path: Path, more: str) -> None:
    """Preview shows a replacement; `up` fails with a hint and changes nothing; with the old size nothing is to be done."""
    path = tmp_path / "Pulumi.azure-lab.yaml"

    def declare(size: int) -> None:
        path.write_text(SITE.format(zone="3", storage=LUSTRE.format(size=size, more=more)), encoding="utf-8")

    declare(4096)
    first = rehearse("up", str(path))
    assert first.code == 0, first.out[-4000:] + first.err
    before = _ids(first)

    declare(8192)
    shown = rehearse("preview", str(path))
    assert shown.code == 0, shown.out[-4000:] + shown.err
    assert shown.report["engine"]["operations"]["replace"] == 1
    refused = rehearse("up", str(path))
    assert refused.code == 1
    assert "lab-scratch-0-lustre" in refused.out
    assert "this change replaces lab-scratch-0-lustre and would lose its content" in refused.out
    assert _ids(refused) == before

    declare(4096)
    again_up = rehearse("up", str(path))
    assert again_up.code == 0, again_up.out[-4000:] + again_up.err
    assert set(again_up.report["engine"]["operations"]) == {"same"}


GROUND = {
    "lab-scratch-0-lustre",
    "lab-network-network",
    "lab-network-storage-scratch-0",
    "lab-security-storage",
    "lab-network-nat-gateway",
    "lab-network-nat-address",
}
"""What stays of file system and network: the file system's subnet uses the gateway, and Azure deletes neither before it."""


@pytest.mark.long
def test_a_retained_file_system_retains_its_network_and_is_adopted(rehearse: Rehearse, tmp_path: Path) -> None:
    """Destroy succeeds and leaves the file system with network, subnet, rules and NAT gateway; the next up has the same ids."""
    path = tmp_path / "Pulumi.azure-lab.yaml"
    path.write_text(SITE.format(zone="3", storage=LUSTRE.format(size=4096, more="")), encoding="utf-8")
    first = rehearse("up", str(path))
    assert first.code == 0, first.out[-4000:] + first.err
    before = _ids(first)

    gone = rehearse("destroy", str(path))
    assert gone.code == 0, gone.out[-4000:] + gone.err
    left = _ids(gone)
    assert {name for name in left if name.startswith(("lab-network", "lab-security", "lab-scratch"))} - {
        name for name in left if "-flow-" in name
    } == GROUND
    for name in GROUND:
        assert f"  {name} (" in gone.out.partition("retained resources")[2], name

    again = rehearse("up", str(path))
    assert again.code == 0, again.out[-4000:] + again.err
    assert "replace" not in str(again.report["engine"]["operations"])
    after = _ids(again)
    assert set(after) == set(before)
    assert left.items() <= after.items()
    last = rehearse("up", str(path))
    assert set(last.report["engine"]["operations"]) == {"same"}
