"""The roles that `gpuinfra permissions` prints for Azure and Google Cloud, under which the shipped stacks are made, read, changed and removed."""

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
from gpuinfra.clouds.permissions import Permissions, permissions_of
from gpuinfra.rehearsal.cloud.azure import operator as operator_azure
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.interfaces import AccessRequest, PermissionModel
from gpuinfra.rehearsal.cloud.core.operator import Operator
from gpuinfra.rehearsal.cloud.core.store import Resource
from gpuinfra.rehearsal.cloud.gcp import operator as operator_gcp
from tests.clouds.stacks import plan_of, recording_of, shipped_stacks

STACKS = [*shipped_stacks("azure"), *shipped_stacks("gcp")]
OURS = ("azure-native:", "gcp:")
SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"


def _permissions(stack: str) -> Permissions:
    return permissions_of(plan_of(stack))


def _life(stack: str, operator: Operator) -> Iterator[str]:
    """Make, read, change and remove everything of a stack in the operator's name; gives what is refused."""
    recording, cloud = recording_of(stack), None
    for one in recording.custom:
        if not one.type.startswith(OURS):
            continue
        changed = {key: "changed" for key in one.inputs} | {"tags": {"new": "one"}}
        for operation, inputs in (("create", one.inputs), ("read", one.inputs), ("update", changed), ("delete", {})):
            if operation == "delete" and one.retained:
                continue
            held = Resource(one.type, "", one.id, one.inputs, {}) if operation != "create" else None
            try:
                operator.check_resource(cloud, operation, one.type, inputs, "", held)  # pyright: ignore[reportArgumentType]: these judges ask the cloud nothing
            except CloudError as error:
                yield error.reported("doing")
    for token, arguments in recording.calls:
        if not token.startswith("gpuinfra:"):
            try:
                operator.check_function(token, arguments, "")  # pyright: ignore[reportArgumentType]
            except CloudError as error:
                yield error.reported("asking")


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_lives_under_its_own_role(stack: str) -> None:
    """Everything that a stack makes, reads, changes and removes is in its role, and what its program asks of the cloud."""
    assert list(_life(stack, Operator(_permissions(stack).documents))) == []


@pytest.mark.parametrize("stack", STACKS)
def test_no_action_is_superfluous(stack: str) -> None:
    """A life uses every action of the role, but for those that only the program's own requests need."""
    permissions = _permissions(stack)
    operator = Operator(permissions.documents)
    assert list(_life(stack, operator)) == []
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
    ("gcp-a3mega", operator_gcp, operator_gcp.compute(collection, name, method, f"projects/p/zones/z/{collection}"), action)
    for collection, name, method, action in (
        ("instanceGroupManagers", "gpu", "listManagedInstances", "compute.instanceGroupManagers.get"),
        ("instances", None, "", "compute.instances.list"),
        ("instances", "gpu-1", "serialPort", "compute.instances.getSerialPortOutput"),
    )
]  # fmt: skip


@pytest.mark.parametrize(("stack", "judge", "asks", "action"), REQUESTS, ids=[one[3] for one in REQUESTS])
def test_the_program_s_own_requests_are_judged_too(
    stack: str, judge: PermissionModel, asks: list[AccessRequest], action: str
) -> None:
    """Each question of the handover is allowed by the role, and refused when its action is taken out."""
    assert [ask.action for ask in asks] == [action]
    documents = _permissions(stack).documents
    Operator(documents).check(judge, asks)
    without = Operator(json.loads(json.dumps(list(documents)).replace(f'"{action}"', '"nothing"')))
    with pytest.raises(CloudError, match=re.escape(action)):
        without.check(judge, asks)
    assert without.summary()["refused"] == [action]


@pytest.mark.parametrize(
    ("stack", "action", "words"),
    [
        ("azure-ndv5", "Microsoft.Network/virtualNetworks/write", "does not have authorization to perform action 'Microsoft.Network/virtualNetworks/write' over scope '/subscriptions/"),
        ("azure-ndv5", "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", 'Code="AuthorizationFailed"'),
        ("azure-ndv5", "Microsoft.Compute/virtualMachineScaleSets/delete", "Status=403"),
        ("gcp-a3mega", "compute.firewalls.create", "Required 'compute.firewalls.create' permission for 'projects/"),
        ("gcp-a3mega", "iam.serviceAccounts.actAs", "googleapi: Error 403"),
        ("gcp-a3mega", "compute.instanceGroupManagers.delete", "forbidden"),
    ],
)  # fmt: skip
def test_without_one_action_the_cloud_refuses(stack: str, action: str, words: str) -> None:
    """Take one out, and what needs it is refused in the cloud's own words, and nothing else is."""
    text = json.dumps(list(_permissions(stack).documents))
    assert f'"{action}"' in text
    refused = list(_life(stack, Operator(json.loads(text.replace(f'"{action}"', '"nothing"')))))
    assert refused
    assert all(action in one for one in refused)
    assert words in refused[0]


