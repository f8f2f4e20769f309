"""Key Vault secrets: Get Secret, as a control node requests it. The name of the vault is the first part of the path.

https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret/get-secret, retrieved 2026-11-29.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.azure import identity
from gpuinfra_rehearsal.cloud.core import receiver
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

AUDIENCES = ("https://vault.azure.net",)
_READ = "Microsoft.KeyVault/vaults/secrets/getSecret/action"
_SECRET = re.compile(r"/(?P<vault>[A-Za-z0-9-]+)/secrets/(?P<name>[A-Za-z0-9-]+)")


class SecretService:
    """Serves `vault/<vault>/secrets/<name>`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request, path: str) -> Response:
        asked = _SECRET.fullmatch(path)
        if request.method != "GET" or asked is None or "api-version" not in request.query:
            return _error(400, "BadParameter", "the request is not supported in a rehearsal")
        try:
            who = identity.of_token(self.cloud.store, request.headers.get("authorization", ""), AUDIENCES)
        except ApiRejected as refusal:
            return _error(401, "Unauthorized", refusal.message)
        place = self._place(asked["vault"], asked["name"])
        if place is None or not identity.may(self.cloud, who, (_READ,), place, {}):
            return _error(
                403, "Forbidden", f"Caller is not authorized to perform action on resource. Action: '{_READ}'"
            )
        value = receiver.address(self.cloud, asked["name"])
        return json_response(
            {"value": value, "id": f"https://{asked['vault']}.vault.azure.net/secrets/{asked['name']}/1"}
        )

    def _place(self, vault: str, name: str) -> str | None:
        """Return the ID of a secret of your subscription. It exists, because a role assignment of the stack names it."""
        end = f"/vaults/{vault}/secrets/{name}".lower()
        scopes = (str(one.plain.get("scope")) for one in self.cloud.store.list(identity.ASSIGNMENT))
        return next((scope for scope in scopes if scope.lower().endswith(end)), None)


def _error(status: int, code: str, message: str) -> Response:
    return json_response({"error": {"code": code, "message": message}}, status)
