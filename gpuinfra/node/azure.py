"""Azure access from a node, using only the standard library: instance identity, blob storage and identity proof.

Custom endpoints come only from variables that Azure's own tools read: AZURE_POD_IDENTITY_AUTHORITY_HOST (the
metadata service, azure-identity) and AZURE_STORAGE_SERVICE_ENDPOINT (blob storage, the az command; the account's name is the first
part of the path there, as with Azurite). Azure's tools have no such variable for Key Vault, so gpuinfra defines AZURE_KEYVAULT_SERVICE_ENDPOINT, with
the name of the vault as the first part of the path. GPUINFRA_AZURE_RESOURCE_MANAGER is that of the handover.

Formats: instance metadata, identity tokens and attested documents from
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service, Put Blob from
https://learn.microsoft.com/rest/api/storageservices/put-blob; both retrieved 2026-11-21, not yet tested on a real node.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Mapping, Sequence

from .cloud import (
    OPENER,
    CloudError,
    FaultyNode,
    Refused,
    change,
    error_code,
    get_optional,
    make_proof,
    put_with_retry,
    read_metadata,
    read_secret,
)
from .notices import Notice, NoticeKind, moment

API_EVENTS = "2020-07-01"
API_INSTANCE, API_TOKEN, API_ATTESTED = "2021-02-01", "2018-02-01", "2020-09-01"
API_BLOB = "2021-12-02"
DELETIONS = ("Preempt", "Terminate")
"""Types of scheduled events that delete a machine. The others are Freeze, Reboot and Redeploy."""
STORAGE = "https://storage.azure.com/"
VAULT = "https://vault.azure.net"
API_SECRET = "7.4"
MANAGEMENT, API_COMPUTE = "https://management.azure.com", "2024-11-01"
MACHINE = re.compile(r"([\w.()-]+)_([0-9]+)")
"""Name of a machine of a scale set: the name of the scale set, and the number of the machine."""
DATA_LUN = 0
"""Logical unit number of the data disk. A control node has no other data disk."""
DOCUMENTS = 4
"""Attested documents in one proof. A nonce has ten digits, about 33 bits of the evidence's hash; four documents carry 132 bits."""
CONTAINER = re.compile(r"https://([a-z0-9]{3,24})\.(blob\.[a-z0-9.-]+)/([a-z0-9$](?:[a-z0-9-]{0,62}))/?")
SECRET = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.KeyVault/vaults/([A-Za-z0-9-]{3,24})/secrets/([A-Za-z0-9-]{1,127})",
    re.I,
)
_LIMIT = 1 << 20


