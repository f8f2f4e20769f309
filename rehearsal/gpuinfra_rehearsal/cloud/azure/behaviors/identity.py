"""Identities, role assignments, key vaults, diagnostic settings, and lookups of the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.azure import identity, stores
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.azure.identity import ASSIGNMENT, DEFINITION, IDENTITY
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, answers, behaves

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

VAULT = "azure-native:keyvault:Vault"
KEY = "azure-native:keyvault:Key"
SUBSCRIPTION_LOG = "azure-native:monitor:SubscriptionDiagnosticSetting"
SETTINGS = 5
"""Diagnostic settings of one resource. https://learn.microsoft.com/azure/azure-monitor/platform/diagnostic-settings,
retrieved 2026-11-21."""


@answers("azure-native:authorization:getClientConfig")
def client(cloud: Cloud, args: Mapping[str, Any], region: str) -> dict[str, Any]:
    who = identity.OPERATOR
    return {"clientId": who, "objectId": who, "subscriptionId": SUBSCRIPTION, "tenantId": identity.tenant()}


@answers("azure-native:authorization:getClientToken")
def token(cloud: Cloud, args: Mapping[str, Any], region: str) -> dict[str, Any]:
    who = identity.Principal(identity.OPERATOR, "operator", True)
    return {"token": identity.issue(cloud.store, who, str(args.get("endpoint") or "https://management.azure.com"))[0]}


@behaves
class Identity(Behavior):
    types = (IDENTITY,)

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("azure-identity")
        call.outputs |= {
            "principalId": f"00000000-0000-4b00-8000-{number:012x}",
            "clientId": f"00000000-0000-4c00-8000-{number:012x}",
            "tenantId": identity.tenant(),
        }


_GUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z"


@behaves
class RoleDefinition(Behavior):
    """A custom role. Its display name is unique in the tenant, and it is deleted after its assignments.

    https://learn.microsoft.com/azure/role-based-access-control/custom-roles, retrieved 2026-11-22.
    """

    types = (DEFINITION,)
    shapes = {"roleDefinitionId": (_GUID, "The role definition ID '{value}' is not valid. The role definition ID must be a GUID.")}  # fmt: skip
    unique = (("roleName", "global"),)
    taken = AzureError(
        "RoleDefinitionWithSameNameExists",
        "A custom role with the same name already exists in this directory. Use a different name.",
        status=409,
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        scope, scopes = str(call.plain.get("scope")), call.plain.get("assignableScopes") or []
        if not any(identity.within(scope, str(one)) for one in scopes):
            text = f"The assignable scopes of the role definition do not include its scope '{scope}'."
            raise AzureError("InvalidRoleDefinitionAssignableScope", text)

    before_update = before_create

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        guid = resource.id.rsplit("/", 1)[-1].lower()
        for assignment in cloud.store.list(ASSIGNMENT):
            if str(assignment.plain.get("roleDefinitionId")).rsplit("/", 1)[-1].lower() == guid:
                text = f"There are existing role assignments referencing role (code: {guid})."
                raise AzureError("RoleDefinitionHasAssignments", text, status=400)


@behaves
class RoleAssignment(Behavior):
    """A role assignment. It is unique by principal, role and scope. Its name is a GUID, and its role must be assignable at its scope."""

    types = (ASSIGNMENT,)
    shapes = {
        "roleAssignmentName": (
            _GUID,
            "The role assignment ID '{value}' is not valid. The role assignment ID must be a GUID.",
        )
    }
    taken = AzureError("RoleAssignmentExists", "The role assignment already exists.", status=409)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        scope, definition = f"/{str(call.plain.get('scope')).strip('/')}", str(call.plain.get("roleDefinitionId"))
        if identity.role_of(cloud.store, definition, scope) is None:
            text = f"The specified role definition with ID '{definition.rsplit('/', 1)[-1]}' does not exist."
            raise AzureError("RoleDefinitionDoesNotExist", text)

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        plain = call.plain
        parts = [str(plain.get(key) or "").lower() for key in ("scope", "principalId", "roleDefinitionId")]
        yield f"{call.token} {parts[0]}", "|".join((parts[1], parts[2].rsplit("/", 1)[-1]))


@behaves
class Vault(Behavior):
    """A deleted vault reserves its name until its retention period ends."""

    types = (VAULT,)
    unique = (("vaultName", "global"),)
    taken = AzureError(
        "VaultAlreadyExists",
        "The vault name '{name}' is already in use. Vault names are globally unique so it is possible that the name is already taken.",
        status=409,
    )

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("vaultName") or call.name)
        if cloud.store.get("azure-deleted-vault", name):
            text = f"A vault with the same name already exists in deleted state. You need to either recover or purge existing key vault. ({name})"
            raise AzureError("ConflictError", text, status=409)

    def created(self, cloud: Cloud, call: Call) -> None:
        name = call.id.rsplit("/", 1)[-1]
        call.outputs["properties"] = {
            **(call.outputs.get("properties") or {}),
            "vaultUri": f"https://{name}.vault.azure.net/",
        }

    updated = created

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        cloud.store.put("azure-deleted-vault", resource.id.rsplit("/", 1)[-1], {"id": resource.id})
        for key in cloud.store.list(KEY):
            if key.id.lower().startswith(resource.id.lower() + "/"):
                cloud.store.remove(key)


@behaves
class Key(Behavior):
    """The provider creates keys through ARM but cannot delete them, because ARM has no such call."""

    types = (KEY,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("vaultName"))
        if not any(one.id.rsplit("/", 1)[-1] == name for one in cloud.store.list(VAULT)):
            raise AzureError(
                "ParentResourceNotFound",
                "Failed to perform 'write' on resource(s) of type 'vaults/keys', "
                f"because the parent resource 'Microsoft.KeyVault/vaults/{name}' could not be found.",
                status=404,
            )

    def created(self, cloud: Cloud, call: Call) -> None:
        vault, name = str(call.plain.get("vaultName")), call.id.rsplit("/", 1)[-1]
        uri = f"https://{vault}.vault.azure.net/keys/{name}"
        call.outputs |= {"keyUri": uri, "keyUriWithVersion": f"{uri}/{cloud.store.next('azure-key'):032x}"}


@behaves
class SubscriptionLog(Behavior):
    """A setting starts writing immediately, to the Azure Monitor container."""

    types = (SUBSCRIPTION_LOG,)

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if len(cloud.store.list(SUBSCRIPTION_LOG)) >= SETTINGS:
            text = f"The limit of {SETTINGS} diagnostic settings was reached. To create a new setting, delete an existing one."
            raise AzureError("Conflict", text, status=409)
        named = str(call.plain.get("storageAccountId") or "")
        account = stores.account(cloud.store, named.rsplit("/", 1)[-1]) if named else None
        if (
            named
            and account is None
            and cloud.external(named) is None
            and named.startswith(f"/subscriptions/{SUBSCRIPTION}/")
        ):
            raise AzureError("ResourceNotFound", f"The storage account {named} was not found.", status=404)
        rules = account.plain.get("networkRuleSet") or {} if account else {}
        if rules.get("defaultAction") == "Deny" and "AzureServices" not in str(rules.get("bypass", "AzureServices")):
            raise AzureError("BadRequest", f"Azure Monitor cannot reach the storage account {named}: its firewall lets no trusted services in.")  # fmt: skip

    def kept(self, cloud: Cloud, call: Call) -> None:
        name = str(call.plain.get("storageAccountId") or "").rsplit("/", 1)[-1]
        if name and call.old is None and stores.account(cloud.store, name):
            blob = f"resourceId=/SUBSCRIPTIONS/{SUBSCRIPTION}/y=2026/m=01/d=01/h=00/m=00/PT1H.json"
            cloud.store.put_object(
                stores.bucket(name, "insights-activity-logs"),
                blob,
                b'{"records": []}\n',
                {"content-type": "application/octet-stream"},
            )
