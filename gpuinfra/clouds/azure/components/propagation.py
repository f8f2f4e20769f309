"""Waits for new role assignments.

A role assignment takes up to 10 minutes to take effect (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting, retrieved 2026-11-22).
Until then, a service that uses a key through a new identity rejects requests. A later attempt to create the resource succeeds
(Azure/bicep#16601: storage accounts; ansible-collections/azure#1676: disk encryption sets). Azure has no request that returns whether an assignment is in
effect, so the first hook in this module makes the engine retry the operation.

Managed Lustre is different: it checks its access to a container while it creates the file system, and a failed file system must be deleted. The
documentation states that its roles take up to five minutes to take effect (https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites, "Access
roles for blob integration", retrieved 2026-11-23). The other hooks in this module therefore wait before the file system is created.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from dataclasses import dataclass

import pulumi

from gpuinfra.clouds.operation import owner_of_hooks

MESSAGES = (
    # Storage accounts with a customer-managed key.
    "KeyVaultAuthenticationFailure",
    # Disk encryption sets.
    "KeyVaultAccessForbidden",
    # Role assignments of a new identity, or with a new role.
    "PrincipalNotFound",
    "RoleDefinitionDoesNotExist",
)
"""Parts of the messages of temporary errors. These errors stop after the role, the identity or the assignment has replicated."""
PATIENCE_S = 900
"""Maximum time in seconds for which operations are retried. The documented maximum delay is 10 minutes."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2, 30
IMPORTER_WAIT_S = 300.0
"""Seconds between the latest role assignment of the importing service and the creation of its file system."""
IMPORTER_WAIT = "GPUINFRA_AZURE_ROLE_WAIT_S"
"""Environment variable that replaces `IMPORTER_WAIT_S` (docs/reference/azure.md)."""

_hooks: weakref.WeakKeyDictionary[object, pulumi.ErrorHook] = weakref.WeakKeyDictionary()
_importers: weakref.WeakKeyDictionary[object, ImporterHooks] = weakref.WeakKeyDictionary()


def propagation_hook() -> pulumi.ErrorHook | None:
    """Return the hook of the running program, or None outside a program."""
    owner = owner_of_hooks()
    if owner is None:
        return None
    if owner not in _hooks:
        _hooks[owner] = pulumi.ErrorHook("gpuinfra-azure-propagation", repeat)
    return _hooks[owner]


def pause_after(failures: int) -> int | None:
    """Return the seconds until the next attempt after a number of failures, or None after the time limit has expired."""
    pauses = [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) for number in range(failures)]
    return pauses[-1] if sum(pauses) <= PATIENCE_S else None


async def repeat(failed: pulumi.ErrorHookArgs) -> bool:
    """Wait and return True if the latest error is temporary."""
    newest = failed.errors[0] if failed.errors else ""
    pause = pause_after(len(failed.errors)) if any(word in newest for word in MESSAGES) else None
    if pause is None:
        return False
    await asyncio.sleep(pause)
    return True


@dataclass(frozen=True)
class ImporterHooks:
    """The hooks of one program."""

    granted: pulumi.ResourceHook
    wait: pulumi.ResourceHook


class ImporterWait:
    """The functions of one program's hooks: `note` follows each role assignment of the importing service, and `pause` precedes each file system.

    An assignment that an earlier `up` created does not cause a wait.
    """

    def __init__(self) -> None:
        self._newest: float | None = None

    def note(self, args: pulumi.ResourceHookArgs) -> None:
        """Record the time of a role assignment."""
        self._newest = time.monotonic()

    async def pause(self, args: pulumi.ResourceHookArgs) -> None:
        """Wait until the latest role assignment of this program has taken effect."""
        left = 0.0 if self._newest is None else self._newest + importer_wait_s() - time.monotonic()
        if left > 0:
            pulumi.log.info(f"{args.name}: waiting {left:.0f} s for the roles of the importing service")
            await asyncio.sleep(left)


def importer_wait_s() -> float:
    """Return the seconds to wait for the roles of the importing service."""
    text = os.environ.get(IMPORTER_WAIT, "")
    try:
        wait = float(text or IMPORTER_WAIT_S)
    except ValueError:
        wait = -1.0
    if not 0 <= wait <= 3600:
        raise pulumi.RunError(
            f"{IMPORTER_WAIT} is {text!r}; allowed: seconds from 0 to 3600; unset it to wait {IMPORTER_WAIT_S:g} s"
        )
    return wait


def importer_hooks() -> ImporterHooks | None:
    """Return the hooks of the running program, or None outside a program."""
    owner = owner_of_hooks()
    if owner is None:
        return None
    if owner not in _importers:
        importer_wait_s()
        wait = ImporterWait()
        _importers[owner] = ImporterHooks(
            granted=pulumi.ResourceHook("gpuinfra-azure-importer-granted", wait.note),
            wait=pulumi.ResourceHook("gpuinfra-azure-importer-wait", wait.pause),
        )
    return _importers[owner]


def importer_role(options: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Record when the engine creates this role assignment of the importing service."""
    hooks = importer_hooks()
    if hooks is not None:
        options.hooks = pulumi.ResourceHookBinding(on_error=_errors(options), after_create=[hooks.granted])
    return options


def after_importer_roles(options: pulumi.ResourceOptions, *, waits: bool) -> pulumi.ResourceOptions:
    """Wait before the engine creates this file system, if it imports with roles that this program assigns."""
    hooks = importer_hooks() if waits else None
    if hooks is not None:
        options.hooks = pulumi.ResourceHookBinding(on_error=_errors(options), before_create=[hooks.wait])
    return options


def _errors(options: pulumi.ResourceOptions) -> list[pulumi.ErrorHook] | None:
    return options.hooks.on_error if isinstance(options.hooks, pulumi.ResourceHookBinding) else None
