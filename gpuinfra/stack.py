"""Reads the declaration from the configuration of the running stack, for Pulumi programs.

`gpuinfra plan` reads the stack file instead (`gpuinfra.rules.load_stack`).
"""

from __future__ import annotations

import pulumi

from gpuinfra.errors import GpuinfraError
from gpuinfra.spec import ClusterSpec, parse_spec


def declared() -> ClusterSpec:
    """Return the declaration of the running stack. If the declaration is invalid, the program exits with error messages and without a traceback."""
    config = pulumi.Config("gpuinfra")
    value = config.get_object("cluster")
    if value is None:
        raise pulumi.RunError(
            f"the stack {pulumi.get_stack()} has no declaration; add gpuinfra:cluster under config in its stack file"
        )
    try:
        return parse_spec(value)
    except GpuinfraError as problem:
        raise pulumi.RunError(str(problem)) from None
