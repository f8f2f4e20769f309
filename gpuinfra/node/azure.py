"""What a node needs of Azure, with the standard library alone: who it is, blob storage, and a proof of identity.

Endpoints other than Azure's own come only from variables that Azure's own tools read: AZURE_POD_IDENTITY_AUTHORITY_HOST (the
metadata service, azure-identity) and AZURE_STORAGE_SERVICE_ENDPOINT (blob storage, the az command; an account's name is the first
part of the path there, as with Azurite).

Formats: instance metadata, identity tokens and attested documents from
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service, Put Blob from
https://learn.microsoft.com/rest/api/storageservices/put-blob; both read 2026-11-21, never seen on a real node.
"""

from __future__ import annotations

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
from typing import Any, Mapping

from .cloud import CloudError, Exists

API_INSTANCE, API_TOKEN, API_ATTESTED = "2021-02-01", "2018-02-01", "2020-09-01"
API_BLOB = "2021-12-02"
STORAGE = "https://storage.azure.com/"
DOCUMENTS = 4
"""Attested documents in one proof. A nonce has ten digits, about 33 bits of the evidence's hash; four of them carry 132."""
CONTAINER = re.compile(r"https://([a-z0-9]{3,24})\.(blob\.[a-z0-9.-]+)/([a-z0-9$](?:[a-z0-9-]{0,62}))/?")
_LIMIT = 1 << 20

# A proxy in the environment is for the steps' downloads; metadata and tokens never go through one.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Metadata:
    """The instance metadata service."""

    def __init__(self, client_id: str = "", environ: Mapping[str, str] = os.environ) -> None:
        """`client_id` chooses among the user-assigned identities of this machine; empty takes its only one."""
        self._base = (environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or "http://169.254.169.254").rstrip("/")
        self._client_id = client_id

    def compute(self) -> dict[str, Any]:
        """What Azure knows about this machine: vmId, location, subscriptionId ..."""
        return self._get("instance/compute", {"api-version": API_INSTANCE})

    def token(self) -> str:
        """An access token of this machine's identity for blob storage."""
        query = {"api-version": API_TOKEN, "resource": STORAGE}
        if self._client_id:
            query["client_id"] = self._client_id
        said = self._get("identity/oauth2/token", query)
        if not isinstance(said.get("access_token"), str):
            raise CloudError("the metadata service gives no token: %s" % sorted(said))
        return said["access_token"]

    def attested(self, nonce: str) -> str:
        """A document about this machine that Azure signed: PKCS7 in base64."""
        said = self._get("attested/document", {"api-version": API_ATTESTED, "nonce": nonce})
        if said.get("encoding") != "pkcs7" or not isinstance(said.get("signature"), str):
            raise CloudError("the metadata service attests in the encoding %s, not pkcs7" % said.get("encoding"))
        return "".join(said["signature"].split())

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """One answer. The service refuses more than some requests a second, and is away for moments while hosts change."""
        url = "%s/metadata/%s?%s" % (self._base, path, urllib.parse.urlencode(query))
        said = "nothing was tried"
        for attempt in range(5):
            if attempt:
                time.sleep(0.5 * 2**attempt)
            try:
                with _OPENER.open(urllib.request.Request(url, headers={"Metadata": "true"}), timeout=10) as reply:
                    value = json.loads(reply.read(_LIMIT).decode("utf-8"))
            except urllib.error.HTTPError as error:
                text = error.read(2048).decode("utf-8", "replace")
                said = "answers %d for %s: %s" % (error.code, path, " ".join(text.split())[:300])
                if error.code not in (404, 410, 429) and error.code < 500:
                    break
                continue
            except (OSError, http.client.HTTPException) as error:
                said = "does not answer (%s): %s" % (path, error)
                continue
            except ValueError as error:
                said = "answers for %s what is no JSON: %s" % (path, error)
                continue
            if not isinstance(value, dict):
                raise CloudError("the metadata service answers for %s what is no JSON object" % path)
            return value
        raise CloudError("the metadata service %s" % said)


