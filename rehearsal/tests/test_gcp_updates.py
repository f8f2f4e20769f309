"""Changes of file systems on Google Cloud under the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Finished, Rehearse, cloud_resources

SITE = """\
config:
  gcp:region: us-central1
  gpuinfra:cluster:
    name: lab
    where: {{cloud: gcp, region: us-central1, zone: us-central1-b}}
    layers: [foundation, site]
    storage: [{{kind: lustre, mount: /scratch, capacity_gib: {size}, throughput_mb_s_per_tib: {tier}{more}}}]
"""


def _ids(result: Finished) -> dict[str, str]:
    """Logical name -> id of each resource in the cloud."""
    return {urn.rsplit("::", 1)[1]: identity for _, identity, urn in cloud_resources(result.root)}


def _changed(result: Finished) -> list[str]:
    """The operations of the deployment and the URNs of their resources."""
    return sorted(result.report["engine"]["runs"][-1]["changed"])


@pytest.mark.long
@pytest.mark.parametrize("more", ["", ", bucket: auto"], ids=["the only copy", "fed from a bucket"])
def test_another_tier_is_a_replacement_and_is_rejected(rehearse: Rehearse, tmp_path: Path, more: str) -> None:
    """Preview shows a replacement; `up` fails with a hint and changes nothing; a larger size is an update, and increases the budget."""
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
    assert "replaces lab-scratch-0-lustre and would lose its content" in refused.out
    assert _ids(refused) == before

    declare(36000, 500)
    larger = rehearse("up", str(path))
    assert larger.code == 0, larger.out[-4000:] + larger.err
    changed = [line.partition(" ")[0] + " " + line.rpartition("::")[2] for line in _changed(larger)]
    assert changed == ["update lab-foundation-budget-month", "update lab-scratch-0-lustre"]
    assert _ids(larger) == before
