"""The requests that the real Google provider makes for each resource type, and the permission of each request.

`calls.json` contains the recorded requests. The stand-in cloud checks these permissions in addition to the permissions in
`clouds/gcp/resources.py`, so a rehearsal with least privilege does not depend only on that table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_SERVICES = {"cloudresourcemanager": "resourcemanager", "billingbudgets": "billing"}
_VERBS = {"POST": "create", "DELETE": "delete", "PATCH": "update", "PUT": "update"}
_EXCEPTIONS = {
    "POST global/addresses": "compute.globalAddresses.createInternal",
    "GET global/addresses/-": "compute.globalAddresses.get",
    "DELETE global/addresses/-": "compute.globalAddresses.deleteInternal",
    "POST addresses/-/setLabels": "compute.globalAddresses.setLabels",
    "POST instanceGroupManagers/-/resizeRequests": "compute.instanceGroupManagers.update",
    "GET instanceGroupManagers/-/resizeRequests/-": "compute.instanceGroupManagers.get",
    "DELETE instanceGroupManagers/-/resizeRequests/-": "compute.instanceGroupManagers.update",
    "POST buckets:createAsync": "logging.buckets.create",
    "GET services/-/connections": "servicenetworking.services.get",
    "POST services/-/connections": "servicenetworking.services.addPeering",
    "POST services/-/connections/-": "servicenetworking.services.deleteConnection",
    "POST services/-:enable": "serviceusage.services.enable",
    "POST services/-:generateServiceIdentity": "serviceusage.services.enable",
    "POST storage/v1/b": "storage.buckets.create",
    "GET storage/v1/b/-": "storage.buckets.get",
    "DELETE storage/v1/b/-": "storage.buckets.delete",
    "GET b/-/iam": "storage.buckets.getIamPolicy",
    "PUT b/-/iam": "storage.buckets.setIamPolicy",
    "GET b/-/o": "storage.objects.list",
    "GET b/-/anywhereCaches/": "storage.anywhereCaches.list",
}
"""Maps the end of a request to its permission if the collection and the method do not determine it. From each method's reference page, retrieved 2026-11-22."""
_IF_SET = {
    "compute.routes.list": "deleteDefaultRoutesOnCreate",
    "compute.routes.delete": "deleteDefaultRoutesOnCreate",
    "compute.globalAddresses.setLabels": "labels",
}
"""Maps a permission to the input without which the provider does not make the request."""


@cache
def _recorded() -> dict[str, dict[str, list[str]]]:
    path = Path(__file__).with_name("calls.json")
    return dict(json.loads(path.read_text(encoding="utf-8"))["calls"])


def types() -> tuple[str, ...]:
    """Return the resource types with recorded requests."""
    return tuple(_recorded())


def permissions(token: str, operation: str, inputs: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Return the permissions that an operation's requests require. With `inputs`, include only the requests for these inputs."""
    for call in _recorded().get(token, {}).get(operation, []):
        needed = permission(call)
        if inputs is None or needed not in _IF_SET or inputs.get(_IF_SET[needed]):
            yield needed


def permission(call: str) -> str:
    """Return the permission of a request such as `GET compute/v1/projects/-/global/networks/-`."""
    method, _, path = call.partition(" ")
    for end, exception in _EXCEPTIONS.items():
        verb, _, tail = end.partition(" ")
        if method == verb and path.endswith(f"/{tail}"):
            return exception
    parts = path.split("/")
    service, last = _SERVICES.get(parts[0], parts[0]), parts[-1]
    name, _, special = last.partition(":")
    collection = parts[-2] if name == "-" else name
    if special:
        return f"{service}.{collection}.{special}"
    verb = ("get" if name == "-" else "list") if method == "GET" else _VERBS[method]
    return f"{service}.{collection}.{verb}"
