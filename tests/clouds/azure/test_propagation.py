"""Operations that fail because a new role has no effect yet are repeated."""

from __future__ import annotations

import asyncio

import pulumi
import pytest

from gpuinfra.clouds.azure.components import propagation
from gpuinfra.clouds.azure.components.propagation import (
    IMPORTER_WAIT,
    MESSAGES,
    PATIENCE_S,
    ImporterWait,
    importer_wait_s,
    pause_after,
    repeat,
)
from tests.clouds.stacks import recording_of, recording_of_spec
from tests.rules.cases import declaration, lustre

REAL = {
    "storage account, Azure/bicep#16601": (
        'Code="KeyVaultAuthenticationFailure" Message="The '
        'operation failed because of authentication issue on the keyvault."'
    ),
    "disk encryption set, ansible-collections/azure#1676": (
        "(KeyVaultAccessForbidden) Unable to access key vault resource '***' to enable encryption at rest. "
        "Please grant get, wrap and unwrap key permissions to user-assigned identity"
    ),
}
"""Errors that users published."""


def _failed(*errors: str) -> pulumi.ErrorHookArgs:
    return pulumi.ErrorHookArgs(urn="u", id="", name="n", type="t", failed_operation="create", errors=list(errors))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the pauses instead of waiting."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(propagation.asyncio, "sleep", sleep)
    return slept


@pytest.mark.parametrize("source", REAL)
def test_published_errors_of_new_roles_are_repeated(source: str, no_pauses: list[float]) -> None:
    """The operation is repeated after a pause that grows with the number of failures."""
    assert asyncio.run(repeat(_failed(REAL[source])))
    assert asyncio.run(repeat(_failed(REAL[source], REAL[source])))
    assert no_pauses == [2, 4]


@pytest.mark.parametrize("error", ["", 'Code="AuthorizationFailed"', 'Code="StorageAccountAlreadyTaken"'])
def test_other_errors_are_not_repeated(error: str, no_pauses: list[float]) -> None:
    """Another error fails at once, also after an error that passed."""
    assert not asyncio.run(repeat(_failed(error, REAL["storage account, Azure/bicep#16601"])))
    assert no_pauses == []


def test_the_patience_covers_the_documented_maximum_and_ends() -> None:
    """Repeating lasts longer than the 10 minutes that Azure documents, ends, and stays below the engine's 100 attempts."""
    pauses = [pause_after(failures) for failures in range(1, 101)]
    waited = sum(pause for pause in pauses if pause is not None)
    assert 600 < waited <= PATIENCE_S
    assert pauses[-1] is None
    assert len(MESSAGES) == 4


def _created(name: str) -> pulumi.ResourceHookArgs:
    return pulumi.ResourceHookArgs(urn="u", id="", name=name, type="t")


def test_a_file_system_waits_five_minutes_after_the_newest_role(
    monkeypatch: pytest.MonkeyPatch, no_pauses: list[float]
) -> None:
    """The wait is the documented five minutes from the newest assignment, less the time that has passed."""
    monkeypatch.delenv(IMPORTER_WAIT, raising=False)
    clock = [1000.0]
    monkeypatch.setattr(propagation.time, "monotonic", lambda: clock[0])
    wait = ImporterWait()
    wait.note(_created("account"))
    clock[0] += 40
    wait.note(_created("blobs"))
    clock[0] += 60
    asyncio.run(wait.pause(_created("scratch")))
    assert no_pauses == [240]
    clock[0] += 240
    asyncio.run(wait.pause(_created("second")))
    assert no_pauses == [240]


def test_roles_of_an_earlier_deployment_cause_no_wait(no_pauses: list[float]) -> None:
    """A file system is created at once if this program created no assignment."""
    asyncio.run(ImporterWait().pause(_created("scratch")))
    assert no_pauses == []


@pytest.mark.parametrize("text", ["-1", "3601", "soon", "nan"])
def test_an_invalid_wait_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is a number of seconds, at most an hour."""
    monkeypatch.setenv(IMPORTER_WAIT, text)
    with pytest.raises(pulumi.RunError, match="allowed: seconds from 0 to 3600"):
        importer_wait_s()
    monkeypatch.setenv(IMPORTER_WAIT, "60")
    assert importer_wait_s() == 60


def test_importing_file_systems_wait_for_their_roles() -> None:
    """The engine runs the hooks for each role of the importing service and for the file system that imports, and for nothing else."""
    recording = recording_of("azure-ndv4")
    waits = [one.type for one in recording.resources if "gpuinfra-azure-importer-wait" in one.before_create]
    grants = [one.name for one in recording.resources if "gpuinfra-azure-importer-granted" in one.after_create]
    assert waits == ["azure-native:storagecache:AmlFilesystem"]
    assert sorted(grants) == ["train-scratch-0-importer-account", "train-scratch-0-importer-blobs"]
    file_system = recording.one("azure-native:storagecache:AmlFilesystem")
    assert set(grants) <= {one.name for one in recording.before(file_system)}


def test_a_file_system_without_roles_of_this_program_does_not_wait() -> None:
    """Without `importer_id`, the owner of the container has assigned the roles."""
    spec = declaration(("azure", {"storage": lustre(capacity_gib=8192), "access.evidence_from": ["203.0.113.0/24"]}))
    assert [one.name for one in recording_of_spec(spec).resources if one.before_create] == []
