"""Changes of what holds data on Google Cloud, under the real engine: shown as replacement, and refused before anything is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Rehearse, Told, cloud_resources

SITE = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {{cloud: gcp, region: us-central1, zone: us-central1-b}}
    layers: [foundation, site]
    storage: [{{kind: lustre, mount: /scratch, capacity_gib: {size}, throughput_mb_s_per_tib: {tier}{more}}}]
"""


def _ids(told: Told) -> dict[str, str]:
    """Logical name -> id of what the cloud holds."""
    return {urn.rsplit("::", 1)[1]: identity for _, identity, urn in cloud_resources(told.root)}


@pytest.mark.long
@pytest.mark.parametrize("more", ["", ", bucket: auto"], ids=["the only copy", "fed from a bucket"])
def test_another_tier_is_shown_and_stops_before_data_is_lost(rehearse: Rehearse, tmp_path: Path, more: str) -> None:
    """Preview calls it a replacement; `up` fails with what to do and has touched nothing; a larger size is made in place."""
    path = tmp_path / "Pulumi.gcp-lab.yaml"

    def declare(size: int, tier: int) -> None:
        path.write_text(SITE.format(size=size, tier=tier, more=more), encoding="utf-8")

    declare(18000, 500)
    first = rehearse("up", str(path))
    assert first.code == 0, first.out[-4000:] + first.err
    before = _ids(first)

    declare(18000, 1000)
    shown = rehearse("preview", str(path))
    assert shown.code == 0, shown.out[-4000:] + shown.err
    assert shown.report["engine"]["operations"]["replace"] == 1
    refused = rehearse("up", str(path))
    assert refused.code == 1
    assert "would replace lab-scratch-0-lustre, and that would lose what it holds" in refused.out
    assert _ids(refused) == before

    declare(36000, 500)
    larger = rehearse("up", str(path))
    assert larger.code == 0, larger.out[-4000:] + larger.err
    assert larger.report["engine"]["operations"]["update"] == 1
    assert "replace" not in str(larger.report["engine"]["operations"])
    assert _ids(larger) == before
