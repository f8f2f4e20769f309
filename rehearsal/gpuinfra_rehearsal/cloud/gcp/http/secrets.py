"""Secret Manager: `versions.access`, as a control node requests it.

https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access, retrieved 2026-11-29.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core import receiver
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import access, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_LATEST = re.compile(r"v1/projects/(?P<project>[^/]+)/secrets/(?P<name>[^/]+)/versions/latest:access")


def answer(cloud: Cloud, request: Request, rest: str) -> Response:
    """Return the newest version of a secret of your project. It exists, because a grant of the stack names it."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    asked = _LATEST.fullmatch(rest)
    if asked is None or request.method != "GET" or asked["project"] != PROJECT:
        raise GoogleError("notFound", f"{request.method} {rest[:160]} is not supported in a rehearsal", status=404)
    name = asked["name"]
    if not any("cloud-platform" in scope for scope in who.scopes) or not access.allowed_on_secret(
        cloud, who.email, access.ACCESS_SECRET, name
    ):
        text = f"Permission '{access.ACCESS_SECRET}' denied for resource 'projects/{PROJECT}/secrets/{name}/versions/latest' (or it may not exist)."
        raise GoogleError("forbidden", text, status=403)
    data = base64.b64encode(receiver.address(cloud, name).encode()).decode()
    return json_response({"name": f"projects/{PROJECT}/secrets/{name}/versions/1", "payload": {"data": data}})
