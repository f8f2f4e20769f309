"""References between the layers on Google Cloud, and the existing resources to pass in for layers that the stack does not create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra.clouds import build, existing
from gpuinfra.clouds.existing import NO_OUTPUT


@dataclass(frozen=True, kw_only=True)
class Existing(existing.ExistingBase):
    """Google Cloud resources that a cluster uses but does not create."""

    data_key_id: pulumi.Input[str] | None = None
    """Foundation: key for disks, evidence and file systems, `projects/P/locations/R/keyRings/N/cryptoKeys/N`."""
    evidence_bucket: pulumi.Input[str] | None = None
    """Foundation: bucket for bundles and evidence."""
    network_id: pulumi.Input[str] | None = None
    """Site: network of the first interface of the nodes, `projects/P/global/networks/N`. Requires `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Site: subnets, keyed by name in the plan (`private-0`, `data-0`), each `projects/P/regions/R/subnetworks/S`."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | None = None
    """Site, optional: file systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`."""


@dataclass(frozen=True, kw_only=True)
class FoundationRefs(build.FoundationOutputs):
    """References to resources of the foundation."""

    data_key_id: pulumi.Input[str]
    audit_bucket: pulumi.Input[str] | None = None
    audit_log_bucket: pulumi.Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRefs(build.SiteOutputs):
    """References to resources of the site."""

    network_id: pulumi.Input[str] | None = None
    external_network_id: pulumi.Input[str] | None = field(default=None, metadata=NO_OUTPUT)
    """The network, if gpuinfra did not create it. In that case, the cluster adds its own firewall rule."""
    data_buckets: Mapping[str, pulumi.Input[str]] | None = None
    """Buckets of file systems and mounts that the stack creates, keyed by name in the plan, for example `scratch-0`."""
    recovery: Mapping[str, Any] | None = None
    """Key, replicas and replication jobs of the second region."""
    import_commands: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Commands that copy the bucket to a file system, by mount."""
    export_commands: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Commands that copy a file system to its bucket, by mount."""
