"""Property values in Pulumi's protocol, and functions that inspect them.

Properties are sent as a protobuf `Struct`. Values that JSON cannot represent use envelopes: secrets and assets are
objects with a well-known signature key, and an unknown is a well-known string. The signatures are
constants in Pulumi's protocol (`sdk/proto/go`, `sdk/go/common/resource/properties.go`).

Envelopes are preserved, so a secret input becomes a secret output.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"
RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
OTHER_UNKNOWNS = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


def read(struct: Struct) -> dict[str, Any]:
    """Convert properties to plain Python. Whole numbers become `int`, as the user wrote them."""
    return {key: _read(value) for key, value in struct.fields.items()}


def _read(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        return read(value.struct_value)
    if kind == "list_value":
        return [_read(item) for item in value.list_value.values]
    return None


def write(properties: Mapping[str, Any]) -> Struct:
    """Convert properties for the engine."""
    struct = Struct()
    for key, value in properties.items():
        _write(struct.fields[key], value)
    return struct


def _write(target: Value, value: Any) -> None:
    if value is None:
        target.null_value = 0  # type: ignore[assignment]
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, (int, float)):
        target.number_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, Mapping):
        target.struct_value.CopyFrom(write(value))
    elif isinstance(value, (list, tuple)):
        target.list_value.CopyFrom(ListValue())
        for item in value:
            _write(target.list_value.values.add(), item)
    else:
        raise TypeError(f"a property cannot hold a {type(value).__name__}: {value!r}")


def secret(value: Any) -> dict[str, Any]:
    """Wrap `value` in a secret envelope."""
    return {SIGNATURE: SECRET, "value": value}


def is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET


def is_unknown(value: Any) -> bool:
    return isinstance(value, str) and (value == UNKNOWN or value in OTHER_UNKNOWNS)


def is_asset(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get(SIGNATURE) in (ASSET, ARCHIVE)


def has_unknown(value: Any) -> bool:
    """Return whether any nested value is unknown until the deployment."""
    value = peel(value)
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(item) for item in value)
    return is_unknown(value)


def has_secret(value: Any) -> bool:
    if is_secret(value):
        return True
    if isinstance(value, Mapping):
        return any(has_secret(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(has_secret(item) for item in value)


def peel(value: Any) -> Any:
    """Remove the outermost envelopes of a secret, an output or a resource."""
    while isinstance(value, Mapping):
        mark = value.get(SIGNATURE)
        if mark == SECRET:
            value = value.get("value")
        elif mark == OUTPUT:
            value = value.get("value", UNKNOWN)
        elif mark == RESOURCE:
            return value.get("id") or value.get("urn")
        else:
            return value
    return value


def plain(value: Any) -> Any:
    """Return `value` with all secrets unwrapped. Assets are preserved."""
    value = peel(value)
    if is_asset(value):
        return dict(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def strings(value: Any) -> Iterator[str]:
    """Return all nested strings."""
    value = peel(value)
    if isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def asset_bytes(value: Mapping[str, Any]) -> bytes:
    """Return the content of an asset, or of an archive that consists of one file.

    Raises ValueError with the reason if the content is not available. Content at a URL is not available, because a rehearsal does not download anything.
    """
    if value.get("text") is not None:
        return str(value["text"]).encode()
    if path := value.get("path"):
        try:
            return Path(str(path)).read_bytes()
        except OSError as error:
            raise ValueError(f"reading the asset {path}: {error.strerror or error}") from error
    if uri := value.get("uri"):
        raise ValueError(
            f"the asset {uri} is a URL, but a rehearsal does not download anything; use a file or a string"
        )
    if assets := value.get("assets"):
        return _zip(assets)
    raise ValueError(
        f"the asset has no content: it names {', '.join(sorted(k for k in value if k != SIGNATURE)) or 'nothing'}"
    )


def _zip(assets: Mapping[str, Any]) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(assets):
            archive.writestr(zipfile.ZipInfo(name), asset_bytes(assets[name]))
    return buffer.getvalue()


def asset_hash(value: Mapping[str, Any]) -> str:
    """Return the hash of an asset: the hash from the engine, or the hash of its content."""
    return str(value.get("hash") or "") or hashlib.sha256(asset_bytes(value)).hexdigest()


def holders(value: Any, parents: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects at a path. A list in the path stands for each of its items."""
    if isinstance(value, list):
        for item in value:
            yield from holders(item, parents)
    elif isinstance(value, dict) and SIGNATURE not in value:
        if parents:
            yield from holders(value.get(parents[0]), parents[1:])
        else:
            yield value
