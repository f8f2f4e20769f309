"""The debug messages of Pulumi's Python SDK, left out where nobody asked for them.

The SDK tells the engine four or five things about each resource, each by a call of its own and whether or not anybody reads them: 450 in one
`up` of aws-p4d. What they cost is in docs/decisions/quiet.md; Pulumi met the same in larger programs,
https://github.com/pulumi/pulumi/pull/7295. A program does not learn whether it runs under `pulumi up --debug`.
"""

from __future__ import annotations

import os
from typing import Any

import pulumi

VARIABLE = "GPUINFRA_DEBUG"


def without_debug_messages() -> None:
    """From here on, `pulumi.log.debug` sends nothing in this process, unless `GPUINFRA_DEBUG` is set.

    For the program of a stack; a library that others import must leave it to them. Warnings, errors, the engine's own debug messages
    and those of providers stay as they are.
    """
    if os.environ.get(VARIABLE):
        return
    pulumi.log.debug(f"the program leaves out the debug messages of Pulumi's Python SDK; {VARIABLE}=1 brings them back")
    pulumi.log.debug = _sends_nothing


def _sends_nothing(*_: Any, **__: Any) -> None:
    """What stands in for `pulumi.log.debug`."""
