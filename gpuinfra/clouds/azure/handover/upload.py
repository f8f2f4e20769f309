"""`Upload`: a file in an Azure blob storage container, uploaded with the operator's own identity.

The equivalent resource in the Azure provider signs with the account's shared key, which is disabled in our accounts
(pulumi/pulumi-azure-native#2015). A blob's name depends on its content, so blobs are never updated in place.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pulumi

from gpuinfra.clouds.azure.rest import THROTTLED_S, AzureRefused, Rest, RestAnswer, raise_for
from gpuinfra.handover import wire
from gpuinfra.handover.ports import PortUnavailable

TYPE = "gpuinfra:index:Upload"
INPUTS = ("container", "blob", "sha256", "source")
OUTPUTS = ("url",)
_STRING: dict[str, object] = {"type": "string"}
_INPUT_SCHEMA: dict[str, object] = {
    "container": _STRING,
    "blob": _STRING,
    "sha256": _STRING,
    "source": {"$ref": "pulumi.json#/Asset"},
}
SCHEMA: dict[str, object] = {
    "description": "A file in an Azure blob storage container, uploaded under the operator's identity.",
    "inputProperties": _INPUT_SCHEMA,
    "requiredInputs": [*INPUTS],
    "properties": {**_INPUT_SCHEMA, "url": _STRING},
    "required": [*INPUTS, *OUTPUTS],
}
MAX_BYTES = 256 * 1024 * 1024
"""Maximum body size of one Put Blob request that older service versions accept."""
PATIENCE_S = 600.0
"""A new role assignment can take a few minutes to take effect in blob storage."""


@dataclass(frozen=True, kw_only=True)
class UploadArgs:
    """Content and destination of the upload."""

    container: pulumi.Input[str]
    """Address of the container, in the form `https://ACCOUNT.blob.core.windows.net/NAME`."""
    blob: pulumi.Input[str]
    """Name of the blob in the container. Different content requires a different name."""
    sha256: pulumi.Input[str]
    """Hexadecimal SHA-256 of the content, or of the uncompressed data of a gzip file, because zlib releases compress the same data
    to different bytes. Uploading different content fails."""
    source: pulumi.Asset
    """The content, up to 256 MiB."""


class Upload(pulumi.CustomResource):
    """One blob in a container.

    The operator needs `Storage Blob Data Contributor` on the container. An existing blob with the same content is adopted; a blob with
    other content is an error. A blob under an immutability policy stays in the container when this resource is deleted.
    """

    url: pulumi.Output[str]
    """Address of the blob."""

    def __init__(self, name: str, args: UploadArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props: dict[str, object] = {
            "container": args.container, "blob": args.blob, "sha256": args.sha256, "source": args.source, "url": None,
        }  # fmt: skip
        super().__init__(TYPE, name, props, opts)


# The implementation in the plugin. Properties are plain values. The engine passes an asset as a mapping with `path` or `text`.


def check_inputs(inputs: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return problems with the inputs, as (property, reason)."""
    problems = [(name, f"{name} is missing") for name in INPUTS if inputs.get(name) in (None, "", {})]
    sha256 = inputs.get("sha256")
    if (
        isinstance(sha256, str)
        and sha256 != wire.UNKNOWN
        and (len(sha256) != 64 or set(sha256) - set("0123456789abcdef"))
    ):
        problems.append(("sha256", f"sha256 is {sha256[:80]!r}; expected 64 hexadecimal digits"))
    return problems


def changes(state: Mapping[str, object], news: Mapping[str, object]) -> list[str]:
    """Return the changed properties that force a replacement of the blob. A changed source path does not force one, because the hash identifies the content."""
    return [name for name in INPUTS if name != "source" and state.get(name) != news.get(name)]


