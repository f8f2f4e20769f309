"""The shared file system: Azure Managed Lustre and the container from which it imports.

The blobs in the container are imported as files when the file system is created. Exports are started manually, or with `export_minutes` by a workflow of
Azure Logic Apps, because automatic export is in preview (docs/internals/decisions/scheduled-exports.md).
`destroy` retains the container. The plan states whether `destroy` also retains the file system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import authorization, logic, storagecache
from pulumi_azure_native import storage as blobs

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.endpoints import private_endpoint
from gpuinfra.clouds.azure.components.grants import grant, own_role
from gpuinfra.clouds.azure.components.keys import Key
from gpuinfra.clouds.azure.components.propagation import after_importer_roles, importer_role
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.fixed import FILE_SYSTEM
from gpuinfra.clouds.azure.instances import DATA_CONTAINER, LOG_CONTAINER
from gpuinfra.clouds.azure.names import group_id
from gpuinfra.clouds.azure.profile import LUSTRE_NAME
from gpuinfra.clouds.homes import mounted
from gpuinfra.plan.model import FileSystemPlan, Lifetime

EXPORTS = ("Microsoft.StorageCache/amlFilesystems/archive/action",)
"""The only action that a request to export requires (https://learn.microsoft.com/azure/role-based-access-control/permissions/storage, retrieved 2026-11-29)."""
ARCHIVE = "2024-03-01"
"""API version of the request."""


@dataclass(frozen=True, kw_only=True)
class FileSystemKey:
    """The customer-managed key of a file system. Its vault must be in the same region and subscription."""

    key_url: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    """Identity that can use the key (`Key.identity_id`)."""
    encryption_key: EncryptionKey | None = None
    """The key in the format that storage accounts require."""


@dataclass(frozen=True, kw_only=True)
class DataEndpoint:
    """The private endpoint of the container's account."""

    subnet_id: pulumi.Input[str]
    zone_id: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class SharedFilesystemArgs:
    """Arguments for a file system."""

    scope: Scope
    plan: FileSystemPlan
    subnet_id: pulumi.Input[str]
    """Dedicated subnet for this file system, with enough addresses for its capacity."""
    key: FileSystemKey | Key | None = None
    """Key that encrypts the file system. If unset, Azure uses a Microsoft-managed key."""
    endpoint: DataEndpoint | None = None
    """Private endpoint of the container's account. If unset, none is created, and you must provide network access to the account yourself."""
    workspace_id: pulumi.Input[str] | None = None
    """Log Analytics workspace for the access log of the account. If unset, access is not logged."""
    exports_paused: bool = False
    """Whether the scheduled exports are paused, because a failback has not yet imported the newest files."""


class SharedFilesystem(pulumi.ComponentResource):
    """A Managed Lustre file system and the container from which it imports."""

    file_system_id: pulumi.Output[str]
    """ID of the file system."""
    dns_name: pulumi.Output[str]
    """Address of the management server, which nodes use to mount the file system."""
    mount_name: pulumi.Output[str]
    """File system name for mounts: `<dns_name>@tcp:/<mount_name>`."""
    export_command: pulumi.Output[str]
    """Command that copies all changed files to the container. The file system must have a container."""
    bucket: pulumi.Output[str] | None
    """ID of the container from which the file system imports, or `None` without a container."""
    mounted: dict[str, Any]
    """Entry for `file_systems` of `NodePoolArgs`."""

    def __init__(self, name: str, args: SharedFilesystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:SharedFilesystem", name, None, args.scope.options(opts))
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
            # A replacement would lose files that were not exported. It fails because the name is taken. To proceed, delete the old file system first.
            opts=after_importer_roles(
                child(
                    self,
                    rows.LUSTRE,
                    data=plan.lifetime is Lifetime.KEPT,
                    depends_on=ready,
                    replace_on_changes=FILE_SYSTEM,
                    delete_before_replace=False,
                ),
                waits=plan.importer_id is not None,
            ),
        )
        self.file_system_id = file_system.id
        self.dns_name = file_system.client_info.apply(lambda info: info.mgs_address)
        self.mount_name = pulumi.Output.from_input(LUSTRE_NAME)
        # https://learn.microsoft.com/cli/azure/amlfs, retrieved 2026-11-22.
        self.export_command = pulumi.Output.concat(
            "az amlfs archive --resource-group ",
            scope.group,
            " --amlfs-name ",
            file_system.name,
            " --filesystem-path /",
        )
        if plan.export_minutes is not None and self.bucket is not None:
            self._schedule(file_system, plan.export_minutes)
        self.mounted = mounted(plan, self.dns_name, self.mount_name)
        self.register_outputs(
            {
                "file_system_id": self.file_system_id,
                "dns_name": self.dns_name,
                "mount_name": self.mount_name,
                "bucket": self.bucket,
            }
        )

    def _schedule(self, file_system: storagecache.AmlFilesystem, minutes: int) -> None:
        """Create the workflow that requests an export at each interval, and allow its identity to export this file system.

        Azure refuses a request while a job of the file system runs, and the workflow waits for its next time.
        Triggers, actions and their authentication: https://learn.microsoft.com/azure/logic-apps/logic-apps-workflow-actions-triggers and
        https://learn.microsoft.com/azure/logic-apps/authenticate-with-managed-identity (both retrieved 2026-11-29).
        """
        scope, plan, paused = self._args.scope, self._args.plan, self._args.exports_paused
        workflow = logic.Workflow(
            rows.EXPORT_SCHEDULE.logical(self._name),
            workflow_name=scope.unique_name(f"export-{naming.text_token(plan.name, 6)}", 43),
            resource_group_name=scope.group,
            identity=logic.ManagedServiceIdentityArgs(type=logic.ManagedServiceIdentityType.SYSTEM_ASSIGNED),
            state=logic.WorkflowState.DISABLED if paused or plan.export_paused else logic.WorkflowState.ENABLED,
            definition=file_system.id.apply(lambda id: _workflow(str(id), minutes)),
            opts=child(
                self, rows.EXPORT_SCHEDULE, ignore_changes=["state"] if plan.export_paused and not paused else ()
            ),
        )
        role = own_role(
            self._name,
            scope,
            rows.EXPORT_ROLE,
            purpose=f"export-{plan.name}",
            rights=authorization.PermissionArgs(
                actions=list(EXPORTS), not_actions=[], data_actions=[], not_data_actions=[]
            ),
            group=pulumi.Output.all(scope.subscription, scope.group).apply(lambda known: group_id(known[0], known[1])),
            parent=self,
            what=f"Exports the files of {plan.mount} of {scope.cluster}.",
        )
        grant(
            rows.EXPORT_GRANT.logical(self._name),
            scope,
            role=role,
            at=file_system.id,
            principal=workflow.identity.apply(lambda identity: str(identity.principal_id) if identity else ""),
            why=f"scheduled exports of {scope.cluster} from {plan.mount}",
            opts=child(self, rows.EXPORT_GRANT),
        )

    def _containers(
        self,
    ) -> tuple[pulumi.Output[str] | None, storagecache.AmlFilesystemHsmArgs | None, list[pulumi.Resource]]:
        """Return the container, the import settings, and the resources that must exist first. Without the roles, the file system cannot be created."""
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
                # Managed Lustre does not support any other authorization
                # (https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites). A rule warns about this.
                shared_keys=True,
                workspace_id=args.workspace_id,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        ready = [*self._importer(store.account_id), *self._endpoint(store.account_id)]
        return store.containers[DATA_CONTAINER], store.containers[LOG_CONTAINER], ready

    def _existing(self, container_id: str) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
        """Use an existing container. The import log requires a second container in the same account."""
        group, account = container_id.split("/")[4], container_id.split("/")[8]
        log = blobs.BlobContainer(
            rows.IMPORT_LOG.logical(self._name),
            container_name=naming.short(f"{self._name}-{LOG_CONTAINER}", 63),
            account_name=account,
            resource_group_name=group,
            public_access=blobs.PublicAccess.NONE,
            opts=child(self, rows.IMPORT_LOG),
        )
        account_id = container_id.split("/blobServices/")[0]
        endpoint = self._endpoint(account_id) if self._args.plan.private_endpoint else []
        return pulumi.Output.from_input(container_id), log.id, [*self._importer(account_id), *endpoint]

    def _endpoint(self, account_id: pulumi.Input[str]) -> list[pulumi.Resource]:
        """Create the private endpoint of an account in the network of the file system."""
        at = self._args.endpoint
        if at is None:
            return []
        return [
            private_endpoint(
                naming.logical(self._name, "data"),
                self._args.scope,
                kind="blob",
                service_id=account_id,
                subnet_id=at.subnet_id,
                zone_id=at.zone_id,
                parent=self,
            )
        ]

    def _importer(self, account_id: pulumi.Input[str]) -> list[pulumi.Resource]:
        """Assign the two roles to the importing service. If the declaration has no `importer_id`, the container's owner must have assigned them already."""
        args = self._args
        if args.plan.importer_id is None:
            return []
        roles = {"account": rows.ACCOUNT_CONTRIBUTOR, "blobs": rows.BLOB_CONTRIBUTOR}
        return [
            grant(
                rows.IMPORTER_GRANT.logical(self._name, at=what),
                args.scope,
                role=role,
                at=account_id,
                principal=args.plan.importer_id,
                why="import into Managed Lustre",
                opts=importer_role(child(self, rows.IMPORTER_GRANT)),
            )
            for what, role in roles.items()
        ]


def _workflow(file_system: str, minutes: int) -> dict[str, Any]:
    """Return the definition of the workflow that exports a file system."""
    return {
        "$schema": "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#",
        "contentVersion": "1.0.0.0",
        "triggers": {"interval": {"type": "Recurrence", "recurrence": {"frequency": "Minute", "interval": minutes}}},
        "actions": {
            "export": {
                "type": "Http",
                "runAfter": {},
                "inputs": {
                    "method": "POST",
                    "uri": f"https://management.azure.com{file_system}/archive?api-version={ARCHIVE}",
                    "body": {"filesystemPath": "/"},
                    "authentication": {"type": "ManagedServiceIdentity", "audience": "https://management.azure.com/"},
                    "retryPolicy": {"type": "none"},
                },
                "operationOptions": "DisableAsyncPattern",
            }
        },
    }
