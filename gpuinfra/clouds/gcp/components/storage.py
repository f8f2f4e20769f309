"""The shared file system: Managed Lustre with the bucket that it is fed from, or Filestore for home directories.

Google moves data between a bucket and Managed Lustre when it is told to, and no resource tells it (gcp.md 5.1); `import_command` and
`export_command` are what to run.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.gcp.components.keys import grant
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import FileSystemPlan, Lifetime

SHARE = "home"
"""Name of the one share of a Filestore instance; at most 16 letters."""


@dataclass(frozen=True, kw_only=True)
class SharedFilesystemArgs:
    """Where the file system is, and who encrypts it."""

    scope: Scope
    plan: FileSystemPlan
    network_id: pulumi.Input[str]
    """`projects/P/global/networks/N` of a network that is peered with Google's services."""
    key_id: pulumi.Input[str] | None = None
    """Key of the files and of the bucket; left out, Google's own keys are used."""


class SharedFilesystem(pulumi.ComponentResource):
    """Managed Lustre or Filestore. It is kept where it holds the only copy of its data; its bucket always is.

    A Lustre with a bucket goes with its stack, and with it goes what was not exported: nothing is by itself.
    """

    server: pulumi.Output[str]
    """Address that nodes mount it from."""
    path: pulumi.Output[str]
    """Its name there: the Lustre file system's, or the share's."""
    bucket: pulumi.Output[str] | None
    """Bucket that it is fed from, None where there is none."""
    import_command: pulumi.Output[str] | None
    """What brings the bucket's content into it, for people; None without a bucket."""
    export_command: pulumi.Output[str] | None
    """What writes its content into the bucket, for people, before it is destroyed or replaced; None without a bucket."""

    def __init__(self, name: str, args: SharedFilesystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:SharedFilesystem", name, None, opts)
        self._name, self._args = name, args
        self._keep = args.plan.lifetime is Lifetime.KEPT
        self.bucket, self.import_command, self.export_command = None, None, None
        agent = self._agent() if args.key_id is not None or args.plan.bucket is not None else None
        if args.plan.kind == "home":
            self.server, self.path = self._filestore(agent)
        else:
            self.server, self.path = self._lustre(agent)
        self.register_outputs(
            {
                "server": self.server,
                "path": self.path,
                "bucket": self.bucket,
                "import_command": self.import_command,
                "export_command": self.export_command,
            }
        )

    def _logical(self, *parts: str) -> str:
        return naming.logical(self._name, *parts)

    def _agent(self) -> pulumi.Output[str]:
        """The service's own account as a member; it appears with the first file system, or when it is asked for."""
        service = "file" if self._args.plan.kind == "home" else "lustre"
        made = gcp.projects.ServiceIdentity(
            self._logical("agent"),
            project=self._args.scope.project,
            service=f"{service}.googleapis.com",
            opts=child(self),
        )
        return made.member

    def _key(self, agent: pulumi.Output[str] | None) -> pulumi.Output[str] | None:
        if self._args.key_id is None or agent is None:
            return None
        # The account is one for the whole project: taking the grant away would close every other file system under this key.
        allowed = grant(self._logical("key"), self._args.key_id, agent, self)
        return ready_after(self._args.key_id, [allowed])

    def _lustre(self, agent: pulumi.Output[str] | None) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        scope, plan = self._args.scope, self._args.plan
        made = gcp.lustre.Instance(
            self._logical("lustre"),
            instance_id=scope.named(self._name),
            project=scope.project,
            location=_zone(plan),
            filesystem=names.file_system(plan.name),
            network=self._args.network_id,
            capacity_gib=str(plan.capacity_gib),
            per_unit_storage_throughput=str(plan.throughput_mb_s_per_tib),
            gke_support_enabled=False,
            kms_key=self._key(agent),
            deletion_policy="PREVENT" if self._keep else None,
            labels=scope.labelled(),
            # With a bucket too: a replacement would lose what nobody exported.
            opts=child(self, keep=self._keep, holds_data=True),
        )
        if plan.bucket is not None and agent is not None:
            self.bucket = self._fed_from(plan.bucket, agent)
            self.import_command, self.export_command = (
                pulumi.Output.concat(
                    f"gcloud lustre instances {what}-data ", made.instance_id, " --location=", made.location,
                    " --project=", scope.project, " --gcs-path-uri=gs://", self.bucket, f"/{plan.bucket_prefix} --lustre-path=/",
                )
                for what in ("import", "export")
            )  # fmt: skip
        # `10.64.0.3@tcp:/scratch0`
        return made.mount_point.apply(lambda point: point.split("@")[0]), made.filesystem

    def _fed_from(self, bucket: str, agent: pulumi.Output[str]) -> pulumi.Output[str]:
        args = self._args
        used: pulumi.Output[str] = pulumi.Output.from_input(bucket)
        if bucket == "auto":
            used = PrivateBucket(
                self._logical("data"),
                PrivateBucketArgs(scope=args.scope, purpose=args.plan.name, keep=True, key_id=args.key_id),
                pulumi.ResourceOptions(parent=self),
            ).bucket
        # Reading and writing objects, and looking at the bucket itself, which the first role does not hold.
        for word, role in (("objects", "roles/storage.objectUser"), ("bucket", "roles/storage.legacyBucketReader")):
            gcp.storage.BucketIAMMember(
                self._logical("data", word), bucket=used, role=role, member=agent, opts=child(self)
            )
        return used

    def _filestore(self, agent: pulumi.Output[str] | None) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        scope, plan = self._args.scope, self._args.plan
        made = gcp.filestore.Instance(
            self._logical("home"),
            name=scope.named(self._name),
            project=scope.project,
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
            deletion_protection_enabled=self._keep,
            deletion_protection_reason="home directories hold people's work" if self._keep else None,
            labels=scope.labelled(),
            opts=child(self, keep=self._keep),
        )
        return made.networks.apply(lambda found: str((found[0].ip_addresses or [""])[0])), pulumi.Output.from_input(
            f"/{SHARE}"
        )


def _zone(plan: FileSystemPlan) -> str:
    if plan.zone is None:
        raise ValueError(f"the file system {plan.name!r} has no zone; on Google Cloud a plan names one for each")
    return plan.zone
