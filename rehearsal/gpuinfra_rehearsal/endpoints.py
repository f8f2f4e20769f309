"""Environment variables that point each cloud's own tools and SDKs to the stand-in cloud, for the operator.

The clouds' own tools document most of these variables. If a tool has no such variable, gpuinfra defines one
(docs/internals/stand-in-cloud.md). The operator's environment contains the variables for all clouds, because a program can use several clouds. The variable
names do not collide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

REGION_FALLBACK = "us-east-1"
"""The AWS SDKs require a region."""
_GOOGLE_OVERRIDES = {
    "BILLINGBUDGETS": "billingbudgets/",
    "CLOUDSCHEDULER": "cloudscheduler/",
    "CLOUDRESOURCEMANAGER": "cloudresourcemanager/",
    "SECRETMANAGER": "secretmanager/",
    "SERVICEUSAGE": "serviceusage/",
    "COMPUTE": "compute/v1/",
    "CLOUDKMS": "cloudkms/",
    "CLOUDQUOTAS": "cloudquotas/",
    "DNS": "dns/",
    "LOGGING": "logging/",
    "LUSTRE": "lustre/",
    "OSLOGIN": "oslogin/",
    "FILE": "file/",
    "IAM": "iam/",
    "MONITORING": "monitoring/",
    "STORAGETRANSFER": "storagetransfer/",
}
"""Maps a service (`CLOUDSDK_API_ENDPOINT_OVERRIDES_<service>`) to its path on the stand-in cloud."""


def of_operator(endpoint: str, operator: Mapping[str, Any], cloud: str, region: str) -> dict[str, str]:
    """Return the environment of the engine and the handover. `operator` contains the credentials that the stand-in
    cloud printed.

    `region` is the stack's region on `cloud`.
    """
    environment: dict[str, str] = {}
    for name, variables in _OPERATORS.items():
        environment |= variables(endpoint, operator, region if name == cloud else "")
    if cloud not in _OPERATORS:
        environment[f"{cloud.upper()}_ENDPOINT"] = f"{endpoint}/.{cloud}"
    return environment


def _aws(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    pair = operator.get("aws")
    if not pair:
        return {}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": str(pair["access_key_id"]),
        "AWS_SECRET_ACCESS_KEY": str(pair["secret_access_key"]),
        "AWS_REGION": region or REGION_FALLBACK,
        "AWS_DEFAULT_REGION": region or REGION_FALLBACK,
    }


def _azure(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    """Use a managed identity, because azure-identity sends other kinds of credentials only over TLS."""
    azure = operator.get("azure")
    if not azure:
        return {}
    return {
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": f"{endpoint}/.azure/imds/operator-{azure['secret']}",
        "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"{endpoint}/.azure/blob",
        "GPUINFRA_AZURE_RESOURCE_MANAGER": f"{endpoint}/.azure/arm",
        "GPUINFRA_AZURE_ATTESTATION_CERTIFICATES": str(azure["certificates"]),
        # Roles in the stand-in cloud take effect immediately.
        "GPUINFRA_AZURE_ROLE_WAIT_S": "0",
    }


def _gcp(endpoint: str, operator: Mapping[str, Any], region: str) -> dict[str, str]:
    """Use a key file for which the stand-in cloud issues tokens. Google's tools have no variable for the address of the public keys."""
    gcp = operator.get("gcp")
    if not gcp:
        return {}
    return {
        "GOOGLE_APPLICATION_CREDENTIALS": str(gcp["credentials_file"]),
        "GOOGLE_CLOUD_PROJECT": str(gcp["project"]),
        "STORAGE_EMULATOR_HOST": f"{endpoint}/.gcp/storage",
        "GPUINFRA_GOOGLE_JWKS_URL": f"{endpoint}/.gcp/oauth2/v3/certs",
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service}": f"{endpoint}/.gcp/{path}"
            for service, path in _GOOGLE_OVERRIDES.items()
        },
    }


_DECLARED = {
    "gcp:project": "GPUINFRA_STAND_IN_PROJECT",
    "azure-native:subscriptionId": "GPUINFRA_STAND_IN_SUBSCRIPTION",
}
"""Maps each provider setting that names an account to the variable with which the stand-in cloud takes that name."""


def declared_account(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the variables for the project and the subscription that a stack declares. `settings` are `LoadedStack.settings`."""
    return {variable: str(settings[name]) for name, variable in _DECLARED.items() if settings.get(name)}


_OPERATORS: dict[str, Callable[[str, Mapping[str, Any], str], dict[str, str]]] = {
    "aws": _aws,
    "azure": _azure,
    "gcp": _gcp,
}
