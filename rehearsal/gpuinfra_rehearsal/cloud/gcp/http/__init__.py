"""Google's HTTP services, all below `/.gcp/`.

| path | service | clients and the variable that configures the endpoint |
| --- | --- | --- |
| `imds/<number>/computeMetadata/v1/...` | an instance's metadata server | a node: GCE_METADATA_HOST |
| `storage/storage/v1/...`, `storage/upload/...`, `storage/download/...` | Cloud Storage, JSON API | nodes, the operator: STORAGE_EMULATOR_HOST |
| `cloudkms/v1/...`, `logging/v2/...`, `lustre/v1/...`, `file/v1/...`,
`compute/v1/projects/<project>/global/...` | reads of retained resources | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_<service> |
| `storagetransfer/v1/...`, `iam/v1/...`, `monitoring/v3/...` | reads of replication resources | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_<service> |
| `cloudscheduler/v1/...`, also `...:pause` and `...:resume` | schedules of exports | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER |
| `storagetransfer/v1/transferJobs/...`, `lustre/v1/...:importData`, `...:exportData`, `lustre/v1/.../operations` | changes of replication jobs,
imports into Managed Lustre | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_<service> |
| `compute/v1/projects/...` | groups, instances, serial ports, quotas, machine types, reservations, images | the operator:
CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE |
| `dns/dns/v1/projects/<project>/managedZones/<zone>` | records of a described zone | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_DNS |
| `secretmanager/v1/...` | secrets of your project | a control node: CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER |
| `cloudquotas/v1/...` | quotas | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDQUOTAS |
| `oslogin/v1/users/<email>:importSshPublicKey` | OS Login profiles | the operator: CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN |
| `tunnel/v4/connect` | Identity-Aware Proxy | the operator |
| `token` | access tokens in exchange for a signed assertion | the operator: `token_uri` of the key file, GOOGLE_APPLICATION_CREDENTIALS |
| `oauth2/v3/certs` | the public keys that verify identity tokens | the operator: GPUINFRA_GOOGLE_JWKS_URL |
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import tokens
from gpuinfra_rehearsal.cloud.gcp.http import dns, logins, offers, reads, secrets, transfers
from gpuinfra_rehearsal.cloud.gcp.http.compute import Compute
from gpuinfra_rehearsal.cloud.gcp.http.metadata import MetadataService
from gpuinfra_rehearsal.cloud.gcp.http.storage import Storage

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

PREFIX = "/.gcp/"


class Google:
    """Serves `/.gcp/...`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._metadata, self._storage, self._compute = MetadataService(cloud), Storage(cloud), Compute(cloud)

    def __call__(self, request: Request) -> Response:
        where, _, rest = request.raw_path.removeprefix(PREFIX).partition("/")
        try:
            if where == "imds":
                return self._metadata(request, rest)
            if where == "storage":
                return self._storage(request, rest)
            if where == "secretmanager":
                return secrets.answer(self.cloud, request, rest)
            if where == "dns":
                return dns.answer(self.cloud, request, rest)
            if offers.serves(where, rest):
                return offers.answer(self.cloud, request, rest)
            if transfers.serves(where, request.method, rest):
                return transfers.answer(self.cloud, where, request, rest)
            if reads.serves(where, rest):
                return reads.read(self.cloud, where, request, rest)
            if where == "monitoring":
                return reads.metrics(self.cloud, request, rest)
            if where == "compute":
                return self._compute(request, rest)
            if where in ("oslogin", "tunnel"):
                return logins.answer(self.cloud, where, request, rest)
            if request.raw_path == tokens.TOKEN_PATH and request.method == "POST":
                return self._token(request)
            if request.raw_path == tokens.KEYS_PATH:
                return json_response(tokens.keys(self.cloud.store))
            return error(ApiRejected("notFound", f"{request.path[:200]} is not supported in a rehearsal", status=404))
        except ApiRejected as refusal:
            if refusal.status in (400, 401, 403):
                self.cloud.store.log(request.method, "google", request.path[:500], "", refusal.code)
            return error(refusal)

    def _token(self, request: Request) -> Response:
        form = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
        try:
            return json_response(tokens.exchange(self.cloud.store, form))
        except ApiRejected as refusal:
            return json_response({"error": refusal.code, "error_description": refusal.message}, refusal.status)


def error(refusal: ApiRejected) -> Response:
    """Return a JSON error in Google's format."""
    content = {"message": refusal.message, "domain": "global", "reason": refusal.code}
    return json_response(
        {"error": {"code": refusal.status, "message": refusal.message, "errors": [content]}}, refusal.status
    )
