"""The foundation: what a cluster answers to, and what outlives it.

The Activity Log of the whole subscription in a locked container and in Log Analytics, the vault and its keys (`keys.py`), the evidence account,
and the budget alert. It holds audit and data, so most of it is kept when the stack is destroyed; keys outlive what they encrypt.
A subscription that has these things hands them in instead; each of the components here can be used alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pulumi
from pulumi_azure_native import consumption, monitor, operationalinsights

from gpuinfra import naming
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import BLOB_CONTRIBUTOR, grant, held_to
from gpuinfra.clouds.azure.components.groups import resource_group
from gpuinfra.clouds.azure.components.keys import Key, KeyArgs, Vault, VaultArgs, disk_encryption_set
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import EncryptionKey, Lock, PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.instances import ACTIVITY_CONTAINER, BUNDLES, EVIDENCE_CONTAINER, WORKSPACE_DAYS
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import AuditPlan, BudgetPlan, EvidencePlan

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
"""Everything that the Activity Log holds (azure.md 6)."""
NOTIFICATIONS = 5
"""Most alerts of one budget (azure.md 9)."""


@dataclass(frozen=True, kw_only=True)
class AuditTrailArgs:
    """What is recorded, and for how long it cannot be removed."""

    scope: Scope
    plan: AuditPlan
    encryption_key: EncryptionKey | None = None
    """Key of the records; left out, Azure's own."""


