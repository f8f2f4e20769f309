"""The resources that must exist in a second region before the first region fails: a key, replicas of the buckets, and their replication.

The location of a bucket cannot be changed, so a regional bucket is replicated to a second bucket with cross-bucket replication, a job of Storage
Transfer Service (docs/internals/decisions/second-region.md). Cloud Storage encrypts each replica with the key of the second region. IAM, images and the
budget are global, and the audit configuration covers all regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pulumi
import pulumi_gcp as gcp

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.audit import storage_agent
from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.gcp.components.keys import Key, KeyArgs
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import BUCKET_ACCESS, replica_purpose
from gpuinfra.clouds.gcp.region.recovery import READY, READY_LABEL
from gpuinfra.clouds.region.active import FRESH
from gpuinfra.plan.planned import ResourceKind

PERMISSIONS = {
    "events": ("pubsub.subscriptions.consume", "pubsub.subscriptions.create", "pubsub.topics.create"),
    "notifications": ("pubsub.subscriptions.consume", "pubsub.subscriptions.create", "pubsub.topics.publish"),
    "source": ("storage.buckets.get", "storage.buckets.update", "storage.objects.get"),
    # An object with the same name is replaced, which requires permission to delete it.
    "replica": ("storage.buckets.get", "storage.objects.create", "storage.objects.delete", "storage.objects.get"),
}
"""Permissions of each role: https://docs.cloud.google.com/storage-transfer/docs/cross-bucket-replication, and for replaced objects
https://cloud.google.com/storage-transfer/docs/sink-cloud-storage, retrieved 2026-11-22. The predefined roles on that page contain more permissions.
"""
CHANGES = ("UpdateTransferJob", "DeleteTransferJob")
"""Methods that disable or delete a job. The records of admin activity always contain them
(https://docs.cloud.google.com/storage-transfer/docs/audit-logging, retrieved 2026-11-29)."""
JOB_NAMES = "transferJobs/"
"""Beginning of the names of jobs (`UpdateTransferJobRequest` in the discovery document of Storage Transfer Service)."""
METRICS = "storagetransfer.googleapis.com/transferjob"
"""https://docs.cloud.google.com/storage-transfer/docs/monitor-transfer-jobs, retrieved 2026-11-22. Latencies are in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class RegionCloneArgs:
    """Arguments for the second region."""

    scope: Scope
    """Scope of the first region. The APIs `cloudkms`, `logging`, `monitoring`, `pubsub`, `storage` and `storagetransfer` must be enabled in its project."""
    region: str
    """Second region."""
    sources: Mapping[str, pulumi.Input[str]]
    """Names of the buckets to replicate, keyed by the purpose in the replica's name. Replication is set up after a name resolves."""
    recipients: Sequence[str] = ()
    """Email addresses that are notified when replication is late or fails."""
    alert_after_s: int = 3600
    """Time to replicate an object, in seconds, above which recipients are notified."""


class RegionClone(pulumi.ComponentResource):
    """A key and replicas in a second region, the replication of buckets to it, and alerts on replication latency and failures,
    on changed replication jobs and on a missing readiness result.

    Replication covers objects that are written after it is set up. Existing objects require a one-time transfer job. Deletions are not
    replicated, so a replica keeps each object until you delete it there. `destroy` retains the key and the replicas and ends the replication.
    """

    data_key_id: pulumi.Output[str]
    """KMS key for the replicas."""
    buckets: dict[str, pulumi.Output[str]]
    """Names of the replicas by purpose. Each resolves after the replication is set up."""
    jobs: dict[str, pulumi.Output[str]]
    """Names of the replication jobs by purpose, for example `transferJobs/1234567890`."""

    def __init__(self, name: str, args: RegionCloneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:RegionClone", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        self._second = replace(args.scope, region=args.region)
        self._storage = storage_agent(args.scope, self)
        self.data_key_id = self._key()
        replicas = {purpose: self._replica(purpose) for purpose in args.sources}
        transfer = self._transfer_agent()
        roles = {access: self._role(access) for access in PERMISSIONS}
        ready = [
            self._grant("events", roles["events"], transfer),
            self._grant("notifications", roles["notifications"], self._storage),
        ]
        channels = self._channels()
        self.buckets, self.jobs = {}, {}
        for purpose, source in args.sources.items():
            replica = replicas[purpose].bucket
            grants = self._bucket_grants(
                purpose, dict(zip(BUCKET_ACCESS, (source, replica), strict=True)), roles, transfer
            )
            job = self._replicate(purpose, source, replica, [*ready, *grants])
            self.jobs[purpose] = job.name
            self.buckets[purpose] = pulumi.Output.all(replica, job.id).apply(lambda found: str(found[0]))
            self._alerts(purpose, source, replica, channels)
        self._changes(channels)
        if "evidence" in replicas:
            self._missing_result(replicas["evidence"].bucket, channels)
        self.register_outputs({"data_key_id": self.data_key_id, "buckets": self.buckets, "jobs": self.jobs})

    def _key(self) -> pulumi.Output[str]:
        args = KeyArgs(scope=self._second, purpose="data", users={"storage": self._storage})
        return Key(naming.logical(self._name, "data"), args, pulumi.ResourceOptions(parent=self)).id

    def _replica(self, purpose: str) -> PrivateBucket:
        return PrivateBucket(
            naming.logical(self._name, purpose),
            PrivateBucketArgs(
                scope=self._second, purpose=replica_purpose(purpose, self._args.region), key_id=self.data_key_id
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _transfer_agent(self) -> pulumi.Output[str]:
        """Return the service agent of Storage Transfer Service, as a member. The call creates the agent if it does not exist."""
        agent = gcp.storage.get_transfer_project_service_account_output(
            project=self._args.scope.project, opts=pulumi.InvokeOutputOptions(parent=self)
        )
        return agent.email.apply(lambda email: f"serviceAccount:{email}")

    def _role(self, access: str) -> pulumi.Output[str]:
        """Each stack has its own roles. A service has one service agent per project,
        so removing the grant of a shared role would end the replication of other stacks."""
        scope = self._args.scope
        return gcp.projects.IAMCustomRole(
            rows.REPLICATION_ROLE.logical(self._name, access=access),
            role_id=names.role_id(scope.cluster, f"replication-{access}", scope.token),
            title=f"gpuinfra {scope.cluster} replication: {access}",
            permissions=list(PERMISSIONS[access]),
            stage="GA",
            opts=child(self, rows.REPLICATION_ROLE),
        ).id

    def _grant(self, access: str, role: pulumi.Input[str], member: pulumi.Input[str]) -> pulumi.Resource:
        return gcp.projects.IAMMember(
            rows.REPLICATION_GRANT.logical(self._name, access=access),
            # The provider requires the project here.
            project=self._args.scope.project,
            role=role,
            member=member,
            opts=child(self, rows.REPLICATION_GRANT),
        )

    def _bucket_grants(
        self,
        purpose: str,
        buckets: Mapping[str, pulumi.Input[str]],
        roles: Mapping[str, pulumi.Input[str]],
        member: pulumi.Input[str],
    ) -> list[pulumi.Resource]:
        return [
            gcp.storage.BucketIAMMember(
                rows.REPLICA_GRANT.logical(self._name, purpose=purpose, access=access),
                bucket=bucket,
                role=roles[access],
                member=member,
                opts=child(self, rows.REPLICA_GRANT),
            )
            for access, bucket in buckets.items()
        ]

    def _replicate(
        self,
        purpose: str,
        source: pulumi.Input[str],
        replica: pulumi.Input[str],
        grants: Sequence[pulumi.Resource],
    ) -> gcp.storage.TransferJob:
        """The service assigns the job name and rejects a name in the request. Without an empty name, the provider generates one
        (`SetAutonaming` in pulumi/pulumi-gcp: provider/resources.go, retrieved 2026-11-22).
        """
        return gcp.storage.TransferJob(
            rows.REPLICATION.logical(self._name, purpose=purpose),
            name="",
            description=f"Replicates the {purpose} bucket of {self._args.scope.cluster} to {self._args.region}",
            status="ENABLED",
            replication_spec=gcp.storage.TransferJobReplicationSpecArgs(
                gcs_data_source=gcp.storage.TransferJobReplicationSpecGcsDataSourceArgs(bucket_name=source),
                gcs_data_sink=gcp.storage.TransferJobReplicationSpecGcsDataSinkArgs(bucket_name=replica),
                transfer_options=gcp.storage.TransferJobReplicationSpecTransferOptionsArgs(
                    overwrite_when="DIFFERENT",
                    metadata_options=gcp.storage.TransferJobReplicationSpecTransferOptionsMetadataOptionsArgs(
                        kms_key="KMS_KEY_DESTINATION_BUCKET_DEFAULT",
                        # A list contains this time, but no checksums of encrypted objects (`gpuinfra.clouds.gcp.region.failover`).
                        time_created="TIME_CREATED_PRESERVE_AS_CUSTOM_TIME",
                    ),
                ),
            ),
            logging_config=gcp.storage.TransferJobLoggingConfigArgs(log_actions=["COPY"], log_action_states=["FAILED"]),
            opts=child(self, rows.REPLICATION, depends_on=grants),
        )

    def _channels(self) -> list[pulumi.Output[str]]:
        scope = self._args.scope
        return [
            gcp.monitoring.NotificationChannel(
                rows.ALERT_EMAIL.logical(self._name, index=index),
                type="email",
                display_name=f"Replication of {scope.cluster}",
                # These are channel parameters. The resource labels are `user_labels`.
                labels={"email_address": recipient},
                opts=child(self, rows.ALERT_EMAIL),
            ).id
            for index, recipient in enumerate(self._args.recipients)
        ]

    def _alerts(
        self,
        purpose: str,
        source: pulumi.Input[str],
        replica: pulumi.Input[str],
        channels: Sequence[pulumi.Input[str]],
    ) -> None:
        args, of = self._args, f"{purpose} bucket of {self._args.scope.cluster}"
        self._alert(
            rows.LAG_ALERT,
            purpose,
            f"Replication of the {of} to {args.region} is late",
            gcp.monitoring.AlertPolicyConditionConditionThresholdArgs(
                filter=_metric("replication_latency", source, replica),
                comparison="COMPARISON_GT",
                threshold_value=args.alert_after_s * 1000,
                duration="0s",
                aggregations=[_aligned("ALIGN_PERCENTILE_99")],
            ),
            channels,
        )
        self._alert(
            rows.FAILURE_ALERT,
            purpose,
            f"Objects of the {of} are not replicated to {args.region}",
            gcp.monitoring.AlertPolicyConditionConditionThresholdArgs(
                filter=pulumi.Output.concat(
                    _metric("object_replication_count", source, replica), ' AND metric.labels.status = "failed"'
                ),
                comparison="COMPARISON_GT",
                threshold_value=0,
                duration="0s",
                aggregations=[_aligned("ALIGN_SUM")],
            ),
            channels,
        )

    def _alert(
        self,
        row: ResourceKind[rows.Lookup],
        purpose: str,
        title: str,
        condition: gcp.monitoring.AlertPolicyConditionConditionThresholdArgs,
        channels: Sequence[pulumi.Input[str]],
    ) -> None:
        gcp.monitoring.AlertPolicy(
            row.logical(self._name, purpose=purpose),
            display_name=title,
            combiner="OR",
            conditions=[gcp.monitoring.AlertPolicyConditionArgs(display_name=title, condition_threshold=condition)],
            notification_channels=list(channels),
            opts=child(self, row),
        )

    def _changes(self, channels: Sequence[pulumi.Input[str]]) -> None:
        """Notify the recipients when a replication job is changed or deleted, also by `gpuinfra failover` or `pulumi up`.

        The filter contains the numbers of the jobs, so the policy is created after the jobs and deleted before them. A text without a field matches an
        entry if any of its fields contains the text (https://docs.cloud.google.com/logging/docs/view/logging-query-language, retrieved 2026-11-29).
        Google documents no field with the name of the job, so an entry that names no job also matches.
        """
        title = f"The replication of a bucket of {self._args.scope.cluster} to {self._args.region} was changed"
        methods = " OR ".join(f'"google.storagetransfer.v1.StorageTransferService.{one}"' for one in CHANGES)
        numbers = pulumi.Output.all(*self.jobs.values()).apply(
            lambda names: " OR ".join(f'"{name.rpartition("/")[2]}"' for name in names)
        )
        condition = gcp.monitoring.AlertPolicyConditionConditionMatchedLogArgs(
            filter=pulumi.Output.concat(
                f'log_id("cloudaudit.googleapis.com/activity") AND protoPayload.methodName = ({methods}) ',
                # A refused request changes nothing.
                f'AND NOT protoPayload.status.code > 0 AND (NOT "{JOB_NAMES}" OR ', numbers, ")",
            ),
        )  # fmt: skip
        limit = gcp.monitoring.AlertPolicyAlertStrategyNotificationRateLimitArgs(period="300s")
        gcp.monitoring.AlertPolicy(
            rows.CHANGE_ALERT.logical(self._name),
            display_name=title,
            combiner="OR",
            conditions=[gcp.monitoring.AlertPolicyConditionArgs(display_name=title, condition_matched_log=condition)],
            # Required for a condition on log entries.
            alert_strategy=gcp.monitoring.AlertPolicyAlertStrategyArgs(notification_rate_limit=limit),
            documentation=gcp.monitoring.AlertPolicyDocumentationArgs(
                content="gpuinfra failover and failback also change it. If you did not expect this change, run gpuinfra ready, which prints the fix.",
            ),
            notification_channels=list(channels),
            opts=child(self, rows.CHANGE_ALERT),
        )

    def _missing_result(self, evidence: pulumi.Input[str], channels: Sequence[pulumi.Input[str]]) -> None:
        """Notify the recipients if no `gpuinfra ready --record` of the last two days said that the second region is ready.

        A condition on the absence of a metric has a limit of 23.5 hours and requires a first value. A PromQL condition has neither, and its metric does
        not have to exist (https://docs.cloud.google.com/monitoring/alerts/metric-absence and using-promql, retrieved 2026-11-29).
        """
        region = self._args.region
        title = f"No result of the last {FRESH.days} days says that {region} is ready for {self._args.scope.cluster}"
        domain, _, path = READY.partition("/")
        metric = f"{domain.replace('.', '_')}:{path.replace('/', '_')}"
        query = pulumi.Output.concat(
            f'absent_over_time({metric}{{monitored_resource="global",{READY_LABEL}="',
            evidence,
            f'"}}[{FRESH // timedelta(hours=1)}h])',
        )
        condition = gcp.monitoring.AlertPolicyConditionConditionPrometheusQueryLanguageArgs(
            query=query, duration="0s", evaluation_interval="3600s", disable_metric_validation=True
        )
        gcp.monitoring.AlertPolicy(
            rows.RESULT_ALERT.logical(self._name),
            display_name=title,
            combiner="OR",
            conditions=[
                gcp.monitoring.AlertPolicyConditionArgs(
                    display_name=title, condition_prometheus_query_language=condition
                )
            ],
            notification_channels=list(channels),
            opts=child(self, rows.RESULT_ALERT),
        )


def _metric(name: str, source: pulumi.Input[str], replica: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat(
        f'resource.type = "storage_transfer_job" AND metric.type = "{METRICS}/{name}" AND metric.labels.source_bucket = "',
        source, '" AND metric.labels.destination_bucket = "', replica, '"',
    )  # fmt: skip


def _aligned(aligner: str) -> gcp.monitoring.AlertPolicyConditionConditionThresholdAggregationArgs:
    return gcp.monitoring.AlertPolicyConditionConditionThresholdAggregationArgs(
        alignment_period="300s", per_series_aligner=aligner
    )
