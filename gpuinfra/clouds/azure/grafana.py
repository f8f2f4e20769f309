"""A token of Microsoft Entra ID for Azure Managed Grafana. It is valid for about an hour."""

from __future__ import annotations

import contextlib

from gpuinfra.base.errors import DeploymentError

SCOPE = "ce34e7e5-485f-4d76-964f-b3d2b16d1e4f/.default"
"""The application of Azure Managed Grafana. The `amg` extension of the Azure CLI requests tokens for it (seen 2026-11-30)."""
DOMAIN = ".grafana.azure.com"


def token(host: str) -> contextlib.AbstractContextManager[str] | None:
    """Return a token of the operator, or None if the host is no workspace of Azure Managed Grafana.

    Raises `DeploymentError` if there are no credentials.
    """
    if not host.endswith(DOMAIN):
        return None
    from gpuinfra.clouds.azure.rest import NoToken, Rest

    try:
        return contextlib.nullcontext(Rest().token(SCOPE))
    except NoToken as problem:
        raise DeploymentError(f"no token for {host}: {problem.why}; run `az login`") from None
