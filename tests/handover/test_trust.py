"""Environment variables that change the root of trust are reported, and addresses without TLS are refused."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gpuinfra.handover import gcp, trust
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.registry import CLOUDS


@pytest.mark.parametrize("cloud", list(CLOUDS))
def test_each_variable_is_reported(cloud: str) -> None:
    """A variable that is set is listed with its value; without one, nothing is stated."""
    assert trust.changed(cloud, {}) == []
    assert trust.stated(cloud, {}) == ""
    assert trust.variables(cloud)
    for name in trust.variables(cloud):
        assert trust.changed(cloud, {name: "https://x.example"}) == [f"{name}=https://x.example"]
        assert f"{name}=https://x.example" in trust.stated(cloud, {name: "https://x.example"})


@pytest.mark.parametrize(
    "value", ["http://keys.example", "keys.example:80", "ftp://x", "file:///etc/passwd", "http://127.0.0.1.example"]
)
def test_address_without_tls_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """An address outside this machine must be https, for the keys and for the evidence."""
    for name in ("GPUINFRA_GOOGLE_JWKS_URL", "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"):
        with monkeypatch.context() as change:
            change.setenv(name, value)
            with pytest.raises(PortUnavailable, match=f"{name} is "):
                gcp.connect("us-central1", "bucket", "evidence")


@pytest.mark.parametrize(
    "value", ["https://x.example", "http://127.0.0.1:8", "http://localhost", "127.0.0.1:8", "http://[::1]:8"]
)
def test_address_with_tls_or_on_this_machine_is_accepted(value: str) -> None:
    """https is accepted everywhere, http on the loopback interface."""
    assert trust.checked_address("NAME", "https://default", {"NAME": value}) == value


def test_keys_are_fetched_without_the_token_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request for public keys has no Authorization header, whatever address the variable names."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            body = json.dumps({"keys": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GPUINFRA_GOOGLE_JWKS_URL", f"http://127.0.0.1:{server.server_address[1]}/certs")
        identity = gcp.connect("us-central1", "bucket", "evidence").identity
        assert identity._fetch() == {"keys": []}
        server.shutdown()
    assert seen == [None]
