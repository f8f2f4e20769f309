"""Azure HTTP services below `/.azure/`.

| path | service | clients |
| --- | --- | --- |
| `imds/<vmId>/metadata/...`, `imds/<vmId>/ovf-env.xml` | instance metadata, identity tokens, attested documents, the provisioning disk | a node |
| `imds/operator-<secret>/metadata/identity/...` | the operator's tokens | azure-identity |
| `blob/<account>/<container>/<name>` | blob storage | nodes and the operator, with a token |
| `vault/<vault>/secrets/<name>` | Key Vault secrets | a control node, with a token |
| `arm/subscriptions/...` | the Azure Resource Manager calls that the handover uses | the operator, with a token |
| `arm/subscriptions/...` | the calls with which Prometheus finds machines | a control node, with a token |
| `console/<vmId>` | the log of a serial console, at a signed URL | the operator |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure.http.arm import ResourceManager
from gpuinfra_rehearsal.cloud.azure.http.blobs import BlobService
from gpuinfra_rehearsal.cloud.azure.http.imds import Imds
from gpuinfra_rehearsal.cloud.azure.http.secrets import SecretService
from gpuinfra_rehearsal.cloud.core.http import Request, Response, Service

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud


def services(cloud: Cloud) -> Mapping[str, Service]:
    """Return all services by path."""
    arm = ResourceManager(cloud)
    every = {
        "imds": Imds(cloud),
        "blob": BlobService(cloud),
        "vault": SecretService(cloud),
        "arm": arm,
        "console": arm.console,
    }
    return {f"/.azure/{name}/": _below(f"/.azure/{name}", service) for name, service in every.items()}


def _below(prefix: str, service: Callable[[Request, str], Response]) -> Service:
    """Pass the rest of the path to a service."""
    return lambda request: service(request, request.path.removeprefix(prefix))
