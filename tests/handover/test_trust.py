"""Environment variables that change the root of trust are reported, and addresses without TLS are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.aws.handover import ports as aws
from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.handover import trust
from gpuinfra.handover.ports import PortUnavailable
from tests.servers import Answering, serve


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
    "name", ["AWS_ENDPOINT_URL", *(f"AWS_ENDPOINT_URL_{one}" for one in ("STS", "S3", "AUTO_SCALING", "EC2"))]
)
def test_endpoint_of_aws_without_tls_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No client of AWS sends requests or evidence's proofs to another machine without TLS."""
    monkeypatch.setenv(name, "http://sts.example")
    with pytest.raises(PortUnavailable, match=r"is http://sts\.example; allowed: an https address"):
        aws.connect("us-east-1", "bucket", "evidence")
    monkeypatch.setenv(name, "https://sts.example")
    assert aws.connect("us-east-1", "bucket", "evidence")


def test_endpoint_in_the_configuration_file_without_tls_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The endpoint in the configuration file of AWS is checked too."""
    file = tmp_path / "config"
    file.write_text("[default]\nendpoint_url = http://sts.example\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with pytest.raises(PortUnavailable, match=r"is http://sts\.example; allowed"):
        aws.connect("us-east-1", "bucket", "evidence")


@pytest.mark.parametrize("cloud", list(CLOUDS))
@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_other_certificate_authorities_are_reported(cloud: str, name: str) -> None:
    """Certificate authorities outside the operating system's directories are listed, on each cloud."""
    assert trust.changed(cloud, {name: "/home/me/ca.pem"}) == [f"{name}=/home/me/ca.pem"]
    assert trust.changed(cloud, {name: "/etc/ssl/certs"}) == []


@pytest.mark.parametrize(
    "value", ["https://x.example", "http://127.0.0.1:8", "http://localhost", "127.0.0.1:8", "http://[::1]:8"]
)
def test_address_with_tls_or_on_this_machine_is_accepted(value: str) -> None:
    """https is accepted everywhere, http on the loopback interface."""
    assert trust.checked_address("NAME", "https://default", {"NAME": value}) == value


def test_keys_are_fetched_without_the_token_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request for public keys has no Authorization header, whatever address the variable names."""
    seen: list[str | None] = []

    class Handler(Answering):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.answer(200, b'{"keys": []}')

    with serve(Handler) as url:
        monkeypatch.setenv("GPUINFRA_GOOGLE_JWKS_URL", f"{url}/certs")
        identity: Any = gcp.connect("us-central1", "bucket", "evidence").identity
        assert identity._fetch() == {"keys": []}
    assert seen == [None]
