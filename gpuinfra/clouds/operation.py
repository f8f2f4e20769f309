"""Identifies the program or the component whose resources are being created.

The name of a hook can be registered only once in an operation of the engine. In a Python program, the stack resource identifies the operation.
A component of a program in another language has no stack resource, so the plugin sets an `EngineOperation`.
"""

from __future__ import annotations

from contextvars import ContextVar

from pulumi.runtime.settings import get_root_resource


class EngineOperation:
    """A preview, an update or another operation of the engine that creates components in the plugin."""


current_operation: ContextVar[EngineOperation | None] = ContextVar("current_operation", default=None)
"""The operation of the component that is being created, in the plugin."""


def owner_of_hooks() -> object | None:
    """Return the object that identifies the operation, or None outside a program."""
    return current_operation.get() or get_root_resource()
