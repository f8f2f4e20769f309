"""The foundation: what a cluster answers to, and what outlives it.

An audit trail of the whole account in a locked bucket, the keys, the evidence bucket, the node role (`roles.py`), and the budget alert.
It holds audit and data, so most of it is kept when the stack is destroyed; keys outlive what they encrypt.
An account that has these things hands them in instead; each of the components here can be used alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra import naming
from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.buckets import Lock, PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import AuditPlan, BudgetPlan


@dataclass(frozen=True, kw_only=True)
class KeyArgs:
    """What a key is for."""

    scope: Scope
    purpose: str
    """Part of its alias: `audit`, `data`."""
    description: str
    policy: pulumi.Input[str]
    guards: Sequence[pulumi.Resource] = ()
    """What has to be made first. A key's name is not its own, so a second one is made where another thing would say that everything is there already."""


class Key(pulumi.ComponentResource):
    """A customer key with yearly rotation and a readable alias; both are kept, because what it encrypted is lost without it."""

    arn: pulumi.Output[str]
    """ARN of the key, once its alias exists."""

    def __init__(self, name: str, args: KeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Key", name, None, opts)
        key = aws.kms.Key(
            rows.KEY.logical(name),
            description=args.description,
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=args.policy,
            opts=child(self, rows.KEY, depends_on=args.guards),
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
    """What is recorded, and for how long it cannot be removed."""

    scope: Scope
    plan: AuditPlan


class AuditTrail(pulumi.ComponentResource):
    """One trail over all regions, validated, encrypted, in a locked bucket, and in CloudWatch for alarms.

    An account holds at most five trails per region, so a team puts this into a stack of its own and its clusters use that one.
    """

    key_arn: pulumi.Output[str]
    """Key of the trail and of the stack's logs."""
    bucket: pulumi.Output[str]
    """Bucket of the records."""
    log_bucket: pulumi.Output[str] | None
    """Bucket of the access logs of other buckets."""
    trail_arn: pulumi.Output[str]
    """ARN of the trail."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:AuditTrail", name, None, opts)
        scope, plan = args.scope, args.plan
        trail_name = scope.unique_name("trail", 128)
        # Made from its name, not taken from the resource: the bucket's policy and the key's policy name it before it exists.
        trail_arn = scope.arn("cloudtrail", f"trail/{trail_name}")
        logs = None if plan.existing_bucket else self._access_logs(name, args)
        self.log_bucket = logs.bucket if logs else None
        self.guards = (logs.resource,) if logs else ()
        """Created before any key of the stack."""
        self.key_arn = Key(
            naming.logical(name, "key"),
            KeyArgs(
                scope=scope,
                purpose="audit",
                description=f"Audit trail and logs of {scope.cluster}",
                policy=policies.document(policies.audit_key(scope, trail_arn)),
                guards=self.guards,
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
            # CloudTrail wants the group's ARN with its streams.
            cloud_watch_logs_group_arn=pulumi.Output.concat(group.arn, ":*"),
            cloud_watch_logs_role_arn=role.arn,
            advanced_event_selectors=_selectors(scope, data_events=plan.data_events),
            opts=child(self, rows.TRAIL, depends_on=[delivery]),
        )
        self.trail_arn = trail.arn
        self.register_outputs(
            {"key_arn": self.key_arn, "bucket": self.bucket, "log_bucket": self.log_bucket, "trail_arn": self.trail_arn}
        )

    def _access_logs(self, name: str, args: AuditTrailArgs) -> PrivateBucket:
        scope = args.scope
        # A site and its clusters log here too, so the account and region of the name are held fast and not the stack.
        own_buckets = pulumi.Output.concat("arn:", scope.partition, ":s3:::*-", scope.account, f"-{scope.region}-*")
        return PrivateBucket(
            naming.logical(name, "access"),
            PrivateBucketArgs(
                scope=scope,
                purpose="access",
                # Access logs can be written with S3's own key only.
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
                lock=Lock(days=args.plan.lock_days, mode=args.plan.lock_mode),
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
            assume_role_policy=policies.trust_for_account("cloudtrail.amazonaws.com", scope.account),
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


def _selectors(scope: Scope, *, data_events: bool) -> list[aws.cloudtrail.TrailAdvancedEventSelectorArgs]:
    """Management events always; reads and writes of every bucket where wanted (CIS 4.8, 4.9)."""
    field = aws.cloudtrail.TrailAdvancedEventSelectorFieldSelectorArgs
    selectors = [
        aws.cloudtrail.TrailAdvancedEventSelectorArgs(
            name="management events", field_selectors=[field(field="eventCategory", equals=["Management"])]
        )
    ]
    if data_events:
        # The trail's own deliveries would each be an event, and each of those a delivery.
        own = [
            pulumi.Output.concat("arn:", scope.partition, ":s3:::", scope.bucket_name(purpose), "/")
            for purpose in ("audit", "access")
        ]
        selectors.append(
            aws.cloudtrail.TrailAdvancedEventSelectorArgs(
                name="objects of all buckets",
                field_selectors=[
                    field(field="eventCategory", equals=["Data"]),
                    field(field="resources.type", equals=["AWS::S3::Object"]),
                    field(field="resources.ARN", not_starts_withs=own),
                ],
            )
        )
    return selectors


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """How much a month may cost, and who hears about it."""

    scope: Scope
    plan: BudgetPlan


class Budget(pulumi.ComponentResource):
    """A monthly budget over what carries the cluster's tag.

    AWS counts a tag only after somebody activated it for cost allocation in the billing console, a day after its first use.
    """

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Budget", name, None, opts)
        scope, plan = args.scope, args.plan
        recipients = list(plan.recipients)
        # An alert nobody receives is refused by AWS; the plan warns about it.
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
            limit_amount=f"{plan.limit_usd_per_month:.2f}",
            limit_unit="USD",
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
    """Whose nodes write evidence here."""

    scope: Scope
    key_arn: pulumi.Input[str]
    """Key of the bucket's objects."""
    log_to: pulumi.Input[str] | None = None
    """Bucket that takes its access log; left out, there is none."""


class Evidence(pulumi.ComponentResource):
    """The bucket where nodes fetch their bundle and put what proves them; kept, because evidence is read long after a node is gone."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""
    arn: pulumi.Output[str]
    """ARN of the bucket."""
    prefix: str
    """Where this cluster's nodes write; each into its own folder."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Evidence", name, None, opts)
        store = PrivateBucket(
            naming.logical(name, "store"),
            PrivateBucketArgs(scope=args.scope, purpose="evidence", key_arn=args.key_arn, log_to=args.log_to),
            pulumi.ResourceOptions(parent=self),
        )
        self.bucket, self.arn = store.bucket, store.arn
        self.prefix = naming.evidence_prefix(args.scope.cluster)
        self.register_outputs({"bucket": self.bucket, "arn": self.arn, "prefix": self.prefix})


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """What one cluster, or all clusters of an account, stand on."""

    scope: Scope
    audit: AuditPlan
    budget: BudgetPlan | None
    """Left out, nobody is told when a month grows expensive."""


class Foundation(pulumi.ComponentResource):
    """Audit trail, keys, evidence bucket and budget."""

    audit: AuditTrail | None
    """The audit trail, where this stack makes one."""
    data_key_arn: pulumi.Output[str]
    """Key of disks, evidence and file systems."""
    log_key_arn: pulumi.Output[str] | None
    """Key of log groups, where this stack makes an audit trail."""
    evidence: Evidence
    """Where nodes fetch their bundle and write their evidence."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:Foundation", name, None, opts)
        scope, within = args.scope, pulumi.ResourceOptions(parent=self)
        self.audit = (
            AuditTrail(naming.logical(name, "audit"), AuditTrailArgs(scope=scope, plan=args.audit), within)
            if args.audit.trail
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
                guards=self.audit.guards if self.audit else (),
            ),
            within,
        ).arn
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(scope=scope, key_arn=self.data_key_arn, log_to=self.audit.log_bucket if self.audit else None),
            within,
        )
        if args.budget:
            Budget(naming.logical(name, "budget"), BudgetArgs(scope=scope, plan=args.budget), within)
        self.register_outputs({"data_key_arn": self.data_key_arn, "evidence_bucket": self.evidence.bucket})
