"""Logins to instances: OS Login profiles, and the tunnels of Identity-Aware Proxy.

A profile has the format that `gcloud compute os-login ssh-keys add` returns for a service account
(https://cloud.google.com/compute/docs/oslogin/rest/v1/users/importSshPublicKey, retrieved 2026-11-22).
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import ids, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_KEY = "os login key"
IAP_RANGE = "35.235.240.0/20"
"""Source addresses of IAP TCP forwarding (https://cloud.google.com/iap/docs/using-tcp-forwarding, retrieved 2026-11-22)."""


def answer(cloud: Cloud, where: str, request: Request, rest: str) -> Response:
    """Serves the requests of the operator."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    if not who.is_operator:
        raise GoogleError("forbidden", "Required 'compute.instances.osAdminLogin' permission", status=403)
    if where == "tunnel":
        return json_response({"port": _port(cloud, request.query)})
    if request.method != "POST" or unquote(rest) != f"v1/users/{who.email}:importSshPublicKey":
        raise GoogleError("notFound", f"{request.path[:200]} is not supported in a rehearsal", status=404)
    return json_response({"loginProfile": _imported(cloud, who.email, json.loads(request.body))})


def logins(cloud: Cloud, instance: dict[str, Any]) -> dict[str, list[str]]:
    """Return the users of an instance: those of OS Login if its metadata enables it, otherwise none."""
    if str(instance["attributes"].get("enable-oslogin", "")).upper() != "TRUE":
        return {}
    now, keys_by_user = time.time(), dict[str, list[str]]()
    for login_key in cloud.store.all(_KEY).values():
        if login_key["until"] is None or login_key["until"] > now:
            keys_by_user.setdefault(_user(login_key["email"]), []).append(login_key["key"])
    return keys_by_user


def _imported(cloud: Cloud, email: str, asked: dict[str, Any]) -> dict[str, Any]:
    key, until = str(asked["key"]).strip(), asked.get("expirationTimeUsec")
    digest = hashlib.sha256(key.encode()).hexdigest()
    row = {"email": email, "key": key, "until": int(until) / 1_000_000 if until else None}
    cloud.store.put(_KEY, digest, row)
    user = _user(email)
    account = {
        "primary": True, "username": user, "uid": user[3:13], "gid": user[3:13], "homeDirectory": f"/home/{user}",
        "operatingSystemType": "LINUX", "accountId": ids.PROJECT, "name": f"users/{email}/projects/{ids.PROJECT}",
    }  # fmt: skip
    shown = {"key": key, "fingerprint": digest, "name": f"users/{email}/sshPublicKeys/{digest}"}
    return {"name": user[3:], "posixAccounts": [account], "sshPublicKeys": {digest: shown}}


def _user(email: str) -> str:
    """Return the user name of a service account: `sa_` and its unique ID of 21 digits."""
    return f"sa_{10**20 + int(hashlib.sha256(email.encode()).hexdigest()[:15], 16)}"


def _opened(cloud: Cloud, instance: dict[str, Any]) -> bool:
    """Return whether a firewall rule of the first interface's network allows IAP to connect to port 22."""
    link = str((instance["interfaces"] or [{}])[0].get("subnetwork") or "")
    subnets = (one for one in cloud.store.list("gcp:compute/subnetwork:Subnetwork") if link.endswith(one.id))
    network = next((str(one.plain.get("network")) for one in subnets), "")
    for rule in cloud.store.list("gcp:compute/firewall:Firewall"):
        inputs = rule.plain
        ports = [str(port) for one in inputs.get("allows") or [] for port in one.get("ports") or []]
        if IAP_RANGE in (inputs.get("sourceRanges") or []) and "22" in ports and inputs.get("network") == network:
            return True
    return False


def _port(cloud: Cloud, asked: dict[str, str]) -> int:
    """Return the loopback port of an instance."""
    for instance in cloud.fleet.running():
        named = (instance["cloud"], instance.get("vm"), instance["zone"]) == (
            "gcp",
            asked.get("instance"),
            asked.get("zone"),
        )
        port = cloud.fleet.ssh_port(instance["id"]) if named and asked.get("port") == "22" else None
        if port is not None and _opened(cloud, instance):
            return port
    raise GoogleError("failedToConnectToBackend", "Error while connecting [4003: 'failed to connect to backend'].")
