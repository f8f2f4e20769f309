"""Changes of a cluster on Azure under the real engine: what stops, what is replaced, what rolls."""

from __future__ import annotations

import re
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
AML = "azure-native:storagecache:AmlFilesystem"


def _ids(told: Told) -> dict[str, str]:
    """Logical name -> id of what the cloud holds."""
    return {urn.rsplit("::", 1)[1]: identity for _, identity, urn in cloud_resources(told.root)}


def _changed(told: Told) -> set[tuple[str, str]]:
    """(what the engine would do, logical name) of each line of a preview or an up that says so."""
    return {(op, name) for op, name in re.findall(r"(replace|update|create|delete)\w* +(\S+)", told.out)}


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
