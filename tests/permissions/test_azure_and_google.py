"""Shipped stacks are created, read, updated and deleted with the roles that `gpuinfra permissions` prints for Azure and Google Cloud."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import googleapiclient
import pytest

from gpuinfra.clouds.azure import permissions as azure
from gpuinfra.clouds.gcp import permissions as gcp
from gpuinfra.clouds.permissions import Permissions
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.planned import Actions
from gpuinfra.spec import read_stack
from gpuinfra_rehearsal.cloud.azure import operator as operator_azure
from gpuinfra_rehearsal.cloud.azure.ids import new_id
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest, PermissionModel
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.store import Resource
from gpuinfra_rehearsal.cloud.gcp import conditions
from gpuinfra_rehearsal.cloud.gcp import operator as operator_gcp
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec, shipped_stacks
from tests.permissions.needed import permissions_of

STACKS = [*shipped_stacks("azure"), *shipped_stacks("gcp")]
PEERS = [
    path
    for path in sorted((Path(__file__).parents[1] / "peers" / "specs").glob("*.yaml"))
    if read_stack(path).spec.cloud in ("azure", "gcp")
]
OURS = ("azure-native:", "gcp:")
SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"


def _permissions(stack: str) -> Permissions:
    return permissions_of(plan_of(stack))


def _denied(stack: str | Recording, operator: Operator) -> Iterator[str]:
    """Create, read, update and delete every resource of a stack as the operator; yields the denied requests."""
    recording, cloud = recording_of(stack) if isinstance(stack, str) else stack, None
    for one in recording.custom:
        if not one.type.startswith(OURS):
            continue
        named = {key: value for key, value in one.inputs.items() if key in ("bucket", "name", "role")}
        changed = {key: "changed" for key in one.inputs} | {"tags": {"new": "one"}} | named
        for operation, inputs in (("create", one.inputs), ("read", one.inputs), ("update", changed), ("delete", {})):
            if operation == "delete" and one.retained:
                continue
            id = new_id(one.type, one.name, one.inputs) if one.type.startswith("azure-native:") else one.id
            held = Resource(one.type, "", id, one.inputs, {}) if operation != "create" else None
            try:
                operator.check_resource(cloud, operation, one.type, inputs, "", held)  # pyright: ignore[reportArgumentType]: these models do not use the cloud
            except ApiRejected as error:
                yield error.reported("doing")
    for token, arguments in recording.calls:
        if not token.startswith("gpuinfra:"):
            try:
                operator.check_function(token, arguments, "")  # pyright: ignore[reportArgumentType]
            except ApiRejected as error:
                yield error.reported("asking")


@pytest.mark.parametrize("stack", STACKS)
def test_the_role_of_a_stack_is_sufficient(stack: str) -> None:
    """The role allows every request of the resources and of the program."""
    assert list(_denied(stack, Operator(_permissions(stack).documents))) == []


@pytest.mark.parametrize("path", PEERS, ids=[path.stem for path in PEERS])
def test_the_roles_of_a_peer_are_sufficient(path: Path) -> None:
    """The roles for the cluster of a public project allow every request of its resources."""
    spec = read_stack(path).spec
    documents = permissions_of(build_plan(spec, TODAY)).documents
    assert list(_denied(recording_of_spec(spec, stack="prod"), Operator(documents))) == []


@pytest.mark.parametrize("stack", STACKS)
def test_the_role_of_a_stack_has_no_unused_action(stack: str) -> None:
    """Every action is used, except those of the program's own requests."""
    permissions = _permissions(stack)
    operator = Operator(permissions.documents)
    assert list(_denied(stack, operator)) == []
    idle = {need.action for need in permissions.needs} - set(operator.summary()["used"])
    assert idle <= {need.action for need in permissions.needs if all(op == "" for _, op in need.uses)}


REQUESTS = [
    ("azure-ndv5", operator_azure, operator_azure.http(f"{SET}{path}"), action)
    for path, action in {
        "": "Microsoft.Compute/virtualMachineScaleSets/read",
        "/virtualMachines": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "/instanceView": "Microsoft.Compute/virtualMachineScaleSets/instanceView/read",
        "/networkInterfaces": "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
        "/virtualMachines/3/retrieveBootDiagnosticsData": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/retrieveBootDiagnosticsData/action",
    }.items()
] + [
    ("azure-ndv5", operator_azure, operator_azure.http("/subscriptions/s/providers/Microsoft.Insights/eventtypes/management/values"),
     "Microsoft.Insights/eventtypes/values/read"),
] + [
    ("gcp-a3mega", operator_gcp, operator_gcp.compute(collection, name, method, f"projects/p/zones/z/{collection}"), action)
    for collection, name, method, action in (
        ("instanceGroupManagers", "gpu", "listManagedInstances", "compute.instanceGroupManagers.get"),
        ("instances", None, "", "compute.instances.list"),
        ("instances", "gpu-1", "serialPort", "compute.instances.getSerialPortOutput"),
    )
]  # fmt: skip


