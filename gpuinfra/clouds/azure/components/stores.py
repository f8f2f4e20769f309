"""A private storage account and its settings.

`destroy` retains the account with its settings, because an account without its settings is not protected.
Requests are authorized by roles instead of account keys, except for the account from which Managed Lustre imports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import monitor, storage

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.region.recovery import OLD_VERSIONS_DAYS
from gpuinfra.clouds.azure.regions import PAIRS
from gpuinfra.clouds.ready_after import ready_after


@dataclass(frozen=True, kw_only=True)
class EncryptionKey:
    """The customer-managed key of a storage account."""

    key_name: pulumi.Input[str]
    vault_uri: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    """Identity that can use the key (`Key.identity_id`)."""


@dataclass(frozen=True, kw_only=True)
class ImmutabilityLock:
    """An immutability policy: blobs cannot be changed or deleted for a number of days."""

    days: int
    """Retention in days from the creation of each blob, 1-146000."""


@dataclass(frozen=True, kw_only=True)
class PrivateStoreArgs:
    """Arguments for a private storage account."""

    scope: Scope
    purpose: str
    """Part of the name, such as `audit` or `evidence`."""
    containers: tuple[str, ...]
    """Names of the containers."""
    encryption_key: EncryptionKey | None = None
    """Customer-managed key. If unset, Azure uses a Microsoft-managed key."""
    lock: ImmutabilityLock | None = None
    """Immutability policy for all containers. If unset, blobs can be replaced, and old versions are retained for `old_versions_days`."""
    reached_from: tuple[str, ...] = ()
    """Public IPv4 ranges that the firewall allows. Access also requires a role. If empty, the account is reachable only through private endpoints."""
    services: bool = False
    """If true, trusted Azure services have access. They write diagnostic logs and flow logs."""
    shared_keys: bool = False
    """If true, access with account keys is allowed, which Managed Lustre requires for imports (https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites)."""
    copies: bool = False
    """If true, the account is replicated to the paired region, if there is one."""
    expire_days: int | None = None
    """Number of days after which blobs are deleted. If unset, blobs do not expire."""
    old_versions_days: int = OLD_VERSIONS_DAYS
    """Number of days for which replaced and deleted blobs can be restored."""
    workspace_id: pulumi.Input[str] | None = None
    """Log Analytics workspace for the access log. If unset, access is not logged."""


class PrivateStore(pulumi.ComponentResource):
    """A private storage account with encryption, versioning, and TLS 1.2 or later."""

    account_id: pulumi.Output[str]
    """ID of the account."""
    account_name: pulumi.Output[str]
    """Name of the account."""
    containers: dict[str, pulumi.Output[str]]
    """IDs of the containers by name. They resolve after the account settings exist."""

    def __init__(self, name: str, args: PrivateStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:PrivateStore", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        account = self._account()
        settings = [self._blobs(account), self._lifecycle(account)]
        if args.workspace_id is not None:
            self._access_log(account, args.workspace_id)
        self.account_id, self.account_name = account.id, account.name
        self.containers = {}
        for container in args.containers:
            created = self._container(account, container, settings)
            locks = [self._lock(account, created, container, args.lock)] if args.lock else []
            self.containers[container] = ready_after(created.id, [*settings, *locks])
        self.register_outputs(
            {"account_id": self.account_id, "account_name": self.account_name, "containers": self.containers}
        )

    def _account(self) -> storage.StorageAccount:
        args = self._args
        return private_account(
            rows.ACCOUNT.logical(self._name),
            args.scope,
            purpose=args.purpose,
            kind="StorageV2",
            sku="Standard_GRS" if args.copies and args.scope.region in PAIRS else "Standard_LRS",
            encryption_key=args.encryption_key,
            shared_keys=args.shared_keys,
            reached_from=args.reached_from,
            services=args.services,
            opts=child(self, rows.ACCOUNT),
        )

    def _blobs(self, account: storage.StorageAccount) -> pulumi.Resource:
        days = self._args.old_versions_days
        return storage.BlobServiceProperties(
            rows.BLOB_SERVICE.logical(self._name),
            blob_services_name="default",
            account_name=account.name,
            resource_group_name=self._args.scope.group,
            is_versioning_enabled=True,
            change_feed=storage.ChangeFeedArgs(enabled=True, retention_in_days=days),
            delete_retention_policy=storage.DeleteRetentionPolicyArgs(enabled=True, days=days),
            container_delete_retention_policy=storage.DeleteRetentionPolicyArgs(enabled=True, days=days),
            opts=child(self, rows.BLOB_SERVICE),
        )

    def _lifecycle(self, account: storage.StorageAccount) -> pulumi.Resource:
        args = self._args
        expires = None
        if args.expire_days is not None:
            late = storage.DateAfterModificationArgs(days_after_modification_greater_than=args.expire_days)
            expires = storage.ManagementPolicyBaseBlobArgs(delete=late)
        old = storage.DateAfterCreationArgs(days_after_creation_greater_than=args.old_versions_days)
        return storage.ManagementPolicy(
            rows.LIFECYCLE.logical(self._name),
            management_policy_name="default",
            account_name=account.name,
            resource_group_name=args.scope.group,
            policy=storage.ManagementPolicySchemaArgs(
                rules=[
                    storage.ManagementPolicyRuleArgs(
                        name="old-versions",
                        enabled=True,
                        type="Lifecycle",
                        definition=storage.ManagementPolicyDefinitionArgs(
                            filters=storage.ManagementPolicyFilterArgs(blob_types=["blockBlob"]),
                            actions=storage.ManagementPolicyActionArgs(
                                base_blob=expires, version=storage.ManagementPolicyVersionArgs(delete=old)
                            ),
                        ),
                    )
                ]
            ),
            opts=child(self, rows.LIFECYCLE),
        )

    def _container(
        self, account: storage.StorageAccount, container: str, settings: Iterable[pulumi.Resource]
    ) -> storage.BlobContainer:
        return storage.BlobContainer(
            rows.CONTAINER.logical(self._name, part=container),
            container_name=container,
            account_name=account.name,
            resource_group_name=self._args.scope.group,
            public_access=storage.PublicAccess.NONE,
            opts=child(self, rows.CONTAINER, depends_on=settings),
        )

    def _lock(
        self, account: storage.StorageAccount, created: storage.BlobContainer, container: str, lock: ImmutabilityLock
    ) -> pulumi.Resource:
        return storage.BlobContainerImmutabilityPolicy(
            rows.CONTAINER_LOCK.logical(self._name, part=container),
            immutability_policy_name="default",
            account_name=account.name,
            container_name=created.name,
            resource_group_name=self._args.scope.group,
            immutability_period_since_creation_in_days=lock.days,
            # Logs are append blobs. Appending does not change existing data.
            allow_protected_append_writes=True,
            opts=child(self, rows.CONTAINER_LOCK),
        )

    def _access_log(self, account: storage.StorageAccount, workspace_id: pulumi.Input[str]) -> None:
        monitor.DiagnosticSetting(
            rows.ACCOUNT_LOG.logical(self._name),
            name="gpuinfra",
            resource_uri=pulumi.Output.concat(account.id, "/blobServices/default"),
            workspace_id=workspace_id,
            logs=[
                monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
                for category in ("StorageRead", "StorageWrite", "StorageDelete")
            ],
            opts=child(self, rows.ACCOUNT_LOG),
        )


def private_account(
    name: str,
    scope: Scope,
    *,
    purpose: str,
    kind: str,
    sku: str,
    encryption_key: EncryptionKey | None,
    opts: pulumi.ResourceOptions,
    shared_keys: bool = False,
    reached_from: tuple[str, ...] = (),
    services: bool = False,
) -> storage.StorageAccount:
    """Create a storage account that requires encryption in transit, and denies access from public addresses except `reached_from`."""
    return storage.StorageAccount(
        name,
        account_name=scope.account_name(purpose),
        resource_group_name=scope.group,
        kind=kind,
        sku=storage.SkuArgs(name=sku),
        allow_shared_key_access=shared_keys,
        default_to_o_auth_authentication=True,
        allow_blob_public_access=False,
        allow_cross_tenant_replication=False,
        enable_https_traffic_only=True,
        minimum_tls_version="TLS1_2",
        is_local_user_enabled=False,
        public_network_access="Enabled" if reached_from or services else "Disabled",
        network_rule_set=storage.NetworkRuleSetArgs(
            default_action=storage.DefaultAction.DENY,
            bypass="AzureServices" if services else "None",
            ip_rules=[
                storage.IPRuleArgs(i_p_address_or_range=one, action=storage.Action.ALLOW)
                for one in storage_ranges(reached_from)
            ],
        ),
        identity=storage.IdentityArgs(type="UserAssigned", user_assigned_identities=[encryption_key.identity_id])
        if encryption_key
        else None,
        encryption=storage.EncryptionArgs(
            key_source="Microsoft.Keyvault" if encryption_key else "Microsoft.Storage",
            # A second layer of encryption with a Microsoft-managed key. It can be set only at creation.
            require_infrastructure_encryption=True,
            services=storage.EncryptionServicesArgs(
                blob=storage.EncryptionServiceArgs(enabled=True, key_type="Account"),
                file=storage.EncryptionServiceArgs(enabled=True, key_type="Account"),
            ),
            encryption_identity=storage.EncryptionIdentityArgs(
                encryption_user_assigned_identity=encryption_key.identity_id
            )
            if encryption_key
            else None,
            # No version is set, so that the account follows key rotation.
            key_vault_properties=storage.KeyVaultPropertiesArgs(
                key_name=encryption_key.key_name, key_vault_uri=encryption_key.vault_uri
            )
            if encryption_key
            else None,
        ),
        opts=opts,
    )


def storage_ranges(ranges: Iterable[str]) -> list[str]:
    """Return address ranges in the format that storage account firewalls require: prefixes up to /30, and single addresses without a mask."""
    accepted: list[str] = []
    for text in ranges:
        network = ipaddress.ip_network(text, strict=False)
        accepted += [str(one) for one in network] if network.prefixlen > 30 else [str(network)]
    return accepted
