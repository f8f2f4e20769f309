"""The foundation on AWS: audit trail, KMS keys, evidence bucket and budget.

The trail records the events of the whole account in a bucket with Object Lock. `destroy` retains buckets, keys and audit logs.
To use resources that already exist, pass them in `Existing`. Each component can also be used on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws

from gpuinfra.base import naming
from gpuinfra.clouds.aws import instances
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.buckets import ObjectLock, PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import AuditPlan, BudgetPlan, Plan


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """Arguments for a KMS key."""

    scope: Scope
    purpose: str
    """Part of the alias, such as `audit` or `data`."""
    description: str
    """Description of the key in the account."""
    policy: pulumi.Input[str]
    """Key policy, as JSON."""
    depends_on: Sequence[pulumi.Resource] = ()
    """Uniquely named resources to create before the key. Key names are not unique, so a deployment after a `destroy` would create a second key
    without an error. Creating a bucket whose name is already taken fails first and prevents this."""


class Key(pulumi.ComponentResource):
    """A customer managed KMS key with yearly rotation, and its alias. `destroy` retains both, because encrypted data cannot be read without the key."""

    arn: pulumi.Output[str]
    """ARN of the key. Resolves after the alias exists."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Key", name, None, args.scope.options(opts))
        key = aws.kms.Key(
            rows.KEY.logical(name),
            description=args.description,
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=args.policy,
            opts=child(self, rows.KEY, depends_on=args.depends_on),
        )
        alias = aws.kms.Alias(
            rows.KEY_ALIAS.logical(name),
            name=f"alias/gpuinfra/{args.scope.unique_name(args.purpose)}",
            target_key_id=key.key_id,
            opts=child(self, rows.KEY_ALIAS),
        )
        self.arn = ready_after(key.arn, [alias])
        self.register_outputs({"arn": self.arn})


@dataclass(frozen=True, kw_only=True)
class AuditTrailArgs:
    """Arguments for the audit trail."""

    scope: Scope
    plan: AuditPlan


