"""Groups of resources without a component of their own. The components of Azure and Google Cloud still use it."""

from __future__ import annotations

import pulumi


class Part:
    """Resources under one name, children of `opts.parent`."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None) -> None:
        self._options = opts or pulumi.ResourceOptions()

    def options(self, own: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        """Options of one resource."""
        return pulumi.ResourceOptions.merge(self._options, own)


Parent = pulumi.Resource | Part


def inside(parent: Parent, own: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """The options `own` of a resource inside a component or a part."""
    if isinstance(parent, Part):
        return parent.options(own)
    return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(parent=parent), own)