@pytest.mark.parametrize("stack", STACKS)
def test_no_action_is_a_wildcard(stack: str) -> None:
    """Actions are named one by one, and none of them is in two documents."""
    every = [need.action for need in _permissions(stack).needs]
    assert all("*" not in action for action in every)
    assert len(every) == len(set(every))


@functools.cache
def _collections() -> dict[str, set[str]]:
    """API -> names of its collections, by Google's own discovery documents."""
    folder = Path(str(googleapiclient.__file__)).parent / "discovery_cache" / "documents"
    found: dict[str, set[str]] = {}

    def walk(name: str, node: dict[str, Any]) -> None:
        for collection, inner in (node.get("resources") or {}).items():
            found.setdefault(name, set()).add(collection.lower())
            walk(name, inner)

    names = {"compute": "compute.v1", "storage": "storage.v1", "cloudkms": "cloudkms.v1", "dns": "dns.v1", "logging": "logging.v2", "file": "file.v1",
             "serviceusage": "serviceusage.v1", "iam": "iam.v1", "resourcemanager": "cloudresourcemanager.v1",
             "monitoring": "monitoring.v3", "artifactregistry": "artifactregistry.v1", "billing": "billingbudgets.v1",
             "servicenetworking": "servicenetworking.v1"}  # fmt: skip
    for service, file in names.items():
        walk(service, json.loads((folder / f"{file}.json").read_text(encoding="utf-8")))
    return found


OTHER_COLLECTIONS = {
    "lustre.instances": "Managed Lustre has no document among the bundled ones",
    "lustre.operations": "the same",
    "lustre.locations": "the same",
    "dns.networks": "a network is compute's, what binds it is a permission of DNS",
    "logging.cmekSettings": "a method of the project there",
}


def test_google_s_permissions_are_about_collections_that_exist() -> None:
    """Service and collection of every permission are in the discovery documents, so no name is made up; two have their reason."""
    actions = {
        word.partition("?")[0]
        for row in gcp.ACTIONS.values()
        for op in ("create", "read", "update", "delete")
        for word in row.of(op)
    }
    actions |= {action for group in gcp.ASKED.values() for action in group} | set(gcp.FUNCTIONS.values())
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
)
WITHOUT_PATH = {
    "Microsoft.Insights/eventtypes/values": "the path of the Activity Log has `management` before `values`, its action has not",
    "Microsoft.Insights/diagnosticSettings": "a path below any resource",
    "Microsoft.Resources/subscriptions/resourceGroups": "written without a provider in its path",
    "Microsoft.Consumption/budgets": "a path below a scope",
    "Microsoft.Authorization/roleAssignments": "a path below a scope",
}


@functools.cache
def _paths() -> str:
    """Every path of the azure-mgmt models, without the names in them; `default` and `vmimage` are names that are written out there."""
    found = []
    for name in MODELS:
        root = Path(importlib.import_module(f"azure.mgmt.{name}").__file__ or "").parent
        for file in root.rglob("*.py"):
            if "operations" in file.name or "operations" in file.parts[-2]:
                found += re.findall(r'"(/[^"\s]*providers/[^"\s]+)"', file.read_text(encoding="utf-8"))
    return "\n".join(re.sub(r"/\{[^}]*\}|/default\b|(?<=/artifacttypes)/vmimage\b", "", path) for path in found).lower()


def test_azure_s_actions_are_about_types_that_exist() -> None:
    """The type before the verb is a path of Azure's own models, or has its reason."""
    actions = {
        word.partition("?")[0]
        for row in azure.ACTIONS.values()
        for op in ("create", "read", "update", "delete")
        for word in row.of(op)
    }
    actions |= {action for group in azure.ASKED.values() for action in group}
    for action in actions:
        kind = action.removesuffix("/action").rpartition("/")[0]
        if kind not in WITHOUT_PATH:
            assert f"/providers/{kind}".lower() in _paths(), action
