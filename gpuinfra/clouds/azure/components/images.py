"""Which version of an image a pool boots: what its reference means on the day it is first used, and the same from then on."""

from __future__ import annotations

import pulumi
from pulumi.stash import Stash, StashArgs

from gpuinfra import naming
from gpuinfra.clouds.azure.components.scope import Scope
from gpuinfra.handover.azure_images import TOKEN
from gpuinfra.plan.model import PoolPlan


def pinned_version(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str] | None:
    """The version of the pool's image, None where the image is named by its id.

    A vendor's `latest` moves every few weeks; followed, it would give added nodes another image than their neighbours.
    The stack remembers the first answer; another reference in the plan is another memory.
    """
    image = pool.image
    if image.source == "id":
        return None
    if image.source != "urn":
        raise ValueError(
            f"the image source {image.source!r} of pool {pool.name!r} does not exist on Azure; allowed are 'id' and 'urn'"
        )
    publisher, offer, sku, version = image.ref.split(":")
    if version != "latest":
        return pulumi.Output.from_input(version)
    asked = {
        "publisher": publisher,
        "offer": offer,
        "sku": sku,
        "region": scope.region,
        "subscription": scope.subscription,
    }
    now = pulumi.runtime.invoke_output(TOKEN, asked, pulumi.InvokeOutputOptions(parent=parent))
    pin = Stash(
        naming.logical(name, "image", naming.text_token(image.ref)),
        StashArgs(input=now.apply(lambda answer: answer["version"])),
        pulumi.ResourceOptions(parent=parent, ignore_changes=["input"]),
    )
    return pin.output.apply(str)
