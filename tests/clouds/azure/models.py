"""Validates registered resources with Microsoft's models of its requests (the azure-mgmt clients).

`problems(resource)` compares the inputs with the model of the request: unknown names, wrong types, unknown enumeration values, read-only properties,
and missing required properties. The Azure provider uses the property names of the requests or of the client's attributes, without the level
`properties`; this module accepts both. It reads two generations of clients: with `_attribute_map` (msrest), and with `rest_field`.
"""

from __future__ import annotations

import functools
import importlib
import operator
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from tests.clouds.recorder import Registered


@dataclass(frozen=True)
class Request:
    """The model of a resource's request, and the inputs that are part of its address."""

    module: str
    model: str
    address: tuple[str, ...]


_GROUP = "resourceGroupName"
REQUESTS = {
    "authorization:RoleAssignment": Request("authorization.v2022_04_01", "RoleAssignmentCreateParameters", ("scope", "roleAssignmentName")),
    "authorization:RoleDefinition": Request("authorization.v2022_04_01", "RoleDefinition", ("scope", "roleDefinitionId")),
    "compute:Disk": Request("compute", "Disk", (_GROUP, "diskName")),
    "compute:DiskEncryptionSet": Request("compute", "DiskEncryptionSet", (_GROUP, "diskEncryptionSetName")),
    "compute:VirtualMachineScaleSet": Request("compute", "VirtualMachineScaleSet", (_GROUP, "vmScaleSetName")),
    "consumption:Budget": Request("consumption", "Budget", ("scope", "budgetName")),
    "keyvault:Key": Request("keyvault", "KeyCreateParameters", (_GROUP, "vaultName", "keyName")),
    "keyvault:Vault": Request("keyvault", "VaultCreateOrUpdateParameters", (_GROUP, "vaultName")),
    "managedidentity:UserAssignedIdentity": Request("msi.v2024_11_30", "Identity", (_GROUP, "resourceName")),
    "monitor:ActionGroup": Request("monitor", "ActionGroupResource", (_GROUP, "actionGroupName")),
    "monitor:ActivityLogAlert": Request("monitor", "ActivityLogAlertResource", (_GROUP, "activityLogAlertName")),
    "monitor:MetricAlert": Request("monitor", "MetricAlertResource", (_GROUP, "ruleName")),
    "netapp:Account": Request("netapp", "NetAppAccount", (_GROUP, "accountName")),
    "netapp:CapacityPool": Request("netapp", "CapacityPool", (_GROUP, "accountName", "poolName")),
    "netapp:CapacityPoolVolume": Request("netapp", "Volume", (_GROUP, "accountName", "poolName", "volumeName")),
    "netapp:SnapshotPolicy": Request("netapp", "SnapshotPolicy", (_GROUP, "accountName", "snapshotPolicyName")),
    "network:ApplicationSecurityGroup": Request("network", "ApplicationSecurityGroup", (_GROUP, "applicationSecurityGroupName")),
    "network:BastionHost": Request("network", "BastionHost", (_GROUP, "bastionHostName")),
    "network:FlowLog": Request("network", "FlowLog", (_GROUP, "networkWatcherName", "flowLogName")),
    "network:NatGateway": Request("network", "NatGateway", (_GROUP, "natGatewayName")),
    "network:NetworkSecurityGroup": Request("network", "NetworkSecurityGroup", (_GROUP, "networkSecurityGroupName")),
    "network:PrivateDnsZoneGroup": Request("network", "PrivateDnsZoneGroup", (_GROUP, "privateEndpointName", "privateDnsZoneGroupName")),
    "network:PrivateEndpoint": Request("network", "PrivateEndpoint", (_GROUP, "privateEndpointName")),
    "network:PublicIPAddress": Request("network", "PublicIPAddress", (_GROUP, "publicIpAddressName")),
    "network:Subnet": Request("network", "Subnet", (_GROUP, "virtualNetworkName", "subnetName")),
    "network:VirtualNetwork": Request("network", "VirtualNetwork", (_GROUP, "virtualNetworkName")),
    "operationalinsights:Workspace": Request("loganalytics", "Workspace", (_GROUP, "workspaceName")),
    "privatedns:PrivateZone": Request("privatedns", "PrivateZone", (_GROUP, "privateZoneName")),
    "privatedns:VirtualNetworkLink": Request("privatedns", "VirtualNetworkLink", (_GROUP, "privateZoneName", "virtualNetworkLinkName")),
    "resources:ResourceGroup": Request("resource.resources", "ResourceGroup", (_GROUP,)),
    "storage:BlobContainer": Request("storage", "BlobContainer", (_GROUP, "accountName", "containerName")),
    "storage:BlobContainerImmutabilityPolicy": Request("storage", "ImmutabilityPolicy", (_GROUP, "accountName", "containerName", "immutabilityPolicyName")),
    "storage:BlobServiceProperties": Request("storage", "BlobServiceProperties", (_GROUP, "accountName", "blobServicesName")),
    "storage:FileServiceProperties": Request("storage", "FileServiceProperties", (_GROUP, "accountName", "fileServicesName")),
    "storage:FileShare": Request("storage", "FileShare", (_GROUP, "accountName", "shareName")),
    "storage:ManagementPolicy": Request("storage", "ManagementPolicy", (_GROUP, "accountName", "managementPolicyName")),
    "storage:ObjectReplicationPolicy": Request("storage", "ObjectReplicationPolicy", (_GROUP, "accountName", "objectReplicationPolicyId")),
    "storage:StorageAccount": Request("storage", "StorageAccountCreateParameters", (_GROUP, "accountName")),
    "storagecache:AmlFilesystem": Request("storagecache", "AmlFilesystem", (_GROUP, "amlFilesystemName")),
}  # fmt: skip
"""Type -> its request."""
WITHOUT = {
    "monitor:DiagnosticSetting": "version 7 of the Azure Monitor client library removed diagnostic settings",
    "monitor:SubscriptionDiagnosticSetting": "the same",
    "logic:Workflow": "the client library of Logic Apps is not a test dependency; the SDK of the provider checks the inputs",
}
"""Types without a model, with the reason."""

