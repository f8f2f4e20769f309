"""The resources that must exist in a second Region before the first Region fails: keys, replicas of the buckets, and their replication.

S3 re-encrypts each replica with a key of the second Region. Multi-Region keys have no advantage here, because S3 treats them as
single-Region keys (https://docs.aws.amazon.com/AmazonS3/latest/userguide/replication-config-for-kms-objects.html, retrieved 2026-11-22),
and changing an existing key to a multi-Region key replaces it. IAM roles and budgets are global, and the trail of `AuditTrail` records all Regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.audit import Key, KeyArgs
from gpuinfra.clouds.aws.components.buckets import PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.aws.components.home_replicas import HomeSource, replicated_home
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.components.topics import topic
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.clouds.aws.region.recovery import COMMITMENT, DIMENSION, METRIC, NAMESPACE
from gpuinfra.clouds.region.active import FRESH
from gpuinfra.plan.planned import ResourceKind

RULE = "all"
"""ID of the replication rule of each bucket."""
CHANGES = ("PutBucketReplication", "DeleteBucketReplication")
"""Management events of a changed replication (https://docs.aws.amazon.com/AmazonS3/latest/userguide/cloudtrail-logging-s3-info.html, retrieved 2026-11-29)."""


@dataclass(frozen=True, kw_only=True)
class ReplicationSource:
    """A versioned bucket in the first Region. It must not have a different replication configuration, because a bucket can have only one."""

    bucket: pulumi.Input[str]
    """Name of the bucket. Replication is set up after it resolves."""
    key_arn: pulumi.Input[str]
    """KMS key that encrypts the bucket."""


@dataclass(frozen=True, kw_only=True)
class RegionCloneArgs:
    """Arguments for the second Region."""

    scope: Scope
    """Scope of the first Region."""
    region: str
    """Second Region, in the same partition."""
    sources: Mapping[str, ReplicationSource]
    """Buckets to replicate, keyed by the purpose in the replica's name."""
    recipients: Sequence[str] = ()
    """Email addresses that are notified when replication is late or fails. Each recipient must confirm the subscription."""
    alert_after_s: int = 900
    """Replication lag in seconds above which recipients are notified."""
    log_days: int | None = None
    """Retention of access logs of the replicas, in days. If unset, access is not logged, and there is no key for log groups."""
    images: Sequence[str] = ()
    """IDs of AMIs in the first Region to copy."""
    homes: Sequence[HomeSource] = ()
    """Home directories on Amazon EFS to replicate."""


class RegionClone(pulumi.ComponentResource):
    """Keys, replicas and image copies in a second Region, the replication of buckets to it, and alarms on replication lag and failures,
    on changed replication rules and on a missing readiness result.

    S3 publishes the lag in the Region of the replica, and failures in the Region of the source
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/repl-metrics.html, retrieved 2026-11-22). Each alarm is in the Region of its metric.
    The notification of changed rules requires a trail in the account that records management events, as that of `AuditTrail` does.

    Replication covers objects that are written after it is set up. Existing objects require an S3 Batch Replication job.
    Deletions are replicated as delete markers, so a file system in the second Region does not show deleted files. The deleted
    versions remain in the replica for 90 days. `destroy` retains keys, replicas and image copies and ends the replication.
    A replica of home directories can only be read until a failover ends its replication.
    """

    data_key_arn: pulumi.Output[str]
    """KMS key for disks, evidence and file systems in the second Region."""
    log_key_arn: pulumi.Output[str] | None
    """KMS key for log groups in the second Region, or `None` without access logs."""
    access_log_bucket: pulumi.Output[str] | None
    """Bucket for access logs in the second Region, or `None` without access logs."""
    buckets: dict[str, pulumi.Output[str]]
    """Names of the replicas by purpose. Each resolves after the replication is set up."""
    images: dict[str, pulumi.Output[str]]
    """IDs of the image copies in the second Region, by the ID of the source."""
    homes: dict[str, pulumi.Output[str]]
    """IDs of the replicas of home directories, by the name of the file system. Each resolves after the replication is set up."""
    role_arn: pulumi.Output[str]
    """Replication role. A batch job for existing objects can also use it."""

    def __init__(self, name: str, args: RegionCloneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self._first, self._second = args.scope, replace(args.scope, region=args.region)
        super().__init__("gpuinfra:aws:RegionClone", name, None, self._second.options(opts))
        self._name, self._args = name, args
        logs = self._access_logs()
        self.access_log_bucket = logs.bucket if logs else None
        guards = (logs.resource,) if logs else ()
        self.log_key_arn = self._key("logs", "Logs", policies.log_key(self._second), guards) if logs else None
        self.data_key_arn = self._key(
            "data", "Disks, evidence and file systems", policies.data_key(self._second), guards
        )
        replicas = {purpose: self._replica(purpose) for purpose in args.sources}
        self.images = {image: self._image(image) for image in dict.fromkeys(args.images)}
        self.homes = {
            source.plan.name: replicated_home(self, name, source, (self._first, self._second), self.data_key_arn)
            for source in args.homes
        }
        role, allowed = self._role(replicas)
        self.role_arn = role.arn
        self.buckets, replications = {}, []
        for purpose, source in args.sources.items():
            replication = self._replicate(purpose, source, replicas[purpose], role, allowed)
            replications.append(replication)
            both = pulumi.Output.all(replicas[purpose].bucket, replication.id)
            self.buckets[purpose] = both.apply(lambda found: str(found[0]))
        of, to = f"the {{purpose}} bucket of {self._first.cluster}", args.region
        late = _Alarm(
            row=rows.LAG_ALARM,
            region=self._second.region,
            description=f"Replication of {of} to {to} is late",
            metric="ReplicationLatency",
            statistic="Maximum",
            minutes=5,
            above=args.alert_after_s,
            on_recovery=True,
        )
        failed = _Alarm(
            row=rows.FAILURE_ALARM,
            region=self._first.region,
            description=f"Objects of {of} are not replicated to {to}",
            metric="OperationsFailedReplication",
            statistic="Sum",
            minutes=1,
            above=0,
            on_recovery=False,
        )
        topics = {
            alarm.region: topic(self, name, (rows.ALERTS, rows.ALERTS_RECIPIENT), args.recipients, alarm.region)
            for alarm in (late, failed)
        }
        for alarm in (late, failed):
            self._alarms(alarm, replicas, topics[alarm.region])
        self._changes(topics[self._first.region], replications)
        if "evidence" in replicas:
            self._missing_result(replicas["evidence"], topics[self._second.region])
        self.register_outputs(
            {
                "data_key_arn": self.data_key_arn,
                "log_key_arn": self.log_key_arn,
                "access_log_bucket": self.access_log_bucket,
                "buckets": self.buckets,
                "images": self.images,
                "homes": self.homes,
                "role_arn": self.role_arn,
            }
        )

    def _access_logs(self) -> PrivateBucket | None:
        if self._args.log_days is None:
            return None
        second = self._second
        own_buckets = pulumi.Output.concat("arn:", second.partition, ":s3:::*-", second.account, f"-{second.region}-*")
        return PrivateBucket(
            naming.logical(self._name, "access"),
            PrivateBucketArgs(
                scope=second,
                purpose="access",
                expire_days=self._args.log_days,
                statements=lambda arn: policies.access_log_delivery(arn, own_buckets, second.account),
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _key(
        self, purpose: str, of: str, statements: Sequence[policies.Statement], guards: Sequence[pulumi.Resource]
    ) -> pulumi.Output[str]:
        args = KeyArgs(
            scope=self._second,
            purpose=purpose,
            description=f"{of} of {self._second.cluster}",
            policy=policies.document(statements),
            depends_on=guards,
        )
        return Key(naming.logical(self._name, purpose), args, pulumi.ResourceOptions(parent=self)).arn

    def _replica(self, purpose: str) -> PrivateBucket:
        return PrivateBucket(
            naming.logical(self._name, purpose),
            PrivateBucketArgs(
                scope=self._second, purpose=purpose, key_arn=self.data_key_arn, log_to=self.access_log_bucket
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _image(self, image: str) -> pulumi.Output[str]:
        """Copy an AMI. The name is generated, because the names of an account's AMIs in a Region are unique, and a retained copy keeps its name."""
        return aws.ec2.AmiCopy(
            rows.IMAGE_COPY.logical(self._name, image=image),
            source_ami_id=image,
            source_ami_region=self._first.region,
            description=f"Copy of {image} in {self._first.region} for {self._first.cluster}",
            encrypted=True,
            kms_key_id=self.data_key_arn,
            region=self._second.region,
            opts=child(self, rows.IMAGE_COPY),
        ).id

    def _role(self, replicas: Mapping[str, PrivateBucket]) -> tuple[aws.iam.Role, aws.iam.RolePolicy]:
        role = aws.iam.Role(
            rows.REPLICATION_ROLE.logical(self._name),
            # The second service runs batch jobs for existing objects.
            assume_role_policy=policies.trust("s3.amazonaws.com", "batchoperations.s3.amazonaws.com"),
            description=f"Replicates the buckets of {self._first.cluster} to {self._second.region}",
            opts=child(self, rows.REPLICATION_ROLE),
        )
        sources = self._args.sources
        pairs = [
            policies.Replicated(
                source=_arn(self._first, source.bucket),
                source_key=source.key_arn,
                replica=replicas[purpose].arn,
            )
            for purpose, source in sources.items()
        ]
        policy = aws.iam.RolePolicy(
            rows.REPLICATION_POLICY.logical(self._name),
            role=role.id,
            policy=policies.document(
                policies.replicate(pairs, self.data_key_arn, self._first.region, self._second.region)
            ),
            opts=child(self, rows.REPLICATION_POLICY),
        )
        return role, policy

    def _replicate(
        self,
        purpose: str,
        source: ReplicationSource,
        replica: PrivateBucket,
        role: aws.iam.Role,
        allowed: aws.iam.RolePolicy,
    ) -> aws.s3.BucketReplicationConfig:
        # S3 accepts only 15 minutes for both times (https://docs.aws.amazon.com/AmazonS3/latest/API/API_ReplicationTimeValue.html).
        minutes = COMMITMENT.lag_minutes
        return aws.s3.BucketReplicationConfig(
            rows.REPLICATION.logical(self._name, purpose=purpose),
            bucket=source.bucket,
            region=self._first.region,
            role=role.arn,
            rules=[
                aws.s3.BucketReplicationConfigRuleArgs(
                    id=RULE,
                    status="Enabled",
                    priority=0,
                    filter=aws.s3.BucketReplicationConfigRuleFilterArgs(prefix=""),
                    delete_marker_replication=aws.s3.BucketReplicationConfigRuleDeleteMarkerReplicationArgs(
                        status="Enabled"
                    ),
                    source_selection_criteria=aws.s3.BucketReplicationConfigRuleSourceSelectionCriteriaArgs(
                        sse_kms_encrypted_objects=aws.s3.BucketReplicationConfigRuleSourceSelectionCriteriaSseKmsEncryptedObjectsArgs(
                            status="Enabled"
                        )
                    ),
                    destination=aws.s3.BucketReplicationConfigRuleDestinationArgs(
                        bucket=_arn(self._second, replica.bucket),
                        encryption_configuration=aws.s3.BucketReplicationConfigRuleDestinationEncryptionConfigurationArgs(
                            replica_kms_key_id=self.data_key_arn
                        ),
                        metrics=aws.s3.BucketReplicationConfigRuleDestinationMetricsArgs(
                            status="Enabled",
                            event_threshold=aws.s3.BucketReplicationConfigRuleDestinationMetricsEventThresholdArgs(
                                minutes=minutes
                            ),
                        ),
                        replication_time=aws.s3.BucketReplicationConfigRuleDestinationReplicationTimeArgs(
                            status="Enabled",
                            time=aws.s3.BucketReplicationConfigRuleDestinationReplicationTimeTimeArgs(minutes=minutes),
                        ),
                    ),
                )
            ],
            opts=child(self, rows.REPLICATION, depends_on=[allowed]),
        )

    def _changes(self, topic: aws.sns.Topic, replications: Sequence[pulumi.Resource]) -> None:
        """Notify the recipients when the replication of a bucket is changed or deleted, also by `gpuinfra failover` or `pulumi up`.

        The rule is created after the replication and deleted before it, so that a deployment and `destroy` send no message. EventBridge matches the
        calls that change something, if a trail records them (https://docs.aws.amazon.com/eventbridge/latest/userguide/event-types.html,
        retrieved 2026-11-29).
        """
        name, first = self._name, self._first
        rule = aws.cloudwatch.EventRule(
            rows.CHANGE_RULE.logical(name),
            description=f"The replication of a bucket of {first.cluster} was changed",
            event_pattern=pulumi.Output.json_dumps(
                {
                    "source": ["aws.s3"],
                    "detail-type": ["AWS API Call via CloudTrail"],
                    "detail": {
                        "eventSource": ["s3.amazonaws.com"],
                        "eventName": CHANGES,
                        "requestParameters": {"bucketName": [one.bucket for one in self._args.sources.values()]},
                        # A refused request changes nothing.
                        "errorCode": [{"exists": False}],
                    },
                },
                sort_keys=True,
            ),
            region=first.region,
            opts=child(self, rows.CHANGE_RULE, depends_on=list(replications)),
        )
        allowed = aws.sns.TopicPolicy(
            rows.ALERTS_POLICY.logical(name, region=first.region),
            arn=topic.arn,
            policy=policies.document(policies.notify(topic.arn, first.account)),
            region=first.region,
            opts=child(self, rows.ALERTS_POLICY),
        )
        text = (
            f"The replication of <bucket> to {self._second.region} was changed: <call> by <who>. gpuinfra failover and "
            "failback also change it. If you did not expect this change, run gpuinfra ready, which prints the fix."
        )
        aws.cloudwatch.EventTarget(
            rows.CHANGE_TARGET.logical(name),
            rule=rule.name,
            target_id="recipients",
            arn=topic.arn,
            input_transformer=aws.cloudwatch.EventTargetInputTransformerArgs(
                input_paths={
                    "bucket": "$.detail.requestParameters.bucketName",
                    "call": "$.detail.eventName",
                    "who": "$.detail.userIdentity.arn",
                },
                input_template=f'"{text}"',
            ),
            region=first.region,
            opts=child(self, rows.CHANGE_TARGET, depends_on=[allowed]),
        )

    def _missing_result(self, evidence: PrivateBucket, topic: aws.sns.Topic) -> None:
        """Alarm if no `gpuinfra ready --record` of the last two days said that the second Region is ready.

        The total of the periods can be at most seven days (API reference of CloudWatch, PutMetricAlarm, retrieved 2026-11-29).
        """
        region = self._second.region
        aws.cloudwatch.MetricAlarm(
            rows.RESULT_ALARM.logical(self._name, region=region),
            alarm_description=f"No recorded result of the last {FRESH.days} days says that {region} is ready for {self._first.cluster}",
            namespace=NAMESPACE,
            metric_name=METRIC,
            dimensions={DIMENSION: evidence.bucket},
            statistic="Maximum",
            period=3600,
            evaluation_periods=FRESH // timedelta(hours=1),
            comparison_operator="LessThanThreshold",
            threshold=1,
            treat_missing_data="breaching",
            alarm_actions=[topic.arn],
            ok_actions=[topic.arn],
            region=region,
            opts=child(self, rows.RESULT_ALARM),
        )

    def _alarms(self, alarm: _Alarm, replicas: Mapping[str, PrivateBucket], topic: aws.sns.Topic) -> None:
        for purpose, source in self._args.sources.items():
            aws.cloudwatch.MetricAlarm(
                alarm.row.logical(self._name, region=alarm.region, purpose=purpose),
                alarm_description=alarm.description.format(purpose=purpose),
                namespace="AWS/S3",
                metric_name=alarm.metric,
                dimensions=_dimensions(source, replicas[purpose]),
                statistic=alarm.statistic,
                period=60,
                evaluation_periods=alarm.minutes,
                comparison_operator="GreaterThanThreshold",
                threshold=alarm.above,
                # If there are no objects to replicate, S3 publishes neither the lag nor failures.
                treat_missing_data="notBreaching",
                alarm_actions=[topic.arn],
                ok_actions=[topic.arn] if alarm.on_recovery else None,
                region=alarm.region,
                opts=child(self, alarm.row),
            )


@dataclass(frozen=True, kw_only=True)
class _Alarm:
    """An alarm on a replication metric, for each bucket."""

    row: ResourceKind[Lookup]
    region: str
    description: str
    """Contains `{purpose}` as the placeholder for the bucket."""
    metric: str
    statistic: str
    minutes: int
    """Number of consecutive minutes in which the metric is above the threshold."""
    above: float
    on_recovery: bool
    """Whether recipients are also notified when the alarm clears."""


def _dimensions(source: ReplicationSource, replica: PrivateBucket) -> dict[str, pulumi.Input[str]]:
    return {"SourceBucket": source.bucket, "DestinationBucket": replica.bucket, "RuleId": RULE}


def _arn(scope: Scope, bucket: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat("arn:", scope.partition, ":s3:::", bucket)
