"""The vault, its keys, and who may use them without being able to read them.

A key never leaves the vault: disks, storage accounts and file systems are given an identity that may wrap and unwrap with it.
Everything here is kept when the stack is destroyed, because what a key encrypted is lost without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute, keyvault, managedidentity

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import CRYPTO_USER, grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey
from gpuinfra.clouds.ready_after import ready_after

ROTATE_AFTER = "P365D"
"""A key gets a new version every year; the old ones stay, because what they encrypted is still there."""


@dataclass(frozen=True, kw_only=True)
class VaultArgs:
    """Whose keys it holds."""

    scope: Scope


class Vault(pulumi.ComponentResource):
    """A key vault that nobody outside reaches, whose keys nobody can purge, and whose rights are roles."""

    vault_id: pulumi.Output[str]
    """Id of the vault."""
    name: pulumi.Output[str]
    """Name of the vault."""
    uri: pulumi.Output[str]
    """Address of the vault."""

    def __init__(self, name: str, args: VaultArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Vault", name, None, opts)
        scope = args.scope
        vault = keyvault.Vault(
            rows.VAULT.logical(name),
            vault_name=scope.vault_name(),
            resource_group_name=scope.group,
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=scope.tenant,
                sku=keyvault.SkuArgs(family="A", name=keyvault.SkuName.PREMIUM),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=90,
                # Cannot be turned off again, and disks, storage accounts and file systems ask for it.
                enable_purge_protection=True,
                public_network_access="Disabled",
                # Disk encryption sets, storage accounts and file systems come in as trusted services (azure.md 4.1, 6).
                network_acls=keyvault.NetworkRuleSetArgs(default_action="Deny", bypass="AzureServices"),
            ),
            opts=child(self, rows.VAULT),
        )
        self.vault_id, self.name = vault.id, vault.name
        self.uri = vault.properties.apply(lambda properties: str(properties.vault_uri))
        self.register_outputs({"vault_id": self.vault_id, "name": self.name, "uri": self.uri})


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """What a key is for."""

    scope: Scope
    purpose: str
    """Its name in the vault: `audit`, `data`."""
    vault_name: pulumi.Input[str]
    vault_uri: pulumi.Input[str]
    vault_id: pulumi.Input[str]


class Key(pulumi.ComponentResource):
    """A customer key with yearly rotation, and the identity that things are encrypted under."""

    key_name: pulumi.Output[str]
    """Name of the key, once its identity may use it."""
    key_url: pulumi.Output[str]
    """Address of the key's first version, once its identity may use it."""
    vault_uri: pulumi.Output[str]
    """Address of its vault."""
    vault_id: pulumi.Output[str]
    """Id of its vault."""
    identity_id: pulumi.Output[str]
    """Id of the identity that may wrap and unwrap with it, and nothing else."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Key", name, None, opts)
        scope = args.scope
        key = keyvault.Key(
            rows.KEY.logical(name),
            key_name=args.purpose,
            vault_name=args.vault_name,
            resource_group_name=scope.group,
            properties=keyvault.KeyPropertiesArgs(
                # The one kind that file systems take (azure.md 4.1), and disks and storage accounts take it too.
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
        may = grant(
            rows.KEY_GRANT.logical(name),
            scope,
            role=CRYPTO_USER,
            at=pulumi.Output.concat(args.vault_id, "/keys/", args.purpose),
            principal=identity.principal_id,
            why="wraps and unwraps what this key encrypts",
            opts=child(self, rows.KEY_GRANT, depends_on=[key]),
        )
        self.key_name = ready_after(key.name, [may])
        self.key_url = ready_after(key.key_uri_with_version, [may])
        self.vault_uri = pulumi.Output.from_input(args.vault_uri)
        self.vault_id = pulumi.Output.from_input(args.vault_id)
        self.identity_id = identity.id
        self.register_outputs({"key_name": self.key_name, "key_url": self.key_url, "identity_id": self.identity_id})

    @property
    def encryption_key(self) -> EncryptionKey:
        """The key in the form that storage accounts require."""
        return EncryptionKey(key_name=self.key_name, vault_uri=self.vault_uri, identity_id=self.identity_id)


def disk_encryption_set(name: str, scope: Scope, key: Key, parent: pulumi.Resource) -> compute.DiskEncryptionSet:
    """What encrypts the disks of nodes; a new version of the key is picked up within an hour (azure.md 5.3)."""
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
