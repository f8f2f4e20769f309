"""References between the layers on AWS, and what a program can pass in for a layer that its stack does not create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra import existing
from gpuinfra.clouds import build
from gpuinfra.existing import PROGRAM_ONLY


@dataclass(frozen=True, kw_only=True)
class Existing(existing.Existing):
    """Resources on AWS that a cluster uses and does not create."""

    data_key_arn: pulumi.Input[str] | None = None
    """Foundation: KMS key of disks, evidence and file systems."""
    log_key_arn: pulumi.Input[str] | None = None
    """Foundation, optional: KMS key of log groups."""
    access_log_bucket: pulumi.Input[str] | None = None
    """Foundation, optional: bucket for the access logs of other buckets. It is not read from another stack."""
    evidence_bucket: pulumi.Input[str] | None = None
    """Foundation: bucket of bundles and evidence."""
    evidence_bucket_arn: pulumi.Input[str] | None = None
    """Foundation: ARN of the evidence bucket."""
    vpc_id: pulumi.Input[str] | None = None
    """Site: VPC of the nodes; passed together with `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Site: subnet ids by the names in the plan, for example `private-0`."""
    nodes_group_id: pulumi.Input[str] | None = None
    """Site: security group of the nodes. It must allow all protocols from and to itself, referenced by its own id."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | None = None
    """Site, optional: file systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`."""


@dataclass(frozen=True, kw_only=True)
class FoundationRefs(build.FoundationRefs):
    """References from the foundation."""

    data_key_arn: pulumi.Input[str]
    log_key_arn: pulumi.Input[str] | None = None
    access_log_bucket: pulumi.Input[str] | None = field(default=None, metadata=PROGRAM_ONLY)
    evidence_bucket_arn: pulumi.Input[str]
    audit_trail_arn: pulumi.Input[str] | None = None
    audit_bucket: pulumi.Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRefs(build.SiteRefs):
    """References from the site."""

    vpc_id: pulumi.Input[str]
    nodes_group_id: pulumi.Input[str]