NEWER = {
    "privatedns:VirtualNetworkLink": {
        "resolutionPolicy": "from API version 2024-06-01 on, which the SDK uses; azure-mgmt-privatedns ends with 2020-06-01 (https://learn.microsoft.com/azure/dns/private-dns-fallback)"
    }
}
"""Type -> properties that are newer than the client's model, with the reason."""


@dataclass(frozen=True)
class Field:
    """One member of a model."""

    names: frozenset[str]
    """The names in the request and in the client, without case and underscores."""
    kind: Any
    """A type, or the name of one in msrest."""
    required: bool
    readonly: bool
    rules: Mapping[str, Any]


def problems(resource: Registered) -> list[str]:
    """The differences between a resource and the model of its request."""
    kind = resource.type.removeprefix("azure-native:")
    request = REQUESTS[kind]
    module = importlib.import_module(f"azure.mgmt.{request.module}.models")
    without = {*request.address, *NEWER.get(kind, {})}
    body = {key: value for key, value in resource.inputs.items() if key not in without}
    missing = [
        f"{resource.name}: its address lacks {part}" for part in request.address[:1] if part not in resource.inputs
    ]
    return missing + list(_object(resource.name, body, getattr(module, request.model)))


def _object(path: str, value: Any, model: type) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path} is {value!r}, and {model.__name__} is an object"
        return
    model = _subtype(value, model)
    fields = fields_of(model)
    inner = next((one for one in fields if "properties" in one.names and isinstance(one.kind, type)), None)
    below = fields_of(inner.kind) if inner else []
    direct = any(_plain(key) == "properties" for key in value)
    known = {id(one): one for one in (*fields, *(() if direct else below))}
    given: set[int] = set()
    for key, item in value.items():
        fitting = [one for one in known.values() if _plain(key) in one.names]
        # The type of an extension has the name of the read-only `type` of every sub-resource.
        field = min(fitting, key=lambda one: one.readonly, default=None)
        if field is None:
            yield f"{path}.{key} is no member of {model.__name__}"
            continue
        given.add(id(field))
        if field.readonly:
            yield f"{path}.{key} is read-only in {model.__name__}"
        yield from _value(f"{path}.{key}", item, field.kind, model)
        yield from _ruled(f"{path}.{key}", item, field.rules)
    flattened = any(id(one) in given for one in below)
    for one in known.values():
        if one.required and not one.readonly and id(one) not in given and not (one is inner and flattened):
            yield f"{path} lacks {sorted(one.names)[0]}, which {model.__name__} requires"


def _subtype(value: Mapping[str, Any], model: type) -> type:
    """The model that the value of a discriminator selects in msrest, or the model itself."""
    for attribute, names in vars(model).get("_subtype_map", {}).items():
        chosen = next((item for key, item in value.items() if _plain(key) == _plain(attribute)), None)
        if chosen in names:
            return getattr(importlib.import_module(_package(model)), names[chosen])
    return model


def _value(path: str, value: Any, kind: Any, model: type) -> Iterator[str]:
    if value is None:
        return
    if isinstance(kind, str):
        yield from _old(path, value, kind, model)
        return
    kind, choices = _chosen(kind)
    if choices:
        if value not in choices:
            yield f"{path} is {value!r}; allowed: {', '.join(map(str, choices))}"
        return
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        yield from _each(path, value, arguments[0], model)
    elif origin is dict:
        # A list of ids in the provider is a map from ids in the request.
        yield from () if isinstance(value, list) and _ids(value) else _map(path, value, arguments[1], model)
    elif isinstance(kind, type) and hasattr(kind, "_is_model"):
        yield from _object(path, value, kind)
    elif not _scalar(value, kind):
        yield f"{path} is {value!r}, and {model.__name__} requires {getattr(kind, '__name__', kind)}"


