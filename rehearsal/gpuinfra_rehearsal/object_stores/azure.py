"""Azure Blob Storage, with its REST API. A bucket is the resource ID of a container."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from gpuinfra.clouds.azure.blob_list import blobs
from gpuinfra.clouds.azure.names import GLOBAL_TOKEN_LENGTH
from gpuinfra.clouds.azure.region.failover import account_of
from gpuinfra.clouds.azure.region.readiness import GRANT, last
from gpuinfra.clouds.azure.rest import Rest, raise_for
from gpuinfra_rehearsal.object_stores import Ask

ENDPOINT = "azure-native:network:PrivateEndpoint"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Storage Blob Data Contributor."""
OPERATOR = "00000000-0000-4000-8000-00000000000a"
"""Object ID of the operator in the stand-in cloud."""


def connect(region: str) -> Blobs:
    """Return the object storage of a region."""
    return Blobs(Rest())


def pattern(bucket: str) -> str:
    """The ID of a container contains the subscription, and the names of its account and its resource group end in a hash that contains the subscription."""
    name = last(account_of(bucket))[:-GLOBAL_TOKEN_LENGTH]
    account = rf"{re.escape(name)}[0-9a-f]{{{GLOBAL_TOKEN_LENGTH}}}"
    group = r"/subscriptions/[^/]+/resourceGroups/[^/]+"
    container = f"blobServices/default/containers/{re.escape(last(bucket))}"
    return rf"{group}/providers/Microsoft\.Storage/storageAccounts/{account}/{container}"


def admit(ask: Ask, buckets: Iterable[str]) -> None:
    """Add private endpoints and role assignments that predate the rehearsal: only Managed Lustre can use the containers of a stack."""
    ask("private_network", {"operator": True})
    for number, container in enumerate(buckets):
        account = account_of(container)
        group = account.partition("/providers/")[0]
        name = f"operator-{last(account)}"
        links = [{"name": name, "privateLinkServiceId": account, "groupIds": ["blob"]}]
        endpoint = {"resourceGroupName": last(group), "privateEndpointName": name, "privateLinkServiceConnections": links}  # fmt: skip
        ask("existing", {"type": ENDPOINT, "id": f"{group}/providers/Microsoft.Network/privateEndpoints/{name}", "inputs": endpoint})  # fmt: skip
        own = f"00000000-0000-4f00-8000-{number:012x}"
        role = {
            "scope": container, "principalId": OPERATOR, "principalType": "User", "roleAssignmentName": own,
            "roleDefinitionId": f"{group.partition('/resourceGroups/')[0]}/providers/Microsoft.Authorization/roleDefinitions/{BLOB_CONTRIBUTOR}",
        }  # fmt: skip
        ask("existing", {"type": GRANT, "id": f"{container}/providers/Microsoft.Authorization/roleAssignments/{own}", "inputs": role})  # fmt: skip


class Blobs:
    """The blobs that a credential reaches. `ObjectStore` describes the methods."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def put(self, bucket: str, key: str, content: bytes) -> None:
        raise_for(self._rest.blob("PUT", self._url(bucket, key), {"x-ms-blob-type": "BlockBlob"}, content))

    def keys(self, bucket: str, prefix: str) -> set[str]:
        return {one.name for one in blobs(self._rest, self._base(bucket)) if one.name.startswith(prefix)}

    def get(self, bucket: str, key: str) -> bytes:
        return raise_for(self._rest.blob("GET", self._url(bucket, key))).body

    def _base(self, container: str) -> str:
        return self._rest.blob_base(f"https://{last(account_of(container))}.blob.core.windows.net/{last(container)}")

    def _url(self, container: str, key: str) -> str:
        return f"{self._base(container)}/{quote(key, safe='/-_.~')}"
