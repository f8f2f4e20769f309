"""Environment variables that point the cloud tools on a stand-in node to the stand-in cloud.

Most variables are documented by the clouds' own tools. If a tool has none, gpuinfra defines one
(docs/internals/stand-in-cloud.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable


def of_node(cloud: str, endpoint: str, instance_id: str) -> dict[str, str]:
    """Return the environment in a stand-in node's image. `endpoint` is `http://127.0.0.1:PORT`."""
    return _NODES[cloud](endpoint, instance_id) if cloud in _NODES else _generic(cloud, endpoint, instance_id)


def health_address(endpoint: str, instance_id: str) -> str:
    """Return the loopback address on which this node serves its health. Stand-in nodes share one network, so each has
    its own address."""
    digest = hashlib.sha256(f"{endpoint} {instance_id}".encode()).digest()
    return f"127.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"


def monitoring_address(endpoint: str, instance_id: str) -> str:
    """Return the loopback address on which the exporter of this node, and Prometheus and Alertmanager of a control node, listen."""
    digest = hashlib.sha256(f"monitoring {endpoint} {instance_id}".encode()).digest()
    return f"127.{128 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"


def _generic(cloud: str, endpoint: str, instance_id: str) -> dict[str, str]:
    """The environment for a cloud without tables in this module. cloud-init reads an EC2-compatible metadata service."""
    return {
        f"{cloud.upper()}_ENDPOINT": f"{endpoint}/.{cloud}",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{endpoint}/.{cloud}/nodes/{instance_id}",
    }


def _aws(endpoint: str, instance_id: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{endpoint}/.imds/{instance_id}",
    }


def _azure(endpoint: str, instance_id: str) -> dict[str, str]:
    return {
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"{endpoint}/.azure/imds/{instance_id}",
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"{endpoint}/.azure/blob",
        "AZURE_KEYVAULT_SERVICE_ENDPOINT": f"{endpoint}/.azure/vault",
        "GPUINFRA_AZURE_RESOURCE_MANAGER": f"{endpoint}/.azure/arm",
        "AZURE_AUTHORITY_HOST": f"{endpoint}/.azure/login",
        "GPUINFRA_HEALTH_ADDRESS": health_address(endpoint, instance_id),
    }


def _gcp(endpoint: str, instance_id: str) -> dict[str, str]:
    """Google's libraries add the scheme to the metadata host themselves."""
    return {
        "GCE_METADATA_HOST": f"{endpoint.partition('://')[2]}/.gcp/imds/{instance_id}",
        "STORAGE_EMULATOR_HOST": f"{endpoint}/.gcp/storage",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{endpoint}/.gcp/compute/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": f"{endpoint}/.gcp/secretmanager/",
        "GPUINFRA_HEALTH_ADDRESS": health_address(endpoint, instance_id),
    }


_NODES: dict[str, Callable[[str, str], dict[str, str]]] = {"aws": _aws, "azure": _azure, "gcp": _gcp}