def _each(path: str, value: Any, kind: Any, model: type) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path} is {value!r}, and {model.__name__} requires a list"
        return
    for index, item in enumerate(value):
        yield from _value(f"{path}[{index}]", item, kind, model)


def _map(path: str, value: Any, kind: Any, model: type) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path} is {value!r}, and {model.__name__} requires a map"
        return
    for key, item in value.items():
        yield from _value(f"{path}.{key}", item, kind, model)


def _ids(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(one, str) and one.startswith("/subscriptions/") for one in value)


def _scalar(value: Any, kind: Any) -> bool:
    if kind is Any or kind is object:
        return True
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, (int, float)) and float(value).is_integer()
    if kind in (float, Decimal):
        return isinstance(value, (int, float))
    return isinstance(value, str)


def _old(path: str, value: Any, kind: str, model: type) -> Iterator[str]:
    """Types in msrest: `str`, `[Sku]`, `{str}`, `Sku`."""
    if kind.startswith("["):
        yield from _each(path, value, kind[1:-1], model)
    elif kind.startswith("{"):
        yield from _map(path, value, kind[1:-1], model)
    elif kind in ("str", "bool", "int", "float", "object"):
        if not _scalar(value, {"str": str, "bool": bool, "int": int, "float": float, "object": object}[kind]):
            yield f"{path} is {value!r}, and {model.__name__} requires {kind}"
    elif isinstance(nested := getattr(importlib.import_module(_package(model)), kind, None), type):
        yield from _object(path, value, nested)


def _ruled(path: str, value: Any, rules: Mapping[str, Any]) -> Iterator[str]:
    """Limits in msrest."""
    length = len(value) if isinstance(value, (str, list)) else None
    if length is not None and not rules.get("min_length", 0) <= length <= rules.get("max_length", length):
        yield f"{path} has the length {length}; allowed: {rules.get('min_length', 0)} to {rules.get('max_length')}"
    if isinstance(value, (int, float)) and not rules.get("minimum", value) <= value <= rules.get("maximum", value):
        yield f"{path} is {value}; allowed: {rules.get('minimum')} to {rules.get('maximum')}"
    if isinstance(value, str) and "pattern" in rules and not re.fullmatch(rules["pattern"], value):
        yield f"{path} is {value!r}, which does not match {rules['pattern']}"


@functools.cache
def fields_of(model: type) -> list[Field]:
    """The members of a model, of either generation."""
    if hasattr(model, "_attribute_map"):
        return [
            _old_field(model, attribute, described)
            for attribute, described in _inherited(model, "_attribute_map").items()
        ]
    model.__new__(model)  # The class creates its table of members on first use.
    module = importlib.import_module(_package(model))
    hints = typing.get_type_hints(model, {**_imports(model), **vars(module), "_models": module})
    table: Mapping[str, Any] = getattr(model, "_attr_to_rest_field")  # noqa: B009 - type checkers do not find this member
    return [
        Field(
            names=frozenset({_plain(attribute), _plain(member._rest_name)}),
            kind=_optional(hints[attribute])[0],
            required=not _optional(hints[attribute])[1],
            readonly=bool(member._visibility) and set(member._visibility) == {"read"},
            rules={},
        )
        for attribute, member in table.items()
    ]


def _old_field(model: type, attribute: str, described: Mapping[str, str]) -> Field:
    rules = _inherited(model, "_validation").get(attribute, {})
    last = re.split(r"(?<!\\)\.", described["key"])[-1]
    return Field(
        names=frozenset({_plain(attribute), _plain(last)}),
        kind=described["type"],
        required=bool(rules.get("required")),
        readonly=bool(rules.get("readonly")),
        rules=rules,
    )


def _inherited(model: type, table: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in reversed(model.__mro__):
        found |= vars(one).get(table, {})
    return found


def _optional(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether it included None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [one for one in typing.get_args(kind) if one is not type(None)]
        if len(rest) < len(typing.get_args(kind)):
            return functools.reduce(operator.or_, rest), True
    return kind, False


def _chosen(kind: Any) -> tuple[Any, list[Any]]:
    """A type, and its values if it is an enumeration."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    for one in options:
        if isinstance(one, type) and issubclass(one, Enum):
            return str, [member.value for member in one]
    return _optional(kind)[0], []


def _package(model: type) -> str:
    """`azure.mgmt.compute.models` for a class in a module below it."""
    return model.__module__.rsplit(".models", 1)[0] + ".models"


def _imports(model: type) -> dict[str, Any]:
    return dict(vars(importlib.import_module(model.__module__)))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
