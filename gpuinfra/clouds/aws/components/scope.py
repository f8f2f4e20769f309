"""What every AWS component is told: whose it is, where it is, and how its things are marked.

Pulumi's `region` argument is not inherited from parent to child, so each regional child is given it;
global services (IAM, Budgets) take none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.already_exists import when_kept_before
from gpuinfra.clouds.resource_group import Parent, inside


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose resources these are, and where."""

    cluster: str
    """The cluster's name; begins every readable name."""
    region: str
    """Region of every regional resource; changing it replaces them all."""
    token: str
    """Token of the stack, from `gpuinfra.naming.stack_token`."""
    account: pulumi.Input[str]
    """Account id; part of bucket names and of the ARNs in policies."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that can carry them."""

    @staticmethod
    def here(
        cluster: str, region: str, tags: Mapping[str, str] | None = None, opts: pulumi.InvokeOptions | None = None
    ) -> Scope:
        """The scope of the stack that runs now, in the account of its credentials."""
        token = naming.stack_token(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack(), cluster)
        account = aws.get_caller_identity_output(opts=opts).account_id
        return Scope(cluster=cluster, region=region, token=token, account=account, tags=dict(tags or {}))

    @property
    def partition(self) -> str:
        """`aws`, `aws-cn` or `aws-us-gov`; it follows from the region, so nobody has to be asked."""
        return partition_of(self.region)

    def tagged(self, name: str, **more: str) -> dict[str, str]:
        """The scope's tags, the display name, and more; keyword `gpuinfra_pool` becomes the tag `gpuinfra:pool`."""
        return {**self.tags, "Name": name, **{key.replace("_", ":", 1): value for key, value in more.items()}}

    def arn(self, service: str, resource: str, *, regional: bool = True) -> pulumi.Output[str]:
        """The ARN of something in this account, before it exists."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":", service, ":", self.region if regional else "", ":", self.account, ":", resource
        )

    def bucket_name(self, purpose: str) -> pulumi.Output[str]:
        """The name of one of this stack's buckets."""
        return pulumi.Output.from_input(self.account).apply(
            lambda account: naming.bucket_name(self.cluster, purpose, account, self.region, self.token)
        )

    def unique_name(self, purpose: str, limit: int = 64) -> str:
        """The name of something of this stack that is unique in its account and region."""
        return naming.unique_name(self.cluster, purpose, self.token, limit)


def partition_of(region: str) -> str:
    """The partition that a region belongs to."""
    if region.startswith("cn-"):
        return "aws-cn"
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws"


def child(
    parent: Parent,
    *,
    keep: bool = False,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
) -> pulumi.ResourceOptions:
    """Options of a component's child; with `keep` the cloud's thing outlives a destroy of the stack.

    Kept things are not protected as well: the engine refuses to destroy a stack that holds protected resources,
    and a kept one is out of danger already.
    """
    own = pulumi.ResourceOptions(
        retain_on_delete=keep or None,
        depends_on=list(depends_on),
        ignore_changes=list(ignore_changes),
        hooks=when_kept_before() if keep else None,
    )
    return inside(parent, own)
