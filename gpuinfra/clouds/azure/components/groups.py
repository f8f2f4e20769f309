"""Resource groups: one for each layer, because deleting one deletes everything in it."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import resources

from gpuinfra.clouds.azure.components.scope import Scope, child


def resource_group(
    name: str, scope: Scope, layer: str, parent: pulumi.Resource, *, keep: bool
) -> resources.ResourceGroup:
    """The resource group of one layer of this stack; one that holds kept things is kept, or they would go with it."""
    return resources.ResourceGroup(
        name,
        resource_group_name=scope.unique_name(layer, 90),
        location=scope.region,
        tags=scope.tagged(name),
        opts=child(parent, keep=keep),
    )