def blob_url(container: str, name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Where a blob is: below its container's address, or at the endpoint that the variable names."""
    match = CONTAINER.fullmatch(container)
    if match is None:
        raise CloudError("%r is not the address of a container, https://ACCOUNT.blob.core.windows.net/NAME" % container)
    account, domain, folder = match.groups()
    path = urllib.parse.quote(name, safe="/-_.~")
    endpoint = environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
    if endpoint:
        return "%s/%s/%s/%s" % (endpoint.rstrip("/"), account, folder, path)
    return "https://%s.%s/%s/%s" % (account, domain, folder, path)


def put_blob(
    metadata: Metadata,
    container: str,
    name: str,
    body: bytes,
    *,
    once: bool,
    attempts: int = 6,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Write one block blob. `once` refuses to replace an existing one, so that evidence can only be added.

    Throttling, server errors and a role assignment that is not known everywhere yet are tried again with growing pauses.
    """
    url = blob_url(container, name, environ)
    said = "nothing was tried"
    for attempt in range(attempts):
        if attempt:
            time.sleep(min(30.0, 0.5 * 2**attempt))
        headers = {
            "Authorization": "Bearer " + metadata.token(),
            "Content-Type": "application/json",
            "x-ms-blob-type": "BlockBlob",
            "x-ms-version": API_BLOB,
        }
        if once:
            headers["If-None-Match"] = "*"
        request = urllib.request.Request(url, data=body, method="PUT", headers=headers)
        try:
            with _OPENER.open(request, timeout=30):
                return
        except urllib.error.HTTPError as error:
            code = error.headers.get("x-ms-error-code") or _code(error.read(2048).decode("utf-8", "replace"))
            if once and (code in ("BlobAlreadyExists", "BlobImmutableDueToPolicy") or error.code == 412):
                # Only this instance writes below its own id, so an earlier attempt of ours did arrive.
                if attempt:
                    return
                raise Exists("%s/%s exists already" % (container, name)) from error
            said = "%d %s" % (error.code, code)
            if error.code not in (401, 403, 409, 429) and error.code < 500:
                break
        except (OSError, http.client.HTTPException) as error:
            said = str(error)
    raise CloudError("%s/%s could not be written: %s" % (container, name, said))


def nonces(evidence_sha256: str) -> list[str]:
    """The nonces of a proof, in order: each ten digits, the first never 0, made from the evidence's hash and their number."""
    found = []
    for number in range(DOCUMENTS):
        digest = hashlib.sha256(("gpuinfra.proof/1 %d %s" % (number, evidence_sha256)).encode("ascii")).digest()
        found.append(str(10**9 + int.from_bytes(digest, "big") % (9 * 10**9)))
    return found


def identity_proof(metadata: Metadata, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
    """Documents about this machine that Azure signed, whose nonces together carry the hash of the evidence."""
    return {
        "schema": "gpuinfra.proof/1",
        "cloud": "azure",
        "evidence_sha256": evidence_sha256,
        "signed": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "documents": [metadata.attested(nonce) for nonce in nonces(evidence_sha256)],
    }


class Azure:
    """A node's cloud (`cloud.Cloud`): the machine's identity, blob storage and attested documents."""

    def __init__(self, client_id: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._metadata = Metadata(client_id, environ)

    def instance_id(self) -> str:
        """The machine's `vmId`, in small letters: Azure writes it in both."""
        found = str(self._metadata.compute().get("vmId") or "").lower()
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found):
            raise CloudError("the metadata service names no vmId")
        return found

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """One blob of a container; `bucket` is the container's address."""
        put_blob(self._metadata, bucket, key, body, once=once, environ=self._environ)

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Attested documents, good for six hours."""
        return identity_proof(self._metadata, evidence_sha256, now)


def connect(node: Mapping[str, Any], environ: Mapping[str, str]) -> Azure:
    """Azure as `node.json` describes it; `identity.client_id` is left out where the machine has one identity."""
    identity = node.get("identity")
    client_id = identity.get("client_id") if isinstance(identity, Mapping) else None
    return Azure(str(client_id or ""), environ)


def _code(text: str) -> str:
    """The error code of an answer in Azure's XML, found as text: nothing else of it is of use here."""
    start, end = text.find("<Code>"), text.find("</Code>")
    return text[start + 6 : end][:60] if 0 <= start < end else "without a code"
