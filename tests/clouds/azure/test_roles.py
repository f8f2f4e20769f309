"""An identity of nodes or operators has rights on data only, and a service has the built-in role that its guide requires.

A condition of a role assignment restricts data actions only
(https://learn.microsoft.com/azure/role-based-access-control/conditions-overview, retrieved 2026-11-22), so an action on containers in a role
applies to the whole scope.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuinfra_rehearsal.cloud.azure.builtin_roles import ROLES, Role, of_inputs
from tests.clouds.azure.variants import VARIANTS, variant
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import recording_of, shipped_stacks

ASSIGNMENT = "azure-native:authorization:RoleAssignment"
DEFINITION = "azure-native:authorization:RoleDefinition"
SERVICES = {
    "encryption": (
        "Key Vault Crypto Service Encryption User",
        "https://learn.microsoft.com/azure/storage/common/customer-managed-keys-configure-new-account",
    ),
    "flow log": (
        "Storage Blob Data Contributor",
        "https://learn.microsoft.com/azure/network-watcher/vnet-flow-logs-manage, managed identity",
    ),
    "importer": (
        "Storage Blob Data Contributor",
        "https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites, access roles for blob integration",
    ),
    "secret": (
        "Key Vault Secrets User",
        "https://learn.microsoft.com/azure/key-vault/general/rbac-guide, secret scope role assignment",
    ),
    "importer account": (
        "Storage Account Contributor",
        "https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites, access roles for blob integration",
    ),
}
"""Service -> the role that its guide requires, and the page. These identities are used by Azure only, never by a node or an operator."""


def _service(one: Registered) -> str | None:
    """The service of an assignment, or None if nodes or operators use it."""
    if one.name.endswith("-use"):
        return "encryption"
    if one.name.endswith("-flow"):
        return "flow log"
    if "-control-secret-" in one.name:
        return "secret"
    return {"importer-account": "importer account", "importer-blobs": "importer"}.get(
        "-".join(one.name.split("-")[-2:])
    )


def _role(recording: Recording, one: Registered) -> Role:
    guid = one.inputs["roleDefinitionId"].rsplit("/", 1)[-1]
    custom = {two.inputs["roleDefinitionId"]: of_inputs(two.inputs) for two in recording.of(DEFINITION)}
    return custom[guid] if guid in custom else ROLES[guid]


def _of_nodes(recording: Recording) -> Registered:
    (node,) = (one for one in recording.of(ASSIGNMENT) if one.name.endswith("-node-own"))
    return node


def _problems(recording: Recording) -> Iterator[str]:
    """Assignments with more rights than their use needs."""
    for one in recording.of(ASSIGNMENT):
        if "-node-role-" in one.name or one.name.endswith(
            ("-control-discovery", "-control-repair", "-control-attach", "-control-disk", "-scratch-0-export")
        ):
            # The declaration states the first role, and its rules restrict the scope. The others have a test of their own.
            continue
        role, service = _role(recording, one), _service(one)
        if service is not None:
            if role.name != SERVICES[service][0]:
                yield f"{one.name}: {service} has {role.name}, its guide requires {SERVICES[service][0]}"
            continue
        more = [action for block in role.permissions for action in block.actions]
        if more:
            yield f"{one.name}: {role.name} also allows {', '.join(more)}"


RECORDINGS = [("stack", name) for name in shipped_stacks("azure")] + [("variant", name) for name in VARIANTS]


@pytest.mark.parametrize(("kind", "name"), RECORDINGS, ids=[name for _, name in RECORDINGS])
def test_nodes_and_operators_have_rights_on_data_only(kind: str, name: str) -> None:
    """No role of a node or an operator has an action on a container, an account or another resource."""
    recording = recording_of(name) if kind == "stack" else variant(name)
    assert list(_problems(recording)) == []


def test_a_node_reads_and_creates_blobs_and_cannot_replace_them() -> None:
    """The role of nodes has the data actions to read and to create a blob, and no other."""
    recording = recording_of("azure-ndv4")
    (block,) = _role(recording, _of_nodes(recording)).permissions
    assert {one.rpartition("/blobs/")[2] for one in block.data_actions} == {"read", "add/action"}


def test_the_control_node_reads_machines_in_one_group_and_its_secrets() -> None:
    """The identity of the control node reads the types that `azure_sd_configs` requests, and redeploys machines, in the resource group of the nodes. It
    attaches its data disk, reads the declared secrets and writes its orders. The identity of the nodes has none of these rights."""
    recording = recording_of("azure-monitoring")
    by_name = {one.name: one for one in recording.of(ASSIGNMENT)}
    finds = by_name["watched-control-discovery"]
    (block,) = _role(recording, finds).permissions
    assert (set(block.actions), block.data_actions) == (
        {
            "Microsoft.Compute/virtualMachines/read",
            "Microsoft.Compute/virtualMachineScaleSets/read",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
        },
        (),
    )
    assert len(finds.inputs["scope"].split("/")) == 5
    (secret,) = [one for name, one in by_name.items() if "-secret-" in name]
    assert secret.inputs["scope"].endswith("/providers/Microsoft.KeyVault/vaults/gpu-alerts/secrets/slack")
    principal = by_name["watched-control-own"].inputs["principalId"]
    assert principal != by_name["watched-node-own"].inputs["principalId"]
    mine = {name for name, one in by_name.items() if one.inputs["principalId"] == principal}
    repairs, orders = by_name["watched-control-repair"], by_name["watched-control-orders"]
    attaches, uses = by_name["watched-control-attach"], by_name["watched-control-disk"]
    assert mine == {"watched-control-own", finds.name, secret.name, repairs.name, orders.name, attaches.name, uses.name}
    (block,) = _role(recording, attaches).permissions
    attach = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/attachDetachDataDisks/action"
    assert (block.actions, attaches.inputs["scope"]) == ((attach,), finds.inputs["scope"])
    (block,) = _role(recording, uses).permissions
    assert set(block.actions) == {"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"}
    assert uses.inputs["scope"].rpartition("/")[0].endswith("/providers/Microsoft.Compute/disks")
    (block,) = _role(recording, repairs).permissions
    redeploy = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/redeploy/action"
    assert (block.actions, block.data_actions) == ((redeploy,), ())
    assert repairs.inputs["scope"] == finds.inputs["scope"]
    (block,) = _role(recording, orders).permissions
    assert {one.rpartition("/blobs/")[2] for one in block.data_actions} == {"write"}
    assert "StringStartsWith 'bootstrap/watched/monitoring/repair/'" in orders.inputs["condition"]


@pytest.mark.parametrize(
    "name", ["Storage Blob Data Contributor", "Storage Blob Data Reader", "Storage Blob Data Owner"]
)
def test_a_built_in_role_with_more_than_data_rights_is_found(name: str) -> None:
    """Each built-in blob role has actions on containers, so none of them is accepted for nodes."""
    guid = next(guid for guid, role in ROLES.items() if role.name == name)
    recording = recording_of("azure-ndv4")
    node = _of_nodes(recording)
    changed = Registered(**{**vars(node), "inputs": {**node.inputs, "roleDefinitionId": f"/x/roleDefinitions/{guid}"}})
    found = list(_problems(Recording(resources=[changed])))
    assert len(found) == 1
    assert "blobServices/containers/" in found[0]


def test_custom_roles_are_unique_in_the_tenant_and_end_at_one_resource_group() -> None:
    """The name and the GUID depend on subscription and stack, and the role can be assigned in the group of the account only."""
    recordings = [recording_of("azure-ndv4"), recording_of("azure-ndv5")]
    roles = [one for recording in recordings for one in recording.of(DEFINITION)]
    assert len({one.inputs["roleName"] for one in roles}) == len({one.inputs["roleDefinitionId"] for one in roles}) == 4
    for one in roles:
        assert one.inputs["assignableScopes"] == [one.inputs["scope"]]
        assert len(one.inputs["scope"].split("/")) == 5
