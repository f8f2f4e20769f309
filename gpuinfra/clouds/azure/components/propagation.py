"""Waits for new role assignments.

A role assignment takes up to 10 minutes to have an effect (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting, read 2026-11-22).
Until then, a service that uses a key through a new identity rejects requests, and creating the resource again succeeds
(Azure/bicep#16601: storage accounts; ansible-collections/azure#1676: disk encryption sets). Azure has no request that returns whether an assignment has
an effect, so the hook in this module makes the engine repeat the operation.
"""

from __future__ import annotations

import asyncio
import weakref

import pulumi
from pulumi.runtime.settings import get_root_resource

MESSAGES = (
    # Storage accounts with a customer-managed key.
    "KeyVaultAuthenticationFailure",
    # Disk encryption sets.
    "KeyVaultAccessForbidden",
    # Role assignments of a new identity, or with a new role.
    "PrincipalNotFound",
    "RoleDefinitionDoesNotExist",
)
"""Parts of the messages of temporary errors, which end when a role, an identity or an assignment has replicated."""
PATIENCE_S = 900
"""How long operations are repeated. The documented maximum is 10 minutes."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2, 30

_hooks: weakref.WeakKeyDictionary[pulumi.Resource, pulumi.ErrorHook] = weakref.WeakKeyDictionary()


def propagation_hook() -> pulumi.ErrorHook | None:
    """Return the hook of the running program, or None outside a program."""
    stack = get_root_resource()
    if stack is None:
        return None
    if stack not in _hooks:
        _hooks[stack] = pulumi.ErrorHook("gpuinfra-azure-propagation", repeat)
    return _hooks[stack]


def pause_after(failures: int) -> int | None:
    """Return the seconds until the next attempt after a number of failures, or None if the time limit has expired."""
    pauses = [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) for number in range(failures)]
    return pauses[-1] if sum(pauses) <= PATIENCE_S else None


async def repeat(failed: pulumi.ErrorHookArgs) -> bool:
    """Wait and return True if the newest error is temporary."""
    newest = failed.errors[0] if failed.errors else ""
    pause = pause_after(len(failed.errors)) if any(word in newest for word in MESSAGES) else None
    if pause is None:
        return False
    await asyncio.sleep(pause)
    return True
