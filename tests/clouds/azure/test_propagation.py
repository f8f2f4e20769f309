"""Operations that fail because a new role has no effect yet are repeated."""

from __future__ import annotations

import asyncio

import pulumi
import pytest

from gpuinfra.clouds.azure.components import propagation
from gpuinfra.clouds.azure.components.propagation import MESSAGES, PATIENCE_S, pause_after, repeat

REAL = {
    "storage account, Azure/bicep#16601": 'Code="KeyVaultAuthenticationFailure" Message="The operation failed because of authentication issue on the keyvault."',
    "disk encryption set, ansible-collections/azure#1676": "(KeyVaultAccessForbidden) Unable to access key vault resource '***' to enable encryption at rest. Please grant get, wrap and unwrap key permissions to user-assigned identity",
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
