"""`gpuinfra rehearse up` ends with verified nodes on the machines of NVIDIA's current generations, on default images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from .conftest import Rehearse

pytestmark = [pytest.mark.usefixtures("needs_nodes"), pytest.mark.long]

SPOT = [{"kind": "spot", "count": 1}]
OVER_EFA = {
    "kind": "lustre",
    "mount": "/scratch",
    "capacity_gib": 19200,
    "throughput_mb_s_per_tib": 500,
    "fabric": True,
}
GOOGLE = {"registry": "us-central1-docker.pkg.dev/my-project/gpudirect"}
CASES: dict[str, dict[str, Any]] = {
    "p6-b200.48xlarge": {"where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az6"}},
    "p6-b300.48xlarge": {"where": {"cloud": "aws", "region": "us-west-2", "zone": "usw2-az2"}},
    "p5.48xlarge": {"where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"}, "storage": [OVER_EFA]},
    "Standard_ND96isr_H200_v5": {
        "where": {"cloud": "azure", "region": "uksouth"},
        "access": {"evidence_from": ["203.0.113.0/24"]},
    },
    "a3-megagpu-8g": {"where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"}, "software": GOOGLE},
    "a3-ultragpu-8g": {"where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-b"}},
    "a4-highgpu-8g": {"where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-b"}},
}


PINNED: dict[str, tuple[str, str]] = {
    "p5.48xlarge": ("2026-09-29", "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260929"),
    "Standard_ND96isr_H200_v5": ("2026-07-29", "22.04.2026072901"),
    "a3-ultragpu-8g": ("2026-08-20", "ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260820"),
}
"""Machine -> a release that the catalog records, and its name in the state."""


def _stack(tmp_path: Path, machine: str, **changes: Any) -> Path:
    place = CASES[machine]["where"]
    region = {"aws": "aws:region", "azure": "azure-native:location", "gcp": "gcp:region"}[place["cloud"]]
    pool = {"name": "gpu", "machine": machine, "capacity": SPOT, **changes}
    stack = tmp_path / "Pulumi.machine.yaml"
    cluster = {"name": "train", "pools": [pool], **CASES[machine]}
    with stack.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump({"config": {region: place["region"], "gpuinfra:cluster": cluster}}, file)
    return stack


@pytest.mark.parametrize("machine", CASES)
def test_a_machine_of_a_current_generation_is_verified(machine: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """The nodes of a minimal declaration are verified with all their GPUs, and no check fails. A group with a dated image has the release of that date."""
    day, release = PINNED.get(machine, ("", ""))
    result = rehearse("up", str(_stack(tmp_path, machine, **({"image": day} if day else {}))))
    assert result.code == 0, result.out + result.err
    assert release in json.dumps(result.state)
    report = result.report
    assert report["totals"]["nodes"] == report["totals"]["nodes_verified"] == 1
    assert report["totals"]["gpus"] == report["totals"]["gpus_verified"] == 8
    outcomes = {check["id"]: check["outcome"] for check in report["nodes"][0]["checks"]}
    assert {name for name, outcome in outcomes.items() if outcome in ("fail", "error")} == set()
    assert {"F1", "F3", "F4", "B1", "D5"} <= {name for name, outcome in outcomes.items() if outcome == "pass"}
    if machine.startswith(("p6", "a4")):
        assert outcomes["F6"] == "pass"
    if machine == "p5.48xlarge":
        assert outcomes["L3"] == "pass"
