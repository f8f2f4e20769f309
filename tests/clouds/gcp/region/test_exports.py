"""Exports of Google Cloud Managed Lustre."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.region import failover as gcp
from gpuinfra.clouds.gcp.region.exports import GcpExports
from tests.clouds.gcp.asked import Google

PLACE = "projects/my-project/locations/us-central1-a"
FILE_SYSTEM, OPERATION = f"{PLACE}/instances/train-scratch", f"{PLACE}/operations/operation-1"
COMMAND = (
    "gcloud lustre instances export-data train-scratch --location=us-central1-a --project=my-project "
    "--gcs-path-uri=gs://train-scratch-first/run/ --lustre-path=/"
)
STATE: list[dict[str, Any]] = [
    {"type": gcp.FILE_SYSTEM, "outputs": {"export_command": COMMAND}},
    {"type": gcp.FILE_SYSTEM, "outputs": {"export_command": None}},
]


def operation(kind: str = "EXPORT", target: str = FILE_SYSTEM, **more: Any) -> dict[str, Any]:
    """An operation of a file system."""
    return {"name": OPERATION, "metadata": {"target": target, "operationMetadata": {"transferType": kind}}, **more}


def exports_of(google: Google) -> GcpExports:
    """Exports of the file systems in the state."""
    made = GcpExports(google.api())
    assert made.exporting(STATE) == (FILE_SYSTEM,)
    return made


def test_an_export_copies_to_the_path_in_the_state() -> None:
    """The path is that of the `export_command` output. Operations that ended or belong to another instance do not delay it."""
    google = Google()
    exports = exports_of(google)
    others = [
        operation(done=True),
        operation(target=f"{FILE_SYSTEM}-2"),
        {"name": "x", "metadata": {"target": FILE_SYSTEM}},
    ]
    google.lustre("GET", f"{PLACE}/operations", {"operations": others}, pageSize="500")
    body = {"gcsPath": {"uri": "gs://train-scratch-first/run/"}, "lustrePath": {"path": "/"}}
    google.lustre("POST", f"{FILE_SYSTEM}:exportData", {"name": OPERATION}, body)
    export = exports.start(FILE_SYSTEM)
    assert export is not None
    assert export.mark == OPERATION
    google.done()
    assert isinstance(cloud_of("gcp").exports("us-central1", {}), GcpExports)


@pytest.mark.parametrize("kind", ["IMPORT", "EXPORT"])
def test_no_export_starts_while_another_transfer_runs(kind: str) -> None:
    """Managed Lustre runs one transfer at a time, and a scheduled export can have passed a file that changed later."""
    google = Google()
    exports = exports_of(google)
    google.lustre("GET", f"{PLACE}/operations", {"operations": [operation(kind)]}, pageSize="500")
    assert exports.start(FILE_SYSTEM) is None
    google.done()


@pytest.mark.parametrize(
    ("more", "ended"),
    [
        ({"done": False}, False),
        ({"done": True, "response": {}}, True),
        ({"done": True, "error": {"message": "no access"}}, "no access"),
        (
            {"done": True, "metadata": {"operationMetadata": {"counters": {"objectsFailedCount": "3"}}}},
            "3 objects failed",
        ),
    ],
)
def test_an_export_ends_only_with_all_objects(more: dict[str, Any], ended: bool | str) -> None:
    """An error and objects that were not copied fail the export."""
    google = Google()
    exports = exports_of(google)
    google.lustre("GET", f"{PLACE}/operations", {}, pageSize="500")
    body = {"gcsPath": {"uri": "gs://train-scratch-first/run/"}, "lustrePath": {"path": "/"}}
    google.lustre("POST", f"{FILE_SYSTEM}:exportData", {"name": OPERATION}, body)
    export = exports.start(FILE_SYSTEM)
    assert export is not None
    google.lustre("GET", OPERATION, {**operation(), **more})
    if isinstance(ended, bool):
        assert exports.ended(export) is ended
        return
    with pytest.raises(DeploymentError, match=f"the export {OPERATION} failed: {ended}"):
        exports.ended(export)
