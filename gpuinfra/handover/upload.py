"""`Upload`: a file in a container of Azure's blob storage, put there under the operator's own identity.

The Azure provider's own resource signs with the account's shared key, which an account of ours does not have
(pulumi/pulumi-azure-native#2015). The name of a blob is chosen by its content, so nothing is ever changed in place.
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

from gpuinfra.handover import wire
from gpuinfra.handover.azure_rest import Answer, Refused, Rest, raise_for
from gpuinfra.handover.ports import PortUnavailable

TYPE = "gpuinfra:index:Upload"
INPUTS = ("container", "blob", "sha256", "source")
OUTPUTS = ("url",)
MOST = 256 * 1024 * 1024
"""Bytes of one request to Put Blob that older service versions take too."""
PATIENCE_S = 600.0
"""A role assignment made a moment ago reaches blob storage some minutes late."""


@dataclass(frozen=True, kw_only=True)
class UploadArgs:
    """What goes where."""

    container: pulumi.Input[str]
    """Address of the container, `https://ACCOUNT.blob.core.windows.net/NAME`."""
    blob: pulumi.Input[str]
    """Name in the container; another content needs another name."""
    sha256: pulumi.Input[str]
    """SHA-256 of the content, in hexadecimal; for a gzip file, of the data in it, because releases of zlib compress the same data to
    different bytes. An upload of anything else fails."""
    source: pulumi.Asset
    """The content, up to 256 MiB."""


class Upload(pulumi.CustomResource):
    """One blob.

    The operator needs `Storage Blob Data Contributor` on the container. A blob that is there already with the same content is taken
    as it is; one with another content is an error. A blob that an immutability policy holds stays when this resource goes.
    """

    url: pulumi.Output[str]
    """Its address."""

    def __init__(self, name: str, args: UploadArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props: dict[str, object] = {
            "container": args.container, "blob": args.blob, "sha256": args.sha256, "source": args.source, "url": None,
        }  # fmt: skip
        super().__init__(TYPE, name, props, opts)


# What the plugin does with it. Properties are plain values; an asset is the engine's mapping with `path` or `text`.


def check_inputs(inputs: Mapping[str, object]) -> list[tuple[str, str]]:
    """What is wrong with the inputs, as (property, reason)."""
    found = [(name, f"{name} is missing") for name in INPUTS if inputs.get(name) in (None, "", {})]
    sha256 = inputs.get("sha256")
    if (
        isinstance(sha256, str)
        and sha256 != wire.UNKNOWN
        and (len(sha256) != 64 or set(sha256) - set("0123456789abcdef"))
    ):
        found.append(("sha256", f"sha256 is {sha256[:80]!r}, allowed is a hash of 64 hexadecimal digits"))
    return found


def changes(state: Mapping[str, object], news: Mapping[str, object]) -> list[str]:
    """Which properties make it another blob. The source's path is not one: the hash says what is in it."""
    return [name for name in INPUTS if name != "source" and state.get(name) != news.get(name)]


def create(inputs: Mapping[str, object], rest: Rest, cancelled: threading.Event) -> wire.Properties:
    """Put it there. Raises `PortUnavailable` with Azure's words, or ValueError where content and hash differ."""
    body = _content(inputs.get("source"))
    found = _digest(body)
    if found != inputs["sha256"]:
        raise ValueError(f"the source of {inputs['blob']} has SHA-256 {found}, and sha256 says {inputs['sha256']}")
    url = _url(inputs, rest)
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", "If-None-Match": "*"}
    answer = _patiently(lambda: rest.blob("PUT", url, headers, body), cancelled)
    if answer.status == 403 and _code(answer) == "AuthorizationFailure":
        raise PortUnavailable(
            f"{_shown(inputs)}: AuthorizationFailure: the storage account's network rules do not let this machine in; "
            "put the address that it has on the internet into access.evidence_from, or run from inside the network"
        )
    if answer.status in (409, 412) and _exists(rest, url, found):
        return {**inputs, "url": _shown(inputs)}
    raise_for(answer)
    return {**inputs, "url": _shown(inputs)}


def read(properties: Mapping[str, object], rest: Rest) -> bool:
    """Whether it is still there."""
    answer = rest.blob("HEAD", _url(properties, rest))
    return answer.status != 404 and bool(raise_for(answer))


def delete(properties: Mapping[str, object], rest: Rest) -> str:
    """Remove it; the answer is why it stays, or nothing."""
    answer = rest.blob("DELETE", _url(properties, rest))
    if answer.status == 404:
        return ""
    try:
        raise_for(answer)
    except Refused as error:
        if error.code == "BlobImmutableDueToPolicy":
            return f"{_shown(properties)} stays: an immutability policy holds it"
        raise
    return ""


def _content(source: object) -> bytes:
    if isinstance(source, dict) and source.get("path"):
        data = Path(str(source["path"])).read_bytes()
    elif isinstance(source, dict) and source.get("text") is not None:
        data = str(source["text"]).encode()
    else:
        raise ValueError("the source of an upload is a file or a text")
    if len(data) > MOST:
        raise ValueError(f"the source of an upload has {len(data)} bytes, allowed are {MOST}")
    return data


def _digest(data: bytes) -> str:
    """SHA-256 of the data, uncompressed if it is gzip."""
    if data.startswith(b"\x1f\x8b"):
        with contextlib.suppress(zlib.error):
            data = zlib.decompressobj(31).decompress(data, MOST)
    return hashlib.sha256(data).hexdigest()


def _patiently(send: Callable[[], Answer], cancelled: threading.Event) -> Answer:
    """An answer that is no refusal of a role that is not known yet, or the last refusal."""
    pause, waited = 2.0, 0.0
    while True:
        answer = send()
        late = answer.status == 403 and _code(answer) == "AuthorizationPermissionMismatch"
        if not late and answer.status not in (429, 500, 503):
            return answer
        if waited >= PATIENCE_S or cancelled.wait(pause):
            return answer
        waited, pause = waited + pause, min(pause * 1.5, 30.0)


def _code(answer: Answer) -> str:
    try:
        raise_for(answer)
    except Refused as error:
        return error.code
    return ""


def _exists(rest: Rest, url: str, sha256: str) -> bool:
    """Whether the blob that is there holds just that; raises `PortUnavailable` where it holds something else."""
    held = raise_for(rest.blob("GET", url)).body
    if _digest(held) != sha256:
        raise PortUnavailable(f"{url.split('?')[0]} is there already with another content")
    return True


def _url(inputs: Mapping[str, object], rest: Rest) -> str:
    return f"{rest.blob_base(str(inputs['container']))}/{quote(str(inputs['blob']), safe='/-_.~')}"


def _shown(inputs: Mapping[str, object]) -> str:
    return f"{str(inputs['container']).rstrip('/')}/{inputs['blob']}"
