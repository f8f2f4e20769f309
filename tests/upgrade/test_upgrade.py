"""Stacks of released versions are upgraded in place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.upgrade.states import EXPORTS, STACKS, preview

EACH_VERSION = {
    "aws:s3/bucketObjectv2:BucketObjectv2": "the object of a bundle is named by the bundle's checksum",
    "gcp:storage/bucketObject:BucketObject": "the object of a bundle is named by the bundle's checksum",
    "gpuinfra:index:Upload": "the object of a bundle is named by the bundle's checksum",
    "gcp:compute/instanceTemplate:InstanceTemplate": "Google Cloud has no update of instance templates",
}
"""Type -> why each version that changes the bundle replaces it. None of them holds data or runs."""
CHANGELOG: dict[str, str] = {
    "train-node-fabric": "creates the grant `NAME-node-fabric`",
    "train-node-proof": "deletes the grant `NAME-node-proof`",
    "train-services-artifactregistry": "enables the Artifact Registry API",
    "train-foundation-audit-key-storage": "shows the grants on keys as replaced",
    "train-foundation-audit-key-logging": "shows the grants on keys as replaced",
    "train-foundation-data-storage": "shows the grants on keys as replaced",
}
"""Logical name -> the words of CHANGELOG.md that announce its creation, replacement or deletion."""


COMPONENT = re.compile(r"gpuinfra:(aws|azure|gcp):\w+")
"""Types of components. They are not in the account, so a version can create more of them around existing resources."""


def _type(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_upgrade_replaces_nothing_unannounced(export: Path, tmp_path: Path) -> None:
    """A preview of the present program on a released version's state creates, replaces and deletes nothing that the changelog does not announce."""
    progress = preview(export, tmp_path)
    forced = {
        urn.rpartition("::")[2]: operation
        for operation, urn in progress.changed
        if operation not in ("update", "same")
        and _type(urn) not in EACH_VERSION
        and not (operation == "create" and COMPONENT.fullmatch(_type(urn)))
    }
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    announced = {name for name, words in CHANGELOG.items() if words in changelog}
    assert not set(forced) - announced, forced
    # The tag `gpuinfra:stack` updates each resource that has tags, in place.
    assert (progress.summary or {}).get("same", 0) > 50, progress.summary


def test_preview_detects_a_replacement(tmp_path: Path) -> None:
    """A changed address range in the old state shows as a replacement."""
    rows = json.loads(next(path for path in EXPORTS if path.stem == "aws-p4d").read_text(encoding="utf-8"))
    (vpc,) = (row for row in rows if row["type"] == "aws:ec2/vpc:Vpc")
    vpc["inputs"]["cidrBlock"] = "10.99.0.0/16"
    changed = tmp_path / "aws-p4d.json"
    changed.write_text(json.dumps(rows), encoding="utf-8")
    found = {urn.rpartition("::")[2] for operation, urn in preview(changed, tmp_path).changed if "replace" in operation}
    assert vpc["urn"].rpartition("::")[2] in found


def test_each_cloud_has_an_export() -> None:
    """Every version's folder holds one stack of each cloud, with an id for every resource and without a path of the machine that made it."""
    versions = {path.parent for path in EXPORTS}
    assert versions
    for folder in versions:
        assert {path.stem for path in folder.glob("*.json")} == set(STACKS)
    for path in EXPORTS:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text)
        assert all(row.get("id") for row in rows if row.get("custom") and not row["type"].startswith("pulumi:"))
        assert not re.search(r'sourcePosition|"/(root|tmp|home/(?!gpuinfra/))', text)
