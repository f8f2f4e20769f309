"""The fields of a scope that all clouds share: the cluster, stack, and region of resources.

A component takes a scope as its first argument. `defaults` sets the arguments that all resources of a cluster share (region, tags, labels).
Each component sets it as a transformation, which its children inherit.
`docs/internals/decisions/defaults.md` explains why gpuinfra does not use an explicit provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pulumi

from gpuinfra.base import naming
from gpuinfra.clouds.already_exists import explains_existing
from gpuinfra.clouds.pending import STACK_TAG
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import ResourceKind


@dataclass(frozen=True, kw_only=True)
class BaseScope:
    """The cluster, its region, and the tags of its resources."""

    cluster: str
    """Cluster name, which is the prefix of all readable names."""
    region: str
    """Region of all regional resources. Changing the region replaces them."""
    token: str
    """Token of the stack, from `gpuinfra.base.naming.stack_token`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags for every resource that supports tags."""

    @classmethod
    def of(cls, plan: Plan, opts: pulumi.InvokeOutputOptions | None = None) -> Self:
        """Return the scope of a plan in the running stack. `opts` applies to the calls that read the account."""
        return cls(**of_stack(plan))

    def options(self, opts: pulumi.ResourceOptions | None = None) -> pulumi.ResourceOptions:
        """Return `opts` of a component with the settings that all of its resources share."""
        return opts or pulumi.ResourceOptions()

    def tagged(self, name: str, **more: str) -> dict[str, str]:
        """Return the tags with the display name and additional tags. The `gpuinfra_pool` keyword becomes the `gpuinfra:pool` tag."""
        return {**self.tags, "Name": name, **{key.replace("_", ":", 1): value for key, value in more.items()}}

    def owned(self, name: str) -> dict[str, str]:
        """Return the tags of a resource with the tag of the stack, by which a killed run is continued.

        Nodes and the templates of nodes do not have this tag, because a change of a template replaces the nodes of earlier versions.
        """
        return {**self.tagged(name), STACK_TAG: self.token}

    def unique_name(self, purpose: str, limit: int = 64) -> str:
        """Return a name that is unique to this stack in its account, subscription, or project."""
        return naming.unique_name(self.cluster, purpose, self.token, limit)


def stack_token(cluster: str) -> str:
    """Return the token of the running stack."""
    return naming.stack_token(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack(), cluster)


def of_stack(plan: Plan) -> dict[str, Any]:
    """Return the scope fields that are the same on all clouds, for a plan in the running stack."""
    return {"cluster": plan.name, "region": plan.region, "token": stack_token(plan.name), "tags": dict(plan.tags)}


Fill = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""Function that maps Pulumi type, logical name, and arguments to the arguments to set."""


def unset(args: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Return the values for arguments that the resource supports and the component does not set."""
    return {key: value for key, value in values.items() if key in args and args[key] is None}


def with_defaults(opts: pulumi.ResourceOptions | None, package: str, fill: Fill) -> pulumi.ResourceOptions:
    """Return `opts` with a transformation that applies `fill` to all resources of the package."""

    def transform(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not args.type_.startswith(f"{package}:"):
            return None
        props: Mapping[str, Any] = args.props  # pyright: ignore[reportAssignmentType]
        return pulumi.ResourceTransformationResult({**props, **fill(args.type_, args.name, props)}, args.opts)

    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(transformations=[transform]))


def child(
    parent: pulumi.Resource,
    kind: ResourceKind[Any],
    *,
    data: bool | None = None,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
) -> pulumi.ResourceOptions:
    """Return the options of a resource inside a component. Its row determines whether `destroy` retains it. `data` is required if the lifetime depends on data.

    Retained resources are not protected, because the engine refuses to destroy a stack that contains protected resources.
    """
    retain = kind.retains(data=data)
    return pulumi.ResourceOptions(
        parent=parent,
        retain_on_delete=retain or None,
        depends_on=list(depends_on),
        ignore_changes=list(ignore_changes),
        hooks=explains_existing(),
    )
