"""What is said when something that an earlier destroy kept, or that a change would replace, is made a second time.

The engine reports the provider's words (`BucketAlreadyOwnedByYou`), which do not say what to do; this adds the command that does it.
The engine does not tell which of the two it was, so both are said.
Every cloud's components use it for what they keep.
"""

from __future__ import annotations

import weakref

import pulumi
from pulumi.runtime.settings import get_root_resource

WORDS = (
    "BucketAlreadyOwnedByYou",
    "AlreadyExistsException",
    "ResourceAlreadyExistsException",
    "already exists",
    "already own this bucket",
    "already existing resource",
)
"""How the services say that a name is taken by something of the same account, subscription or project."""

_hooks: weakref.WeakKeyDictionary[pulumi.Resource, pulumi.ErrorHook] = weakref.WeakKeyDictionary()
"""One hook for each running program, by its stack: a hook's name is registered once."""
_told: set[str] = set()
"""Stacks that were told already: dozens of things are kept together, and one message is about all of them."""


def taken_hook() -> pulumi.ErrorHook | None:
    """The hook of the program that runs now, None outside of one."""
    stack = get_root_resource()
    if stack is None:
        return None
    if stack not in _hooks:
        _hooks[stack] = pulumi.ErrorHook("gpuinfra-kept-before", explain)
    return _hooks[stack]


def when_kept_before() -> pulumi.ResourceHookBinding | None:
    """The hook as a resource option."""
    hook = taken_hook()
    return pulumi.ResourceHookBinding(on_error=[hook]) if hook else None


def explain(failed: pulumi.ErrorHookArgs) -> bool:
    """Say what to do, once; never try again, because the name stays taken."""
    stack = pulumi.get_stack()
    taken = failed.failed_operation == "create" and any(word in error for error in failed.errors for word in WORDS)
    if taken and stack not in _told:
        _told.add(stack)
        pulumi.log.error(
            f"{failed.name} is there already: an earlier destroy of {stack} kept it. "
            f"`gpuinfra adopt {stack}` finds everything that was kept and says how to take it back; then go on with `pulumi up`. "
            f"Where nothing was destroyed, this change would replace {failed.name}, and that would lose what it holds, so it is refused: "
            f"undo the change (`pulumi preview --diff` shows it), or declare another thing beside it and remove this one when its content is safe."
        )
    return False
