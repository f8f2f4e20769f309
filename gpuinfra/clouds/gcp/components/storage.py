"""The shared file system: Managed Lustre with the bucket from which it imports, or Filestore for home directories.

Google Cloud copies data between a bucket and Managed Lustre only on request (https://docs.cloud.google.com/managed-lustre/docs/transfer-data). To copy data,
run the commands in the outputs `import_command` and `export_command`. With `export_minutes`, a job of Cloud Scheduler requests the exports.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.gcp.components.keys import key_grant
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import export_purpose
from gpuinfra.clouds.gcp.regions import region_of
from gpuinfra.clouds.homes import mounted
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import FileSystemPlan, Lifetime

SHARE = "home"
"""Share name of a Filestore instance. Limited to 16 characters."""
EXPORTS = ("lustre.instances.exportData",)
"""The only permission that a request to export requires (https://docs.cloud.google.com/managed-lustre/docs/transfer-data, retrieved 2026-11-29).
The service agent of Managed Lustre writes to the bucket."""


@dataclass(frozen=True, kw_only=True)
class SharedFilesystemArgs:
    """Arguments for a file system."""

    scope: Scope
    plan: FileSystemPlan
    network_id: pulumi.Input[str]
    """Network that is peered with Google services, `projects/P/global/networks/N`."""
    key_id: pulumi.Input[str] | None = None
    """Key that encrypts the files and the bucket. If unset, Google Cloud uses Google-owned keys."""
    exports_paused: bool = False
    """Whether the scheduled exports are paused, because a failback has not yet imported the newest files. If false, their state is not changed."""


class SharedFilesystem(pulumi.ComponentResource):
    """A Managed Lustre or Filestore file system. `destroy` retains the file system and its bucket. Without `export_minutes`, data is exported to the bucket
    only on request."""

    server: pulumi.Output[str]
    """Address from which nodes mount the file system."""
    path: pulumi.Output[str]
    """Name of the Lustre file system or the share."""
    bucket: pulumi.Output[str] | None
    """Bucket from which the file system imports, or `None` without a bucket."""
    import_command: pulumi.Output[str] | None
    """Command that copies the bucket contents to the file system, or `None` without a bucket."""
    export_command: pulumi.Output[str] | None
    """Command that copies the file system contents to the bucket, or `None` without a bucket. Run it before you delete or replace the file system."""
    mounted: dict[str, Any]
    """Entry for `file_systems` of `NodePoolArgs`."""

    def __init__(self, name: str, args: SharedFilesystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:SharedFilesystem", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        self._data = args.plan.lifetime is Lifetime.KEPT
        self.bucket, self.import_command, self.export_command = None, None, None
        agent = self._agent() if args.key_id is not None or args.plan.bucket is not None else None
        if args.plan.kind == "home":
            self.server, self.path = self._filestore(agent)
        else:
            self.server, self.path = self._lustre(agent)
        self.mounted = mounted(args.plan, self.server, self.path)
        self.register_outputs(
            {
                "server": self.server,
                "path": self.path,
                "bucket": self.bucket,
                "import_command": self.import_command,
                "export_command": self.export_command,
            }
        )

    def _agent(self) -> pulumi.Output[str]:
        """Return the service agent as an IAM member. Without this resource, the agent is created only with the first file system in the project."""
        service = "file" if self._args.plan.kind == "home" else "lustre"
        return gcp.projects.ServiceIdentity(
            rows.SERVICE_AGENT.logical(self._name),
            service=f"{service}.googleapis.com",
            opts=child(self, rows.SERVICE_AGENT),
        ).member

    def _key(self, agent: pulumi.Output[str] | None) -> pulumi.Output[str] | None:
        if self._args.key_id is None or agent is None:
            return None
        row = rows.FILE_SYSTEM_KEY_GRANT
        return ready_after(self._args.key_id, [key_grant(row.logical(self._name), self._args.key_id, agent, self, row)])

    def _lustre(self, agent: pulumi.Output[str] | None) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        scope, plan = self._args.scope, self._args.plan
        lustre = gcp.lustre.Instance(
            rows.LUSTRE.logical(self._name),
            instance_id=scope.physical_name(self._name),
            location=_zone(plan),
            filesystem=names.file_system(plan.name),
            network=self._args.network_id,
            capacity_gib=str(plan.capacity_gib),
            per_unit_storage_throughput=str(plan.throughput_mb_s_per_tib),
            gke_support_enabled=False,
            kms_key=self._key(agent),
            deletion_policy="PREVENT" if self._data else None,
            # This also applies to a file system with a bucket, because a replacement would delete data that was not exported.
            opts=pulumi.ResourceOptions.merge(
                child(self, rows.LUSTRE, data=self._data, delete_before_replace=False),
                # The slowest 1 percent of instances take 40 to 80 minutes (GoogleCloudPlatform/magic-modules pull request
                # 14878). Older versions of the provider wait 20 minutes.
                pulumi.ResourceOptions(
                    custom_timeouts=pulumi.CustomTimeouts(create="120m", update="120m", delete="60m")
                ),
            ),
        )
        if plan.bucket is not None and agent is not None:
            self.bucket = self._data_bucket(plan.bucket, agent)
            self.import_command, self.export_command = (
                pulumi.Output.concat(
                    f"gcloud lustre instances {action}-data ", lustre.instance_id, " --location=", lustre.location,
                    " --project=", scope.project, " --gcs-path-uri=gs://", self.bucket, f"/{plan.bucket_prefix} --lustre-path=/",
                )
                for action in ("import", "export")
            )  # fmt: skip
            if plan.export_minutes is not None:
                self._schedule(lustre, self.bucket, plan.export_minutes)
        # `10.64.0.3@tcp:/scratch0`
        return lustre.mount_point.apply(lambda point: point.split("@")[0]), lustre.filesystem

    def _schedule(self, lustre: gcp.lustre.Instance, bucket: pulumi.Output[str], minutes: int) -> None:
        """Create the job that requests an export at each interval.

        A request while a transfer runs fails with `ABORTED`, and the job is not repeated before its next time
        (https://docs.cloud.google.com/managed-lustre/docs/transfer-data; `retryConfig` in the discovery document of Cloud Scheduler; retrieved 2026-11-29).
        """
        scope, plan, args = self._args.scope, self._args.plan, self._args
        purpose = export_purpose(plan.name)
        account = gcp.serviceaccount.Account(
            rows.EXPORT_ACCOUNT.logical(self._name),
            account_id=names.account_id(scope.cluster, purpose, scope.token),
            display_name=f"Scheduled exports of {scope.cluster} from {plan.mount}",
            opts=child(self, rows.EXPORT_ACCOUNT),
        )
        role = gcp.projects.IAMCustomRole(
            rows.EXPORT_ROLE.logical(self._name),
            role_id=names.role_id(scope.cluster, purpose, scope.token),
            title=f"gpuinfra {scope.cluster}: export {plan.name}",
            permissions=list(EXPORTS),
            stage="GA",
            opts=child(self, rows.EXPORT_ROLE),
        )
        granted = gcp.projects.IAMMember(
            rows.EXPORT_GRANT.logical(self._name),
            project=scope.project,
            role=role.id,
            member=account.email.apply(lambda email: f"serviceAccount:{email}"),
            opts=child(self, rows.EXPORT_GRANT),
        )
        instance = pulumi.Output.concat(
            "projects/", scope.project, "/locations/", lustre.location, "/instances/", lustre.instance_id
        )
        gcp.cloudscheduler.Job(
            rows.EXPORT_SCHEDULE.logical(self._name),
            name=scope.physical_name(naming.logical(self._name, "export")),
            region=region_of(_zone(plan)),
            description=f"Exports new and changed files of {plan.mount} to its bucket",
            schedule=cron(minutes),
            time_zone="Etc/UTC",
            # A failover pauses the job, and the provider leaves a state that is not set unchanged.
            paused=True if args.exports_paused or plan.export_paused else None,
            http_target=gcp.cloudscheduler.JobHttpTargetArgs(
                uri=pulumi.Output.concat("https://lustre.googleapis.com/v1/", instance, ":exportData"),
                http_method="POST",
                headers={"Content-Type": "application/json"},
                body=bucket.apply(lambda name: _export_body(f"gs://{name}/{plan.bucket_prefix}")),
                oauth_token=gcp.cloudscheduler.JobHttpTargetOauthTokenArgs(
                    service_account_email=ready_after(account.email, [granted]),
                    scope="https://www.googleapis.com/auth/cloud-platform",
                ),
            ),
            opts=child(
                self,
                rows.EXPORT_SCHEDULE,
                ignore_changes=["paused"] if plan.export_paused and not args.exports_paused else (),
            ),
        )

    def _data_bucket(self, bucket: str, agent: pulumi.Output[str]) -> pulumi.Output[str]:
        args = self._args
        used: pulumi.Output[str] = pulumi.Output.from_input(bucket)
        if bucket == "auto":
            used = PrivateBucket(
                naming.logical(self._name, "data"),
                PrivateBucketArgs(scope=args.scope, purpose=args.plan.name, key_id=args.key_id),
                pulumi.ResourceOptions(parent=self),
            ).bucket
        # The first role covers objects. The second adds storage.buckets.get.
        for access, role in (("objects", "roles/storage.objectUser"), ("bucket", "roles/storage.legacyBucketReader")):
            gcp.storage.BucketIAMMember(
                rows.DATA_BUCKET_GRANT.logical(self._name, access=access),
                bucket=used,
                role=role,
                member=agent,
                opts=child(self, rows.DATA_BUCKET_GRANT),
            )
        return used

    def _filestore(self, agent: pulumi.Output[str] | None) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        plan = self._args.plan
        filestore = gcp.filestore.Instance(
            rows.FILESTORE.logical(self._name),
            name=self._args.scope.physical_name(self._name),
            location=_zone(plan),
            tier=plan.deployment,
            protocol="NFS_V3",
            file_shares=gcp.filestore.InstanceFileSharesArgs(name=SHARE, capacity_gb=plan.capacity_gib),
            networks=[
                gcp.filestore.InstanceNetworkArgs(
                    network=self._args.network_id, modes=["MODE_IPV4"], connect_mode="PRIVATE_SERVICE_ACCESS"
                )
            ],
            kms_key_name=self._key(agent),
            deletion_protection_enabled=self._data,
            deletion_protection_reason="home directories contain the only copy of their files" if self._data else None,
            opts=pulumi.ResourceOptions.merge(
                child(self, rows.FILESTORE, data=self._data),
                # The provider waits 20 minutes, which is too short for large instances
                # (hashicorp/terraform-provider-google issue 7940).
                pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m", delete="60m")),
            ),
        )
        server = filestore.networks.apply(lambda found: str((found[0].ip_addresses or [""])[0]))
        return server, pulumi.Output.from_input(f"/{SHARE}")


def cron(minutes: int) -> str:
    """Return the schedule for an interval that divides an hour or a day, in the unix-cron format."""
    if minutes < 60:
        return f"*/{minutes} * * * *"
    return f"0 */{minutes // 60} * * *" if minutes < 24 * 60 else "0 0 * * *"


def _export_body(uri: str) -> str:
    """Return the body of a request to export all files, in base64."""
    body = {"gcsPath": {"uri": uri}, "lustrePath": {"path": "/"}}
    return base64.b64encode(json.dumps(body).encode()).decode()


def _zone(plan: FileSystemPlan) -> str:
    if plan.zone is None:
        raise ValueError(f"the plan has no zone for the file system {plan.name!r}; Google Cloud requires one")
    return plan.zone