class Metadata:
    """The instance metadata service."""

    def __init__(self, client_id: str = "", environ: Mapping[str, str] = os.environ) -> None:
        """`client_id` selects a user-assigned identity. Leave it empty if the machine has only one."""
        self._base = (environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or "http://169.254.169.254").rstrip("/")
        self._client_id = client_id

    def compute(self) -> dict[str, Any]:
        """Return Azure's description of this machine: vmId, location, subscriptionId ..."""
        return self._get("instance/compute", {"api-version": API_INSTANCE})

    def token(self, resource: str = STORAGE) -> str:
        """Return an access token of the machine's identity for a service, by default for blob storage."""
        query = {"api-version": API_TOKEN, "resource": resource}
        if self._client_id:
            query["client_id"] = self._client_id
        answer = self._get("identity/oauth2/token", query)
        if not isinstance(answer.get("access_token"), str):
            raise CloudError("the metadata service returned no token: %s" % sorted(answer))
        return answer["access_token"]

    def attested(self, nonce: str) -> str:
        """Return a document about this machine that Azure signed, as PKCS7 in base64.

        The service can return a cached document for an earlier nonce (Microsoft's guide), so the request is repeated.
        """
        for attempt in range(5):
            if attempt:
                time.sleep(0.5 * 2**attempt)
            answer = self._get("attested/document", {"api-version": API_ATTESTED, "nonce": nonce})
            if answer.get("encoding") != "pkcs7" or not isinstance(answer.get("signature"), str):
                raise CloudError("the encoding of the attested document is %s, expected pkcs7" % answer.get("encoding"))
            text = "".join(answer["signature"].split())
            try:
                if ('"%s"' % nonce).encode() in base64.b64decode(text, validate=True):
                    return text
            except ValueError:
                raise CloudError("the attested document is not base64") from None
        raise CloudError("the metadata service returned only cached attested documents, and none for nonce %s" % nonce)

    def events(self) -> list[dict[str, Any]]:
        """Return the scheduled events of the scale set, from one request without retries. The first request turns the service on."""
        url = "%s/metadata/scheduledevents?api-version=%s" % (self._base, API_EVENTS)
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        try:
            listed = json.loads(read_metadata(request, "the metadata service", "scheduledevents")[1])["Events"]
            return [one for one in listed if isinstance(one, dict)]
        except (KeyError, TypeError, ValueError):
            raise CloudError("the metadata service returned no scheduled events") from None

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send one request, with retries: the service throttles requests and is briefly unavailable during host updates."""
        url = "%s/metadata/%s?%s" % (self._base, path, urllib.parse.urlencode(query))
        problem = "was not called"
        for attempt in range(5):
            if attempt:
                time.sleep(0.5 * 2**attempt)
            try:
                with OPENER.open(urllib.request.Request(url, headers={"Metadata": "true"}), timeout=10) as reply:
                    value = json.loads(reply.read(_LIMIT).decode("utf-8"))
            except urllib.error.HTTPError as error:
                text = error.read(2048).decode("utf-8", "replace")
                problem = "returned status %d for %s: %s" % (error.code, path, " ".join(text.split())[:300])
                if error.code not in (404, 410, 429) and error.code < 500:
                    break
                continue
            except (OSError, http.client.HTTPException) as error:
                problem = "did not respond (%s): %s" % (path, error)
                continue
            except ValueError as error:
                problem = "returned invalid JSON for %s: %s" % (path, error)
                continue
            if not isinstance(value, dict):
                raise CloudError("the metadata service returned no JSON object for %s" % path)
            return value
        raise CloudError("the metadata service %s" % problem)


def blob_url(container: str, name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a blob's URL, based on the container's address or on the endpoint set in the environment."""
    match = CONTAINER.fullmatch(container)
    if match is None:
        raise CloudError(
            "%r is not the address of a container such as https://ACCOUNT.blob.core.windows.net/NAME" % container
        )
    account, domain, folder = match.groups()
    path = urllib.parse.quote(name, safe="/-_.~")
    endpoint = environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
    if endpoint:
        return "%s/%s/%s/%s" % (endpoint.rstrip("/"), account, folder, path)
    return "https://%s.%s/%s/%s" % (account, domain, folder, path)


