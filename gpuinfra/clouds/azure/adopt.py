"""Find the resources that an earlier `destroy` retained, and their IDs.

An Azure resource ID is a path of names. The names are derived from the subscription and stack (`names.py`), so no stored IDs are needed.
This module makes only read requests; the engine imports the resources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuinfra.base import naming
from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.instances import Lookup
from gpuinfra.clouds.azure.resources import CRYPTO_USER, resources
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import RetainedResource, find_retained

SUBSCRIPTION_VARIABLE = "ARM_SUBSCRIPTION_ID"
"""Environment variable that selects the subscription. The Azure provider also reads it."""

Ask = Callable[[str, str], Mapping[str, Any] | None]
"""Reads a resource by ID and API version. Returns `None` if the resource does not exist."""

VERSIONS = {
    "group": "2024-03-01",
    "vault": "2024-11-01",
    "key": "2024-11-01",
    "identity": "2023-01-31",
    "grant": "2022-04-01",
    "workspace": "2023-09-01",
    "account": "2024-01-01",
    "blobs": "2024-01-01",
    "lifecycle": "2024-01-01",
    "container": "2024-01-01",
    "lock": "2024-01-01",
    "network": "2024-05-01",
    "subnet": "2024-05-01",
    "security-group": "2024-05-01",
    "gateway": "2024-05-01",
    "address": "2024-05-01",
    "file-system": "2024-03-01",
    "files": "2024-01-01",
    "share": "2024-01-01",
    "netapp-account": "2024-09-01",
    "netapp-snapshots": "2024-09-01",
    "netapp-pool": "2024-09-01",
    "netapp-volume": "2024-09-01",
}
"""Maps a kind to its API version in Azure provider 3.29 (docstrings of pulumi-azure-native 3.29.0)."""


class Subscription:
    """Lookups in one subscription."""

    def __init__(self, ask: Ask, subscription: str, plan: Plan, token: str) -> None:
        self._ask, self.id, self._plan, self._token = ask, subscription, plan, token

    def find(self, lookup: Lookup) -> str | None:
        """Return the import ID of a resource, or `None` if the resource does not exist."""
        path = self._grant(lookup) if lookup.kind == "grant" else self.path(lookup)
        return path if path is not None and self._ask(path, VERSIONS[lookup.kind]) is not None else None

    def path(self, lookup: Lookup) -> str:
        """Return the ID of a resource, whether or not the resource exists."""
        kind, purpose = lookup.kind, lookup.purpose
        cluster, token = self._plan.name, self._token
        group = naming.unique_name(cluster, lookup.layer, token, 90)
        if kind == "group":
            return names.group_id(self.id, group)
        account = (names.storage_account(cluster, purpose, self.id, token),)
        netapp, part = ("Microsoft.NetApp", "netAppAccounts", self._unique(purpose, 64)), names.share(lookup.part)
        vault = names.vault(cluster, self.id, token, lookup.region)
        forms: dict[str, tuple[str, ...]] = {
            "vault": ("Microsoft.KeyVault", "vaults", vault),
            "key": ("Microsoft.KeyVault", "vaults", vault, "keys", purpose),
            "identity": ("Microsoft.ManagedIdentity", "userAssignedIdentities", self._unique(f"key-{purpose}", 128)),
            "workspace": ("Microsoft.OperationalInsights", "workspaces", self._unique(purpose, 63)),
            "account": (*_ACCOUNT, *account),
            "blobs": (*_ACCOUNT, *account, *_BLOBS),
            "lifecycle": (*_ACCOUNT, *account, "managementPolicies", "default"),
            "container": (*_ACCOUNT, *account, *_BLOBS, "containers", lookup.part),
            "lock": (*_ACCOUNT, *account, *_BLOBS, "containers", lookup.part, "immutabilityPolicies", "default"),
            "files": (*_ACCOUNT, *account, *_FILES),
            "share": (*_ACCOUNT, *account, *_FILES, "shares", lookup.part),
            "netapp-account": netapp,
            "netapp-snapshots": (*netapp, "snapshotPolicies", part),
            "netapp-pool": (*netapp, "capacityPools", part),
            "netapp-volume": (*netapp, "capacityPools", part, "volumes", part),
            "network": ("Microsoft.Network", "virtualNetworks", self._unique(purpose, 64)),
            "subnet": ("Microsoft.Network", "virtualNetworks", self._unique(purpose, 64), "subnets", lookup.part),
            "security-group": ("Microsoft.Network", "networkSecurityGroups", self._unique(purpose, 80)),
            "gateway": ("Microsoft.Network", "natGateways", self._unique(purpose, 80)),
            "address": ("Microsoft.Network", "publicIPAddresses", self._unique(purpose, 80)),
            "file-system": ("Microsoft.StorageCache", "amlFilesystems", self._unique(purpose, 80)),
        }
        return names.resource_id(self.id, group, *forms[kind])

    def _grant(self, lookup: Lookup) -> str | None:
        """Return the ID of a role assignment. Its name is derived from the principal ID, which is read from the identity."""
        identity = self._ask(self.path(replace(lookup, kind="identity")), VERSIONS["identity"])
        if identity is None:
            return None
        scope = self.path(replace(lookup, kind="key"))
        name = names.role_assignment(scope, str(identity["properties"]["principalId"]), CRYPTO_USER)
        return f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}"

    def _unique(self, purpose: str, limit: int) -> str:
        return naming.unique_name(self._plan.name, purpose, self._token, limit)


_ACCOUNT = ("Microsoft.Storage", "storageAccounts")
_BLOBS = ("blobServices", "default")
_FILES = ("fileServices", "default")


def global_names(plan: Plan) -> list[Lookup]:
    """Return the lookups of the storage accounts and key vaults that `destroy` retains. Their names are unique in Azure."""
    return [one.lookup for one in resources(plan) if one.lookup and one.lookup.kind in ("account", "vault")]


def retained_resources(subscription: Subscription, plan: Plan) -> Sequence[RetainedResource[Lookup]]:
    """Return the retained resources of the plan that exist in the subscription."""
    return find_retained(resources(plan), subscription.find)


def look(
    plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
) -> Sequence[RetainedResource[Lookup]]:
    """Find the retained resources of the plan with the current credentials. Raises `EnvironmentMissing` if Azure cannot be reached."""
    if profile:
        raise UsageError(
            "--profile applies to AWS only; on Azure, select the subscription with `az account set` or ARM_SUBSCRIPTION_ID"
        )
    from gpuinfra.clouds.azure.rest import AzureRefused, Rest, subscription_of
    from gpuinfra.handover.ports import PortUnavailable

    rest = Rest()

    def ask(path: str, api: str) -> Mapping[str, Any] | None:
        try:
            return rest.arm(path, api)
        except AzureRefused as problem:
            if problem.status == 404:
                return None
            raise

    try:
        return retained_resources(
            Subscription(ask, subscription_of(settings) or only_subscription(rest), plan, token), plan
        )
    except PortUnavailable as problem:
        raise EnvironmentMissing(
            f"Azure cannot be reached: {problem}; check the credentials with `az account show`"
        ) from None


def only_subscription(rest: Any) -> str:
    """Return the subscription of the credentials. Raises `EnvironmentMissing` if they have access to several."""
    seen = [str(one["subscriptionId"]) for one in rest.pages("/subscriptions", "2022-12-01")]
    if len(seen) != 1:
        raise EnvironmentMissing(
            f"the credentials have access to {len(seen)} subscriptions; set {SUBSCRIPTION_VARIABLE} to the subscription of this stack"
        )
    return seen[0]
