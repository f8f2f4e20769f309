"""Read calls of KMS, Filestore, Managed Lustre and networks that find retained resources, as `gpuinfra
adopt` makes them.

The path after the service and its version is the resource's name, which is also its ID in the stand-in cloud.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra.rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra.rehearsal.cloud.gcp import operator, tokens
from gpuinfra.rehearsal.cloud.gcp.errors import GoogleError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

_TYPES = {
    "cloudkms": ("gcp:kms/keyRing:KeyRing", "gcp:kms/cryptoKey:CryptoKey"),
    "lustre": ("gcp:lustre/instance:Instance",),
    "file": ("gcp:filestore/instance:Instance",),
    "compute": ("gcp:compute/network:Network", "gcp:compute/globalAddress:GlobalAddress"),
}
"""Maps a service to the resource types that it serves."""
_CONNECTION = "gcp:servicenetworking/connection:Connection"


def serves(service: str, rest: str) -> bool:
    """Return whether a request is one of these read calls. Other requests to Compute Engine refer to one zone."""
    return service in _TYPES and (service != "compute" or "/global/" in rest)


def read(cloud: Cloud, service: str, request: Request, rest: str) -> Response:
    """Handle `GET VERSION/NAME`."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    name = unquote(rest).partition("/")[2]
    found = next((one for type_ in _TYPES[service] if (one := cloud.store.find(type_, name))), None)
    if not who.is_operator:
        raise GoogleError("forbidden", f"Permission denied on resource '{name}' (or it may not exist)", status=403)
    if request.method != "GET" or found is None:
        raise GoogleError("notFound", f"Resource '{name}' was not found", status=404)
    cloud.operator.check(operator, operator.required(cloud.store, "read", found.type, {}, found.region, found))
    answer = {"name": name, "peerings": _peerings(cloud, found)} if service == "compute" else {"name": name}
    return json_response(answer)


def _peerings(cloud: Cloud, network: Resource) -> list[dict[str, Any]]:
    connections = [one.plain for one in cloud.store.list(_CONNECTION)]
    services = [str(one.get("service")) for one in connections if str(one.get("network")).endswith(network.id)]
    return [{"name": service.replace(".", "-")} for service in services]
