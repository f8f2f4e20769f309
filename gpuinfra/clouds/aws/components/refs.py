"""References between the layers on AWS, and the existing resources to pass in for layers that the stack does not create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra.clouds import build, existing
from gpuinfra.clouds.existing import PROGRAM_ONLY


@dataclass(frozen=True, kw_only=True)
class Existing(existing.ExistingBase):
    """AWS resources that a cluster uses but does not create."""

    data_key_arn: pulumi.Input[str] | None = None
    """Foundation: KMS key for disks, evidence and file systems."""
    log_key_arn: pulumi.Input[str] | None = None
    """Foundation, optional: KMS key for log groups."""
    access_log_bucket: pulumi.Input[str] | None = None
    """Foundation, optional: bucket that receives the access logs of other buckets. Other stacks do not export it."""
    evidence_bucket: pulumi.Input[str] | None = None
    """Foundation: bucket for bundles and evidence."""
    evidence_bucket_arn: pulumi.Input[str] | None = None
    """Foundation: ARN of the evidence bucket."""
    vpc_id: pulumi.Input[str] | None = None
    """Site: VPC of the nodes. Requires `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Site: subnet IDs, keyed by the subnet's name in the plan, for example `private-0`."""
    nodes_group_id: pulumi.Input[str] | None = None
    """Site: security group of the nodes. Its rules must allow all protocols to and from the group itself, referenced by its group ID."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | None = None
    """Site, optional: file systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`."""
    node_role: pulumi.Input[str] | None = None
    """Site, with `access.node_role_in_site`: name of the nodes' role."""
    node_role_id: pulumi.Input[str] | None = None
    """Site, with `access.node_role_in_site`: unique ID of the nodes' role."""
    node_profile_arn: pulumi.Input[str] | None = None
    """Site, with `access.node_role_in_site`: ARN of the instance profile that contains the role."""


@dataclass(frozen=True, kw_only=True)
class FoundationRefs(build.FoundationOutputs):
    """References to resources of the foundation."""

    data_key_arn: pulumi.Input[str]
    log_key_arn: pulumi.Input[str] | None = None
    access_log_bucket: pulumi.Input[str] | None = field(default=None, metadata=PROGRAM_ONLY)
    evidence_bucket_arn: pulumi.Input[str]
    audit_trail_arn: pulumi.Input[str] | None = None
    audit_bucket: pulumi.Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRefs(build.SiteOutputs):
    """References to resources of the site."""

    vpc_id: pulumi.Input[str]
    nodes_group_id: pulumi.Input[str]
    data_buckets: Mapping[str, pulumi.Input[str]] | None = None
    """Buckets of file systems and mounts that the stack creates, keyed by name in the plan, for example `scratch-0`."""
    recovery: Mapping[str, Any] | None = None
    """Keys, buckets and replication role of the second Region."""
    node_role: pulumi.Input[str] | None = None
    """Name of the nodes' role, if the site creates it."""
    node_role_id: pulumi.Input[str] | None = None
    node_profile_arn: pulumi.Input[str] | None = None
