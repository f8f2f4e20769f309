"""Resource groups: one per layer, because deleting a resource group deletes all resources in it."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import resources

from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.instances import Lookup
from gpuinfra.plan.planned import ResourceKind


def resource_group(
    name: str, scope: Scope, layer: str, row: ResourceKind[Lookup], opts: pulumi.ResourceOptions
) -> resources.ResourceGroup:
    """Create the resource group for a layer of this stack, with the parent and defaults in `opts`."""
    assert opts.parent is not None
    return resources.ResourceGroup(
        row.logical(name),
        resource_group_name=scope.unique_name(layer, 90),
        # `opts` can set the location of another region.
        location=scope.region,
        opts=pulumi.ResourceOptions.merge(opts, child(opts.parent, row)),
    )
