"""Values that become ready later than the resource they come from.

A bucket's name is usable when its settings are in force, and a security group's id when its rules exist.
"""

from __future__ import annotations

from collections.abc import Iterable

import pulumi


def ready_after(value: pulumi.Input[str], resources: Iterable[pulumi.Resource]) -> pulumi.Output[str]:
    """`value`, for inputs of resources that are created after `resources` and deleted before them."""
    return pulumi.Output.all(value, *(resource.urn for resource in resources)).apply(lambda known: str(known[0]))