@pytest.mark.parametrize(("stack", "model", "requests", "action"), REQUESTS, ids=[one[3] for one in REQUESTS])
def test_the_role_covers_requests_of_the_program(
    stack: str, model: PermissionModel, requests: list[AccessRequest], action: str
) -> None:
    """Each request of the handover is allowed, and denied without its action."""
    assert [request.action for request in requests] == [action]
    documents = _permissions(stack).documents
    Operator(documents).check(model, requests)
    without = Operator(json.loads(json.dumps(list(documents)).replace(f'"{action}"', '"nothing"')))
    with pytest.raises(ApiRejected, match=re.escape(action)):
        without.check(model, requests)
    assert without.summary()["refused"] == [action]


@pytest.mark.parametrize(
    ("stack", "action", "words"),
    [
        ("azure-ndv5", "Microsoft.Network/virtualNetworks/write", ("does not have authorization to perform action "
            "'Microsoft.Network/virtualNetworks/write' over scope '/subscriptions/")),
        ("azure-ndv5", "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", 'Code="AuthorizationFailed"'),
        ("azure-ndv5", "Microsoft.Compute/virtualMachineScaleSets/delete", "Status=403"),
        ("gcp-a3mega", "compute.firewalls.create", "Required 'compute.firewalls.create' permission for 'projects/"),
        ("gcp-a3mega", "iam.serviceAccounts.actAs", "googleapi: Error 403"),
        ("gcp-a3mega", "compute.instanceGroupManagers.delete", "forbidden"),
    ],
)  # fmt: skip
def test_without_one_action_its_requests_are_denied(stack: str, action: str, words: str) -> None:
    """Only the requests that need the action are denied, with the error message of the cloud."""
    text = json.dumps(list(_permissions(stack).documents))
    assert f'"{action}"' in text
    refused = list(_denied(stack, Operator(json.loads(text.replace(f'"{action}"', '"nothing"')))))
    assert refused
    assert all(action in one for one in refused)
    assert words in refused[0]


