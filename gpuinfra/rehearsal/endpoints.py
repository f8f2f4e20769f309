"""Which variables send each cloud's own tools to the stand-in cloud, for nodes and for whoever rehearses.

Only variables that the clouds' tools document, and where none exists one of ours that docs/stand-in-cloud.md names.
The clouds' variables do not meet, so an operator gets those of all clouds: a program may use several.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

REGION_FALLBACK = "us-east-1"
"""AWS's SDKs refuse to work without a region."""


def of_node(cloud: str, endpoint: str, instance_id: str) -> dict[str, str]:
    """The environment that a stand-in node's image carries. `endpoint` is `http://127.0.0.1:PORT`."""
    return _NODES[cloud](endpoint, instance_id)


def of_operator(endpoint: str, operator: Mapping[str, Any], cloud: str, region: str) -> dict[str, str]:
    """The environment of the engine and the handover; `operator` is what the stand-in cloud said when it was ready.

    `region` is where the stack goes on `cloud`.
    """
    made: dict[str, str] = {}
    for name, variables in _OPERATORS.items():
        made |= variables(endpoint, operator, region if name == cloud else "")
    return made


def _aws_node(endpoint: str, instance_id: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{endpoint}/.imds/{instance_id}",
    }


def _azure_node(endpoint: str, instance_id: str) -> dict[str, str]:
    return {
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"{endpoint}/.azure/imds/{instance_id}",
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"{endpoint}/.azure/blob",
        "AZURE_AUTHORITY_HOST": f"{endpoint}/.azure/login",
        "GPUINFRA_HEALTH_ADDRESS": health_address(endpoint, instance_id),
    }


def health_address(endpoint: str, instance_id: str) -> str:
    """A loopback address of this node's own: stand-in nodes share one network, and each answers for its health."""
    digest = hashlib.sha256(f"{endpoint} {instance_id}".encode()).digest()
    return f"127.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"


def _azure_operator(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    """An identity as a machine of one's own on Azure has it, because azure-identity asks for its other kinds with TLS only."""
    known = operator.get("azure")
    if not known:
        return {}
    return {
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"{endpoint}/.azure/imds/operator-{known['secret']}",
        "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"{endpoint}/.azure/blob",
        "GPUINFRA_AZURE_RESOURCE_MANAGER": f"{endpoint}/.azure/arm",
        "GPUINFRA_AZURE_ATTESTATION_CERTIFICATES": str(known["certificates"]),
    }


def _gcp_node(endpoint: str, instance_id: str) -> dict[str, str]:
    """Google's libraries put the scheme before the metadata host themselves."""
    return {
        "GCE_METADATA_HOST": f"{endpoint.partition('://')[2]}/.gcp/imds/{instance_id}",
        "STORAGE_EMULATOR_HOST": f"{endpoint}/.gcp/storage",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{endpoint}/.gcp/compute/v1/",
    }


def _aws_operator(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": str(operator["access_key_id"]),
        "AWS_SECRET_ACCESS_KEY": str(operator["secret_access_key"]),
        "AWS_REGION": region or REGION_FALLBACK,
        "AWS_DEFAULT_REGION": region or REGION_FALLBACK,
    }


def _gcp_operator(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    """A key file of the stand-in's own, whose tokens come from the stand-in; Google has no variable for its public keys."""
    known = operator.get("gcp")
    if not known:
        return {}
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(known["credentials_file"]),
        "GOOGLE_CLOUD_PROJECT": str(known["project"]),
        "STORAGE_EMULATOR_HOST": f"{endpoint}/.gcp/storage",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{endpoint}/.gcp/compute/v1/",
        "GPUINFRA_GOOGLE_JWKS_URL": f"{endpoint}/.gcp/oauth2/v3/certs",
    }


_NODES: dict[str, Callable[[str, str], dict[str, str]]] = {
    "aws": _aws_node,
    "azure": _azure_node,
    "gcp": _gcp_node,
}
_OPERATORS: dict[str, Callable[[str, Mapping[str, Any], str], dict[str, str]]] = {
    "aws": _aws_operator,
    "azure": _azure_operator,
    "gcp": _gcp_operator,
}
