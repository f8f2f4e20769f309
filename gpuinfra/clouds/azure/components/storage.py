"""The shared file system: Azure Managed Lustre, and the container that it is fed from.

What is in the container appears as files from the beginning; changes come back by an export that a person starts, because Azure's own automatic one is a preview.
The container is the durable side and is kept; whether the file system itself is, the plan says.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storage as blobs
from pulumi_azure_native import storagecache

from gpuinfra import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.endpoints import private_endpoint
from gpuinfra.clouds.azure.components.grants import ACCOUNT_CONTRIBUTOR, BLOB_CONTRIBUTOR, grant
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.fixed import FILE_SYSTEM
from gpuinfra.clouds.azure.instances import DATA_CONTAINER, LOG_CONTAINER
from gpuinfra.plan.model import FileSystemPlan, Lifetime

MOUNT_NAME = "lustrefs"
"""The one name that Managed Lustre serves (azure.md 4.1)."""


@dataclass(frozen=True, kw_only=True)
class FileSystemKey:
    """The customer key of a file system's content; its vault is in the same region and subscription."""

    key_url: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    """Identity that may use the key (`Key.identity_id`)."""
    encryption_key: EncryptionKey | None = None
    """The same key as the container's account takes it."""


@dataclass(frozen=True, kw_only=True)
class DataEndpoint:
    """How the container's account is reached from inside the network."""

    subnet_id: pulumi.Input[str]
    zone_id: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class SharedFilesystemArgs:
    """Where the file system is, and who encrypts it."""

    scope: Scope
    plan: FileSystemPlan
    subnet_id: pulumi.Input[str]
    """A subnet that holds nothing else, large enough for its capacity."""
    key: FileSystemKey | None = None
    """Key of its content; left out, Azure's own."""
    endpoint: DataEndpoint | None = None
    """Private endpoint of the container's account; left out, none is made, and the account has to be reachable otherwise."""
    workspace_id: pulumi.Input[str] | None = None
    """Workspace that takes the access log of the container's account; left out, there is none."""


