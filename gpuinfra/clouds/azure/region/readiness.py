"""Reads the second region of a stack: replication policies, replicas, their lag, keys, roles and bundles.

This module reads only the management API and the evidence container of the first region, so operators need no data role in a replica's account.
The replication status of a blob is in a header of the source blob. Azure does not publish the number of blobs that were not replicated.

Requests and responses: the REST references of Storage (Object Replication Policies, Storage Accounts and Blob Containers), Key Vault (Keys),
Authorization (Role Assignments) and Monitor (Metrics) and their models in the azure-mgmt packages, and Get Blob Properties
(https://learn.microsoft.com/rest/api/storageservices/get-blob-properties: `x-ms-or-{policy-id}_{rule-id}` is `complete` or `failed`), retrieved 2026-11-23.
Vaults - List By Subscription and Storage Accounts - List return the vaults and the accounts of a subscription.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from gpuinfra.clouds.azure.region.recovery import BUCKETS, PENDING
from gpuinfra.clouds.azure.rest import AzureRefused, Rest, raise_for
from gpuinfra.clouds.region.readiness import (
    ReadinessLine,
    ReadinessQuestion,
    Resource,
    Unread,
    asked,
    deployed,
    exports_run,
    fails,
    key,
    lag,
    located,
    of_pair,
    passes,
    role,
    secrets,
    skips,
    state,
)
from gpuinfra.handover.ports import PortUnavailable

POLICY = "azure-native:storage:ObjectReplicationPolicy"
VAULT = "azure-native:keyvault:Vault"
KEY = "azure-native:keyvault:Key"
GRANT = "azure-native:authorization:RoleAssignment"
UPLOAD = "gpuinfra:index:Upload"
SCHEDULE = "azure-native:logic:Workflow"
ENABLED = "Enabled"
"""State of a workflow that runs."""
STORAGE, KEYS, GRANTS, METRICS, LOGIC = "2024-01-01", "2024-11-01", "2022-04-01", "2024-02-01", "2019-05-01"
"""API versions."""
TIMEOUT_S = 20.0
RECENT = timedelta(hours=1)
NEWEST = timedelta(minutes=15)
"""Maximum age of the values that count, relative to the newest value. The lag alert uses the same window."""

Get = Callable[[str, str, Mapping[str, str]], dict[str, Any] | None]
"""Reads a resource, given its ID, the API version and parameters. Returns None if the resource does not exist. Raises `Unread`."""
Every = Callable[[str, str], Iterable[Mapping[str, Any]]]
"""Reads all entries of a list, given its path and the API version. Raises `Unread`."""
Head = Callable[[str, str], Mapping[str, str] | None]
"""Reads the headers of a blob, given the container's address and the blob's name. Header names are in lower case.
Returns None if the blob does not exist. Raises `Unread`."""


def look(question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Read the second region with the credentials from the environment."""
    rest = Rest(timeout_s=TIMEOUT_S)

    def get(path: str, api: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        try:
            return rest.arm(path, api, query)
        except AzureRefused as problem:
            if problem.status == 404:
                return None
            raise Unread(str(problem)) from None
        except PortUnavailable as problem:
            raise Unread(str(problem)) from None

    def head(container: str, name: str) -> Mapping[str, str] | None:
        try:
            answer = rest.blob("HEAD", f"{rest.blob_base(container)}/{quote(name, safe='/-_.~')}")
            if answer.status == 404:
                return None
            raise_for(answer)
        except PortUnavailable as problem:
            raise Unread(str(problem)) from None
        return {name.lower(): value for name, value in answer.headers.items()}

    def every(path: str, api: str) -> Iterator[Mapping[str, Any]]:
        try:
            yield from rest.pages(path, api)
        except PortUnavailable as problem:
            raise Unread(str(problem)) from None

    yield from lines(question, get, head, datetime.now(UTC))
    yield from backend(question, every, os.environ)
    yield from vaults(question, every)


def lines(question: ReadinessQuestion, get: Get, head: Head, now: datetime) -> Iterator[ReadinessLine]:
    """Return the lines for the resources in the state."""
    second = question.recovery.region
    vaults = {str(one.get("id")): one for one in question.of_type(VAULT) if _location(one.get("outputs")) == second}
    keys = [id_ for one in question.of_type(KEY) if _vault_of(id_ := str(one.get("id"))) in vaults]
    uris = {_uri(((one.get("outputs") or {}).get("properties") or {}).get("vaultUri")) for one in vaults.values()}
    pairs = [
        _Pair(
            question, get, now, uris, policy=one.policy, accounts=(one.source, one.replica), containers=one.containers
        )
        for one in policies(question.of_type(POLICY))
    ]
    yield from deployed(question, len(pairs), len(keys))
    for pair in pairs:
        yield from of_pair(pair.source, pair.replica, pair)
    for name in keys:
        yield from asked("key", _short(name), lambda name=name: _key(get, name))
    for grant in (str(one.get("id")) for one in question.of_type(GRANT)):
        scope, _, name = grant.rpartition("/providers/Microsoft.Authorization/roleAssignments/")
        if scope in keys:
            yield from asked("role", name, lambda grant=grant, scope=scope, name=name: _role(get, grant, scope, name))
    for schedule in (str(one.get("id")) for one in schedules_in(question.resources)):
        yield from asked("export", last(schedule), lambda one=schedule: [_schedule(get, one)])
    for upload in question.of_type(UPLOAD):
        outputs = upload.get("outputs") or {}
        container, name = str(outputs.get("container")), str(outputs.get("blob"))
        account = container.removeprefix("https://").partition(".")[0]
        for pair in pairs:
            if pair.source == f"{account}/{container.rpartition('/')[2]}":
                yield from asked("bundle", name, lambda c=container, n=name, p=pair: p.bundle(head, c, n))


def schedules_in(resources: Iterable[Resource]) -> Iterator[Resource]:
    """Yield the workflows in a stack's state that export a file system. A program can create other workflows."""
    for resource in resources:
        outputs = (resource.get("outputs") or {}) if resource.get("type") == SCHEDULE else {}
        if "/archive?" in str(outputs.get("definition")):
            yield resource


def _schedule(get: Get, id_: str) -> ReadinessLine:
    answer = get(id_, LOGIC, {})
    fix = f"az rest --method post --url '{id_}/enable?api-version={LOGIC}'" if answer else ""
    return exports_run(
        last(id_), str(((answer or {}).get("properties") or {}).get("state") or "") or None, ENABLED, fix
    )


def backend(question: ReadinessQuestion, every: Every, environment: Mapping[str, str]) -> Iterator[ReadinessLine]:
    """Read the region of the storage account that contains the Pulumi state.

    The account is in the URL (`azblob://CONTAINER?storage_account=ACCOUNT`) or in the variable `AZURE_STORAGE_ACCOUNT`. The account can be
    in another subscription.
    """
    name, url = question.backend
    parts = urlsplit(url)
    if parts.scheme != "azblob":
        return
    account = (parse_qs(parts.query).get("storage_account") or [environment.get("AZURE_STORAGE_ACCOUNT", "")])[0]
    subscription = _subscription(question)

    def home() -> Iterator[ReadinessLine]:
        accounts = every(f"/subscriptions/{subscription}/providers/Microsoft.Storage/storageAccounts", STORAGE)
        account_record = next((one for one in accounts if one.get("name") == account), None)
        if account_record is None:
            reason = (
                f"the storage account {account or 'of the state backend'} is not in the subscription {subscription}"
            )
            yield skips("state", name, reason)
        else:
            yield state(question, _location(account_record))

    yield from asked("state", name, home)


def vaults(question: ReadinessQuestion, every: Every) -> Iterator[ReadinessLine]:
    """Read the region of each Key Vault that encrypts the secrets of a stack (`azurekeyvault://VAULT.vault.azure.net/keys/KEY`).

    URLs: https://www.pulumi.com/docs/iac/concepts/secrets/; requests: Vaults - List By Subscription
    (https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/list-by-subscription); both retrieved 2026-11-27.
    """
    for name, url in question.secrets:
        parts = urlsplit(url)
        if parts.scheme == "azurekeyvault":
            vault = (parts.hostname or "").partition(".")[0]
            yield from asked("state", name, lambda name=name, vault=vault: [_vault(question, every, name, vault)])


def _vault(question: ReadinessQuestion, every: Every, name: str, vault: str) -> ReadinessLine:
    subscription = _subscription(question)
    listed = every(f"/subscriptions/{subscription}/providers/Microsoft.KeyVault/vaults", KEYS)
    # The names of vaults are not case-sensitive.
    vault_record = next((one for one in listed if str(one.get("name")).lower() == vault.lower()), None)
    if vault_record is None:
        return skips("state", name, f"the vault {vault} is not in the subscription {subscription}")
    return secrets(question, name, _location(vault_record))


def _subscription(question: ReadinessQuestion) -> str:
    ids = (str(one.get("id")) for one in question.resources)
    return next((id_.split("/")[2] for id_ in ids if id_.startswith("/subscriptions/")), "")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A replication policy that a state contains in both accounts."""

    policy: str
    source: str
    """ID of the account in the first region."""
    replica: str
    """ID of the account in the second region."""
    containers: tuple[str, str]
    """Names of the containers in both accounts."""


def policies(resources: Iterable[Resource]) -> Iterator[Policy]:
    """Return the replication policies that a state contains in both accounts."""
    held: dict[str, dict[str, Resource]] = defaultdict(dict)
    for resource in resources:
        if resource.get("type") == POLICY:
            account, _, policy = str(resource.get("id")).rpartition("/objectReplicationPolicies/")
            held[policy][account] = resource
    for policy, accounts in held.items():
        outputs = next(iter(accounts.values())).get("outputs") or {}
        rule = (outputs.get("rules") or [{}])[0]
        # Azure returns the names of the accounts or their IDs.
        by_name = {last(account): account for account in accounts}
        first, second = (by_name.get(last(str(outputs.get(name)))) for name in ("sourceAccount", "destinationAccount"))
        if first and second:
            containers = (str(rule.get("sourceContainer")), str(rule.get("destinationContainer")))
            yield Policy(policy=policy, source=first, replica=second, containers=containers)


class _Pair:
    """A container and its replica, with the policy in both accounts."""

    def __init__(
        self,
        question: ReadinessQuestion,
        get: Get,
        now: datetime,
        vaults: set[str],
        *,
        policy: str,
        accounts: tuple[str, str],
        containers: tuple[str, str],
    ) -> None:
        self._question, self._get, self._now, self._vaults, self._policy = question, get, now, vaults, policy
        self._accounts, self._containers = accounts, containers
        self.source, self.replica = (
            f"{last(account)}/{name}" for account, name in zip(accounts, containers, strict=True)
        )

    def replication(self) -> Iterator[ReadinessLine]:
        """Both accounts have the policy, and one of its rules copies all blobs of the container."""
        for account in self._accounts:
            answer = self._get(self._path(account), STORAGE, {})
            if answer is None:
                yield self._broken(f"the account {last(account)} does not have the replication policy {self._policy}")
                return
            rules = (answer.get("properties") or {}).get("rules") or []
            ours = [
                one
                for one in rules
                if (one.get("sourceContainer"), one.get("destinationContainer")) == self._containers
            ]
            if not ours:
                yield self._broken(
                    f"no rule of the replication policy in the account {last(account)} copies to {self.replica}"
                )
                return
            if prefixes := (ours[0].get("filters") or {}).get("prefixMatch"):
                yield self._broken(f"the rule copies only blobs whose names start with {', '.join(prefixes)}")
                return
        yield passes("replication", self.source, f"copies to {self.replica}")

    def exists(self) -> Iterator[ReadinessLine]:
        """The container exists in the second region, and its account uses a key in a vault of the stack in that region."""
        account, second = self._accounts[1], self._question.recovery.region
        answer = self._get(account, STORAGE, {})
        container = self._get(f"{account}/blobServices/default/containers/{self._containers[1]}", STORAGE, {})
        what = "account" if answer is None else "container"
        location = None if answer is None or container is None else _location(answer)
        yield located(self.replica, location, second, missing=f"the {what} does not exist")
        if answer is None:
            return
        encryption = (answer.get("properties") or {}).get("encryption") or {}
        uri = _uri((encryption.get("keyvaultproperties") or {}).get("keyvaulturi"))
        if uri in self._vaults:
            yield passes("key", last(account), f"uses a key in {second}")
        else:
            used = f"a key of {uri}" if uri else "a Microsoft-managed key"
            yield fails("key", last(account), f"the account uses {used}, not a key of this stack in {second}")

    def lag(self) -> Iterator[ReadinessLine]:
        """Azure publishes the number of pending operations by age. The lag is the upper limit of the oldest age."""
        id_ = self._path(self._accounts[0])
        query = {
            "metricnames": PENDING.name,
            "metricnamespace": PENDING.namespace,
            "aggregation": "Maximum",
            "interval": "PT5M",
            "timespan": f"{_iso(self._now - RECENT)}/{_iso(self._now)}",
            "$filter": f"{PENDING.dimension} eq '*'",
        }
        answer = self._get(f"{id_}/providers/Microsoft.Insights/metrics", METRICS, query)
        if answer is None:
            return  # Without a policy, which `replication` reports, there are no metrics.
        limits = {name: minutes * 60 for name, minutes in BUCKETS}
        pending = {age: limits.get(age, inf) for age in _pending(answer)}
        oldest = max(pending, key=lambda age: pending[age], default="")
        fix = f"az monitor metrics list --resource {id_} --metric {PENDING.name} --interval PT5M --filter \"{PENDING.dimension} eq '*'\""
        yield lag(self._question, self.source, pending.get(oldest), fix, shown=oldest)

    def bundle(self, head: Head, container: str, name: str) -> Iterator[ReadinessLine]:
        """The source blob has the replication status."""
        headers = head(container, name)
        mark = f"x-ms-or-{self._policy}_".lower()
        states = {value.lower() for header, value in (headers or {}).items() if header.startswith(mark)}
        if headers is None:
            reason = f"the bundle is not in {self.source}"
        elif "failed" in states:
            reason = (
                f"Azure did not replicate the bundle to {self.replica}; "
                "https://learn.microsoft.com/azure/storage/blobs/object-replication-overview lists the requirements"
            )
        elif "complete" not in states:
            reason = f"the bundle has no replication status, so it is not in {self.replica} yet"
        else:
            yield passes("bundle", name, f"is in {self.replica}")
            return
        yield fails("bundle", name, reason)

    def _path(self, account: str) -> str:
        return f"{account}/objectReplicationPolicies/{self._policy}"

    def _broken(self, reason: str) -> ReadinessLine:
        return fails("replication", self.source, reason)


def _pending(answer: Mapping[str, Any]) -> Iterator[str]:
    """Return the ages of the pending operations, as values of the dimension."""
    (metric,) = answer.get("value") or [{}]
    code = metric.get("errorCode") or "Success"
    if code != "Success":
        raise Unread(f"{PENDING.name}: {code}: {metric.get('errorMessage') or ''}")
    points = [
        (datetime.fromisoformat(str(point["timeStamp"])), float(point["maximum"]), _age(series))
        for series in metric.get("timeseries") or []
        for point in series.get("data") or []
        if point.get("maximum") is not None
    ]
    newest = max((at for at, _, _ in points), default=None)
    for at, value, age in points:
        if newest is not None and value > 0 and at > newest - NEWEST:
            yield age


def _age(series: Mapping[str, Any]) -> str:
    for metadata in series.get("metadatavalues") or []:
        if str((metadata.get("name") or {}).get("value")).lower() == PENDING.dimension.lower():
            return str(metadata.get("value"))
    return "an unknown time"


def _key(get: Get, name: str) -> Iterator[ReadinessLine]:
    answer = get(name, KEYS, {})
    enabled = (((answer or {}).get("properties") or {}).get("attributes") or {}).get("enabled")
    state = None if answer is None else "enabled" if enabled else "disabled"
    fix = f"az keyvault key set-attributes --vault-name {last(_vault_of(name))} --name {last(name)} --enabled true"
    yield key(_short(name), state, fix)


def _role(get: Get, grant: str, scope: str, name: str) -> Iterator[ReadinessLine]:
    reason = f"the accounts of the replicas have no role for the key {_short(scope)}, so the replicas cannot be read"
    yield role(name, reason, exists=get(grant, GRANTS, {}) is not None)


def _location(resource: Mapping[str, Any] | None) -> str:
    """Return the region of a resource, as in declarations. Azure also returns display names such as `East US 2`."""
    return str((resource or {}).get("location") or "").replace(" ", "").lower()


def _uri(value: object) -> str:
    return str(value or "").rstrip("/").lower()


def _vault_of(key_id: str) -> str:
    return key_id.rpartition("/keys/")[0]


def _short(key_id: str) -> str:
    return f"{last(_vault_of(key_id))}/{last(key_id)}"


def last(path: str) -> str:
    """Return the last segment of a path."""
    return path.rpartition("/")[2]


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
