"""Object replication policies, and the account settings that they require.

Requirements: https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, retrieved 2026-11-22.
The messages of `InvalidRequestPropertyValue` have
the form of recorded errors (recognizegroup/terraform pull requests 461 and 462, Azure/bicep issue 15392); the wording of other messages is not recorded.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.azure.stores import POLICY, SETTINGS
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

NEW = "default"
"""The ID in a request for a new policy in a destination account."""
MOST_POLICIES = 2
"""Maximum policies of an account as a source and as a destination."""
MOST_RULES = 10
KINDS = ("StorageV2", "BlockBlobStorage")
_SPACE = uuid.UUID("8c8f4a52-2f0e-4f4b-9d0a-3a3f6c1d7b60")


def _refused(message: str) -> AzureError:
    return AzureError("InvalidRequestPropertyValue", message)


@behaves
class ReplicationPolicy(Behavior):
    """A policy. It is created in the destination account, which assigns the policy ID and the rule IDs, and then in the source account with these IDs.

    The provider sends an update to the ID in the inputs, so an update of a policy with the ID `default` requests a new policy for the same accounts.
    """

    types = (POLICY,)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        rules = call.plain.get("rules")
        if isinstance(rules, list) and not 1 <= len(rules) <= MOST_RULES:
            yield RejectedInput("rules", f"must have 1 to {MOST_RULES} rules, got {len(rules)}")

    def identify(self, cloud: Cloud, call: Call) -> str | None:
        plain = call.plain
        account = stores.account_id(cloud.store, str(plain.get("accountName")))
        return f"{account}/objectReplicationPolicies/{_id_of(cloud, plain)}"

    def before_create(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        own = str(plain.get("accountName"))
        first, second = (self._account(cloud, plain, one) for one in ("sourceAccount", "destinationAccount"))
        names = [one.id.rsplit("/", 1)[-1] for one in (first, second)]
        if names[0] == names[1]:
            raise _refused(f"The value '{names[1]}' is not allowed for property destinationAccount.")
        if own not in names:
            raise _refused(f"The value '{own}' is not allowed for property accountName.")
        self._settings(cloud.store, names)
        for rule in plain.get("rules") or []:
            for key, name in zip(("sourceContainer", "destinationContainer"), names, strict=True):
                if stores.container_id(cloud.store, name, str(rule.get(key))) is None:
                    raise AzureError(
                        "ContainerNotFound",
                        f"The specified container {rule.get(key)} of the account {name} does not exist.",
                        status=404,
                    )
        others = _policies(cloud.store, own)
        pair = [one for one in others if _names(one) == names]
        if pair:
            raise AzureError("ObjectReplicationPolicyAlreadyExists", f"A policy from {names[0]} to {names[1]} already exists.", status=409)  # fmt: skip
        role = names.index(own)
        if sum(_names(one)[role] == own for one in others) >= MOST_POLICIES:
            raise AzureError("ObjectReplicationPolicyLimitReached", f"The account {own} already has {MOST_POLICIES} policies.", status=409)  # fmt: skip
        if own == names[1]:
            self._new(plain)
        else:
            self._assigned(cloud.store, plain, names)

    def _account(self, cloud: Cloud, plain: dict[str, Any], key: str) -> Resource:
        given = str(plain.get(key))
        account = stores.account(cloud.store, given.rsplit("/", 1)[-1])
        if account is None:
            raise AzureError("ResourceNotFound", f"The Resource 'Microsoft.Storage/storageAccounts/{given}' was not found.", status=404)  # fmt: skip
        inputs = account.plain
        if "/" not in given and not inputs.get("allowCrossTenantReplication"):
            raise _refused(
                f"The value '{given}' is not allowed for property {key}. Specify the full resource ID, because cross tenant replication is not allowed."
            )
        if inputs.get("isHnsEnabled") or inputs.get("kind") not in KINDS:
            raise AzureError("FeatureNotSupportedForAccount", f"Object replication is not supported for the account {given}.")  # fmt: skip
        return account

    def _settings(self, store: Store, names: list[str]) -> None:
        for name in names:
            if not stores.settings(store, name).get("isVersioningEnabled"):
                raise _refused(f"Blob versioning must be enabled on the account {name} for Object Replication.")
        if not (stores.settings(store, names[0]).get("changeFeed") or {}).get("enabled"):
            raise _refused(f"Change feed must be enabled on the source account {names[0]} for Object Replication.")

    def _new(self, plain: dict[str, Any]) -> None:
        if (given := plain.get("objectReplicationPolicyId")) != NEW:
            raise _refused(f"The value '{given}' is not allowed for property policyId.")
        for rule in plain.get("rules") or []:
            if rule.get("ruleId"):
                raise _refused(f"The value '{rule['ruleId']}' is not allowed for property ruleId.")

    def _assigned(self, store: Store, plain: dict[str, Any], names: list[str]) -> None:
        """Check that the source policy has the ID and the rules of the destination policy."""
        given = str(plain.get("objectReplicationPolicyId"))
        held = [one for one in _policies(store, names[1]) if _names(one) == names]
        if [one.id.rsplit("/", 1)[-1] for one in held] != [given]:
            raise _refused(f"The value '{given}' is not allowed for property policyId.")
        assigned = {(one["ruleId"], one["sourceContainer"], one["destinationContainer"]) for one in wire.plain(held[0].outputs["rules"])}  # fmt: skip
        for rule in plain.get("rules") or []:
            if (rule.get("ruleId"), rule.get("sourceContainer"), rule.get("destinationContainer")) not in assigned:
                raise _refused(f"The value '{rule.get('ruleId')}' is not allowed for property ruleId.")

    def created(self, cloud: Cloud, call: Call) -> None:
        own = call.id.rsplit("/", 1)[-1]
        rules = [{"ruleId": str(uuid.uuid5(_SPACE, f"{own}/{index}")), **rule} for index, rule in enumerate(call.plain.get("rules") or [])]  # fmt: skip
        call.outputs |= {"name": own, "policyId": own, "rules": rules, "enabledTime": "2026-01-01T00:00:00Z"}

    updated = created

    def before_update(self, cloud: Cloud, call: Call) -> None:
        if call.plain.get("objectReplicationPolicyId") == NEW:
            raise AzureError("ObjectReplicationPolicyAlreadyExists", "A policy for these accounts already exists.", status=409)  # fmt: skip


def _id_of(cloud: Cloud, plain: dict[str, Any]) -> str:
    given = str(plain.get("objectReplicationPolicyId"))
    if given != NEW:
        return given
    return str(uuid.uuid5(_SPACE, f"{plain.get('accountName')}/{cloud.store.next('replication policy')}"))


def _policies(store: Store, account: str) -> list[Resource]:
    """Return the policies in an account."""
    return [one for one in store.list(POLICY) if one.plain.get("accountName") == account]


def _names(policy: Resource) -> list[str]:
    """Return the names of the source and the destination account."""
    return [str(policy.plain.get(key)).rsplit("/", 1)[-1] for key in ("sourceAccount", "destinationAccount")]


@behaves
class BlobSettings(Behavior):
    """Versioning and the change feed cannot be disabled while a policy of the account requires them."""

    types = (SETTINGS,)

    def before_update(self, cloud: Cloud, call: Call) -> None:
        own = str(call.plain.get("accountName"))
        policies = _policies(cloud.store, own)
        if policies and not call.plain.get("isVersioningEnabled"):
            raise _refused("The value 'False' is not allowed for property isVersioningEnabled because Object Replication is enabled.")  # fmt: skip
        sources = [one for one in policies if _names(one)[0] == own]
        if sources and not (call.plain.get("changeFeed") or {}).get("enabled"):
            raise _refused("The value 'False' is not allowed for property Change Feed because Object Replication is enabled.")  # fmt: skip
