"""The error for a resource whose name is already in use.

The error has three possible causes: a run was killed while it created the resource, an earlier `destroy` retained the resource, or a change
replaces a resource that must keep its name. The engine reports only the provider's message (`BucketAlreadyOwnedByYou`), not the cause. The hook
in this module logs the remediation for each.
"""

from __future__ import annotations

import weakref

import pulumi

from gpuinfra.clouds.operation import owner_of_hooks

MESSAGES = (
    "BucketAlreadyOwnedByYou",
    "AlreadyExistsException",
    "ResourceAlreadyExistsException",
    "already exists",
    "already own this bucket",
    "already existing resource",
    "alreadyExists",
    "AlreadyExists",
    "InvalidSubnet.Conflict",
    ".Duplicate",
    "Resource.AlreadyAssociated",
    "MountTargetConflict",
)
"""Parts of the error messages that services return if the account, subscription, or project already has a resource with that name."""

_hooks: weakref.WeakKeyDictionary[object, pulumi.ErrorHook] = weakref.WeakKeyDictionary()
"""The hook of each running program, by its operation. A hook name can be registered only once."""
_reported: set[str] = set()
"""Stacks for which the message has been logged. The message covers all retained resources of a stack."""


def already_exists_hook() -> pulumi.ErrorHook | None:
    """Return the hook of the running program, or None outside a program."""
    owner = owner_of_hooks()
    if owner is None:
        return None
    if owner not in _hooks:
        _hooks[owner] = pulumi.ErrorHook("gpuinfra-already-exists", explain)
    return _hooks[owner]


def explains_existing() -> pulumi.ResourceHookBinding | None:
    """Return the hook as a resource option."""
    hook = already_exists_hook()
    return pulumi.ResourceHookBinding(on_error=[hook]) if hook else None


def explain(failed: pulumi.ErrorHookArgs) -> bool:
    """Log the remediation once per stack. Returns False, because a retry would fail with the same error."""
    stack = pulumi.get_stack()
    taken = failed.failed_operation == "create" and any(word in error for error in failed.errors for word in MESSAGES)
    if taken and stack not in _reported:
        _reported.add(stack)
        pulumi.log.error(
            f"{failed.name} already exists. If a run of {stack} was killed, run `gpuinfra up {stack} --resume`, which finds what the run created "
            f"and continues. If an earlier destroy of {stack} retained it, run `gpuinfra adopt {stack}`, which finds all retained "
            f"resources and writes the import file; then run `pulumi up` again. "
            f"If you did not destroy the stack, this change replaces {failed.name} and would lose its content, so it is rejected: "
            f"undo the change (`pulumi preview --diff` shows it), or declare a second resource and remove this one after you copy its content."
        )
    return False