class AuditTrail(pulumi.ComponentResource):
    """The subscription's Activity Log, in an immutable container and in Log Analytics for searching and alarms.

    A subscription has at most five such settings, so a team puts this into a stack of its own and its clusters use that one.
    """

    workspace_id: pulumi.Output[str]
    """Workspace of the logs."""
    account_id: pulumi.Output[str]
    """Storage account of the records."""

    def __init__(self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:AuditTrail", name, None, opts)
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
        """The account of the records, and the same id once its container is locked: Azure Monitor writes into the container of that name."""
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
                lock=Lock(days=plan.lock_days),
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
    """How much a month may cost, and who hears about it."""

    scope: Scope
    plan: BudgetPlan
    today: date
    """Day of the first deployment; the budget begins with its month."""


class Budget(pulumi.ComponentResource):
    """A monthly budget over what carries the cluster's tag. It tells people and stops nothing."""

    name: pulumi.Output[str]
    """Name of the budget."""

    def __init__(self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Budget", name, None, opts)
        scope, plan = args.scope, args.plan
        budget = consumption.Budget(
            rows.BUDGET.logical(name),
            budget_name=scope.unique_name("month", 63),
            scope=pulumi.Output.concat("/subscriptions/", scope.subscription),
            amount=plan.limit_usd_per_month,
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
            # A budget begins once; the month of a later `up` is no other budget.
            opts=child(self, rows.BUDGET, ignore_changes=["timePeriod"]),
        )
        self.name = budget.name
        self.register_outputs({"name": self.name})


def _notifications(plan: BudgetPlan) -> dict[str, consumption.NotificationArgs] | None:
    """Each threshold when it is reached, and the highest ones also when they are foreseen, as far as a budget has room."""
    if not plan.recipients:
        # An alert that nobody receives is refused by Azure; the plan warns about it.
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
    """Whose nodes write evidence here, and who reads it."""

    scope: Scope
    plan: EvidencePlan
    encryption_key: EncryptionKey | None = None
    """Key of its blobs; left out, Azure's own."""
    workspace_id: pulumi.Input[str] | None = None
    """Workspace that takes its access log; left out, there is none."""


class Evidence(pulumi.ComponentResource):
    """The container where nodes fetch their bundle and put what proves them; kept, because evidence is read long after a node is gone."""

    bucket: pulumi.Output[str]
    """Address of the container, once operators may use it."""
    account_id: pulumi.Output[str]
    """Id of its storage account."""
    prefix: str
    """Where this cluster's nodes write; each into its own folder."""

    def __init__(self, name: str, args: EvidenceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Evidence", name, None, opts)
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
        # Owning a subscription is no right to read its blobs, so whoever brings nodes up is given it here.
        people: Sequence[pulumi.Input[str]] = args.plan.operators or (scope.operator,)
        may = [
            grant(
                rows.OPERATOR_GRANT.logical(name, index=index),
                scope,
                role=BLOB_CONTRIBUTOR,
                at=container,
                principal=person,
                principal_type=None,
                why="reads evidence, and puts bundles where nodes fetch them",
                condition=held_to(reads=None, writes=(BUNDLES,), deletes=(BUNDLES,)),
                opts=child(self, rows.OPERATOR_GRANT),
            )
            for index, person in enumerate(people)
        ]
        address = pulumi.Output.concat("https://", store.account_name, ".blob.core.windows.net/", EVIDENCE_CONTAINER)
        self.bucket, self.account_id = ready_after(address, may), store.account_id
        self.prefix = naming.evidence_prefix(scope.cluster)
        self.register_outputs({"bucket": self.bucket, "account_id": self.account_id, "prefix": self.prefix})


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """What one cluster, or all clusters of a subscription, stand on."""

    scope: Scope
    """Without a resource group: the foundation makes its own."""
    audit: AuditPlan
    evidence: EvidencePlan
    budget: BudgetPlan | None
    """Left out, nobody is told when a month grows expensive."""
    today: date
    """Day of the first deployment."""


class Foundation(pulumi.ComponentResource):
    """Audit trail, vault and keys, evidence container, disk encryption and budget, in a resource group of their own."""

    audit: AuditTrail | None
    """The audit trail, where this stack makes one."""
    evidence: Evidence
    """Where nodes fetch their bundle and write their evidence."""
    data_key: Key
    """Key of disks, evidence and file systems."""
    vault_id: pulumi.Output[str]
    """Vault of the keys."""
    disk_encryption_set_id: pulumi.Output[str]
    """What encrypts the disks of nodes."""

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:azure:Foundation", name, None, opts)
        within = pulumi.ResourceOptions(parent=self)
        group = resource_group(name, args.scope, "foundation", rows.FOUNDATION_GROUP, within)
        scope = args.scope.within(group.name)
        vault = Vault(naming.logical(name, "vault"), VaultArgs(scope=scope), within)
        self.audit = self._trail(name, scope, args.audit, vault) if args.audit.trail else None
        workspace_id = self.audit.workspace_id if self.audit else None
        if workspace_id is not None:
            _vault_log(naming.logical(name, "vault"), vault, workspace_id, self)
        self.data_key = self._key(name, scope, vault, "data")
        self.evidence = Evidence(
            naming.logical(name, "evidence"),
            EvidenceArgs(
                scope=scope,
                plan=args.evidence,
                encryption_key=self.data_key.encryption_key,
                workspace_id=workspace_id if args.audit.data_events else None,
            ),
            within,
        )
        self.vault_id = vault.vault_id
        self.disk_encryption_set_id = disk_encryption_set(name, scope, self.data_key, self).id
        if args.budget:
            Budget(naming.logical(name, "budget"), BudgetArgs(scope=scope, plan=args.budget, today=args.today), within)
        self.register_outputs({"vault_id": self.vault_id, "evidence_bucket": self.evidence.bucket})

    def _key(self, name: str, scope: Scope, vault: Vault, purpose: str) -> Key:
        return Key(
            naming.logical(name, "key", purpose),
            KeyArgs(scope=scope, purpose=purpose, vault_name=vault.name, vault_uri=vault.uri, vault_id=vault.vault_id),
            pulumi.ResourceOptions(parent=self),
        )

    def _trail(self, name: str, scope: Scope, plan: AuditPlan, vault: Vault) -> AuditTrail:
        # Where the records go into somebody else's account, there is nothing here that a key of ours would encrypt.
        encryption_key = None if plan.existing_bucket else self._key(name, scope, vault, "audit").encryption_key
        return AuditTrail(
            naming.logical(name, "audit"),
            AuditTrailArgs(scope=scope, plan=plan, encryption_key=encryption_key),
            pulumi.ResourceOptions(parent=self),
        )


def _vault_log(name: str, vault: Vault, workspace_id: pulumi.Input[str], parent: pulumi.Resource) -> None:
    """Who used which key (CIS 6.1.1.4)."""
    monitor.DiagnosticSetting(
        rows.VAULT_LOG.logical(name),
        name="gpuinfra",
        resource_uri=vault.vault_id,
        workspace_id=workspace_id,
        logs=[monitor.DiagnosticsLogSettingsArgs(category_group="audit", enabled=True)],
        opts=child(parent, rows.VAULT_LOG),
    )
