"""References between the layers on Azure, and the existing resources to pass in for layers that the stack does not create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpuinfra.clouds import build, existing
from gpuinfra.clouds.azure.components.storage import FileSystemKey
from gpuinfra.clouds.azure.components.stores import EncryptionKey
from gpuinfra.clouds.existing import PROGRAM_ONLY


@dataclass(frozen=True, kw_only=True)
class Existing(existing.ExistingBase):
    """Azure resources that a cluster uses but does not create."""

    evidence_bucket: pulumi.Input[str] | None = None
    """Foundation: URL of the container for bundles and evidence."""
    evidence_account_id: pulumi.Input[str] | None = None
    """Foundation: ID of the storage account of that container."""
    vault_id: pulumi.Input[str] | None = None
    """Foundation: ID of the key vault."""
    vault_uri: pulumi.Input[str] | None = None
    """Foundation: URL of the key vault."""
    data_key_name: pulumi.Input[str] | None = None
    """Foundation: name of the key for file systems and their containers."""
    data_key_url: pulumi.Input[str] | None = None
    """Foundation: URL of a version of that key."""
    data_key_identity_id: pulumi.Input[str] | None = None
    """Foundation: ID of the identity that can use that key."""
    disk_encryption_set_id: pulumi.Input[str] | None = None
    """Foundation: disk encryption set for the nodes."""
    workspace_id: pulumi.Input[str] | None = None
    """Foundation, optional: Log Analytics workspace for access and flow logs. Other stacks do not export it."""
    network_id: pulumi.Input[str] | None = None
    """Site: virtual network of the nodes. Requires `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Site: subnet IDs, keyed by the subnet's name in the plan, for example `private-0`."""
    nodes_group_id: pulumi.Input[str] | None = None
    """Site: network security group for the nodes."""
    members_group_id: pulumi.Input[str] | None = None
    """Site, optional: application security group that the interfaces of the nodes join."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] | None = None
    """Site, optional: file systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`.
    A mounted container also has `container_id`, its resource ID."""


@dataclass(frozen=True, kw_only=True)
class FoundationRefs(build.FoundationOutputs):
    """References to resources of the foundation."""

    evidence_account_id: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    vault_uri: pulumi.Input[str]
    data_key_name: pulumi.Input[str]
    data_key_url: pulumi.Input[str]
    data_key_identity_id: pulumi.Input[str]
    disk_encryption_set_id: pulumi.Input[str]
    workspace_id: pulumi.Input[str] | None = field(default=None, metadata=PROGRAM_ONLY)
    audit_account_id: pulumi.Input[str] | None = None
    evidence_container_id: pulumi.Input[str] | None = None

    @property
    def data_key(self) -> FileSystemKey:
        """The key for file systems."""
        return FileSystemKey(
            key_url=self.data_key_url,
            vault_id=self.vault_id,
            identity_id=self.data_key_identity_id,
            encryption_key=EncryptionKey(
                key_name=self.data_key_name, vault_uri=self.vault_uri, identity_id=self.data_key_identity_id
            ),
        )


@dataclass(frozen=True, kw_only=True)
class SiteRefs(build.SiteOutputs):
    """References to resources of the site."""

    nodes_group_id: pulumi.Input[str]
    members_group_id: pulumi.Input[str] | None = None
    network_id: pulumi.Input[str] | None = None
    data_buckets: Mapping[str, pulumi.Input[str]] | None = None
    """Resource IDs of the containers of file systems and mounts that the stack creates, keyed by name in the plan, for example `scratch-0`."""
    recovery: Mapping[str, Any] | None = None
    """Key, replicas and replication policies of the second region."""
    export_commands: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Commands that copy changed files of a file system to its container, by mount."""
