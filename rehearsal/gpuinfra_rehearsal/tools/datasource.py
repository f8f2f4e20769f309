"""The instance ID and the user data that cloud-init reads on each cloud.

| cloud | instance ID | user data |
| --- | --- | --- |
| AWS | metadata service, version 2, with a token | `/latest/user-data` |
| Azure | metadata service, `compute.vmId` | custom data on the provisioning disc, `ovf-env.xml`, or `compute.userData` |
| Google | metadata server, `instance/id` | `instance/attributes/user-data`, base64 if `user-data-encoding` is base64 |

A stand-in node has no disc drive. The stand-in cloud serves Azure's disc at `ovf-env.xml` next to the metadata service.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.request
from xml.etree import ElementTree

LINK_LOCAL = "http://169.254.169.254"
NAMES = {"aws": "DataSourceEc2Local", "azure": "DataSourceAzure", "gcp": "DataSourceGCELocal"}
AZURE_VERSION = "2021-08-01"
"""The version of Azure's metadata API that cloud-init uses."""


def identity(cloud: str) -> tuple[str, bytes]:
    """Return the instance ID and the user data. Raises OSError if there is no response, ValueError if the response is
    invalid."""
    return {"aws": _aws, "azure": _azure, "gcp": _gcp}[cloud]()


def _aws() -> tuple[str, bytes]:
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", LINK_LOCAL).rstrip("/")
    token = _request("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}) or b""
    header = {"X-aws-ec2-metadata-token": token.decode()}
    instance = _request("GET", f"{base}/latest/meta-data/instance-id", header) or b""
    return instance.decode(), _request("GET", f"{base}/latest/user-data", header) or b""


def _azure() -> tuple[str, bytes]:
    base = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", LINK_LOCAL).rstrip("/")
    url = f"{base}/metadata/instance?api-version={AZURE_VERSION}&extended=true"
    compute = json.loads(_request("GET", url, {"Metadata": "true"}) or b"{}").get("compute", {})
    disc = _request("GET", f"{base}/ovf-env.xml", {})
    return compute["vmId"], _custom_data(disc) or base64.b64decode(compute.get("userData") or "")


def _custom_data(disc: bytes | None) -> bytes:
    if not disc:
        return b""
    for element in ElementTree.fromstring(disc).iter():
        if element.tag.rpartition("}")[2] == "CustomData":
            return base64.b64decode(element.text or "")
    return b""


def _gcp() -> tuple[str, bytes]:
    base = f"http://{os.environ.get('GCE_METADATA_HOST', 'metadata.google.internal')}/computeMetadata/v1/instance"
    header = {"Metadata-Flavor": "Google"}
    instance = _request("GET", f"{base}/id", header) or b""
    data = _request("GET", f"{base}/attributes/user-data", header) or b""
    encoding = _request("GET", f"{base}/attributes/user-data-encoding", header)
    return instance.decode(), base64.b64decode(data) if encoding == b"base64" else data


def _request(method: str, url: str, headers: dict[str, str]) -> bytes | None:
    """Return the response, or None for 404. Retries, because the network can come up late."""
    problem: OSError | None = None
    for pause in (0.1, 0.3, 1, 2, 4):
        try:
            request = urllib.request.Request(url, method=method, headers=headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code < 500:
                raise
            problem = error
        except OSError as error:
            problem = error
        time.sleep(pause)
    raise problem or OSError("no answer")
