"""The resources that must exist in a second region before the first region fails: a vault with a key, replicas of the containers, and their replication.

A container is replicated to a second storage account with object replication (docs/internals/decisions/second-region.md).
Each account is encrypted with a key in its
own region. Role assignments, marketplace images and the budget are global, and the Activity Log covers all regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
from pulumi_azure_native import monitor, storage

from gpuinfra.base import naming
from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.azure.components.grants import data_role, grant
from gpuinfra.clouds.azure.components.groups import resource_group
from gpuinfra.clouds.azure.components.keys import Key, KeyArgs, Vault, VaultArgs, vault_log
from gpuinfra.clouds.azure.components.scope import Scope, child
from gpuinfra.clouds.azure.components.stores import PrivateStore, PrivateStoreArgs
from gpuinfra.clouds.azure.fixed import REPLICATION_POLICY
from gpuinfra.clouds.azure.instances import RECORD_CONTAINER, in_region, replica_container, replica_containers
from gpuinfra.clouds.azure.names import ContainerId
from gpuinfra.clouds.azure.region.recovery import PENDING, early_buckets

ALL_BLOBS = "1601-01-01T00:00:00Z"
"""The earliest creation time, so that existing blobs are also replicated
(https://learn.microsoft.com/azure/storage/blobs/object-replication-configure, retrieved 2026-11-22)."""
NEW_POLICY = "default"
"""ID in a request for a new policy in a destination account. Azure assigns the ID
(https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, retrieved 2026-11-22)."""
CHANGES = tuple(f"Microsoft.Storage/storageAccounts/objectReplicationPolicies/{verb}" for verb in ("write", "delete"))
"""Operations that change or delete a replication policy
(https://learn.microsoft.com/azure/role-based-access-control/permissions/storage, retrieved 2026-11-29)."""
SHORT_NAME = "replication"
"""Name of the action group in messages, at most 12 characters (https://learn.microsoft.com/azure/azure-monitor/alerts/action-groups, retrieved 2026-11-22)."""


@dataclass(frozen=True, kw_only=True)
class RegionCloneArgs:
    """Arguments for the second region."""

    scope: Scope
    """Scope of the first region. A resource group in it is not used."""
    region: str
    """Second region."""
    sources: Mapping[str, pulumi.Input[str]]
    """Resource IDs of the containers to replicate, keyed by the purpose in the replica's name. `evidence` is the evidence container.
    Their accounts need versioning and the change feed. Replication is set up after an ID resolves."""
    recipients: Sequence[str] = ()
    """Email addresses that are notified when replication is late."""
    alert_after_s: int = 3600
    """Age of a pending operation, in seconds, above which recipients are notified.
    Rounded up to a limit of the metric: 5, 10, 15 or 30 minutes, or 2, 8 or 24 hours.
    Values above 24 hours are rounded down."""
    reached_from: tuple[str, ...] = ()
    """Public IPv4 ranges that the firewall of the evidence replica allows.
    If empty, it is reachable only through private endpoints, as are the other replicas."""
    operators: Sequence[pulumi.Input[str]] = ()
    """Object IDs of the principals that can read and write the record of the active region. If empty, this is the identity that creates the component."""
    workspace_id: pulumi.Input[str] | None = None
    """Log Analytics workspace for requests to the vault. If unset, they are not logged."""
    data_events: bool = False
    """If true, the workspace also contains the access logs of the replicas."""


class RegionClone(pulumi.ComponentResource):
    """A vault with a key and replicas in a second region, the replication of containers to them, and alerts on replication lag and on changed policies.

    Replication covers existing and new blobs. Deletions are replicated too, but the replica keeps the previous version of a deleted blob for 90 days.
    The container of a replica is read-only while its policy exists. `destroy` retains the vault, the key and the replicas, and deletes the policies.
    """

    data_key_url: pulumi.Output[str]
    """URL of the first version of the key for the replicas."""
    buckets: dict[str, pulumi.Output[str]]
    """Resource IDs of the containers of the replicas by purpose. Each resolves after the replication is set up."""
    policies: dict[str, pulumi.Output[str]]
    """IDs of the replication policies by purpose. A policy has the same ID in both accounts."""

    def __init__(self, name: str, args: RegionCloneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        second = replace(args.scope, region=args.region)
        super().__init__("gpuinfra:azure:RegionClone", name, None, second.options(opts))
        self._name, self._args, self._inside = name, args, pulumi.ResourceOptions(parent=self)
        layer = in_region("recovery", args.region)
        group = resource_group(name, second, layer, rows.RECOVERY_GROUP, self._inside)
        self._second = second.within(group.name)
        key = self._key()
        self.data_key_url = key.key_url
        groups = self._action_groups()
        self.buckets, self.policies = {}, {}
        policies: list[pulumi.Resource] = []
        accounts: list[pulumi.Output[str]] = []
        for purpose, source in args.sources.items():
            store = self._replica(purpose, key)
            container = store.containers[replica_container(purpose)]
            if purpose == "evidence":
                self._share_record(store)
            policy = self._replicate(purpose, source, store, container)
            self._alert(purpose, policy, groups)
            policies.append(policy)
            first = pulumi.Output.from_input(source).apply(lambda id_: names.container_parts(id_).account_id)
            accounts += [first, store.account_id]
            self.policies[purpose] = policy.policy_id
            self.buckets[purpose] = pulumi.Output.all(container, policy.id).apply(lambda known: str(known[0]))
        self._changes(accounts, policies, groups)
        self.register_outputs({"data_key_url": self.data_key_url, "buckets": self.buckets, "policies": self.policies})

    def _key(self) -> Key:
        args, vault_name = self._args, naming.logical(self._name, "vault")
        vault = Vault(vault_name, VaultArgs(scope=self._second, region=args.region), self._inside)
        if args.workspace_id is not None:
            vault_log(vault_name, vault, args.workspace_id, self)
        return Key(
            naming.logical(self._name, "key", "data"),
            KeyArgs(
                scope=self._second, purpose="data",
                vault_name=vault.name, vault_uri=vault.uri, vault_id=vault.vault_id,
            ),
            self._inside,
        )  # fmt: skip

    def _replica(self, purpose: str, key: Key) -> PrivateStore:
        args, evidence = self._args, purpose == "evidence"
        return PrivateStore(
            naming.logical(self._name, purpose),
            PrivateStoreArgs(
                scope=self._second,
                purpose=in_region(purpose, args.region),
                containers=replica_containers(replica_container(purpose)),
                encryption_key=key.encryption_key,
                reached_from=args.reached_from if evidence else (),
                # Managed Lustre imports the replica in the second region with the account key, as in the first region.
                shared_keys=not evidence,
                workspace_id=args.workspace_id if args.data_events else None,
            ),
            self._inside,
        )

    def _share_record(self, store: PrivateStore) -> None:
        """Allow operators to read and write the record of the active region. Without a data role, even the owner of a subscription has no access to blobs."""
        what = "the record of the active region"
        role = data_role(
            self._name,
            self._second,
            rows.RECORD_ROLE,
            purpose="record",
            verbs=("read", "write", "add/action"),
            account_id=store.account_id,
            parent=self,
            what=what,
        )
        for index, principal in enumerate(self._args.operators or (self._second.operator,)):
            grant(
                rows.RECORD_GRANT.logical(self._name, index=index),
                self._second,
                role=role,
                at=store.containers[RECORD_CONTAINER],
                principal=principal,
                principal_type=None,
                why=f"read and write {what}",
                opts=child(self, rows.RECORD_GRANT),
            )

    def _replicate(
        self, purpose: str, source: pulumi.Input[str], store: PrivateStore, container: pulumi.Output[str]
    ) -> storage.ObjectReplicationPolicy:
        """Create the policy in the replica's account, which assigns IDs to the policy and its rule.
        Then create the policy in the source account with these IDs.

        An update of the first policy would request a second policy for the same accounts, because the provider builds the address of an update from its
        inputs (`Update` in pulumi/pulumi-azure-native: provider/pkg/provider/provider.go, retrieved 2026-11-22). Every change replaces both policies.
        """
        first = pulumi.Output.from_input(source).apply(names.container_parts)
        second = container.apply(names.container_parts)
        accounts = {
            "source_account": first.apply(lambda known: known.account_id),
            "destination_account": second.apply(lambda known: known.account_id),
            "metrics": storage.ObjectReplicationPolicyPropertiesMetricsArgs(enabled=True),
        }
        assigned = storage.ObjectReplicationPolicy(
            rows.REPLICA_POLICY.logical(self._name, purpose=purpose),
            resource_group_name=self._second.group,
            account_name=store.account_name,
            object_replication_policy_id=NEW_POLICY,
            rules=[_rule(first, second)],
            **accounts,
            opts=child(self, rows.REPLICA_POLICY, replace_on_changes=REPLICATION_POLICY, delete_before_replace=True),
        )
        return storage.ObjectReplicationPolicy(
            rows.REPLICATION.logical(self._name, purpose=purpose),
            resource_group_name=first.apply(lambda known: known.group),
            account_name=first.apply(lambda known: known.account),
            object_replication_policy_id=assigned.policy_id,
            rules=[_rule(first, second, assigned.rules.apply(lambda rules: rules[0].rule_id if rules else None))],
            **accounts,
            opts=child(self, rows.REPLICATION, replace_on_changes=REPLICATION_POLICY, delete_before_replace=True),
        )

    def _action_groups(self) -> list[pulumi.Output[str]]:
        scope, recipients = self._second, self._args.recipients
        if not recipients:
            return []
        group = monitor.ActionGroup(
            rows.ALERT_RECIPIENTS.logical(self._name),
            action_group_name=scope.unique_name("replication", 260),
            resource_group_name=scope.group,
            group_short_name=SHORT_NAME,
            location="global",
            enabled=True,
            email_receivers=[
                monitor.MicrosoftCommonEmailReceiverArgs(
                    name=f"recipient-{index}", email_address=recipient, use_common_alert_schema=True
                )
                for index, recipient in enumerate(recipients)
            ],
            opts=child(self, rows.ALERT_RECIPIENTS),
        )
        return [group.id]

    def _alert(
        self,
        purpose: str,
        policy: storage.ObjectReplicationPolicy,
        groups: Sequence[pulumi.Input[str]],
    ) -> None:
        """Alert while operations are pending for longer than the limit. The metric counts pending operations by age.

        The filter excludes the ages below the limit instead of including the ages above it, so an age with an unknown name triggers the alert.
        """
        args, scope = self._args, self._second
        monitor.MetricAlert(
            rows.LAG_ALERT.logical(self._name, purpose=purpose),
            rule_name=scope.unique_name(f"{purpose}-late", 260),
            resource_group_name=scope.group,
            location="global",
            description=f"Replication of the {purpose} container of {scope.cluster} to {args.region} is late",
            severity=2,
            enabled=True,
            scopes=[policy.id],
            evaluation_frequency="PT5M",
            window_size="PT15M",
            criteria=monitor.MetricAlertSingleResourceMultipleMetricCriteriaArgs(
                odata_type="Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                all_of=[
                    monitor.MetricCriteriaArgs(
                        criterion_type="StaticThresholdCriterion",
                        name="pending",
                        metric_namespace=PENDING.namespace,
                        metric_name=PENDING.name,
                        time_aggregation=monitor.AggregationTypeEnum.MAXIMUM,
                        operator=monitor.Operator.GREATER_THAN,
                        threshold=0,
                        dimensions=[
                            monitor.MetricDimensionArgs(
                                name=PENDING.dimension,
                                operator="Exclude",
                                values=list(early_buckets(args.alert_after_s)),
                            )
                        ],
                        # A new policy has not emitted the metric yet.
                        skip_metric_validation=True,
                    )
                ],
            ),
            actions=[monitor.MetricAlertActionArgs(action_group_id=one) for one in groups] or None,
            opts=child(self, rows.LAG_ALERT),
        )

    def _changes(
        self,
        accounts: Sequence[pulumi.Input[str]],
        policies: Sequence[pulumi.Resource],
        groups: Sequence[pulumi.Input[str]],
    ) -> None:
        """Alert when a replication policy is changed or deleted in one of its accounts, also by `gpuinfra failover` or `pulumi up`.

        The alert is created after the policies and deleted before them, so that a deployment and `destroy` send no message.
        """
        scope, leaf = self._second, monitor.AlertRuleAnyOfOrLeafConditionArgs
        monitor.ActivityLogAlert(
            rows.CHANGE_ALERT.logical(self._name),
            activity_log_alert_name=scope.unique_name("changed", 260),
            resource_group_name=scope.group,
            location="global",
            description=f"The replication of a container of {scope.cluster} to {self._args.region} was changed. "
            "gpuinfra failover and failback also change it. If you did not expect this change, run gpuinfra ready, which prints the fix.",
            enabled=True,
            scopes=list(accounts),
            condition=monitor.AlertRuleAllOfConditionArgs(
                all_of=[
                    leaf(field="category", equals="Administrative"),
                    leaf(
                        any_of=[
                            monitor.AlertRuleLeafConditionArgs(field="operationName", equals=one) for one in CHANGES
                        ]
                    ),
                    leaf(field="status", equals="Succeeded"),
                ]
            ),
            actions=monitor.ActionListArgs(
                action_groups=[monitor.ActionGroupArgs(action_group_id=one) for one in groups]
            ),
            opts=child(self, rows.CHANGE_ALERT, depends_on=list(policies)),
        )


def _rule(
    first: pulumi.Output[ContainerId],
    second: pulumi.Output[ContainerId],
    rule_id: pulumi.Output[str | None] | None = None,
) -> storage.ObjectReplicationPolicyRuleArgs:
    return storage.ObjectReplicationPolicyRuleArgs(
        rule_id=rule_id,  # pyright: ignore[reportArgumentType]: unknown in a preview
        source_container=first.apply(lambda known: known.name),
        destination_container=second.apply(lambda known: known.name),
        filters=storage.ObjectReplicationPolicyFilterArgs(min_creation_time=ALL_BLOBS),
    )
