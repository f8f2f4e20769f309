"""The foundation: audit trail, keys, evidence bucket and budget alert. `destroy` retains audit records, keys and data.

The audit trail consists of the project's audit configuration, a log bucket for searching all logs, and a locked Cloud Storage bucket for the
audit records. A project has one audit configuration, and each write replaces it entirely. Teams that share a project should create the foundation
in a separate stack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.buckets import PrivateBucket, PrivateBucketArgs, RetentionLock
from gpuinfra.clouds.gcp.components.keys import Key, KeyArgs
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.plan.model import AuditPlan, BudgetPlan, Plan

AUDIT_LOGS = 'logName:"cloudaudit.googleapis.com"'
FLOW_LOGS = 'log_id("compute.googleapis.com/vpc_flows")'


@dataclass(frozen=True, kw_only=True)
class AuditTrailArgs:
    """Arguments for the audit trail: the recorded events and the retention of the records."""

    scope: Scope
    plan: AuditPlan


class AuditTrail(pulumi.ComponentResource):
    """Audit logs of all services, in a log bucket for searching and in a locked bucket for retention.

    Google Cloud always records admin activity. The audit configuration adds data reads and writes. The lock mode `compliance` locks both buckets
    permanently. With `governance`, the retention is the same, but a project owner can remove it.
    """

    key_id: pulumi.Output[str]
    """Key that encrypts the records."""
    bucket: pulumi.Output[str]
    """Bucket that stores the records."""
    log_bucket: pulumi.Output[str]
    """The log bucket, `projects/P/locations/R/buckets/B`."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:AuditTrail", name, None, args.scope.options(opts))
        self._name, self._args = name, args
        self.key_id = self._key()
        kinds = ("ADMIN_READ", "DATA_READ", "DATA_WRITE") if args.plan.data_events else ("ADMIN_READ",)
        gcp.projects.IAMAuditConfig(
            rows.AUDIT_CONFIG.logical(name),
            # The provider requires the project here, so `Scope.options` cannot set it.
            project=args.scope.project,
            service="allServices",
            audit_log_configs=[gcp.projects.IAMAuditConfigAuditLogConfigArgs(log_type=kind) for kind in kinds],
            opts=child(self, rows.AUDIT_CONFIG),
        )
        self.log_bucket = self._log_bucket()
        self.bucket = self._records()
        self.register_outputs({"key_id": self.key_id, "bucket": self.bucket, "log_bucket": self.log_bucket})

    def _key(self) -> pulumi.Output[str]:
        scope = self._args.scope
        logging = gcp.logging.get_project_cmek_settings_output(
            project=scope.project, opts=pulumi.InvokeOutputOptions(parent=self)
        )
        users = {
            "logging": logging.service_account_id.apply(lambda id_: f"serviceAccount:{id_}"),
            "storage": storage_agent(scope, self),
        }
        args = KeyArgs(scope=scope, purpose="audit", users=users)
        return Key(naming.logical(self._name, "key"), args, pulumi.ResourceOptions(parent=self)).id

    def _log_bucket(self) -> pulumi.Output[str]:
        scope, plan = self._args.scope, self._args.plan
        bucket = gcp.logging.ProjectBucketConfig(
            rows.AUDIT_LOG_BUCKET.logical(self._name),
            # The provider requires the project here.
            project=scope.project,
            location=scope.region,
            bucket_id=scope.unique_name("audit"),
            description=f"All logs of the project of {scope.cluster}, except flow logs",
            retention_days=plan.log_retention_days,
            locked=plan.lock_mode == "COMPLIANCE",
            cmek_settings=gcp.logging.ProjectBucketConfigCmekSettingsArgs(kms_key_name=self.key_id),
            opts=child(self, rows.AUDIT_LOG_BUCKET),
        )
        # No filter, as CIS 2.2 requires. Flow logs have a separate bucket with its own retention (network.py).
        gcp.logging.ProjectSink(
            rows.ALL_LOGS_SINK.logical(self._name),
            name=scope.unique_name("all-logs"),
            destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
            unique_writer_identity=True,
            exclusions=[gcp.logging.ProjectSinkExclusionArgs(name="flows", filter=FLOW_LOGS)],
            opts=child(self, rows.ALL_LOGS_SINK),
        )
        return bucket.id

    def _records(self) -> pulumi.Output[str]:
        scope, plan = self._args.scope, self._args.plan
        bucket: pulumi.Output[str] = pulumi.Output.from_input(plan.existing_bucket or "")
        if plan.existing_bucket is None:
            bucket = PrivateBucket(
                naming.logical(self._name, "records"),
                PrivateBucketArgs(
                    scope=scope,
                    purpose="audit",
                    key_id=self.key_id,
                    lock=RetentionLock(days=plan.lock_days, forever=plan.lock_mode == "COMPLIANCE"),
                ),
                pulumi.ResourceOptions(parent=self),
            ).bucket
        sink = gcp.logging.ProjectSink(
            rows.RECORDS_SINK.logical(self._name),
            name=scope.unique_name("records"),
            destination=pulumi.Output.concat("storage.googleapis.com/", bucket),
            filter=AUDIT_LOGS,
            unique_writer_identity=True,
            opts=child(self, rows.RECORDS_SINK),
        )
        gcp.storage.BucketIAMMember(
            rows.RECORDS_WRITER.logical(self._name),
            bucket=bucket,
            role="roles/storage.objectCreator",
            member=sink.writer_identity,
            opts=child(self, rows.RECORDS_WRITER),
        )
        return bucket


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """Arguments for the budget: the monthly limit and the recipients."""

    scope: Scope
    plan: BudgetPlan