def secret_url(id_: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the newest version of a Key Vault secret, at the vault or at the endpoint set in the environment."""
    match = SECRET.fullmatch(id_)
    if match is None:
        raise CloudError("%r is not the resource ID of a Key Vault secret" % id_)
    vault, name = match.groups()
    endpoint = environ.get("AZURE_KEYVAULT_SERVICE_ENDPOINT")
    base = "%s/%s" % (endpoint.rstrip("/"), vault) if endpoint else "https://%s.vault.azure.net" % vault
    return "%s/secrets/%s?api-version=%s" % (base, name, API_SECRET)


def redeploy_path(machine_id: str) -> str:
    """Return the path of the request that moves a machine of a scale set to a different host. It keeps its ID and its OS disk.

    A deletion would decrease the capacity of the scale set, and a reimage keeps the host.
    https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-set-vms/redeploy (retrieved 2026-11-26).
    """
    return "%s/redeploy" % machine_id


def _vault_error(text: str) -> str:
    """Return the codes of a Key Vault error."""
    codes = re.findall(r'"code"\s*:\s*"(\w+)"', text)
    return " ".join(codes) or "without an error code"


def nonces(evidence_sha256: str) -> list[str]:
    """Return the ordered nonces of a proof, derived from evidence hash and index: ten digits each, no leading 0."""
    numbers = []
    for number in range(DOCUMENTS):
        digest = hashlib.sha256(("gpuinfra.proof/1 %d %s" % (number, evidence_sha256)).encode("ascii")).digest()
        numbers.append(str(10**9 + int.from_bytes(digest, "big") % (9 * 10**9)))
    return numbers


class AzureNode:
    """A node's cloud (`cloud.NodeCloud`): the machine's identity, blob storage and attested documents."""

    notice_poll_s = 1.0
    """A spot machine has at least 30 seconds. Microsoft recommends to poll every second:
    https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events, retrieved 2026-11-28."""

    def __init__(self, client_id: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._machine = ""
        self._client_id = client_id
        self._metadata = Metadata(client_id, environ)

    def instance_id(self) -> str:
        """Return the machine's `vmId` in lower case; Azure uses both cases."""
        id_ = str(self._metadata.compute().get("vmId") or "").lower()
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id_):
            raise CloudError("the metadata service returned no vmId")
        return id_

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """Write one blob to a container. `bucket` is the container's address. With `once`, an existing blob is not replaced.

        The role of a node can add blobs and not overwrite them. Azure refuses to overwrite with UnauthorizedBlobOverwrite
        (https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes, retrieved 2026-11-28). An identity that is not effective yet
        also has the status 403, so the node looks whether the blob is there.
        """
        url = blob_url(bucket, key, self._environ)

        def request() -> urllib.request.Request:
            headers = {
                "Authorization": "Bearer " + self._metadata.token(),
                "Content-Type": "application/json",
                "x-ms-blob-type": "BlockBlob",
                "x-ms-version": API_BLOB,
            }
            if once:
                headers["If-None-Match"] = "*"
            return urllib.request.Request(url, data=body, method="PUT", headers=headers)

        def exists(status: int, code: str) -> bool:
            if status == 412 or code in ("BlobAlreadyExists", "BlobImmutableDueToPolicy", "UnauthorizedBlobOverwrite"):
                return True
            return status == 403 and self.get(bucket, key, 1) is not None

        put_with_retry(
            request,
            "%s/%s" % (bucket, key),
            once=once,
            own=False,
            explain=lambda error, text: error.headers.get("x-ms-error-code") or error_code(text),
            exists=exists,
            retried=(401, 403, 409, 429),
        )

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        """Return the first bytes of a blob, or None if it does not exist or the role does not cover it."""
        url = blob_url(bucket, key, self._environ)
        return get_optional(self._reads(url), "%s/%s" % (bucket, key), limit)

    def _reads(self, url: str) -> Callable[[], urllib.request.Request]:
        """Return a function that makes an authorized GET request."""
        headers = {"x-ms-version": API_BLOB}
        return lambda: urllib.request.Request(
            url, headers={"Authorization": "Bearer " + self._metadata.token(), **headers}
        )

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Return Azure-signed documents, valid for six hours, whose nonces together carry the evidence hash."""
        documents = [self._metadata.attested(nonce) for nonce in nonces(evidence_sha256)]
        return make_proof("azure", evidence_sha256, now, documents=documents)

    def account(self) -> Mapping[str, str]:
        """Return the subscription and the resource group of this machine, and the client ID of its identity."""
        machine = self._metadata.compute()
        return {
            "client_id": self._client_id,
            "subscription": str(machine.get("subscriptionId") or ""),
            "resource_group": str(machine.get("resourceGroupName") or ""),
        }

    def secret(self, name: str) -> str:
        """Return the newest version of a Key Vault secret, given its resource ID. Makes one attempt.

        Get Secret: https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret/get-secret, retrieved 2026-11-29.
        """
        url = secret_url(name, self._environ)
        headers = {"Authorization": "Bearer " + self._metadata.token(VAULT)}
        text = read_secret(
            urllib.request.Request(url, headers=headers), "secret %s" % url.partition("?")[0], _vault_error
        )
        try:
            return str(json.loads(text)["value"])
        except (ValueError, KeyError, TypeError):
            raise CloudError("Key Vault returned no value for %s" % name) from None

    def disk_links(self, disk: str) -> Sequence[str]:
        """Return the links that the rules of the agent and of azure-vm-utils make for the logical unit number, on SCSI and on NVMe
        (README of https://github.com/Azure/azure-vm-utils, and public scripts that try both links; retrieved 2026-11-30)."""
        return ("/dev/disk/azure/scsi1/lun%d" % DATA_LUN, "/dev/disk/azure/data/by-lun/%d" % DATA_LUN)

    def attach_disk(self, disk: str) -> None:
        """Request that a disk is attached to this machine of a scale set. Makes one attempt. Azure attaches it after its answer.

        Virtual Machine Scale Set VMs - Attach Detach Data Disks:
        https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-set-vms/attach-detach-data-disks, retrieved 2026-11-30.
        """
        name = str(self._metadata.compute().get("name") or "")
        match = MACHINE.fullmatch(name)
        if match is None:
            raise CloudError("%r has not the form NAME_NUMBER" % name)
        path = "%s/attachDetachDataDisks" % self._machine_path(*match.groups())
        body = {"dataDisksToAttach": [{"diskId": disk, "lun": DATA_LUN}]}
        self._manage("POST", path, "disk %s" % disk, self._metadata.token(MANAGEMENT), body)

    def _machine_path(self, scale_set: str, number: str) -> str:
        """Return the ID of a machine of a scale set in the resource group of this machine."""
        account = self.account()
        return "/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachineScaleSets/%s/virtualMachines/%s" % (
            account["subscription"], account["resource_group"], scale_set, number,
        )  # fmt: skip

    def _manage(self, method: str, path: str, what: str, token: str, body: Mapping[str, Any] | None = None) -> str:
        """Send one request to Azure Resource Manager, and return the body of the answer."""
        base = (self._environ.get("GPUINFRA_AZURE_RESOURCE_MANAGER") or MANAGEMENT).rstrip("/")
        url = "%s%s?api-version=%s" % (base, urllib.parse.quote(path), API_COMPUTE)
        data = json.dumps(body).encode() if body is not None else b"" if method == "POST" else None
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        return change(urllib.request.Request(url, data=data, method=method, headers=headers), what, _vault_error)

    def has_id(self, name: str, instance_id: str) -> bool:
        """Return whether a machine of a scale set in the resource group of this machine exists and has a `vmId`."""
        match, what = MACHINE.fullmatch(name), "machine %s" % name
        if match is None:
            return False
        path = self._machine_path(*match.groups())
        try:
            described = json.loads(self._manage("GET", path, what, self._metadata.token(MANAGEMENT)))
            return str(described["properties"]["vmId"]).lower() == instance_id
        except Refused as error:
            if error.status == 404:
                return False
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CloudError("Azure Resource Manager returned no description of %s" % what) from None

    def replace_node(self, node: FaultyNode) -> bool:
        """Redeploy a machine of a scale set in the resource group of this machine. Returns False if it does not exist.

        A machine that Azure already changes is not redeployed again, because an earlier request can be the reason.
        """
        match = MACHINE.fullmatch(node.name)
        if match is None:
            raise CloudError("%r has not the form NAME_NUMBER" % node.name)
        machine, token, what = (
            self._machine_path(*match.groups()),
            self._metadata.token(MANAGEMENT),
            "machine %s" % node.name,
        )
        try:
            described = json.loads(self._manage("GET", machine, what, token))
            tags, properties = described.get("tags") or {}, described["properties"]
            if str(properties["vmId"]).lower() != node.instance_id:
                return False
            if tags.get("gpuinfra:cluster") != node.cluster:
                raise CloudError("machine %s does not belong to the cluster" % node.name)
            if properties.get("provisioningState") != "Updating":
                self._manage("POST", redeploy_path(machine), what, token)
        except Refused as error:
            if error.status == 404:
                return False
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CloudError("Azure Resource Manager returned no description of machine %s" % node.name) from None
        return True

    def notice_sources(self) -> Mapping[str, Callable[[], list[Notice]]]:
        """Return the scheduled events that affect this machine. An event of `DELETIONS` deletes it."""
        return {"scheduled events": self._events}

    def _events(self) -> list[Notice]:
        self._machine = self._machine or str(self._metadata.compute().get("name") or "").lower()
        return [
            Notice(
                str(one.get("EventId")),
                NoticeKind.RECLAIM if one.get("EventType") in DELETIONS else NoticeKind.MAINTENANCE,
                ("%s: %s" % (one.get("EventType"), one.get("Description") or one.get("EventSource"))),
                moment(one.get("NotBefore")),  # empty as soon as the event has started
            )
            for one in self._metadata.events()
            if self._machine in [str(name).lower() for name in one.get("Resources") or []]
        ]


def connect(node: Mapping[str, Any], environ: Mapping[str, str]) -> AzureNode:
    """Return the Azure implementation of `Cloud`. `identity.client_id` is optional if the machine has one identity."""
    identity = node.get("identity")
    client_id = identity.get("client_id") if isinstance(identity, Mapping) else None
    return AzureNode(str(client_id or ""), environ)
