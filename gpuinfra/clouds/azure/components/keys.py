"""The key vault, its keys, and the identities that use them.

Keys never leave the vault. Disks, storage accounts and file systems use an identity that can wrap and unwrap with the key.
`destroy` retains everything except the disk encryption set, because encrypted data cannot be read without the key.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute, keyvault, managedidentity, monitor

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey
from gpuinfra.clouds.ready_after import ready_after

ROTATE_AFTER = "P365D"
"""Key rotation period. Old versions are retained to decrypt existing data."""


@dataclass(frozen=True, kw_only=True)
class VaultArgs:
    """Arguments for a key vault."""

    scope: Scope
    region: str = ""
    """Region in the name of a vault that a stack creates in addition to its foundation's vault. Empty otherwise."""


class Vault(pulumi.ComponentResource):
    """A private key vault with purge protection and role-based access control."""

    vault_id: pulumi.Output[str]
    """ID of the vault."""
    name: pulumi.Output[str]
    """Name of the vault."""
    uri: pulumi.Output[str]
    """URL of the vault."""

    def __init__(self, name: str, args: VaultArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Vault", name, None, args.scope.options(opts))
        scope = args.scope
        vault = keyvault.Vault(
            rows.VAULT.logical(name),
            vault_name=scope.vault_name(args.region),
            resource_group_name=scope.group,
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=scope.tenant,
                sku=keyvault.SkuArgs(family="A", name=keyvault.SkuName.PREMIUM),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=90,
                # Cannot be disabled. Disks, storage accounts and file systems require it.
                enable_purge_protection=True,
                public_network_access="Disabled",
                # Disk encryption sets, storage accounts and file systems are trusted services (https://learn.microsoft.com/azure/azure-managed-lustre/customer-managed-encryption-keys).
                network_acls=keyvault.NetworkRuleSetArgs(default_action="Deny", bypass="AzureServices"),
            ),
            opts=child(self, rows.VAULT),
        )
        self.vault_id, self.name = vault.id, vault.name
        self.uri = vault.properties.apply(lambda properties: str(properties.vault_uri))
        self.register_outputs({"vault_id": self.vault_id, "name": self.name, "uri": self.uri})


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """Arguments for a key."""

    scope: Scope
    purpose: str
    """Name of the key in the vault, such as `audit` or `data`."""
    vault_name: pulumi.Input[str]
    """Name of the vault (`Vault.name`)."""
    vault_uri: pulumi.Input[str]
    """Address of the vault (`Vault.uri`)."""
    vault_id: pulumi.Input[str]
    """ID of the vault (`Vault.vault_id`)."""


class Key(pulumi.ComponentResource):
    """A customer-managed key with yearly rotation, and the identity that uses it."""

    key_name: pulumi.Output[str]
    """Name of the key. Resolves after the identity has access to the key."""
    key_url: pulumi.Output[str]
    """URL of the first version of the key. Resolves after the identity has access to the key."""
    vault_uri: pulumi.Output[str]
    """URL of the vault."""
    vault_id: pulumi.Output[str]
    """ID of the vault."""
    identity_id: pulumi.Output[str]
    """ID of the identity that can wrap and unwrap with the key."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Key", name, None, args.scope.options(opts))
        scope = args.scope
        key = keyvault.Key(
            rows.KEY.logical(name),
            key_name=args.purpose,
            vault_name=args.vault_name,
            resource_group_name=scope.group,
            properties=keyvault.KeyPropertiesArgs(
                # The only key type that Managed Lustre accepts (https://learn.microsoft.com/azure/azure-managed-lustre/customer-managed-encryption-keys).
                kty="RSA",
                key_size=2048,
                key_ops=["wrapKey", "unwrapKey"],
                rotation_policy=keyvault.RotationPolicyArgs(
                    lifetime_actions=[
                        keyvault.LifetimeActionArgs(
                            action=keyvault.ActionArgs(type=keyvault.KeyRotationPolicyActionType.ROTATE),
                            trigger=keyvault.TriggerArgs(time_after_create=ROTATE_AFTER),
                        )
                    ]
                ),
            ),
            opts=child(self, rows.KEY),
        )
        identity = managedidentity.UserAssignedIdentity(
            rows.KEY_IDENTITY.logical(name),
            resource_name_=scope.unique_name(f"key-{args.purpose}", 128),
            resource_group_name=scope.group,
            opts=child(self, rows.KEY_IDENTITY),
        )
        role = grant(
            rows.KEY_GRANT.logical(name),
            scope,
            role=rows.CRYPTO_USER,
            at=pulumi.Output.concat(args.vault_id, "/keys/", args.purpose),
            principal=identity.principal_id,
            why="wrap and unwrap with this key",
            opts=child(self, rows.KEY_GRANT, depends_on=[key]),
        )
        self.key_name = ready_after(key.name, [role])
        self.key_url = ready_after(key.key_uri_with_version, [role])
        self.vault_uri = pulumi.Output.from_input(args.vault_uri)
        self.vault_id = pulumi.Output.from_input(args.vault_id)
        self.identity_id = identity.id
        self.register_outputs({"key_name": self.key_name, "key_url": self.key_url, "identity_id": self.identity_id})

    @property
    def encryption_key(self) -> EncryptionKey:
        """Return the key in the format that storage accounts require."""
        return EncryptionKey(key_name=self.key_name, vault_uri=self.vault_uri, identity_id=self.identity_id)


def disk_encryption_set(name: str, scope: Scope, key: Key, parent: pulumi.Resource) -> compute.DiskEncryptionSet:
    """Create the disk encryption set for the nodes. It switches to a new key version within an hour
    (https://learn.microsoft.com/azure/virtual-machines/disk-encryption, page dated 2026-04-02)."""
    return compute.DiskEncryptionSet(
        rows.DISK_ENCRYPTION_SET.logical(name),
        disk_encryption_set_name=scope.unique_name("disks", 80),
        resource_group_name=scope.group,
        encryption_type="EncryptionAtRestWithCustomerKey",
        identity=compute.EncryptionSetIdentityArgs(type="UserAssigned", user_assigned_identities=[key.identity_id]),
        active_key=compute.KeyForDiskEncryptionSetArgs(
            key_url=key.key_url, source_vault=compute.SourceVaultArgs(id=key.vault_id)
        ),
        rotation_to_latest_key_version_enabled=True,
        opts=child(parent, rows.DISK_ENCRYPTION_SET),
    )


def vault_log(name: str, vault: Vault, workspace_id: pulumi.Input[str], parent: pulumi.Resource) -> None:
    """Log requests to the vault (CIS 6.1.1.4)."""
    monitor.DiagnosticSetting(
        rows.VAULT_LOG.logical(name),
        name="gpuinfra",
        resource_uri=vault.vault_id,
        workspace_id=workspace_id,
        logs=[monitor.DiagnosticsLogSettingsArgs(category_group="audit", enabled=True)],
        opts=child(parent, rows.VAULT_LOG),
    )
