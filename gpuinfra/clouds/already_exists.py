"""The error for a resource whose name is already taken.

`destroy` retains some resources, and a replacement of such a resource needs a name that still exists. The engine reports the provider's
message (`BucketAlreadyOwnedByYou`), which does not say what to do; the hook here adds the command to run.
The engine does not report which of the two cases it is, so the message covers both.
"""

from __future__ import annotations

import weakref

import pulumi
from pulumi.runtime.settings import get_root_resource

MESSAGES = (
    "BucketAlreadyOwnedByYou",
    "AlreadyExistsException",
    "ResourceAlreadyExistsException",
    "already exists",
    "already own this bucket",
    "already existing resource",
)
"""Parts of the errors that services return if the same account, subscription or project has a resource of that name."""

_hooks: weakref.WeakKeyDictionary[pulumi.Resource, pulumi.ErrorHook] = weakref.WeakKeyDictionary()
"""One hook for each running program, by its stack: the name of a hook can be registered once."""
_reported: set[str] = set()
"""Stacks whose message is out: dozens of resources are retained together, and one message covers all of them."""


def already_exists_hook() -> pulumi.ErrorHook | None:
    """The hook of the running program, None outside of one."""
    stack = get_root_resource()
    if stack is None:
        return None
    if stack not in _hooks:
        _hooks[stack] = pulumi.ErrorHook("gpuinfra-already-exists", explain)
    return _hooks[stack]


def explains_existing() -> pulumi.ResourceHookBinding | None:
    """The hook as a resource option."""
    hook = already_exists_hook()
    return pulumi.ResourceHookBinding(on_error=[hook]) if hook else None


def explain(failed: pulumi.ErrorHookArgs) -> bool:
    """Log what to do, once for each stack. Returns False, because a retry fails the same way."""
    stack = pulumi.get_stack()
    taken = failed.failed_operation == "create" and any(word in error for error in failed.errors for word in MESSAGES)
    if taken and stack not in _reported:
        _reported.add(stack)
        pulumi.log.error(
            f"{failed.name} already exists. If an earlier destroy of {stack} retained it, run `gpuinfra adopt {stack}`: it finds every retained "
            f"resource and writes the file to import them; then run `pulumi up` again. "
            f"If nothing was destroyed, this change replaces {failed.name} and would lose its content, so it is refused: "
            f"undo the change (`pulumi preview --diff` shows it), or declare a second resource and remove this one when its content is safe."
        )
    return False
