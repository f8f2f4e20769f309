"""The foundation: what a cluster answers to, and what outlives it.

The project's audit configuration, its logs in a bucket that holds them for their days, the same audit records in a locked bucket of Cloud Storage,
keys, the evidence bucket, and the budget alert. It holds audit and data, so most of it is kept when the stack is destroyed.
A project has one audit configuration, and whoever writes it writes all of it: a team puts this into a stack of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp.components.buckets import Lock, PrivateBucket, PrivateBucketArgs
from gpuinfra.clouds.gcp.components.keys import Key, KeyArgs
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.plan.model import AuditPlan, BudgetPlan

AUDIT_LOGS = 'logName:"cloudaudit.googleapis.com"'
FLOW_LOGS = 'log_id("compute.googleapis.com/vpc_flows")'


@dataclass(frozen=True, kw_only=True)
class AuditTrailArgs:
    """What is recorded, and for how long it cannot be removed."""

    scope: Scope
    plan: AuditPlan


class AuditTrail(pulumi.ComponentResource):
    """Audit logs of every service, in a log bucket for searching and in a locked bucket for keeping.

    Admin activity is always recorded by Google; reads and writes of data are recorded because this says so.
    `compliance` locks both buckets for good; `governance` holds the same days, and an owner of the project may lift them.
    """

    key_id: pulumi.Output[str]
    """Key of the records."""
    bucket: pulumi.Output[str]
    """Bucket of the records."""
    log_bucket: pulumi.Output[str]
    """The log bucket, as `projects/P/locations/R/buckets/B`."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:AuditTrail", name, None, opts)
        self._name, self._args = name, args
        self.key_id = self._key()
        self._config()
        self.log_bucket = self._searching()
        self.bucket = self._keeping()
        self.register_outputs({"key_id": self.key_id, "bucket": self.bucket, "log_bucket": self.log_bucket})

    def _logical(self, *parts: str) -> str:
        return naming.logical(self._name, *parts)

    def _key(self) -> pulumi.Output[str]:
        scope = self._args.scope
        within = pulumi.InvokeOutputOptions(parent=self)
        logging = gcp.logging.get_project_cmek_settings_output(project=scope.project, opts=within)
        users = {
            "logging": logging.service_account_id.apply(lambda id_: f"serviceAccount:{id_}"),
            "storage": storage_agent(scope, self),
        }
        args = KeyArgs(scope=scope, purpose="audit", users=users)
        return Key(self._logical("key"), args, pulumi.ResourceOptions(parent=self)).id

    def _config(self) -> None:
        kinds = ("ADMIN_READ", "DATA_READ", "DATA_WRITE") if self._args.plan.data_events else ("ADMIN_READ",)
        gcp.projects.IAMAuditConfig(
            self._logical("config"),
            project=self._args.scope.project,
            service="allServices",
            audit_log_configs=[gcp.projects.IAMAuditConfigAuditLogConfigArgs(log_type=kind) for kind in kinds],
            opts=child(self),
        )

    def _searching(self) -> pulumi.Output[str]:
        scope, plan = self._args.scope, self._args.plan
        logs = gcp.logging.ProjectBucketConfig(
            self._logical("logs"),
            project=scope.project,
            location=scope.region,
            bucket_id=scope.unique_name("audit"),
            description=f"Everything that {scope.cluster}'s project logs, flows apart",
            retention_days=plan.log_retention_days,
            locked=plan.lock_mode == "COMPLIANCE",
            cmek_settings=gcp.logging.ProjectBucketConfigCmekSettingsArgs(kms_key_name=self.key_id),
            opts=child(self, keep=True),
        )
        # Without a filter, as CIS 2.2 wants it; flows have a bucket of their own, with days of their own (network.py).
        gcp.logging.ProjectSink(
            self._logical("everything"),
            name=scope.unique_name("everything"),
            project=scope.project,
            destination=pulumi.Output.concat("logging.googleapis.com/", logs.id),
            unique_writer_identity=True,
            exclusions=[gcp.logging.ProjectSinkExclusionArgs(name="flows", filter=FLOW_LOGS)],
            opts=child(self),
        )
        return logs.id

    def _keeping(self) -> pulumi.Output[str]:
        scope, plan = self._args.scope, self._args.plan
        bucket: pulumi.Output[str] = pulumi.Output.from_input(plan.existing_bucket or "")
        if plan.existing_bucket is None:
            bucket = PrivateBucket(
                self._logical("records"),
                PrivateBucketArgs(
                    scope=scope,
                    purpose="audit",
                    keep=True,
                    key_id=self.key_id,
                    lock=Lock(days=plan.lock_days, forever=plan.lock_mode == "COMPLIANCE"),
                ),
                pulumi.ResourceOptions(parent=self),
            ).bucket
        sink = gcp.logging.ProjectSink(
            self._logical("records"),
            name=scope.unique_name("records"),
            project=scope.project,
            destination=pulumi.Output.concat("storage.googleapis.com/", bucket),
            filter=AUDIT_LOGS,
            unique_writer_identity=True,
            opts=child(self),
        )
        gcp.storage.BucketIAMMember(
            self._logical("writer"),
            bucket=bucket,
            role="roles/storage.objectCreator",
            member=sink.writer_identity,
            opts=child(self),
        )
        return bucket


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """How much a month may cost, and who hears about it."""

    scope: Scope
    plan: BudgetPlan