class AuditTrail(pulumi.ComponentResource):
    """A multi-region CloudTrail trail with log file validation and encryption. Events are delivered to a bucket with Object Lock and to CloudWatch Logs.

    An account can have at most five trails per Region. To share one trail, create the foundation in its own stack and reference it in `use.foundation`.
    """

    key_arn: pulumi.Output[str]
    """KMS key for the trail and for the log groups of the stack."""
    bucket: pulumi.Output[str]
    """Bucket that stores the records."""
    log_bucket: pulumi.Output[str] | None
    """Bucket that receives the access logs of other buckets."""
    trail_arn: pulumi.Output[str]
    """ARN of the trail."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:AuditTrail", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        trail_name = instances.trail_name(scope.unique_name("trail", 128))
        # Built from the name instead of read from the resource, because the bucket policy and the key policy need it before the trail exists.
        trail_arn = scope.arn("cloudtrail", f"trail/{trail_name}")
        logs = None if plan.existing_bucket else self._access_logs(name, args)
        self.log_bucket = logs.bucket if logs else None
        self.guards = (logs.resource,) if logs else ()
        """Bucket to create before any key of the stack."""
        self.key_arn = Key(
            naming.logical(name, "key"),
            KeyArgs(
                scope=scope,
                purpose="audit",
                description=f"Audit trail and logs of {scope.cluster}",
                policy=policies.document(policies.audit_key(scope, trail_arn)),
                depends_on=self.guards,
            ),
            pulumi.ResourceOptions(parent=self),
        ).arn
        self.bucket = (
            self._locked_bucket(name, args, trail_arn, logs)
            if logs
            else pulumi.Output.from_input(plan.existing_bucket or "")
        )
        group, role, delivery = self._log_group(name, args)
        trail = aws.cloudtrail.Trail(
            rows.TRAIL.logical(name),
            name=trail_name,
            s3_bucket_name=self.bucket,
            is_multi_region_trail=True,
            include_global_service_events=True,
            enable_log_file_validation=True,
            kms_key_id=self.key_arn,
            # CloudTrail requires the log group ARN with the `:*` suffix for log streams.
            cloud_watch_logs_group_arn=pulumi.Output.concat(group.arn, ":*"),
            cloud_watch_logs_role_arn=role.arn,
            advanced_event_selectors=_selectors(scope, plan),
            opts=child(self, rows.TRAIL, depends_on=[delivery]),
        )
        self.trail_arn = trail.arn
        self.register_outputs(
            {"key_arn": self.key_arn, "bucket": self.bucket, "log_bucket": self.log_bucket, "trail_arn": self.trail_arn}
        )

    def _access_logs(self, name: str, args: AuditTrailArgs) -> PrivateBucket:
        scope = args.scope
        # Sites and clusters in other stacks also write access logs here, so the ARN restricts the account and Region but not the stack.
        own_buckets = pulumi.Output.concat("arn:", scope.partition, ":s3:::*-", scope.account, f"-{scope.region}-*")
        return PrivateBucket(
            naming.logical(name, "access"),
            PrivateBucketArgs(
                scope=scope,
                purpose="access",
                # S3 delivers access logs only to buckets with SSE-S3 encryption.
                key_arn=None,
                expire_days=args.plan.log_retention_days,
                statements=lambda arn: policies.access_log_delivery(arn, own_buckets, scope.account),
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _locked_bucket(
        self, name: str, args: AuditTrailArgs, trail_arn: pulumi.Output[str], logs: PrivateBucket
    ) -> pulumi.Output[str]:
        return PrivateBucket(
            naming.logical(name, "records"),
            PrivateBucketArgs(
                scope=args.scope,
                purpose="audit",
                key_arn=self.key_arn,
                lock=ObjectLock(days=args.plan.lock_days, mode=args.plan.lock_mode),
                log_to=logs.bucket,
                statements=lambda arn: policies.trail_delivery(arn, trail_arn, args.scope.account),
            ),
            pulumi.ResourceOptions(parent=self),
        ).bucket

    def _log_group(
        self, name: str, args: AuditTrailArgs
    ) -> tuple[aws.cloudwatch.LogGroup, aws.iam.Role, aws.iam.RolePolicy]:
        scope = args.scope
        group = aws.cloudwatch.LogGroup(
            rows.TRAIL_LOG_GROUP.logical(name),
            name=f"/gpuinfra/{scope.unique_name('trail')}",
            retention_in_days=args.plan.log_retention_days,
            kms_key_id=self.key_arn,
            opts=child(self, rows.TRAIL_LOG_GROUP),
        )
        role = aws.iam.Role(
            rows.TRAIL_LOG_ROLE.logical(name),
            assume_role_policy=policies.trust("cloudtrail.amazonaws.com"),
            description="Writes the events of the audit trail to its log group",
            opts=child(self, rows.TRAIL_LOG_ROLE),
        )
        policy = aws.iam.RolePolicy(
            rows.TRAIL_LOG_POLICY.logical(name),
            role=role.id,
            policy=policies.document(policies.write_log_group(group.arn)),
            opts=child(self, rows.TRAIL_LOG_POLICY),
        )
        return group, role, policy


def _selectors(scope: Scope, plan: AuditPlan) -> list[aws.cloudtrail.TrailAdvancedEventSelectorArgs]:
    """Selects management events and, with `data_events`, object reads and writes in the buckets of the stack or of the account (CIS 4.8, 4.9)."""
    field = aws.cloudtrail.TrailAdvancedEventSelectorFieldSelectorArgs
    selectors = [
        aws.cloudtrail.TrailAdvancedEventSelectorArgs(
            name="management events", field_selectors=[field(field="eventCategory", equals=["Management"])]
        )
    ]
    if plan.data_events:

        def objects(purposes: Iterable[str]) -> list[pulumi.Output[str]]:
            return [
                pulumi.Output.concat("arn:", one.partition, ":s3:::", one.bucket_name(purpose), "/")
                for one in (scope, *((replace(scope, region=plan.second_region),) if plan.second_region else ()))
                for purpose in purposes
            ]

        selected = (
            # Without this exclusion, each delivery by the trail would generate an event, which would cause another delivery.
            field(field="resources.ARN", not_starts_withs=objects(("audit", "access")))
            if plan.recorded_buckets is None
            else field(field="resources.ARN", starts_withs=objects(plan.recorded_buckets))
        )
        selectors.append(
            aws.cloudtrail.TrailAdvancedEventSelectorArgs(
                name="objects of all buckets"
                if plan.recorded_buckets is None
                else "objects of the buckets of the stack",
                field_selectors=[
                    field(field="eventCategory", equals=["Data"]),
                    field(field="resources.type", equals=["AWS::S3::Object"]),
                    selected,
                ],
            )
        )
    return selectors


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """Arguments for the budget."""

    scope: Scope
    plan: BudgetPlan


class Budget(pulumi.ComponentResource):
    """A monthly budget for resources that have the cluster tag.

    AWS tracks a tag only after you activate it as a cost allocation tag in the Billing console. A new tag can take a day or more to appear there.
    """

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Budget", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        recipients = list(plan.recipients)
        # AWS rejects notifications without recipients. A rule warns about this.
        kinds = (
            [(kind, percent) for percent in plan.thresholds_percent for kind in ("ACTUAL", "FORECASTED")]
            if recipients
            else []
        )
        budget = aws.budgets.Budget(
            rows.BUDGET.logical(name),
            name=scope.unique_name("month", 100),
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{plan.amount_per_month:.2f}",
            limit_unit=plan.currency,
            cost_filters=[
                aws.budgets.BudgetCostFilterArgs(name="TagKeyValue", values=[f"user:gpuinfra:cluster${scope.cluster}"])
            ],
            notifications=[
                aws.budgets.BudgetNotificationArgs(
                    comparison_operator="GREATER_THAN",
                    notification_type=kind,
                    threshold=float(percent),
                    threshold_type="PERCENTAGE",
                    subscriber_email_addresses=recipients,
                )
                for kind, percent in kinds
            ],
            opts=child(self, rows.BUDGET),
        )
        self.name = budget.name
        self.register_outputs({"name": self.name})


@dataclass(frozen=True, kw_only=True)
class EvidenceArgs:
    """Arguments for the evidence bucket."""

    scope: Scope
    key_arn: pulumi.Input[str]
    """KMS key of the objects."""
    log_to: pulumi.Input[str] | None = None
    """Bucket that receives the access log of this bucket. If unset, access is not logged."""


class Evidence(pulumi.ComponentResource):
    """The bucket from which nodes download their bundle and to which they upload evidence.
    `destroy` retains it, because evidence is needed long after a node is terminated."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""
    arn: pulumi.Output[str]
    """ARN of the bucket."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Evidence", name, None, args.scope.options(opts))
        store = PrivateBucket(
            naming.logical(name, "store"),
            PrivateBucketArgs(
                scope=args.scope,
                purpose="evidence",
                key_arn=args.key_arn,
                log_to=args.log_to,
                statements=policies.own_evidence_only,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.bucket, self.arn = store.bucket, store.arn
        self.register_outputs({"bucket": self.bucket, "arn": self.arn})


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """Arguments for a foundation that serves one cluster or all clusters in an account."""

    scope: Scope
    plan: Plan
    """Plan that contains the audit trail and the budget. Without a budget, no cost alerts are sent."""


class Foundation(pulumi.ComponentResource):
    """Audit trail, keys, evidence bucket and budget."""

    audit: AuditTrail | None
    """The audit trail, or `None` if this stack does not create one."""
    data_key_arn: pulumi.Output[str]
    """KMS key for disks, evidence and file systems."""
    log_key_arn: pulumi.Output[str] | None
    """KMS key for log groups, or `None` without an audit trail."""
    evidence: Evidence
    """The bucket for bundles and evidence."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Foundation", name, None, args.scope.options(opts))
        scope, within = args.scope, pulumi.ResourceOptions(parent=self)
        self.audit = (
            AuditTrail(naming.logical(name, "audit"), AuditTrailArgs(scope=scope, plan=args.plan.audit), within)
            if args.plan.audit.trail
            else None
        )
        self.log_key_arn = self.audit.key_arn if self.audit else None
        self.data_key_arn = Key(
            naming.logical(name, "data"),
            KeyArgs(
                scope=scope,
                purpose="data",
                description=f"Disks, evidence and file systems of {scope.cluster}",
                policy=policies.document(policies.data_key(scope)),
                depends_on=self.audit.guards if self.audit else (),
            ),
            within,
        ).arn
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(scope=scope, key_arn=self.data_key_arn, log_to=self.audit.log_bucket if self.audit else None),
            within,
        )
        if args.plan.budget:
            Budget(naming.logical(name, "budget"), BudgetArgs(scope=scope, plan=args.plan.budget), within)
        self.register_outputs({"data_key_arn": self.data_key_arn, "evidence_bucket": self.evidence.bucket})
