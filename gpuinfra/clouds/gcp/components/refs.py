"""References between the layers on Google Cloud, and what a program can pass in for a layer that its stack does not create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra import existing
from gpuinfra.clouds import build
from gpuinfra.existing import NO_OUTPUT


@dataclass(frozen=True, kw_only=True)
class Existing(existing.Existing):
    """Resources on Google Cloud that a cluster uses and does not create."""

    data_key_id: pulumi.Input[str] | None = None
    """Foundation: key of disks, evidence and file systems, `projects/P/locations/R/keyRings/N/cryptoKeys/N`."""
    evidence_bucket: pulumi.Input[str] | None = None
    """Foundation: bucket of bundles and evidence."""
    network_id: pulumi.Input[str] | None = None
    """Site: network of the first interface of nodes, `projects/P/global/networks/N`; passed together with `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Site: subnets by the names in the plan (`private-0`, `data-0`), each `projects/P/regions/R/subnetworks/S`."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | None = None
    """Site, optional: file systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`."""


@dataclass(frozen=True, kw_only=True)
class FoundationRefs(build.FoundationRefs):
    """References from the foundation."""

    data_key_id: pulumi.Input[str]
    audit_bucket: pulumi.Input[str] | None = None
    audit_log_bucket: pulumi.Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SiteRefs(build.SiteRefs):
    """References from the site."""

    network_id: pulumi.Input[str] | None = None
    external_network_id: pulumi.Input[str] | None = field(default=None, metadata=NO_OUTPUT)
    """The network, if gpuinfra did not create it; then the cluster adds its own firewall rule."""
    import_commands: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Command that copies the bucket into a file system, by mount."""
    export_commands: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Command that copies a file system into its bucket, by mount."""