class Budget(pulumi.ComponentResource):
    """A monthly budget over what carries the cluster's label.

    The people who manage the billing account are told in any case, and the plan's recipients by mail.
    """

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Budget", name, None, opts)
        scope, plan = args.scope, args.plan
        channels = [
            gcp.monitoring.NotificationChannel(
                naming.logical(name, "mail", index),
                project=scope.project,
                type="email",
                display_name=f"Budget of {scope.cluster}",
                labels={"email_address": recipient},
                user_labels=scope.labelled(),
                opts=child(self),
            )
            for index, recipient in enumerate(plan.recipients)
        ]
        budget = gcp.billing.Budget(
            naming.logical(name, "month"),
            billing_account=scope.billing_account,
            display_name=f"{scope.cluster} per month",
            budget_filter=gcp.billing.BudgetBudgetFilterArgs(
                projects=[pulumi.Output.concat("projects/", scope.number)],
                labels={"gpuinfra-cluster": scope.cluster},
                calendar_period="MONTH",
            ),
            amount=gcp.billing.BudgetAmountArgs(
                specified_amount=gcp.billing.BudgetAmountSpecifiedAmountArgs(
                    currency_code="USD", units=str(math.ceil(plan.limit_usd_per_month))
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
            opts=child(self),
        )
        self.name = budget.name
        self.register_outputs({"name": self.name})


@dataclass(frozen=True, kw_only=True)
class EvidenceArgs:
    """Whose nodes write evidence here."""

    scope: Scope
    key_id: pulumi.Input[str] | None = None
    """Key of the bucket's objects; left out, Google's own key is used."""
    operators: tuple[str, ...] = ()
    """Who reads it beside the project's own: members such as `group:ops@example.com`. Whoever is taken out reads no more, so no grant is kept."""


class Evidence(pulumi.ComponentResource):
    """The bucket where nodes fetch their bundle and put what proves them; kept, because evidence is read long after a node is gone."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""
    prefix: str
    """Where this cluster's nodes write; each into its own folder."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Evidence", name, None, opts)
        # No retention: a node renews its proof under the same name. Old versions stay for their days instead.
        store = PrivateBucket(
            naming.logical(name, "store"),
            PrivateBucketArgs(scope=args.scope, purpose="evidence", keep=True, key_id=args.key_id),
            pulumi.ResourceOptions(parent=self),
        )
        self.bucket = store.bucket
        for index, operator in enumerate(args.operators):
            gcp.storage.BucketIAMMember(
                naming.logical(name, "reader", index),
                bucket=self.bucket,
                role="roles/storage.objectViewer",
                member=operator,
                opts=child(self),
            )
        self.prefix = naming.evidence_prefix(args.scope.cluster)
        self.register_outputs({"bucket": self.bucket, "prefix": self.prefix})


def storage_agent(scope: Scope, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Cloud Storage's own account in this project, as a member; asking for it makes it."""
    within = pulumi.InvokeOutputOptions(parent=parent)
    found = gcp.storage.get_project_service_account_output(project=scope.project, opts=within)
    return found.email_address.apply(lambda email: f"serviceAccount:{email}")


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """What one cluster, or all clusters of a project, stand on."""

    scope: Scope
    audit: AuditPlan
    budget: BudgetPlan | None
    """Left out, nobody is told when a month grows expensive."""
    operators: tuple[str, ...] = ()
    """Who reads evidence beside the project's own."""


class Foundation(pulumi.ComponentResource):
    """Audit configuration and records, keys, evidence bucket and budget."""

    audit: AuditTrail | None
    """The audit trail, where this stack makes one."""
    data_key_id: pulumi.Output[str]
    """Key of disks, evidence and file systems."""
    evidence: Evidence
    """Where nodes fetch their bundle and write their evidence."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Foundation", name, None, opts)
        scope, within = args.scope, pulumi.ResourceOptions(parent=self)
        self.audit = (
            AuditTrail(naming.logical(name, "audit"), AuditTrailArgs(scope=scope, plan=args.audit), within)
            if args.audit.trail
            else None
        )
        users = {"compute": scope.agent("compute-system"), "storage": storage_agent(scope, self)}
        self.data_key_id = Key(
            naming.logical(name, "data"), KeyArgs(scope=scope, purpose="data", users=users), within
        ).id
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(scope=scope, key_id=self.data_key_id, operators=args.operators),
            within,
        )
        if args.budget:
            Budget(naming.logical(name, "budget"), BudgetArgs(scope=scope, plan=args.budget), within)
        self.register_outputs({"data_key_id": self.data_key_id, "evidence_bucket": self.evidence.bucket})