class Budget(pulumi.ComponentResource):
    """A monthly budget for resources that have the cluster label.

    Google Cloud notifies the billing account administrators and sends email to the recipients in the plan.
    """

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Budget", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        channels = [
            gcp.monitoring.NotificationChannel(
                rows.BUDGET_EMAIL.logical(name, index=index),
                type="email",
                display_name=f"Budget of {scope.cluster}",
                # These are channel parameters. The resource labels are `user_labels`.
                labels={"email_address": recipient},
                opts=child(self, rows.BUDGET_EMAIL),
            )
            for index, recipient in enumerate(plan.recipients)
        ]
        budget = gcp.billing.Budget(
            rows.BUDGET.logical(name),
            billing_account=pulumi.Output.all(scope.billing_account, scope.project).apply(
                lambda known: _account(*known)
            ),
            display_name=f"{scope.cluster} per month ({scope.token})",
            budget_filter=gcp.billing.BudgetBudgetFilterArgs(
                projects=[pulumi.Output.concat("projects/", scope.number)],
                labels={"gpuinfra-cluster": scope.cluster},
                calendar_period="MONTH",
            ),
            amount=gcp.billing.BudgetAmountArgs(
                specified_amount=gcp.billing.BudgetAmountSpecifiedAmountArgs(
                    currency_code=plan.currency, units=str(math.ceil(plan.amount_per_month))
                )
            ),
            threshold_rules=[
                gcp.billing.BudgetThresholdRuleArgs(threshold_percent=percent / 100, spend_basis=basis)
                for percent in plan.thresholds_percent
                for basis in ("CURRENT_SPEND", "FORECASTED_SPEND")
            ],
            all_updates_rule=gcp.billing.BudgetAllUpdatesRuleArgs(
                monitoring_notification_channels=[channel.id for channel in channels], schema_version="1.0"
            )
            if channels
            else None,
            opts=child(self, rows.BUDGET),
        )
        self.name = budget.name
        self.register_outputs({"name": self.name})


def _account(account: str, project: str) -> str:
    if not account:
        raise pulumi.RunError(
            f"budget: the billing account of project {project} cannot be read; enable cloudbilling.googleapis.com in the project and "
            "check that the project has a billing account and that your credentials can read it"
        )
    return account


@dataclass(frozen=True, kw_only=True)
class EvidenceArgs:
    """Arguments for the evidence bucket: the key and the readers."""

    scope: Scope
    key_id: pulumi.Input[str] | None = None
    """Key that encrypts the objects. If unset, Google Cloud uses a Google-owned key."""
    operators: tuple[str, ...] = ()
    """Members that can read evidence, for example `group:ops@example.com`. Removing a member from the declaration deletes its grant."""


class Evidence(pulumi.ComponentResource):
    """The bucket for bundles and evidence. `destroy` retains it, because evidence is needed long after a node is deleted."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Evidence", name, None, args.scope.options(opts))
        # No retention policy, because nodes of earlier versions replace their proofs. Instead, old versions are kept for a limited time.
        self.bucket = PrivateBucket(
            naming.logical(name, "store"),
            PrivateBucketArgs(scope=args.scope, purpose="evidence", key_id=args.key_id),
            pulumi.ResourceOptions(parent=self),
        ).bucket
        for index, operator in enumerate(args.operators):
            gcp.storage.BucketIAMMember(
                rows.EVIDENCE_READER.logical(name, index=index),
                bucket=self.bucket,
                role="roles/storage.objectViewer",
                member=operator,
                opts=child(self, rows.EVIDENCE_READER),
            )
        self.register_outputs({"bucket": self.bucket})


def storage_agent(scope: Scope, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Return the Cloud Storage service agent of this project, as a member. The call creates the agent if it does not exist."""
    agent = gcp.storage.get_project_service_account_output(
        project=scope.project, opts=pulumi.InvokeOutputOptions(parent=parent)
    )
    return agent.email_address.apply(lambda email: f"serviceAccount:{email}")


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """Arguments for a foundation that serves one cluster or all clusters in a project: audit, budget and readers."""

    scope: Scope
    plan: Plan
    """Plan that contains the audit records, the readers of the evidence and the budget."""


class Foundation(pulumi.ComponentResource):
    """Audit trail, keys, evidence bucket and budget."""

    audit: AuditTrail | None
    """The audit trail, or `None` if this stack does not create one."""
    data_key_id: pulumi.Output[str]
    """Key for disks, evidence and file systems."""
    evidence: Evidence
    """The bucket for bundles and evidence."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Foundation", name, None, args.scope.options(opts))
        scope, below = args.scope, pulumi.ResourceOptions(parent=self)
        self.audit = None
        if args.plan.audit.trail:
            self.audit = AuditTrail(
                naming.logical(name, "audit"), AuditTrailArgs(scope=scope, plan=args.plan.audit), below
            )
        users = {"compute": scope.agent("compute-system"), "storage": storage_agent(scope, self)}
        data_key = Key(naming.logical(name, "data"), KeyArgs(scope=scope, purpose="data", users=users), below)
        self.data_key_id = data_key.id
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(scope=scope, key_id=self.data_key_id, operators=args.plan.evidence.operators),
            below,
        )
        if args.plan.budget:
            Budget(naming.logical(name, "budget"), BudgetArgs(scope=scope, plan=args.plan.budget), below)
        self.register_outputs({"data_key_id": self.data_key_id, "evidence_bucket": self.evidence.bucket})
