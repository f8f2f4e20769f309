"""Object replication between containers (`core/replication.py`).

A policy replicates if both accounts have it with the same ID. Blobs that are older than the earliest creation time of the rule are not replicated.
https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, retrieved 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure import places, stores
from gpuinfra_rehearsal.cloud.core import outage, replication, wire

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

_STATUS = "azure-replication-status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy that both accounts have."""

    policy: str
    rule: str
    source: tuple[str, str]
    """Account and container."""
    replica: tuple[str, str]
    since: float
    """Creation time of the oldest blob that is replicated."""

    @property
    def mark(self) -> str:
        """Name of the replication status of a blob."""
        return f"or-{self.policy}_{self.rule}"


def rules(store: Store) -> Iterator[Rule]:
    """Yield the rules of all policies that both accounts have and whose containers exist."""
    held = store.list(stores.POLICY)
    for policy_record in held:
        inputs, policy = policy_record.plain, policy_record.id.rsplit("/", 1)[-1]
        accounts = [str(inputs.get(key)).rsplit("/", 1)[-1] for key in ("sourceAccount", "destinationAccount")]
        both = {other.plain.get("accountName") for other in held if other.id.rsplit("/", 1)[-1] == policy}
        if inputs.get("accountName") != accounts[0] or not set(accounts) <= both:
            continue
        for rule in wire.plain(policy_record.outputs).get("rules") or []:
            replica = (accounts[1], str(rule.get("destinationContainer")))
            if stores.container_id(store, *replica) is not None:
                oldest = str((rule.get("filters") or {}).get("minCreationTime") or "")
                since = datetime.fromisoformat(oldest).timestamp() if oldest else policy_record.created
                source = (accounts[0], str(rule.get("sourceContainer")))
                yield Rule(policy=policy, rule=str(rule.get("ruleId")), source=source, replica=replica, since=since)


def run(store: Store) -> None:
    """Copy the blobs that are due. An account in a region with an outage neither sends nor receives blobs."""
    for rule in rules(store):
        if not any(_down(store, account) for account, _ in (rule.source, rule.replica)):
            replication.copy(store, stores.bucket(*rule.source), stores.bucket(*rule.replica), rule.since)
            _record(store, rule)


def _record(store: Store, rule: Rule) -> None:
    """Store the status of the blobs that the replica has. A blob keeps its status after the policy is deleted, until the blob is written again."""
    source = stores.bucket(*rule.source)
    waiting = {key for key, _ in replication.waiting(store, source, stores.bucket(*rule.replica), rule.since)}
    before: dict[str, dict[str, str]] = store.get(_STATUS, source) or {}
    status = {
        f"{key} {etag}": {
            **before.get(f"{key} {etag}", {}),
            **({rule.mark: "complete"} if key not in waiting and modified >= rule.since else {}),
        }
        for key, _, etag, modified in store.objects(source)
    }
    if status != before:
        store.put(_STATUS, source, status)


def _down(store: Store, account: str) -> bool:
    return any(outage.affects(store, one) for one in places.of_id(store, stores.account_id(store, account)))


def pending(store: Store, policy: str) -> list[float]:
    """Return the age in seconds of each blob that waits for replication by a policy."""
    return [
        age
        for rule in rules(store)
        if rule.policy == policy
        for _, age in replication.waiting(store, stores.bucket(*rule.source), stores.bucket(*rule.replica), rule.since)
    ]


def statuses(store: Store, account: str, container: str) -> dict[str, dict[str, str]]:
    """Return the replication status of the blobs in a container by name. A blob that waits for replication has no status.
    Microsoft does not document whether a blob
    keeps its status after the policy is deleted.

    https://learn.microsoft.com/rest/api/storageservices/list-blobs, retrieved 2026-11-26: `or-{policy-id}_{rule-id}`.
    """
    source = stores.bucket(account, container)
    stored: dict[str, dict[str, str]] = store.get(_STATUS, source) or {}
    return {key: stored.get(f"{key} {etag}", {}) for key, _, etag, _ in store.objects(source)}