def create(inputs: Mapping[str, object], cancelled: threading.Event, rest: Rest | None = None) -> dict[str, object]:
    """Upload the blob. Raises `PortUnavailable` with the message from Azure, or ValueError if the content does not match the hash."""
    body = _content(inputs.get("source"))
    digest = _digest(body)
    if digest != inputs["sha256"]:
        raise ValueError(f"the source of {inputs['blob']} has SHA-256 {digest}, but sha256 is {inputs['sha256']}")
    rest = rest or _rest()
    url = _url(inputs, rest)
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", "If-None-Match": "*"}
    answer = _send_with_retry(lambda: rest.blob("PUT", url, headers, body), cancelled)
    if answer.status == 403 and _code(answer) == "AuthorizationFailure":
        raise PortUnavailable(
            f"{_address(inputs)}: AuthorizationFailure: the storage account's network rules block this machine; "
            "add this machine's public address to access.evidence_from, or run from inside the network"
        )
    if answer.status in (409, 412) and _exists(rest, url, digest):
        return {**inputs, "url": _address(inputs)}
    raise_for(answer)
    return {**inputs, "url": _address(inputs)}


def read(properties: Mapping[str, object], rest: Rest | None = None) -> bool:
    """Return True if the blob still exists."""
    rest = rest or _rest()
    answer = rest.blob("HEAD", _url(properties, rest))
    return answer.status != 404 and bool(raise_for(answer))


def delete(properties: Mapping[str, object], rest: Rest | None = None) -> str:
    """Delete the blob. Returns the reason if it cannot be deleted, otherwise an empty string."""
    rest = rest or _rest()
    answer = rest.blob("DELETE", _url(properties, rest))
    if answer.status == 404:
        return ""
    try:
        raise_for(answer)
    except AzureRefused as error:
        if error.code == "BlobImmutableDueToPolicy":
            return f"{_address(properties)} stays in the container: an immutability policy protects it"
        raise
    return ""


def _rest() -> Rest:
    return Rest(patience_s=THROTTLED_S)


def _content(source: object) -> bytes:
    if isinstance(source, dict) and source.get("path"):
        data = Path(str(source["path"])).read_bytes()
    elif isinstance(source, dict) and source.get("text") is not None:
        data = str(source["text"]).encode()
    else:
        raise ValueError("the source of an upload must be a file or text")
    if len(data) > MAX_BYTES:
        raise ValueError(f"the source of an upload has {len(data)} bytes; allowed: up to {MAX_BYTES}")
    return data


def _digest(data: bytes) -> str:
    """Return the SHA-256 of the data. Gzip data is hashed uncompressed."""
    if data.startswith(b"\x1f\x8b"):
        with contextlib.suppress(zlib.error):
            data = zlib.decompressobj(31).decompress(data, MAX_BYTES)
    return hashlib.sha256(data).hexdigest()


def _send_with_retry(send: Callable[[], RestAnswer], cancelled: threading.Event) -> RestAnswer:
    """Send a request, and return the last response. The request is retried if it is throttled or if a role assignment is not effective yet."""
    pause, waited = 2.0, 0.0
    while True:
        answer = send()
        late = answer.status == 403 and _code(answer) == "AuthorizationPermissionMismatch"
        if not late and answer.status not in (429, 500, 503):
            return answer
        if waited >= PATIENCE_S or cancelled.wait(pause):
            return answer
        waited, pause = waited + pause, min(pause * 1.5, 30.0)


def _code(answer: RestAnswer) -> str:
    try:
        raise_for(answer)
    except AzureRefused as error:
        return error.code
    return ""


def _exists(rest: Rest, url: str, sha256: str) -> bool:
    """Return True if the existing blob has this content. Raises `PortUnavailable` if the content differs."""
    held = raise_for(rest.blob("GET", url)).body
    if _digest(held) != sha256:
        raise PortUnavailable(f"{url.split('?')[0]} already exists with different content")
    return True


def _url(inputs: Mapping[str, object], rest: Rest) -> str:
    return f"{rest.blob_base(str(inputs['container']))}/{quote(str(inputs['blob']), safe='/-_.~')}"


def _address(inputs: Mapping[str, object]) -> str:
    return f"{str(inputs['container']).rstrip('/')}/{inputs['blob']}"
