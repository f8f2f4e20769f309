"""Mounted containers on Azure: the account that the stack creates, and the permissions of the nodes."""

from __future__ import annotations

import base64
import functools
import json
import re

import pytest

from gpuinfra.clouds.build import SiteOutputs, site_bucket
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery import replicated
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.cloud.azure.builtin_roles import of_inputs
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import TODAY, recording_of_spec

CORPUS = (
    "/subscriptions/00000000-0000-4000-8000-000000000009/resourceGroups/data/providers/Microsoft.Storage"
    "/storageAccounts/corpora/blobServices/default/containers/text"
)
SPEC = {
    "name": "train",
    "where": {"cloud": "azure", "region": "eastus"},
    "access": {"evidence_from": ["203.0.113.0/24"]},
    "pools": [{"name": "gpu", "machine": "Standard_ND96isr_H100_v5", "capacity": [{"kind": "spot", "count": 1}]}],
    "storage": [
        {"kind": "object", "mount": "/data", "bucket": CORPUS},
        {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False},
    ],
}
ACCOUNT, ENDPOINT = "azure-native:storage:StorageAccount", "azure-native:network:PrivateEndpoint"
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"


@functools.cache
def recording() -> Recording:
    """A cluster that reads an existing container and writes to a created one."""
    return recording_of_spec(SPEC)


def one(type_: str, name: str) -> Registered:
    """A resource by its logical name."""
    (found,) = (some for some in recording().of(type_) if some.name == name)
    return found


def test_a_created_container_is_private_encrypted_and_retained() -> None:
    """The account of a mount uses the data key, has no public access and no account keys, and is reached through a private endpoint."""
    account = one(ACCOUNT, "train-out-0-account")
    assert account.retained
    assert account.inputs["publicNetworkAccess"] == "Disabled"
    assert account.inputs["allowSharedKeyAccess"] is False
    assert account.inputs["encryption"]["keySource"] == "Microsoft.Keyvault"
    assert one("azure-native:storage:BlobContainer", "train-out-0-data").retained
    (connection,) = one(ENDPOINT, "train-out-0-endpoint").inputs["privateLinkServiceConnections"]
    assert connection["privateLinkServiceId"] == account.id
    assert connection["groupIds"] == ["blob"]
    assert not [some for some in recording().custom if some.name.startswith("train-data-0")]


def test_nodes_find_the_containers_in_their_user_data() -> None:
    """node.json has the account and the name of both containers, and the identity with which BlobFuse requests tokens."""
    (group,) = recording().of("azure-native:compute:VirtualMachineScaleSet")
    found = re.findall(r'"(?:userData|customData)": "([^"]+)"', json.dumps(group.inputs))
    text = "".join(base64.b64decode(some).decode("utf-8", "replace") for some in found)
    assert '"dns_name": "corpora.blob.core.windows.net"' in text
    assert '"mount_name": "text"' in text
    name = one(ACCOUNT, "train-out-0-account").inputs["accountName"]
    assert f'"dns_name": "{name}.blob.core.windows.net"' in text
    assert '"mount_name": "data"' in text
    assert '"client_id"' in text


@pytest.mark.parametrize(
    ("mount", "scope", "verbs"),
    [("data-0", CORPUS, {"read"}), ("out-0", None, {"read", "write", "add/action", "move/action", "delete"})],
)
def test_nodes_have_data_actions_on_mounted_containers_only(mount: str, scope: str | None, verbs: set[str]) -> None:
    """The role of a mount has data actions on one container and no other rights, so a node cannot delete the container."""
    assignment = one("azure-native:authorization:RoleAssignment", f"train-node-{mount}-mount")
    role = one("azure-native:authorization:RoleDefinition", f"train-node-{mount}-mount-role")
    assert assignment.inputs["roleDefinitionId"].endswith(role.inputs["roleDefinitionId"])
    assert assignment.inputs["scope"] == (scope or one("azure-native:storage:BlobContainer", "train-out-0-data").id)
    (block,) = of_inputs(role.inputs).permissions
    assert block.actions == ()
    assert set(block.data_actions) == {f"{BLOBS}/{verb}" for verb in verbs}


def test_a_created_container_is_replicated() -> None:
    """`recovery` replicates the container of a mount that the stack creates."""
    plan = build_plan(parse_spec(SPEC), TODAY)
    assert [some.name for some in replicated(plan.file_systems)] == ["out-0"]
    assert plan.audit.recorded_buckets == ("evidence", "out-0")


def test_the_container_of_another_stacks_site_is_found() -> None:
    """The cluster of a site that another stack created assigns the role at the container in the outputs of that stack."""
    plan = build_plan(parse_spec(SPEC), TODAY)
    entries = [{"kind": "object", "mount": "/out", "mount_name": "data", "container_id": "/subscriptions/x"}]
    site = SiteOutputs(subnet_ids={}, file_systems=entries)
    ids = [site_bucket(site, some, "container_id") for some in plan.mounted_buckets]
    assert ids == [CORPUS, "/subscriptions/x"]
