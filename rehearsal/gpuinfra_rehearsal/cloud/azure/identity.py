"""Azure identities, their access tokens, and their role-based access to blobs.

Tokens are random and stored in the store. A token is valid for one hour, one audience and one principal.
Role assignments are evaluated with their conditions (`conditions`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import conditions
from gpuinfra_rehearsal.cloud.azure.builtin_roles import ROLES, Role, of_inputs
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.rights import grant

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
DEFINITION = "azure-native:authorization:RoleDefinition"
OPERATOR = "00000000-0000-4000-8000-00000000000a"
"""The operator's object ID."""
LIFETIME_S = 3600
_RENEW_S = 300
_effective: set[tuple[str, str]] = set()
"""(folder, assignment) of each role assignment that has taken effect in a service."""
CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
BLOBS = f"{CONTAINERS}/blobs"
KEYS = "Microsoft.KeyVault/vaults/keys"


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity for which a token was issued."""

    object_id: str
    name: str
    operator: bool = False


def operator_secret(store: Store) -> str:
    """Return the secret part of the operator's metadata address."""
    with store.change():
        stored = store.get("azure", "operator")
        if stored is None:
            stored = {"secret": secrets.token_urlsafe(18)}
            store.put("azure", "operator", stored)
    return str(stored["secret"])


def identities_of(store: Store, instance: dict[str, Any]) -> list[Resource]:
    """Return the user-assigned identities of a machine."""
    wanted = {str(one).lower() for one in instance["identities"]}
    return [one for one in store.list(IDENTITY) if one.id.lower() in wanted]


def issue(store: Store, principal: Principal, audience: str) -> tuple[str, float]:
    """Return (token, expiration time). Returns the existing token until shortly before it expires."""
    place = f"{principal.object_id} {audience.rstrip('/')}"
    with store.change():
        issued = store.get("azure-issued", place)
        if issued is None or time.time() > issued["expires"] - _RENEW_S:
            issued = {"token": "standin." + secrets.token_urlsafe(48), "expires": time.time() + LIFETIME_S}
            store.put("azure-issued", place, issued)
            store.put(
                "azure-token",
                issued["token"],
                {
                    "principal": principal.object_id, "name": principal.name, "operator": principal.operator,
                    "audience": audience.rstrip("/"), "expires": issued["expires"],
                },
            )  # fmt: skip
    return str(issued["token"]), float(issued["expires"])


def of_token(store: Store, header: str, audiences: tuple[str, ...]) -> Principal:
    """Return the identity behind an Authorization header. Raises CloudError with the codes of the Azure services."""
    kind, _, token = header.partition(" ")
    issued = store.get("azure-token", token) if kind == "Bearer" and token else None
    if issued is None:
        raise ApiRejected("InvalidAuthenticationInfo", "Server failed to authenticate the request. The access token is not valid.", status=401)  # fmt: skip
    if time.time() > issued["expires"]:
        raise ApiRejected("ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than the current UTC time.", status=401)  # fmt: skip
    if issued["audience"] not in audiences:
        raise ApiRejected(
            "InvalidAuthenticationTokenAudience",
            f"The access token has been obtained for the wrong audience '{issued['audience']}'.",
            status=401,
        )
    return Principal(issued["principal"], issued["name"], bool(issued["operator"]))


def may(cloud: Cloud, who: Principal, actions: tuple[str, ...], place: str, attributes: dict[str, str]) -> bool:
    """Return whether a role of `who` at `place` (an ARM ID) or a parent scope allows one of the data actions."""
    for assignment in assignments(cloud.store, who.object_id, place):
        inputs = assignment.plain
        role = role_of(cloud.store, str(inputs.get("roleDefinitionId") or ""))
        condition = str(inputs.get("condition") or "")
        for action in actions:
            if (
                role is not None
                and any(one.allows_data(action) for one in role.permissions)
                and (not condition or conditions.holds(condition, action, attributes))
            ):
                if not who.operator:
                    cloud.rights.used(grant(assignment.urn))
                return True
    if not who.operator:
        cloud.rights.denied(who.name, actions[0], place)
    return False


def assignments(store: Store, principal: str, place: str) -> Iterator[Resource]:
    """Return the role assignments of a principal that apply to a scope."""
    for resource in store.list(ASSIGNMENT):
        inputs = resource.plain
        scope = "/" + str(inputs.get("scope") or "").strip("/")
        if str(inputs.get("principalId")).lower() == principal.lower() and within(place, scope):
            yield resource


def within(place: str, scope: str) -> bool:
    """Return whether a place is a scope or is within it."""
    return (place.lower() + "/").startswith(scope.lower().rstrip("/") + "/")


def may_manage(cloud: Cloud, who: Principal, action: str, place: str) -> bool:
    """Return whether a role of `who` at `place` or a parent scope allows an operation on a resource.

    Conditions of blob roles restrict data actions only, so they are not evaluated here.
    https://learn.microsoft.com/azure/role-based-access-control/conditions-overview, retrieved 2026-11-22.
    """
    for assignment in assignments(cloud.store, who.object_id, place):
        role = role_of(cloud.store, str(assignment.plain.get("roleDefinitionId") or ""))
        if role is not None and any(one.allows(action) for one in role.permissions):
            if not who.operator:
                cloud.rights.used(grant(assignment.urn))
            return True
    if not who.operator:
        cloud.rights.denied(who.name, action, place)
    return False


def uses_key(cloud: Cloud, identities: list[str], key: str) -> bool:
    """Return whether one of the identities can wrap and unwrap with a key (an ARM ID).

    An assignment has no effect on first use, because services apply new assignments only after minutes
    (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting, retrieved 2026-11-22).
    """
    wanted = {one.lower() for one in identities}
    principals = {str(one.outputs.get("principalId")) for one in cloud.store.list(IDENTITY) if one.id.lower() in wanted}
    for principal in sorted(principals):
        for assignment in assignments(cloud.store, principal, key):
            role = role_of(cloud.store, str(assignment.plain.get("roleDefinitionId") or ""))
            if role is None or not any(one.allows_data(f"{KEYS}/wrap/action") for one in role.permissions):
                continue
            # In memory, because a refused operation rolls the store back.
            place = (str(cloud.folder), assignment.id)
            if place in _effective:
                return True
            _effective.add(place)
    return False


def role_of(store: Store, definition: str, at: str | None = None) -> Role | None:
    """Return the built-in or custom role with that ID, or None if it does not exist or cannot be assigned at the scope `at`."""
    guid = definition.rsplit("/", 1)[-1].lower()
    if guid in ROLES:
        return ROLES[guid]
    for resource in store.list(DEFINITION):
        inputs = resource.plain
        scopes = [str(scope) for scope in inputs.get("assignableScopes") or []]
        if resource.id.rsplit("/", 1)[-1].lower() == guid and (
            at is None or any(within(at, scope) for scope in scopes)
        ):
            return of_inputs(inputs)
    return None


def tenant() -> str:
    """Return the tenant of all resources."""
    return SUBSCRIPTION
