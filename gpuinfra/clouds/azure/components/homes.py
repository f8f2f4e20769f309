"""Home directories on Azure Files: NFS 4.1 shares in a storage account that only its private endpoint reaches. `destroy` retains the account and the shares.

NFS shares have no user authentication; clients are authorized by the network that they connect from. Clients must use TLS, because the account requires
secure transfer and its setting for NFS is not selected (https://learn.microsoft.com/azure/storage/files/files-nfs-protocol, page dated 2026-10-03).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storage

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, private_account
from gpuinfra.clouds.azure.instances import HOMES
from gpuinfra.clouds.azure.region.recovery import OLD_VERSIONS_DAYS
from gpuinfra.plan.model import FileSystemPlan


@dataclass(frozen=True, kw_only=True)
class HomeDirectoriesArgs:
    """Arguments for the home directories."""

    scope: Scope
    plans: tuple[FileSystemPlan, ...]
    """File systems of kind `home`. Each is a share."""
    encryption_key: EncryptionKey | None = None
    """Customer-managed key. If unset, Azure uses a Microsoft-managed key."""


class HomeDirectories(pulumi.ComponentResource):
    """A storage account for file shares, and a share for each file system."""

    account_id: pulumi.Output[str]
    """ID of the account."""
    server: pulumi.Output[str]
    """Name of the file servers. It resolves to a private address after the private endpoint of the account has its DNS names."""
    paths: dict[str, pulumi.Output[str]]
    """Exported path of each share, keyed by the name of the file system in the plan."""

    def __init__(self, name: str, args: HomeDirectoriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:HomeDirectories", name, None, args.scope.options(opts))
        scope = args.scope
        account = private_account(
            rows.HOME_ACCOUNT.logical(name),
            scope,
            purpose=HOMES,
            kind="FileStorage",
            sku=args.plans[0].deployment,
            encryption_key=args.encryption_key,
            opts=child(self, rows.HOME_ACCOUNT),
        )
        settings = storage.FileServiceProperties(
            rows.HOME_SERVICE.logical(name),
            file_services_name="default",
            account_name=account.name,
            resource_group_name=scope.group,
            share_delete_retention_policy=storage.DeleteRetentionPolicyArgs(enabled=True, days=OLD_VERSIONS_DAYS),
            opts=child(self, rows.HOME_SERVICE),
        )
        self.account_id = account.id
        self.server = account.name.apply(names.file_server)
        self.paths = {}
        for plan in args.plans:
            share = storage.FileShare(
                rows.HOME_SHARE.logical(name, part=names.share(plan.name)),
                share_name=names.share(plan.name),
                account_name=account.name,
                resource_group_name=scope.group,
                enabled_protocols=storage.EnabledProtocols.NFS,
                # The bootstrap creates home directories as root.
                root_squash=storage.RootSquashType.NO_ROOT_SQUASH,
                share_quota=plan.capacity_gib,
                opts=child(self, rows.HOME_SHARE, depends_on=[settings]),
            )
            self.paths[plan.name] = pulumi.Output.concat("/", account.name, "/", share.name)
        self.register_outputs({"account_id": self.account_id, "server": self.server, "paths": self.paths})
