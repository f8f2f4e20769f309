"""The image version of a pool, resolved once and pinned in the stack state."""

from __future__ import annotations

import pulumi
from pulumi.stash import Stash, StashArgs

from gpuinfra.base import naming
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.clouds.azure.handover.images import TOKEN
from gpuinfra.plan.model import PoolPlan


def pinned_version(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """Return the image version of the pool, or `None` for an image that is referenced by ID.

    `latest` changes every few weeks, so nodes that are added later would boot a different image. A `Stash` resource stores the first version in the state.
    A changed image reference in the plan creates a new stash.
    """
    image = pool.image
    if image.source == "id":
        return None
    if image.source != "urn":
        raise ValueError(
            f"the image source {image.source!r} of pool {pool.name!r} is not supported on Azure; allowed: 'id', 'urn'"
        )
    publisher, offer, sku, version = image.ref.split(":")
    if version != "latest":
        return pulumi.Output.from_input(version)
    request = {
        "publisher": publisher,
        "offer": offer,
        "sku": sku,
        "region": scope.region,
        "subscription": scope.subscription,
    }
    now = pulumi.runtime.invoke_output(TOKEN, request, pulumi.InvokeOutputOptions(parent=parent))
    pin = Stash(
        naming.logical(name, "image", naming.text_token(image.ref)),
        StashArgs(input=now.apply(lambda answer: answer["version"])),
        pulumi.ResourceOptions(parent=parent, ignore_changes=["input"]),
    )
    return pin.output.apply(str)
