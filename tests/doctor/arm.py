"""A local Azure Resource Manager."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from http.server import ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.clouds.azure import preflight as azure
from tests.servers import Answering


def _token(claims: dict[str, str]) -> str:
    return ".".join(("e30", urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("="), "signature"))


class Credential:
    """A credential with a token that has these claims."""

    def __init__(self, claims: dict[str, str]) -> None:
        self.token = _token(claims)
        self.expires_on = 0.0
        self.scopes: list[str] = []
        """The scope of each request."""

    def get_token(self, *scopes: str) -> Any:
        self.scopes += scopes
        return SimpleNamespace(token=self.token, expires_on=self.expires_on)


class Arm:
    """A local Azure Resource Manager with one answer for each path."""

    def __init__(self, answers: dict[str, tuple[int, Any]]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.names: list[dict[str, str]] = []
        """The body of each request about a name."""
        self.latency_s = 0.0

        class Handler(Answering):
            def do_POST(handler) -> None:
                asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                self.names.append(asked)
                handler.do_GET()

            def do_GET(handler) -> None:
                path = handler.path.partition("?")[0]
                self.requests.append(path)
                time.sleep(self.latency_s)
                missing = (
                    404,
                    {"error": {"code": "ResourceNotFound", "message": f"The Resource {path!r} was not found."}},
                )
                status, body = self.answers.get(path, missing)
                handler.answer(status, json.dumps(body).encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def preflight(
        self, monkeypatch: pytest.MonkeyPatch, config: dict[str, object], region: str = "eastus"
    ) -> azure.Preflight:
        monkeypatch.setenv("GPUINFRA_AZURE_RESOURCE_MANAGER", f"http://127.0.0.1:{self.server.server_port}")
        found = azure.Preflight(region, config)
        found.rest._credential = Credential({"idtyp": "app"})
        return found
