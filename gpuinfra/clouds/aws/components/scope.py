"""The scope of AWS components: the cluster, the account, and the settings that all resources share.

`Scope.options` sets the Region and tags on all child resources of a component. Global services (IAM, Budgets) have no Region. Auto Scaling
groups and the tag specifications of launch templates use a different tag format, so `NodePool` sets those tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.scope import BaseScope, child, of_stack, with_defaults
from gpuinfra.plan.model import Plan

__all__ = ["Scope", "child", "partition_of"]

OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
"""An S3 object can have at most ten tags, so the tags in a declaration are not applied to objects."""

ROLE = "aws:iam/role:Role"
UNTAGGED = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
"""The VPC creates this group, so the provider would tag it in a separate call. The policies of `gpuinfra permissions`
allow tags only at creation (docs/reference/aws.md, "Tags")."""


@dataclass(frozen=True, kw_only=True)
class Scope(BaseScope):
    """The cluster and the account that resources belong to."""

    account: pulumi.Input[str]
    """Account ID. Part of bucket names and of the ARNs in policies."""
    permissions_boundary: str | None = None
    """ARN of the permissions boundary of every role, or None."""

    @classmethod
    def of(cls, plan: Plan, opts: pulumi.InvokeOutputOptions | None = None) -> Self:
        """Return the scope of a plan in the running stack, in the account of its credentials."""
        account = aws.get_caller_identity_output(opts=opts).account_id
        return cls(account=account, permissions_boundary=plan.roles.permissions_boundary, **of_stack(plan))

    def options(self, opts: pulumi.ResourceOptions | None = None) -> pulumi.ResourceOptions:
        """Return `opts` of a component with a transform that sets the Region, the tags,
        the `Name` tag (the logical name) and the permissions boundary on its resources."""

        def fill(type_: str, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
            filled: dict[str, Any] = {}
            if "region" in args and args["region"] is None:
                filled["region"] = self.region
            tags = args.get("tags") or {}
            if "tags" in args and isinstance(tags, Mapping) and type_ != UNTAGGED:
                filled["tags"] = {**self.owned(name), **tags}
            if type_ == ROLE and self.permissions_boundary:
                filled["permissions_boundary"] = self.permissions_boundary
            if type_ == OBJECT:
                filled["tags"] = {
                    key: filled["tags"][key] for key in filled["tags"] if key.startswith(("Name", "gpuinfra:"))
                }
            return filled

        return with_defaults(opts, "aws", fill)

    @property
    def partition(self) -> str:
        """`aws`, `aws-cn` or `aws-us-gov`, from the region."""
        return partition_of(self.region)

    def arn(self, service: str, resource: str, *, regional: bool = True) -> pulumi.Output[str]:
        """Return the ARN of a resource in this account. The resource does not have to exist yet."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":", service, ":", self.region if regional else "", ":", self.account, ":", resource
        )

    def bucket_name(self, purpose: str) -> pulumi.Output[str]:
        """Return the name of a bucket of this stack."""
        return pulumi.Output.from_input(self.account).apply(
            lambda account: naming.bucket_name(self.cluster, purpose, account, self.region, self.token)
        )


def partition_of(region: str) -> str:
    """Return the partition of a Region."""
    if region.startswith("cn-"):
        return "aws-cn"
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws"
