"""Exports of Azure Managed Lustre. Requests and responses are validated against the azure-mgmt packages."""

from __future__ import annotations

from typing import Any

import pytest
from azure.mgmt.storagecache import models as cache

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.region.exports import AzureExports
from gpuinfra.clouds.azure.region.failover import FILE_SYSTEM as TYPE
from gpuinfra.clouds.cloud import cloud_of
from tests.clouds.azure.failing import FILE_SYSTEM, Regions
from tests.doctor.test_azure_live import checked

BEFORE, NOW = "2026-11-28T10:00:00Z", "2026-11-29T10:00:00Z"


def file_system(state: str | None = None, started: str = BEFORE, path: str = "/", **more: Any) -> dict[str, Any]:
    """A file system with the last export of a path. None: it was never exported."""
    status = {"state": state, "lastStartedTime": started, **more}
    archives = [] if state is None else [{"filesystemPath": path, "status": status}]
    for one in archives:
        checked(cache.AmlFilesystemArchive, one)
    return {"properties": {"hsm": {"settings": {"container": "c"}, "archiveStatus": archives}}}


@pytest.mark.parametrize("last", [None, "Completed", "Idle", "Failed"])
def test_an_export_has_ended_when_a_later_one_is_completed(last: str | None) -> None:
    """All files are exported. The result of an earlier export does not count."""
    rest = Regions({FILE_SYSTEM: file_system(last), f"{FILE_SYSTEM}/archive": {}})
    exports = AzureExports(rest)
    export = exports.start(FILE_SYSTEM)
    assert export is not None
    ((method, path, body),) = rest.changes
    assert (method, path) == ("POST", f"{FILE_SYSTEM}/archive")
    assert checked(cache.AmlFilesystemArchiveInfo, body) == {"filesystemPath": "/"}
    assert not exports.ended(export)
    for state, done in (("FSScanInProgress", False), ("InProgress", False), ("Completed", True)):
        rest.arm_answers[FILE_SYSTEM] = file_system(state, NOW)
        assert exports.ended(export) is done


@pytest.mark.parametrize("state", ["InProgress", "FSScanInProgress", "Cancelling"])
@pytest.mark.parametrize("path", ["/", "/data"])
def test_no_export_starts_while_another_one_runs(state: str, path: str) -> None:
    """An export that started before the jobs ended can have passed a file that changed later. Azure runs one at a time, of any path."""
    rest = Regions({FILE_SYSTEM: file_system(state, path=path)})
    assert AzureExports(rest).start(FILE_SYSTEM) is None
    assert rest.changes == []


@pytest.mark.parametrize("state", ["Failed", "Canceled"])
def test_a_failed_export_has_its_reason(state: str) -> None:
    """The error contains Azure's message, and where the log is."""
    rest = Regions({FILE_SYSTEM: file_system(), f"{FILE_SYSTEM}/archive": {}})
    exports = AzureExports(rest)
    export = exports.start(FILE_SYSTEM)
    assert export is not None
    rest.arm_answers[FILE_SYSTEM] = file_system(state, NOW, errorMessage="no access\nto the container")
    with pytest.raises(DeploymentError, match=rf"is {state}: no access to the container; see `az amlfs show"):
        exports.ended(export)


def test_file_systems_without_a_container_are_left_alone() -> None:
    """Only a file system with a container can be exported."""
    state = [
        {"type": TYPE, "id": FILE_SYSTEM, "outputs": {"hsm": {"settings": {"container": "c"}}}},
        {"type": TYPE, "id": f"{FILE_SYSTEM}-2", "outputs": {}},
    ]
    exports = cloud_of("azure").exports("southcentralus", {})
    assert exports is not None
    assert exports.exporting(state) == (FILE_SYSTEM,)
