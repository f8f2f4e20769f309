"""`az` in a rehearsal: Azure Bastion."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode

from gpuinfra_rehearsal.programs import parsed, run, variable

_AUDIENCE = "https://management.azure.com"
_CHUNK = 65536


def tunnel(words: list[str]) -> int:
    """Listen on a local port, and forward it to a port of a machine behind a Bastion host."""
    needed = ("--name", "--resource-group", "--target-resource-id", "--resource-port", "--port")
    given = parsed("az network bastion tunnel", words, needed, ("--subscription",))
    subscription = given.subscription or given.target_resource_id.split("/")[2]
    bastion = f"/subscriptions/{subscription}/resourceGroups/{given.resource_group}/providers/Microsoft.Network/bastionHosts/{given.name}"
    token = _asked(
        f"{variable('AZURE_POD_IDENTITY_AUTHORITY_HOST')}/metadata/identity/oauth2/token",
        {"api-version": "2018-02-01", "resource": _AUDIENCE},
        {"Metadata": "true"},
    )["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    endpoint = f"{variable('GPUINFRA_AZURE_RESOURCE_MANAGER')}{bastion}/tunnel"
    with socket.create_server(("127.0.0.1", int(given.port))) as listener:
        while True:
            connection, _ = listener.accept()
            asked = {"api-version": "2024-05-01", "target": given.target_resource_id, "port": given.resource_port}
            port = int(_asked(endpoint, asked, headers)["port"])
            remote = socket.create_connection(("127.0.0.1", port), timeout=20)
            remote.settimeout(None)
            for source, target in ((connection, remote), (remote, connection)):
                threading.Thread(target=_copied, args=(source, target), daemon=True).start()


def _copied(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def _asked(url: str, query: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}?{urlencode(query)}", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            body: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"ERROR: {error.read(1000).decode('utf-8', 'replace')}")
    return body


if __name__ == "__main__":
    run("az", {("network", "bastion", "tunnel"): tunnel})