class SharedFilesystem(pulumi.ComponentResource):
    """A Managed Lustre file system, with the container it reads from."""

    file_system_id: pulumi.Output[str]
    """Id of the file system."""
    dns_name: pulumi.Output[str]
    """Address of its management server, which nodes mount."""
    mount_name: pulumi.Output[str]
    """Second half of what nodes mount: `<dns_name>@tcp:/<mount_name>`."""
    bucket: pulumi.Output[str] | None
    """Id of the container that it imports from, where there is one."""

    def __init__(self, name: str, args: SharedFilesystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:SharedFilesystem", name, None, opts)
        self._name, self._args = name, args
        scope, plan, key = args.scope, args.plan, args.key
        self.bucket, hsm, ready = self._containers()
        file_system = storagecache.AmlFilesystem(
            rows.LUSTRE.logical(name),
            aml_filesystem_name=scope.unique_name(plan.name, 80),
            resource_group_name=scope.group,
            sku=storagecache.SkuNameArgs(name=plan.deployment),
            storage_capacity_ti_b=plan.capacity_gib / 1024,
            zones=[plan.zone] if plan.zone else None,
            filesystem_subnet=args.subnet_id,
            maintenance_window=storagecache.AmlFilesystemMaintenanceWindowArgs(
                day_of_week=storagecache.MaintenanceDayOfWeekType.SUNDAY, time_of_day_utc="03:00"
            ),
            identity=storagecache.AmlFilesystemIdentityArgs(
                type=storagecache.AmlFilesystemIdentityType.USER_ASSIGNED, user_assigned_identities=[key.identity_id]
            )
            if key
            else None,
            encryption_settings=storagecache.AmlFilesystemEncryptionSettingsArgs(
                key_encryption_key=storagecache.KeyVaultKeyReferenceArgs(
                    key_url=key.key_url, source_vault=storagecache.KeyVaultKeyReferenceSourceVaultArgs(id=key.vault_id)
                )
            )
            if key
            else None,
            root_squash_settings=storagecache.AmlFilesystemRootSquashSettingsArgs(mode="None"),
            hsm=hsm,
            # A replacement would lose what nobody exported: its name is taken, so that it stops, and whoever means it removes the old one first.
            opts=child(
                self,
                rows.LUSTRE,
                data=plan.lifetime is Lifetime.KEPT,
                depends_on=ready,
                replace_on_changes=FILE_SYSTEM,
                delete_before_replace=False,
            ),
        )
        self.file_system_id = file_system.id
        self.dns_name = file_system.client_info.apply(lambda info: info.mgs_address)
        self.mount_name = pulumi.Output.from_input(MOUNT_NAME)
        self.register_outputs(
            {
                "file_system_id": self.file_system_id,
                "dns_name": self.dns_name,
                "mount_name": self.mount_name,
                "bucket": self.bucket,
            }
        )

    def _containers(
        self,
    ) -> tuple[pulumi.Output[str] | None, storagecache.AmlFilesystemHsmArgs | None, list[pulumi.Resource]]:
        """The container, what the file system is told of it, and what has to be there first: a missing role shows only as a failed creation."""
        plan = self._args.plan
        if plan.bucket is None:
            return None, None, []
        if plan.bucket == "auto":
            data, log, ready = self._own()
        else:
            data, log, ready = self._existing(plan.bucket)
        settings = storagecache.AmlFilesystemHsmSettingsArgs(
            container=data,
            logging_container=log,
            import_prefix="/" + plan.bucket_prefix.strip("/"),
        )
        return data, storagecache.AmlFilesystemHsmArgs(settings=settings), ready

    def _own(self) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
        args = self._args
        store = PrivateStore(
            naming.logical(self._name, "data"),
            PrivateStoreArgs(
                scope=args.scope,
                purpose=args.plan.name,
                containers=(DATA_CONTAINER, LOG_CONTAINER),
                encryption_key=args.key.encryption_key if args.key else None,
                # The file system has no other way in (azure.md 4.1); a plan says so as a finding.
                shared_keys=True,
                workspace_id=args.workspace_id,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        ready = self._importer(store.account_id)
        if args.endpoint:
            ready.append(
                private_endpoint(
                    naming.logical(self._name, "data"),
                    args.scope,
                    kind="blob",
                    service_id=store.account_id,
                    subnet_id=args.endpoint.subnet_id,
                    zone_id=args.endpoint.zone_id,
                    parent=self,
                )
            )
        return store.containers[DATA_CONTAINER], store.containers[LOG_CONTAINER], ready

    def _existing(self, container_id: str) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
        """A container that is there: the file system's log needs another one in the same account."""
        group, account = container_id.split("/")[4], container_id.split("/")[8]
        log = blobs.BlobContainer(
            rows.IMPORT_LOG.logical(self._name),
            container_name=naming.short(f"{self._name}-{LOG_CONTAINER}", 63),
            account_name=account,
            resource_group_name=group,
            public_access=blobs.PublicAccess.NONE,
            opts=child(self, rows.IMPORT_LOG),
        )
        return pulumi.Output.from_input(container_id), log.id, self._importer(container_id.split("/blobServices/")[0])

    def _importer(self, account_id: pulumi.Input[str]) -> list[pulumi.Resource]:
        """The two roles of the service that imports; a container whose owner gave them already names no importer."""
        args = self._args
        if args.plan.importer_id is None:
            return []
        roles = {"account": ACCOUNT_CONTRIBUTOR, "blobs": BLOB_CONTRIBUTOR}
        return [
            grant(
                rows.IMPORTER_GRANT.logical(self._name, at=what),
                args.scope,
                role=role,
                at=account_id,
                principal=args.plan.importer_id,
                why="Managed Lustre imports from here",
                opts=child(self, rows.IMPORTER_GRANT),
            )
            for what, role in roles.items()
        ]