@pytest.mark.parametrize(
    "action",
    [
        "Microsoft.Network/virtualNetworks/write",
        "Microsoft.Network/virtualNetworks/subnets/join/action",
        "Microsoft.Compute/virtualMachineScaleSets/delete",
        "Microsoft.Storage/storageAccounts/read",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    ],
)
def test_the_stand_in_denies_what_the_table_lacks(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """An action that is missing in the table, and so in the role, is still a request of the stand-in: it follows from the resource and its references."""
    monkeypatch.setattr(operator_azure, "ACTIONS", dict.fromkeys(azure.ACTIONS, Actions("", "")))
    documents = json.loads(json.dumps(list(_permissions("azure-ndv5").documents)).replace(f'"{action}"', '"nothing"'))
    assert any(action in one for one in _denied("azure-ndv5", Operator(documents)))


GROUP = "/subscriptions/s/resourceGroups/{}-{}-0a1b2c3d"
LOSSES_ON_AZURE: dict[str, tuple[str, str]] = {
    "a resource group with retained data": ("Microsoft.Resources/subscriptions/resourceGroups/delete", GROUP.format("train", "foundation")),
    "a resource group with a retained file system": ("Microsoft.Resources/subscriptions/resourceGroups/delete", GROUP.format("train", "site")),
    "the nodes of another stack": ("Microsoft.Resources/subscriptions/resourceGroups/delete", GROUP.format("other", "nodes")),
    "a storage account": ("Microsoft.Storage/storageAccounts/delete", GROUP.format("train", "foundation")),
    "a container": ("Microsoft.Storage/storageAccounts/blobServices/containers/delete", GROUP.format("train", "foundation")),
    "a file share": ("Microsoft.Storage/storageAccounts/fileServices/shares/delete", GROUP.format("train", "site")),
    "an immutability policy": ("Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies/delete", GROUP.format("train", "foundation")),
    "a vault": ("Microsoft.KeyVault/vaults/delete", GROUP.format("train", "foundation")),
    "a deleted vault for good": ("Microsoft.KeyVault/locations/deletedVaults/purge/action", "/subscriptions/s"),
    "the audit records in the workspace": ("Microsoft.OperationalInsights/workspaces/delete", GROUP.format("train", "foundation")),
    "a retained file system": ("Microsoft.StorageCache/amlFilesystems/delete", GROUP.format("train", "site")),
    "a lock": ("Microsoft.Authorization/locks/delete", GROUP.format("train", "foundation")),
    "a scale set of another stack": ("Microsoft.Compute/virtualMachineScaleSets/delete", GROUP.format("other", "nodes")),
    "a network of another stack": ("Microsoft.Network/networkSecurityGroups/delete", GROUP.format("other", "site")),
    "the identity of another stack": ("Microsoft.ManagedIdentity/userAssignedIdentities/delete", GROUP.format("other", "nodes")),
    "blobs": ("Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete", GROUP.format("train", "foundation")),
}  # fmt: skip
"""Operation and scope. `docs/reference/retained-data.md` lists the ways that Azure cannot deny."""


def _on_azure(documents: Any, action: str, place: str) -> bool:
    request = AccessRequest("operator", action, place)
    return operator_azure.allows(tuple(json.dumps(one) for one in documents), request)[0]


@pytest.mark.parametrize("loss", LOSSES_ON_AZURE)
def test_a_loss_of_retained_data_is_denied_on_azure(loss: str) -> None:
    """No role allows the deletion of retained resources, and deletions apply to the resource groups of the stack only."""
    assert not _on_azure(_permissions("azure-ndv4").documents, *LOSSES_ON_AZURE[loss])


def test_the_own_nodes_are_deleted_on_azure() -> None:
    """The role for the nodes deletes their resource group, and another one their scale sets."""
    documents = _permissions("azure-ndv4").documents
    for kind in ("Resources/subscriptions/resourceGroups", "Compute/virtualMachineScaleSets"):
        assert _on_azure(documents, f"Microsoft.{kind}/delete", GROUP.format("train", "nodes")), kind


def test_roles_at_the_subscription_are_found() -> None:
    """With all roles at the subscription, a loss is allowed."""
    wide = [
        {**one, "AssignableScopes": ["/subscriptions/SUBSCRIPTION"]} for one in _permissions("azure-ndv4").documents
    ]
    assert any(_on_azure(wide, *loss) for loss in LOSSES_ON_AZURE.values())


@pytest.mark.parametrize("stack", shipped_stacks("azure"))
def test_the_condition_lists_the_roles_that_the_stack_assigns(stack: str) -> None:
    """The condition contains the GUID of each built-in role that the stack assigns, and the name of each of its custom roles, and no other role."""
    recording, plan = recording_of(stack), plan_of(stack)
    own = {
        str(one.inputs["roleDefinitionId"]): one.name
        for one in recording.of("azure-native:authorization:RoleDefinition")
    }
    assigned = {
        str(one.inputs["roleDefinitionId"]).rpartition("/")[2]
        for one in recording.of("azure-native:authorization:RoleAssignment")
    }
    wanted = {f"GUID of {own[guid]}" if guid in own else guid for guid in assigned}
    listed = re.findall(r"GuidEquals {([^}]*)}", azure.grant_condition(plan))
    assert [set(one.split(", ")) for one in listed] == [wanted, wanted]


OBJECT = "projects/_/buckets/{}-3a5c0ddf0e833f33/objects/{}"
LOSSES_ON_GOOGLE: dict[str, tuple[str, str]] = {
    **{
        f"{verb} in the {purpose} bucket: {path}": (f"storage.objects.{verb}", OBJECT.format(purpose, path))
        for verb in ("delete", "update", "create")
        for purpose, path in (
            ("train-audit", "x"),
            ("train-evidence", "evidence/train/1/boot/000001.json"),
            ("train-evidence", "evidence/other/1/boot/000001.json"),
            ("train-evidence", "bootstrap/other/gpu/0.tar.gz"),
            ("train-evidence", "bootstrap/trainers/gpu/0.tar.gz"),
            ("train-scratch-0", "checkpoint"),
            ("other-evidence", "bootstrap/train/gpu/0.tar.gz"),
            ("payroll", "bootstrap/train/gpu/0.tar.gz"),
        )
    },
    **{
        f"{verb} of another bucket": (f"storage.buckets.{verb}", "projects/_/buckets/other-audit-3a5c0ddf0e833f33")
        for verb in ("update", "setIamPolicy", "delete")
    },
    "a bucket": ("storage.buckets.delete", "projects/_/buckets/train-audit-3a5c0ddf0e833f33"),
    "a key version": ("cloudkms.cryptoKeyVersions.destroy", "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"),
    "a log bucket": ("logging.buckets.delete", "projects/p/locations/l/buckets/train-audit-0a1b2c3d"),
    "log entries": ("logging.logs.delete", "projects/p"),
    "a retained file system": ("lustre.instances.delete", "projects/p/locations/l/instances/train-scratch-0"),
}  # fmt: skip
"""Permission and resource name. `docs/reference/retained-data.md` lists the ways that Google Cloud cannot deny."""


def _on_google(documents: Any, permission: str, place: str, **context: str) -> bool:
    request = AccessRequest("operator", permission, place, context)
    return operator_gcp.allows(tuple(json.dumps(one) for one in documents), request)[0]


@pytest.mark.parametrize("loss", LOSSES_ON_GOOGLE)
def test_a_loss_of_retained_data_is_denied_on_google(loss: str) -> None:
    """The bindings allow changes of the bundles of the cluster only, and no permission deletes retained resources."""
    assert not _on_google(_permissions("gcp-a3mega").documents, *LOSSES_ON_GOOGLE[loss])


def test_bundles_are_deleted_and_evidence_is_read_on_google() -> None:
    """The operator deletes the bundles of the cluster, and reads and lists its evidence."""
    documents = _permissions("gcp-a3mega").documents
    assert _on_google(
        documents, "storage.objects.delete", OBJECT.format("train-evidence", "bootstrap/train/gpu/0.tar.gz")
    )
    assert _on_google(
        documents, "storage.objects.get", OBJECT.format("train-evidence", "evidence/train/1/boot/000001.json")
    )
    assert not _on_google(documents, "storage.objects.get", OBJECT.format("train-audit", "x"))
    assert _on_google(documents, "storage.objects.list", "projects/_/buckets/train-evidence-3a5c0ddf0e833f33")
    assert not _on_google(documents, "storage.objects.list", "projects/_/buckets/payroll")


def test_a_binding_without_its_condition_is_found() -> None:
    """Without the conditions, a loss is allowed."""
    wide = json.loads(json.dumps(list(_permissions("gcp-a3mega").documents)))
    for binding in wide[-1]["bindings"]:
        binding.pop("condition", None)
    assert any(_on_google(wide, *loss) for loss in LOSSES_ON_GOOGLE.values())


@pytest.mark.parametrize(
    ("stack", "role", "allowed"),
    [
        ("gcp-a3mega", "roles/owner", False),
        ("gcp-recovery", "roles/storage.admin", False),
        ("gcp-recovery", "projects/my-project/roles/train_replication_events_c4382387", True),
    ],
)
def test_only_the_roles_of_the_stack_are_granted_on_the_project(stack: str, role: str, allowed: bool) -> None:
    """The operator changes the IAM policy of the project only for the roles that the stack grants there."""
    context = {"iam.googleapis.com/modifiedGrantsByRole": role}
    documents = _permissions(stack).documents
    assert _on_google(documents, "resourcemanager.projects.setIamPolicy", "projects/my-project", **context) is allowed


@pytest.mark.parametrize("stack", shipped_stacks("gcp"))
def test_conditions_are_within_the_limits(stack: str) -> None:
    """A condition has at most 12 logical operators (https://docs.cloud.google.com/iam/quotas, retrieved 2026-11-28), and the stand-in can parse it."""
    for binding in _permissions(stack).documents[-1]["bindings"]:
        if condition := binding.get("condition"):
            conditions.check(condition["expression"])
            assert len(re.findall(r"&&|\|\||!(?!=)", condition["expression"])) <= 12


@pytest.mark.parametrize("stack", STACKS)
def test_no_action_is_a_wildcard(stack: str) -> None:
    """Every action is listed once, without wildcards."""
    every = [need.action for need in _permissions(stack).needs]
    assert all("*" not in action for action in every)
    assert len(every) == len(set(every))


@functools.cache
def _collections() -> dict[str, set[str]]:
    """API -> names of its collections, from Google's discovery documents."""
    folder = Path(str(googleapiclient.__file__)).parent / "discovery_cache" / "documents"
    found: dict[str, set[str]] = {}

    def walk(name: str, node: dict[str, Any]) -> None:
        for collection, inner in (node.get("resources") or {}).items():
            found.setdefault(name, set()).add(collection.lower())
            walk(name, inner)

    names = {"compute": "compute.v1", "storage": "storage.v1", "cloudkms": "cloudkms.v1", "dns": "dns.v1", "logging": "logging.v2", "file": "file.v1",
             "serviceusage": "serviceusage.v1", "iam": "iam.v1", "resourcemanager": "cloudresourcemanager.v1",
             "monitoring": "monitoring.v3", "artifactregistry": "artifactregistry.v1", "billing": "billingbudgets.v1",
             "secretmanager": "secretmanager.v1", "servicenetworking": "servicenetworking.v1", "storagetransfer": "storagetransfer.v1",
             "cloudscheduler": "cloudscheduler.v1"}  # fmt: skip
    for service, file in names.items():
        walk(service, json.loads((folder / f"{file}.json").read_text(encoding="utf-8")))
    return found


OTHER_COLLECTIONS = {
    "lustre.instances": "no bundled document describes Managed Lustre",
    "lustre.operations": "the same",
    "lustre.locations": "the same",
    "dns.networks": "the network is a compute resource, but binding it needs a permission of DNS",
    "storagetransfer.jobs": "the collection is `transferJobs` in the API",
    "storagetransfer.projects": "the method is `googleServiceAccounts.get` in the API",
    "logging.cmekSettings": "a method of the project in the API",
    "logging.notificationRules": (
        "no request of the API: an alerting policy on log entries requires it "
        "(https://docs.cloud.google.com/logging/docs/alerting/monitoring-logs, retrieved 2026-11-29)"
    ),
    "cloudquotas.quotas": (
        "no bundled document describes Cloud Quotas "
        "(https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos/get, retrieved 2026-11-23)"
    ),
}


def test_permissions_of_google_cloud_name_existing_collections() -> None:
    """The discovery documents contain the service and the collection of every permission, or the exception has a reason."""
    actions = {
        word.partition("?")[0]
        for row in gcp.ACTIONS.values()
        for op in ("create", "read", "update", "delete")
        for word in row.of(op)
    }
    actions |= {action for group in (gcp.ASKED | gcp.READY | gcp.NAMES).values() for action in group}
    for action in actions:
        service, collection, verb = action.split(".")
        assert verb.isidentifier()
        if f"{service}.{collection}" not in OTHER_COLLECTIONS:
            assert collection.lower() in _collections()[service], action


MODELS = (
    "compute",
    "network",
    "storage",
    "keyvault",
    "msi",
    "authorization",
    "resource",
    "loganalytics",
    "monitor",
    "storagecache",
    "consumption",
    "privatedns",
    "netapp",
)
WITHOUT_PATH = {
    "Microsoft.Insights/eventtypes/values": "the path of the Activity Log contains `management` before `values`, the action does not",
    "Microsoft.Network/privateDnsZones/A": "the type of the records is a parameter of the path",
    "Microsoft.Network/privateDnsZones/TXT": "the type of the records is a parameter of the path",
    "Microsoft.Insights/diagnosticSettings": "a path below any resource",
    "Microsoft.Logic/workflows": "the client library of Logic Apps is not a test dependency (`test_azure_operations.py` has its operations)",
    "Microsoft.Resources/subscriptions/resourceGroups": "a path without a provider",
    "Microsoft.Resources/subscriptions": "a path without a provider",
    "Microsoft.Consumption/budgets": "a path below a scope",
    "Microsoft.Authorization/roleAssignments": "a path below a scope",
}


@functools.cache
def _paths() -> str:
    """Every path in the azure-mgmt clients, without the names. `default` and `vmimage` are names that the paths contain."""
    found = []
    for name in MODELS:
        root = Path(next(iter(importlib.import_module(f"azure.mgmt.{name}").__path__)))
        for file in root.rglob("*.py"):
            if "operations" in file.name or "operations" in file.parts[-2]:
                found += re.findall(r'"(/[^"\s]*providers/[^"\s]+)"', file.read_text(encoding="utf-8"))
    return "\n".join(re.sub(r"/\{[^}]*\}|/default\b|(?<=/artifacttypes)/vmimage\b", "", path) for path in found).lower()


def test_actions_of_azure_name_existing_types() -> None:
    """The azure-mgmt clients contain a path for the type of every action, or the exception has a reason."""
    actions = {
        word.partition("?")[0]
        for row in azure.ACTIONS.values()
        for op in ("create", "read", "update", "delete")
        for word in row.of(op)
    }
    actions |= {action for group in (azure.ASKED | azure.READY | azure.NAMES).values() for action in group}
    for action in actions:
        kind = action.removesuffix("/action").rpartition("/")[0]
        if kind not in WITHOUT_PATH:
            assert f"/providers/{kind}".lower() in _paths(), action
