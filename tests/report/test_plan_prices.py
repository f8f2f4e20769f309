"""A price file with machine types that no stack can use."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.cost.file import load
from gpuinfra.report.plan_json import plan_report
from tests.rules.cases import TODAY

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    machines: [{name: p4x.24xlarge, like: p4d.24xlarge}]
    pools: [{name: gpu, machine: p4d.24xlarge, capacity: {kind: spot, count: 1}}]
"""


@pytest.mark.parametrize(
    ("machine", "hint"),
    [
        ("p4d.24xlage", "did you mean p4d.24xlarge?"),
        ("p4d.24xlarge", None),
        ("p4x.24xlarge", None),
        ("a3-highgpu-8g", None),
    ],
    ids=["misspelled", "catalog", "declared", "other cloud"],
)
def test_a_machine_of_a_price_file_exists(machine: str, hint: str | None, tmp_path: Path) -> None:
    """A misspelled machine type in a price file is an error that names the file and the nearest machine type."""
    stack, prices = tmp_path / "Pulumi.train.yaml", tmp_path / "prices.yaml"
    stack.write_text(STACK)
    prices.write_text(f"read: 2026-11-01\nsource: ours\nmachines:\n  {machine}: {{on_demand: 1.0}}\n")
    found = [one for one in plan_report(stack, TODAY, load(prices)).findings if one.rule == "price_file"]
    assert [one.hint for one in found] == ([hint] if hint else [])
    assert all(one.file.endswith("prices.yaml") for one in found)
