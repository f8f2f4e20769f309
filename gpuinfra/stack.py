"""A stack's own configuration as a declaration, inside a Pulumi program.

`gpuinfra plan` reads the same file without the engine (`gpuinfra.rules.load_stack`); here the engine has read it already.
"""

from __future__ import annotations

import pulumi

from gpuinfra.errors import GpuinfraError
from gpuinfra.spec import ClusterSpec, parse_spec


def declared() -> ClusterSpec:
    """The declaration of this stack. What is wrong with it ends the program with messages, not with a traceback."""
    config = pulumi.Config("gpuinfra")
    value = config.get_object("cluster")
    if value is None:
        raise pulumi.RunError(
            f"the stack {pulumi.get_stack()} declares no cluster; put the declaration under config, gpuinfra:cluster of its stack file"
        )
    try:
        return parse_spec(value)
    except GpuinfraError as problem:
        raise pulumi.RunError(str(problem)) from None
