"""Parts: resources that belong together inside a component, and are children of that component itself.

A component is what a person puts into a program and looks for in a stack: a foundation, a network, a file system, a pool. A bucket with its
settings or a key with its alias is made like one, by a class with arguments, but it is no node of its own in the tree: each node costs the
engine a registration, its outputs and two writings of the state (docs/decisions/simplify.md).
"""

from __future__ import annotations

import pulumi


class Part:
    """Resources under one name, inside whatever `opts.parent` is; outside of a component they hang on the stack.

    `opts` are those of each of its resources, `depends_on` and `provider` too.
    """

    def __init__(self, was: str, name: str, opts: pulumi.ResourceOptions | None) -> None:
        """`was` is the type of the component that stood here before 2026-11-21: states that hold its row keep their resources by an alias."""
        opts = opts or pulumi.ResourceOptions()
        once = pulumi.Alias(parent=pulumi.create_urn(name, was, opts.parent))
        self._options = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=[once]))

    def options(self, own: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        """Options of one of its resources."""
        return pulumi.ResourceOptions.merge(self._options, own)


Parent = pulumi.Resource | Part
"""What resources are made inside of."""


def inside(parent: Parent, own: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """The options `own` of a resource inside a component or a part."""
    if isinstance(parent, Part):
        return parent.options(own)
    return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(parent=parent), own)
