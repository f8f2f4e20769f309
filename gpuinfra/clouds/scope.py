"""The part of a scope that all clouds share: which cluster and stack resources belong to, and where they are.

A component takes a scope as its first argument. `defaults` fills in what is the same for every resource of a cluster (region, tags, labels),
as a transformation that each component sets and its children inherit; `docs/decisions/defaults.md` states why it is no explicit provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra import naming
from gpuinfra.clouds.already_exists import explains_existing
from gpuinfra.clouds.planned import ResourceKind


@dataclass(frozen=True, kw_only=True)
class BaseScope:
    """The cluster, its region, and the tags of its resources."""

    cluster: str
    """The cluster's name, which every readable name begins with."""
    region: str
    """Region of every regional resource; a change replaces all of them."""
    token: str
    """Token of the stack, from `gpuinfra.naming.stack_token`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that supports them."""

    def tagged(self, name: str, **more: str) -> dict[str, str]:
        """The tags, the display name, and more; the keyword `gpuinfra_pool` becomes the tag `gpuinfra:pool`."""
        return {**self.tags, "Name": name, **{key.replace("_", ":", 1): value for key, value in more.items()}}

    def unique_name(self, purpose: str, limit: int = 64) -> str:
        """A name of this stack that is unique in its account, subscription or project."""
        return naming.unique_name(self.cluster, purpose, self.token, limit)


def stack_token(cluster: str) -> str:
    """The token of the running stack."""
    return naming.stack_token(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack(), cluster)


def of_stack(cluster: str, region: str, tags: Mapping[str, str] | None) -> dict[str, Any]:
    """The fields of a scope that are the same on all clouds, for the running stack."""
    return {"cluster": cluster, "region": region, "token": stack_token(cluster), "tags": dict(tags or {})}


Fill = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""(Pulumi type, logical name, arguments) -> the arguments to set."""


def unset(args: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """The values of those arguments that a resource has and a component does not set."""
    return {key: value for key, value in values.items() if key in args and args[key] is None}


def with_defaults(opts: pulumi.ResourceOptions | None, package: str, fill: Fill) -> pulumi.ResourceOptions:
    """`opts`, and that resources of the package get the arguments of `fill`."""

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
    """Options of a resource inside a component. Its row decides whether `destroy` retains it; `data` is required where that depends on data.

    A retained resource is not protected: the engine refuses to destroy a stack with protected resources, and a retained one is safe.
    """
    retain = kind.retains(data=data)
    return pulumi.ResourceOptions(
        parent=parent,
        retain_on_delete=retain or None,
        depends_on=list(depends_on),
        ignore_changes=list(ignore_changes),
        hooks=explains_existing() if retain else None,
    )
