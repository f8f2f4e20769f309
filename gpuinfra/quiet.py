"""What Pulumi's Python SDK tells the engine of each resource and nobody asked for, left out.

- Debug messages: four or five of each resource, each by a call of its own and whether or not anybody reads them, 450 in one `up` of aws-p4d.
- Stack traces: every line of code on the way from the interpreter's start to the resource, kept in the state, most of them Pulumi's own and
  those of whoever's home directory Python was started from. The line that makes the resource is kept, as the first of the trace and as its source position.

What they cost is in docs/decisions/quiet.md; Pulumi met the same in larger programs, https://github.com/pulumi/pulumi/pull/7295 and
https://github.com/pulumi/pulumi/issues/18478. A program does not learn whether it runs under `pulumi up --debug`.
"""

from __future__ import annotations

import os
from typing import Any

import pulumi
from pulumi.runtime import resource as registration

VARIABLE = "GPUINFRA_DEBUG"

TRACE = "_get_stack_trace"
"""The SDK's function that makes the trace of a resource. It is not public: where it is not found, traces stay as they are."""


def say_less() -> None:
    """From here on, this process sends no debug messages, and one line of code for each resource, unless `GPUINFRA_DEBUG` is set.

    For the program of a stack; a library that others import must leave it to them. Warnings, errors, the engine's own debug messages
    and those of providers stay as they are.
    """
    if os.environ.get(VARIABLE):
        return
    pulumi.log.debug(
        "the program leaves out the debug messages of Pulumi's Python SDK, and all but the first line of stack traces; "
        f"{VARIABLE}=1 brings them back"
    )
    pulumi.log.debug = _sends_nothing
    if whole := getattr(registration, TRACE, None):
        setattr(registration, TRACE, _FirstLine(whole))


def _sends_nothing(*_: Any, **__: Any) -> None:
    """What stands in for `pulumi.log.debug`."""


class _FirstLine:
    """What stands in for the SDK's function: the same trace, with the frame that makes the resource alone."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What another release of the SDK gives and expects passes through: a stack must not fail for its trace."""
        trace = self._whole(*given, **named)
        if frames := getattr(trace, "frames", None):
            del frames[1:]
        return trace
