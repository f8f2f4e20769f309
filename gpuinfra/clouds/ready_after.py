"""Values that are ready only after other resources exist.

For example, a bucket name is ready after the bucket's settings are applied, and the ID of a security group is ready after the rules of the group exist.
"""

from __future__ import annotations

from collections.abc import Iterable

import pulumi


def ready_after(value: pulumi.Input[str], resources: Iterable[pulumi.Resource]) -> pulumi.Output[str]:
    """Return `value` with dependencies on `resources`. Resources that use it are created after `resources` and deleted before them."""
    return pulumi.Output.all(value, *(resource.urn for resource in resources)).apply(lambda known: str(known[0]))
