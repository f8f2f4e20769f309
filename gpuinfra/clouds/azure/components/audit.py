"""The foundation: audit trail, keys, evidence, and budget.

The Activity Log of the subscription is exported to an immutable container and to Log Analytics. For the key vault, see `keys.py`.
`destroy` retains audit records, keys and evidence. Each component can be used on its own, and a cluster can use existing resources instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pulumi
from pulumi_azure_native import consumption, monitor, operationalinsights

from gpuinfra.base import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import data_role, folder_condition, grant
from gpuinfra.clouds.azure.components.groups import resource_group
from gpuinfra.clouds.azure.components.keys import Key, KeyArgs, Vault, VaultArgs, disk_encryption_set, vault_log
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, ImmutabilityLock, PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.instances import ACTIVITY_CONTAINER, BUNDLES, EVIDENCE_CONTAINER, WORKSPACE_DAYS
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import AuditPlan, BudgetPlan, EvidencePlan, Plan

CATEGORIES = (
    "Administrative",
    "Security",
    "ServiceHealth",
    "Alert",
    "Recommendation",
    "Policy",
    "Autoscale",
    "ResourceHealth",
)
"""All categories of the Activity Log (https://learn.microsoft.com/azure/azure-monitor/platform/activity-log-schema)."""
NOTIFICATIONS = 5
"""Maximum number of notifications per budget (https://learn.microsoft.com/rest/api/consumption/budgets)."""


@dataclass(frozen=True, kw_only=True)
class AuditTrailArgs:
    """Arguments for an audit trail."""

    scope: Scope
    plan: AuditPlan
    encryption_key: EncryptionKey | None = None
    """Key that encrypts the records. If unset, Azure uses a Microsoft-managed key."""


class AuditTrail(pulumi.ComponentResource):
    """The Activity Log of the subscription, in an immutable container and in a Log Analytics workspace.

    A subscription can have at most five diagnostic settings, so create one trail in a foundation that clusters share.
    """

    workspace_id: pulumi.Output[str]
    """Log Analytics workspace for the logs."""
    account_id: pulumi.Output[str]
    """Storage account that contains the records."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:AuditTrail", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        workspace = operationalinsights.Workspace(
            rows.WORKSPACE.logical(name),
            workspace_name=scope.unique_name("logs", 63),
            resource_group_name=scope.group,
            sku=operationalinsights.WorkspaceSkuArgs(name="PerGB2018"),
            retention_in_days=min(max(plan.log_retention_days, WORKSPACE_DAYS[0]), WORKSPACE_DAYS[1]),
            features=operationalinsights.WorkspaceFeaturesArgs(
                enable_log_access_using_only_resource_permissions=True, disable_local_auth=True
            ),
            opts=child(self, rows.WORKSPACE),
        )
        self.account_id, ready = self._records(name, args, workspace)
        monitor.SubscriptionDiagnosticSetting(
            rows.ACTIVITY_LOG.logical(name),
            name=scope.unique_name("activity", 64),
            storage_account_id=ready,
            workspace_id=workspace.id,
            logs=[monitor.SubscriptionLogSettingsArgs(category=category, enabled=True) for category in CATEGORIES],
            opts=child(self, rows.ACTIVITY_LOG),
        )
        self.workspace_id = workspace.id
        self.register_outputs({"workspace_id": self.workspace_id, "account_id": self.account_id})

    def _records(
        self, name: str, args: AuditTrailArgs, workspace: operationalinsights.Workspace
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """Return the storage account ID twice. The second output resolves after the container that Azure Monitor writes to is locked."""
        plan = args.plan
        if plan.existing_bucket:
            existing = pulumi.Output.from_input(plan.existing_bucket)
            return existing, existing
        store = PrivateStore(
            naming.logical(name, "records"),
            PrivateStoreArgs(
                scope=args.scope,
                purpose="audit",
                containers=(ACTIVITY_CONTAINER,),
                encryption_key=args.encryption_key,
                lock=ImmutabilityLock(days=plan.lock_days),
                services=True,
                copies=True,
                workspace_id=workspace.id if plan.data_events else None,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        locked = store.containers[ACTIVITY_CONTAINER]
        return store.account_id, pulumi.Output.all(store.account_id, locked).apply(lambda known: str(known[0]))


@dataclass(frozen=True, kw_only=True)
class BudgetArgs:
    """Arguments for a budget."""

    scope: Scope
    plan: BudgetPlan
    today: date
    """Day of the deployment. The budget starts in this month."""


class Budget(pulumi.ComponentResource):
    """A monthly budget for resources that have the cluster tag. It sends notifications but does not stop resources."""

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Budget", name, None, args.scope.options(opts))
        scope, plan = args.scope, args.plan
        budget = consumption.Budget(
            rows.BUDGET.logical(name),
            budget_name=scope.unique_name("month", 63),
            scope=pulumi.Output.concat("/subscriptions/", scope.subscription),
            # Azure interprets the amount in the subscription's billing currency (MicrosoftDocs/azure-docs issue 51742).
            amount=plan.amount_per_month,
            category="Cost",
            time_grain="Monthly",
            time_period=consumption.BudgetTimePeriodArgs(
                start_date=args.today.replace(day=1).strftime("%Y-%m-%dT00:00:00Z")
            ),
            filter=consumption.BudgetFilterArgs(
                tags=consumption.BudgetComparisonExpressionArgs(
                    name="gpuinfra:cluster", operator="In", values=[scope.cluster]
                )
            ),
            notifications=_notifications(plan),
            # A later `up` must not change the start date of the budget.
            opts=child(self, rows.BUDGET, ignore_changes=["timePeriod"]),
        )
        self.name = budget.name
        self.register_outputs({"name": self.name})


def _notifications(plan: BudgetPlan) -> dict[str, consumption.NotificationArgs] | None:
    """Return one notification per threshold of the actual cost, then forecast notifications from the highest threshold down, up to the limit per budget."""
    if not plan.recipients:
        # Azure rejects notifications without recipients. A rule warns about this.
        return None
    wanted = [("Actual", percent) for percent in plan.thresholds_percent]
    wanted += [("Forecasted", percent) for percent in sorted(plan.thresholds_percent, reverse=True)]
    return {
        f"{kind.lower()}-{percent}": consumption.NotificationArgs(
            enabled=True,
            operator="GreaterThanOrEqualTo",
            threshold=float(percent),
            threshold_type=kind,
            contact_emails=list(plan.recipients),
        )
        for kind, percent in wanted[:NOTIFICATIONS]
    }


@dataclass(frozen=True, kw_only=True)
class EvidenceArgs:
    """Arguments for the evidence store."""

    scope: Scope
    plan: EvidencePlan
    encryption_key: EncryptionKey | None = None
    """Key that encrypts the blobs. If unset, Azure uses a Microsoft-managed key."""
    workspace_id: pulumi.Input[str] | None = None
    """Log Analytics workspace for the access log. If unset, access is not logged."""


class Evidence(pulumi.ComponentResource):
    """The container for bundles and evidence. `destroy` retains it, because evidence is needed long after a node is deleted."""

    bucket: pulumi.Output[str]
    """URL of the container. Resolves after the operators have access to it."""
    container_id: pulumi.Output[str]
    """ID of the container. Resolves at the same time as the URL."""
    account_id: pulumi.Output[str]
    """ID of the storage account."""
    prefix: str
    """Evidence folder of this cluster. Each node writes to its own subfolder."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Evidence", name, None, args.scope.options(opts))
        scope = args.scope
        store = PrivateStore(
            naming.logical(name, "store"),
            PrivateStoreArgs(
                scope=scope,
                purpose="evidence",
                containers=(EVIDENCE_CONTAINER,),
                encryption_key=args.encryption_key,
                reached_from=args.plan.reached_from,
                copies=True,
                workspace_id=args.workspace_id,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        container = store.containers[EVIDENCE_CONTAINER]
        # Without a data role, even the owner of a subscription has no access to blobs.
        operators: Sequence[pulumi.Input[str]] = args.plan.operators or (scope.operator,)
        role = data_role(
            name,
            scope,
            rows.OPERATOR_ROLE,
            purpose="operator",
            verbs=("read", "write", "add/action", "delete"),
            account_id=store.account_id,
            parent=self,
        )
        grants = [
            grant(
                rows.OPERATOR_GRANT.logical(name, index=index),
                scope,
                role=role,
                at=container,
                principal=principal,
                principal_type=None,
                why="read evidence and upload bundles",
                condition=folder_condition(reads=None, writes=(BUNDLES,), deletes=(BUNDLES,)),
                opts=child(self, rows.OPERATOR_GRANT),
            )
            for index, principal in enumerate(operators)
        ]
        address = pulumi.Output.concat("https://", store.account_name, ".blob.core.windows.net/", EVIDENCE_CONTAINER)
        self.bucket, self.account_id = ready_after(address, grants), store.account_id
        self.container_id = container
        self.prefix = naming.evidence_prefix(scope.cluster)
        self.register_outputs({"bucket": self.bucket, "account_id": self.account_id, "prefix": self.prefix})


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """Arguments for a foundation that serves one cluster or all clusters in a subscription."""

    scope: Scope
    """A scope without a resource group. The foundation creates its own."""
    plan: Plan
    """Plan that contains the audit trail, the access to the evidence and the budget."""


class Foundation(pulumi.ComponentResource):
    """Audit trail, vault and keys, evidence container, disk encryption and budget, in their own resource group."""

    audit: AuditTrail | None
    """The audit trail, or `None` if this stack does not create one."""
    evidence: Evidence
    """The store for bundles and evidence."""
    data_key: Key
    """Key for disks, evidence and file systems."""
    vault_id: pulumi.Output[str]
    """Key vault that contains the keys."""
    disk_encryption_set_id: pulumi.Output[str]
    """Disk encryption set for the nodes."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Foundation", name, None, args.scope.options(opts))
        within = pulumi.ResourceOptions(parent=self)
        group = resource_group(name, args.scope, "foundation", rows.FOUNDATION_GROUP, within)
        scope = args.scope.within(group.name)
        vault = Vault(naming.logical(name, "vault"), VaultArgs(scope=scope), within)
        self.audit = self._trail(name, scope, args.plan.audit, vault) if args.plan.audit.trail else None
        workspace_id = self.audit.workspace_id if self.audit else None
        if workspace_id is not None:
            vault_log(naming.logical(name, "vault"), vault, workspace_id, self)
        self.data_key = self._key(name, scope, vault, "data")
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(
                scope=scope,
                plan=args.plan.evidence,
                encryption_key=self.data_key.encryption_key,
                workspace_id=workspace_id if args.plan.audit.data_events else None,
            ),
            within,
        )
        self.vault_id = vault.vault_id
        self.disk_encryption_set_id = disk_encryption_set(name, scope, self.data_key, self).id
        if args.plan.budget and args.plan.today:
            budget = BudgetArgs(scope=scope, plan=args.plan.budget, today=args.plan.today)
            Budget(naming.logical(name, "budget"), budget, within)
        self.register_outputs({"vault_id": self.vault_id, "evidence_bucket": self.evidence.bucket})

    def _key(self, name: str, scope: Scope, vault: Vault, purpose: str) -> Key:
        return Key(
            naming.logical(name, "key", purpose),
            KeyArgs(scope=scope, purpose=purpose, vault_name=vault.name, vault_uri=vault.uri, vault_id=vault.vault_id),
            pulumi.ResourceOptions(parent=self),
        )

    def _trail(self, name: str, scope: Scope, plan: AuditPlan, vault: Vault) -> AuditTrail:
        # Records in an existing account are encrypted with that account's key.
        encryption_key = None if plan.existing_bucket else self._key(name, scope, vault, "audit").encryption_key
        return AuditTrail(
            naming.logical(name, "audit"),
            AuditTrailArgs(scope=scope, plan=plan, encryption_key=encryption_key),
            pulumi.ResourceOptions(parent=self),
        )
