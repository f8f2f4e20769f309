"""Clones of the shipped stacks for the tests."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.region.clone import CloneRequest, CloneResult, clone
from gpuinfra.spec.load import read_stack

TODAY = date(2026, 11, 21)
STACKS = Path(__file__).parents[3] / "stacks"
SHIPPED = sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in STACKS.glob("Pulumi.*.yaml"))
REGIONS = {
    "aws": ("us-west-2", "ap-northeast-1"),
    "azure": ("swedencentral", "eastus2"),
    "gcp": ("us-east4", "europe-west4"),
}
"""Two regions of each cloud that differ from the regions of the shipped stacks."""


def file_of(stack: str) -> Path:
    """The file of a shipped stack."""
    return STACKS / f"Pulumi.{stack}.yaml"


def cloned(path: Path, region: str, **options: Any) -> CloneResult:
    """The clone of a stack file."""
    return clone(read_stack(path), path.read_text(encoding="utf-8"), CloneRequest(region=region, **options), TODAY)


def saved(result: CloneResult, folder: Path) -> Path:
    """Write the files of a clone to a folder, and return the last one, which has the nodes."""
    assert result.ok, [str(one) for one in result.findings]
    for one in result.files:
        (folder / one.path.name).write_text(one.text, encoding="utf-8")
    return folder / result.files[-1].path.name


def differences(left: Any, right: Any, path: str = "") -> set[str]:
    """The paths at which two values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {
            one
            for key in {*left, *right}
            for one in differences(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))
        }
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)) and len(left) == len(right):
        return {
            one for i, pair in enumerate(zip(left, right, strict=True)) for one in differences(*pair, f"{path}[{i}]")
        }
    return set() if left == right else {path}
