"""What Azure's nodes and operators reach over HTTP, below `/.azure/`.

| path | service | who |
| --- | --- | --- |
| `imds/<vmId>/metadata/...`, `imds/<vmId>/ovf-env.xml` | instance metadata, identity tokens, attested documents, the provisioning disc | a node |
| `imds/operator-<secret>/metadata/identity/...` | tokens of the person who rehearses | azure-identity |
| `blob/<account>/<container>/<name>` | blob storage | nodes, operators, with a token |
| `arm/subscriptions/...` | Azure Resource Manager, as far as a handover asks | operators, with a token |
| `console/<vmId>` | a serial console log, for who has its signed address | operators |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.rehearsal.cloud.azure.http.arm import ResourceManager
from gpuinfra.rehearsal.cloud.azure.http.blobs import Blobs
from gpuinfra.rehearsal.cloud.azure.http.imds import Imds
from gpuinfra.rehearsal.cloud.core.server import Request, Response

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud


class Azure:
    """Serves `/.azure/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self._services = {
            "imds": Imds(cloud),
            "blob": Blobs(cloud),
            "arm": (arm := ResourceManager(cloud)),
            "console": arm.console,
        }

    def __call__(self, request: Request) -> Response:
        parts = request.path.split("/", 3)
        service = self._services.get(parts[2]) if len(parts) > 3 else None
        return service(request, "/" + parts[3]) if service and len(parts) > 3 else Response(404, b"no such service")
