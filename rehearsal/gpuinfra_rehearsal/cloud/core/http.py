"""HTTP requests and responses, and helpers for services."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected


@dataclass(frozen=True)
class Request:
    """One request. `path` is decoded. `raw_path` and `raw_query` are unchanged. Header names are lowercase."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(self.raw_path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.raw_query, keep_blank_values=True))


@dataclass(frozen=True)
class Response:
    """One response."""

    status: int = 200
    body: bytes = b""
    type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


class Service(Protocol):
    """Handles all requests below its path."""

    def __call__(self, request: Request) -> Response: ...


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(status, json.dumps(value).encode(), "application/json; charset=UTF-8", headers or {})


def content(body: bytes, wanted: str, kind: str, headers: Mapping[str, str], unsatisfiable: ApiRejected) -> Response:
    """Return an object's content, or the range that a `Range` header requests. Raises `unsatisfiable` if the range is
    empty."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if match is None or not any(match.groups()):
        return Response(200, body, kind, headers)
    first, last = match.groups()
    start = int(first) if first else max(0, len(body) - int(last))
    end = min(int(last), len(body) - 1) if first and last else len(body) - 1
    if start > end:
        raise unsatisfiable
    return Response(206, body[start : end + 1], kind, {**headers, "Content-Range": f"bytes {start}-{end}/{len(body)}"})
