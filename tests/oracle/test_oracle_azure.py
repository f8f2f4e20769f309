"""Broken states of the Azure stack: at least one claim fails for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.claims import oracle, problems
from tests.oracle.test_oracle import State, state_of

STACK = "azure-ndv4"
SET = "azure-native:compute:VirtualMachineScaleSet"
SUBNET = "azure-native:network:Subnet"
WALL = "azure-native:network:NetworkSecurityGroup"
STORE = "azure-native:storage:StorageAccount"
GRANT = "azure-native:authorization:RoleAssignment"
LUSTRE = "azure-native:storagecache:AmlFilesystem"
VAULT = "azure-native:keyvault:Vault"
FLOW = "azure-native:network:FlowLog"
MODEL = "virtualMachineProfile"
NIC = (MODEL, "networkProfile", "networkInterfaceConfigurations", 0)


def _set(type_: str, *path: Any, to: Any, which: str = "") -> Callable[[State], None]:
    """Sets one value in the inputs of a resource; `which` is a part of its id."""

    def broken(state: State) -> None:
        here: Any = next(one["inputs"] for one in state if one["type"] == type_ and which in str(one["id"]))
        for step in path[:-1]:
            here = here[step]
        known = here.get(path[-1]) if isinstance(here, dict) else here[path[-1]]
        assert known != to, f"{path} is {to} already"
        here[path[-1]] = to

    return broken


def _without(type_: str, which: str = "") -> Callable[[State], None]:
    def broken(state: State) -> None:
        state.remove(next(one for one in state if one["type"] == type_ and which in str(one["id"])))

    return broken


def _rule(group: str, rule: str, key: str, to: Any) -> Callable[[State], None]:
    def broken(state: State) -> None:
        wall = next(one["inputs"] for one in state if one["type"] == WALL and f"/train-{group}-" in str(one["id"]))
        (found,) = [one for one in wall["securityRules"] if one["name"] == rule]
        assert found.get(key) != to
        found[key] = to

    return broken


def _ssh_from_everywhere(state: State) -> None:
    wall = next(one["inputs"] for one in state if one["type"] == WALL and "/train-nodes-" in str(one["id"]))
    ssh = {"name": "ssh", "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "priority": 101}
    wall["securityRules"].append(
        {**ssh, "sourceAddressPrefix": "Internet", "sourcePortRange": "*", "destinationPortRange": "22"}
    )


def _second_set(state: State) -> None:
    one = next(one for one in state if one["type"] == SET)
    state.append({**one, "id": one["id"] + "-2"})


def _public_node(state: State) -> None:
    here: Any = next(one["inputs"] for one in state if one["type"] == SET)
    for step in (*NIC, "ipConfigurations", 0):
        here = here[step]
    here["publicIPAddressConfiguration"] = {"name": "public"}


def _another_address(state: State) -> None:
    one = next(one for one in state if one["type"] == "azure-native:network:PublicIPAddress")
    state.append({**one, "id": one["id"] + "-2"})


def _owner_of_everything(state: State) -> None:
    inputs = next(one["inputs"] for one in state if one["type"] == GRANT)
    inputs["roleDefinitionId"] = inputs["roleDefinitionId"][:-36] + "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"


def _role_over_the_subscription(state: State) -> None:
    inputs = next(one["inputs"] for one in state if one["type"] == GRANT)
    inputs["scope"] = "/subscriptions/00000000-0000-4000-8000-000000000001"


def _nodes_write_everywhere(state: State) -> None:
    for one in state:
        if one["type"] == GRANT and "evidence/train" in (one["inputs"].get("condition") or ""):
            one["inputs"]["condition"] = one["inputs"]["conditionVersion"] = None


BREAKS: dict[str, Callable[[State], None]] = {
    "several placement groups": _set(SET, "singlePlacementGroup", to=False),
    "a flexible set": _set(SET, "orchestrationMode", to="Flexible"),
    "two sets for one fabric": _second_set,
    "two zones": _set(SET, "zones", to=["1", "2"]),
    "spread as far as possible": _set(SET, "platformFaultDomainCount", to=1),
    "more nodes than asked for": _set(SET, "overprovision", to=True),
    "an image that moves": _set(SET, MODEL, "storageProfile", "imageReference", "version", to="latest"),
    "an image for other GPUs": _set(SET, MODEL, "storageProfile", "imageReference", "sku", to="2204-v100"),
    "Trusted Launch": _set(SET, MODEL, "securityProfile", "securityType", to="TrustedLaunch"),
    "disks in clear at the host": _set(SET, MODEL, "securityProfile", "encryptionAtHost", to=False),
    "disks with Azure's key": _set(SET, MODEL, "storageProfile", "osDisk", "managedDisk", "diskEncryptionSet", to=None),
    "slow network": _set(SET, *NIC, "enableAcceleratedNetworking", to=False),
    "a public node": _public_node,
    "the set's own identity": _set(SET, "identity", "type", to="SystemAssigned"),
    "passwords": _set(SET, MODEL, "osProfile", "linuxConfiguration", "disablePasswordAuthentication", to=False),
    "a long host name": _set(SET, MODEL, "osProfile", "computerNamePrefix", to="train-gpu-nodes"),
    "all nodes at once": _set(SET, "upgradePolicy", "mode", to="Automatic"),
    "half of the nodes at once": _set(SET, "upgradePolicy", "rollingUpgradePolicy", "maxBatchInstancePercent", to=50),
    "no health": _set(SET, MODEL, "extensionProfile", "extensions", to=[]),
    "a port for health": _set(SET, MODEL, "extensionProfile", "extensions", 0, "settings", "protocol", to="tcp"),
    "Azure's own updates": _set(SET, "upgradePolicy", "automaticOSUpgradePolicy", "enableAutomaticOSUpgrade", to=True),
    "the range of InfiniBand": _set("azure-native:network:VirtualNetwork", "addressSpace", "addressPrefixes", to=["172.16.0.0/16"]),
    "subnets in the network": _set("azure-native:network:VirtualNetwork", "subnets", to=[]),
    "default outbound access": _set(SUBNET, "defaultOutboundAccess", to=True),
    "a subnet without rules": _set(SUBNET, "networkSecurityGroup", to=None, which="endpoints-0"),
    "nodes without a way out": _set(SUBNET, "natGateway", to=None, which="private-0"),
    "a way out for endpoints": _set(SUBNET, "natGateway", to={"id": "x"}, which="endpoints-0"),
    "a second public address": _another_address,
    "SSH from everywhere": _ssh_from_everywhere,
    "everything inwards": _rule("nodes", "deny-ingress", "access", "Allow"),
    "everything outwards": _rule("nodes", "deny-egress", "access", "Allow"),
    "every port outwards": _rule("nodes", "allow-web-egress", "destinationPortRanges", ["0-65535"]),
    "a closed Lustre port": _rule("nodes", "allow-file-systems-ingress", "destinationPortRanges", ["988"]),
    "file servers without their service": _rule("storage", "allow-service-eventhub-egress", "destinationAddressPrefix", "Internet"),
    "a name outside": _without("azure-native:network:PrivateDnsZoneGroup"),
    "names that are registered": _set("azure-native:privatedns:VirtualNetworkLink", "registrationEnabled", to=True),
    "an endpoint missing": _without("azure-native:network:PrivateEndpoint"),
    "the flow of a group": _set(FLOW, "targetResourceId", to="/nsg"),
    "a month of flows": _set(FLOW, "retentionPolicy", "days", to=30),
    "a size that is not sold": _set(LUSTRE, "storageCapacityTiB", to=12),
    "a file system among the nodes": _set(LUSTRE, "filesystemSubnet", to="/subnets/private-0"),
    "one container for both": _set(LUSTRE, "hsm", "settings", "loggingContainer", to="/data"),
    "a file system with Azure's key": _set(LUSTRE, "encryptionSettings", to=None),
    "keys for evidence": _set(STORE, "allowSharedKeyAccess", to=True, which="trainevidence"),
    "evidence for everybody": _set(STORE, "networkRuleSet", "defaultAction", to="Allow", which="trainevidence"),
    "evidence from everywhere": _set(STORE, "networkRuleSet", "ipRules", to=[{"iPAddressOrRange": "0.0.0.0/0"}], which="trainevidence"),
    "old TLS": _set(STORE, "minimumTlsVersion", to="TLS1_0"),
    "anonymous reading": _set(STORE, "allowBlobPublicAccess", to=True),
    "Azure's key": _set(STORE, "encryption", "keySource", to="Microsoft.Storage"),
    "no versions": _set("azure-native:storage:BlobServiceProperties", "isVersioningEnabled", to=False),
    "a public container": _set("azure-native:storage:BlobContainer", "publicAccess", to="Blob"),
    "one copy of audit": _set(STORE, "sku", "name", to="Standard_LRS", which="trainaudit"),
    "half of the Activity Log": _set("azure-native:monitor:SubscriptionDiagnosticSetting", "logs", 0, "enabled", to=False),
    "no lock": _without("azure-native:storage:BlobContainerImmutabilityPolicy"),
    "a lock that stops logs": _set("azure-native:storage:BlobContainerImmutabilityPolicy", "allowProtectedAppendWrites", to=False),
    "a vault that can be purged": _set(VAULT, "properties", "enablePurgeProtection", to=False),
    "a vault by access lists": _set(VAULT, "properties", "enableRbacAuthorization", to=False),
    "a public vault": _set(VAULT, "properties", "publicNetworkAccess", to="Enabled"),
    "a key for ever": _set("azure-native:keyvault:Key", "properties", "rotationPolicy", to=None),
    "a key for everything": _set("azure-native:keyvault:Key", "properties", "keyOps", to=["sign"]),
    "disks on an old key": _set("azure-native:compute:DiskEncryptionSet", "rotationToLatestKeyVersionEnabled", to=False),
    "an owner": _owner_of_everything,
    "a role over the subscription": _role_over_the_subscription,
    "nodes that write everywhere": _nodes_write_everywhere,
    "a tenth of the budget": _set("azure-native:consumption:Budget", "amount", to=10000),
    "a budget over everything": _set("azure-native:consumption:Budget", "filter", to=None),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_state_is_found(name: str) -> None:
    """At least one claim fails for each wrong setting that the cloud accepts."""
    state = state_of(STACK)
    BREAKS[name](state)
    assert problems(state, oracle(STACK))
