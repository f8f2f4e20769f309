"""Differences between cloud and state, from a document of the real engine and from stand-ins for `pulumi` that fail.

`recordings/refresh-3.259.0.json` is the output of `pulumi refresh --preview-only --json` (v3.259.0) on the rehearsed stack
`aws-foundation` after a tag was added and an alias deleted. Unchanged resources and outputs are removed.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.engine.find import Engine
from gpuinfra.engine.refresh import MAX_VALUE, CloudChange, DriftedProperty, changes_in, preview_refresh

RECORDED = json.loads((Path(__file__).parent / "recordings" / "refresh-3.259.0.json").read_text())


def test_changed_and_deleted_resources_are_found() -> None:
    """Each changed property has both values, a deleted resource has its ID, and an unchanged resource is omitted."""
    assert len(RECORDED["steps"]) == 3
    assert changes_in(RECORDED) == (
        CloudChange(
            type="aws:s3/bucket:Bucket",
            name="base-foundation-audit-access-bucket",
            id="base-access-000000000000-us-east-1-305ae480",
            deleted=False,
            properties=(DriftedProperty(path="tags.by-hand", recorded=None, found='"yes"'),),
        ),
        CloudChange(
            type="aws:kms/alias:Alias",
            name="base-foundation-data-alias",
            id="alias/gpuinfra/base-data-305ae480",
            deleted=True,
        ),
    )


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("ingress[1].ports[0]", {"ingress": [{}, {"ports": [22]}]}, "22"),
        ('tags["gpuinfra:cluster"]', {"tags": {"gpuinfra:cluster": "base"}}, '"base"'),
        ('tags["a.b"]', {"tags": {"a.b": 1}}, "1"),
        ("tags.name", {"tags": None}, None),
        ("policy", {"policy": "x" * 999}, '"' + "x" * (MAX_VALUE - 1) + "..."),
    ],
)
def test_value_at_a_path_of_the_engine_is_shown(path: str, value: dict[str, Any], shown: str | None) -> None:
    """Paths have names, indices and quoted names; a long value is shortened."""
    document = copy.deepcopy(RECORDED)
    document["steps"] = [step for step in document["steps"] if step["op"] == "update"]
    document["steps"][0] |= {"detailedDiff": {path: {"kind": "update"}}}
    document["steps"][0]["newState"]["inputs"] = value
    (change,) = changes_in(document)
    assert change.properties[0].found == shown


def _engine(folder: Path, script: str) -> Engine:
    path = folder / "pulumi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Engine(path=path, version="3.259.0", host_dir=folder, source="path")


def test_engine_only_previews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is a preview of a refresh of this stack in the folder of the project, and prints one document."""
    monkeypatch.setenv("PULUMI_ENABLE_STREAMING_JSON_PREVIEW", "true")
    project = tmp_path / "project"
    project.mkdir()
    script = (
        'echo "$PWD $PULUMI_ENABLE_STREAMING_JSON_PREVIEW $*" > "$0.log"; echo \'{"steps": [], "changeSummary": {}}\''
    )
    assert preview_refresh(_engine(tmp_path, script), "try", project) == ()
    assert (tmp_path / "pulumi.log").read_text().split() == [
        str(project), "refresh", "--preview-only", "--json", "--non-interactive", "--stack", "try",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error: no stack named try found' >&2; exit 1", "no stack named try found"),
        ('echo \'{"diagnostics": [{"severity": "error", "message": "no valid  credentials"}]}\'; exit 1', "no valid credentials"),
        ("exit 1", "it printed no error message"),
        ("echo warning", "it printed no error message"),
        ('echo \'{"diagnostics": [], "steps": []}\'', "it printed no error message"),
    ],
)  # fmt: skip
def test_failed_refresh_is_not_the_absence_of_drift(tmp_path: Path, script: str, message: str) -> None:
    """If the engine fails or prints no complete document, the error has the reason and what to do."""
    with pytest.raises(EnvironmentMissing, match=message) as caught:
        preview_refresh(_engine(tmp_path, script), "try", tmp_path)
    assert "log in to the state backend" in str(caught.value)
