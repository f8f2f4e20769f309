"""Changes of a cluster on Azure under the real engine: what stops, what is replaced, what rolls."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, Told, cloud_resources

SITE = """\
config:
  azure-native:location: uksouth
  gpuinfra:cluster:
    name: lab
    where: {{cloud: azure, region: uksouth, zone: "{zone}"}}
    layers: [foundation, site]
    storage: [{storage}]
    access: {{evidence_from: [203.0.113.0/24]}}
"""
LUSTRE = "{{kind: lustre, mount: /scratch, capacity_gib: {size}, throughput_mb_s_per_tib: 500{more}}}"
IMPORTED = ", bucket: auto, importer_id: 00000000-0000-4000-8000-000000000000"


def _ids(told: Told) -> dict[str, str]:
    """Logical name -> id of what the cloud holds."""
    return {urn.rsplit("::", 1)[1]: identity for _, identity, urn in cloud_resources(told.root)}


@pytest.mark.long
@pytest.mark.parametrize("more", ["", IMPORTED], ids=["the only copy", "fed from a container"])
def test_another_size_of_a_file_system_is_shown_and_stops_before_data_is_lost(
    rehearse: Rehearse, tmp_path: Path, more: str
) -> None:
    """Preview calls it a replacement; `up` fails with what to do and has touched nothing; with the old size nothing is to be done."""
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
    assert "would replace lab-scratch-0-lustre, and that would lose what it holds" in refused.out
    assert _ids(refused) == before

    declare(4096)
    mended = rehearse("up", str(path))
    assert mended.code == 0, mended.out[-4000:] + mended.err
    assert set(mended.report["engine"]["operations"]) == {"same"}


GROUND = {
    "lab-scratch-0-lustre",
    "lab-network-network",
    "lab-network-storage-scratch-0",
    "lab-security-storage",
    "lab-network-way-out",
    "lab-network-way-out-address",
}
"""What stays of file system and network: the file system's subnet uses the gateway, and Azure deletes neither before it."""


@pytest.mark.long
def test_a_kept_file_system_keeps_what_it_stands_in_and_is_taken_back(rehearse: Rehearse, tmp_path: Path) -> None:
    """A destroy ends well and leaves the file system with network, subnet, rules and way out; the next up has the same ids, and then nothing changes."""
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
        assert f"  {name} (" in gone.out.partition("kept on purpose")[2], name

    again = rehearse("up", str(path))
    assert again.code == 0, again.out[-4000:] + again.err
    assert "replace" not in str(again.report["engine"]["operations"])
    after = _ids(again)
    assert set(after) == set(before)
    assert left.items() <= after.items()
    last = rehearse("up", str(path))
    assert set(last.report["engine"]["operations"]) == {"same"}
