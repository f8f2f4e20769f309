"""Requests with credentials, or with answers that decide about trust, stay with the host to which the configuration refers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.clouds.aws.handover.ports import StsIdentity
from gpuinfra.clouds.azure.rest import MANAGEMENT_VARIABLE, Rest
from gpuinfra.clouds.gcp import adopt
from gpuinfra.clouds.gcp import preflight as gcp_preflight
from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.clouds.preflight import Unanswered
from gpuinfra.handover.ports import IdentityRefused, PortUnavailable
from gpuinfra.node import cloud
from tests.bootstrap.fetching import first_trouble, start
from tests.clouds.aws.handover.test_ports import proof
from tests.servers import Answering, serve

REFUSALS = (EnvironmentMissing, IdentityRefused, PortUnavailable, Unanswered, cloud.CloudError)
SECRETS = json.dumps({"access_token": "t", "expires_in": 3599, "AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t"})  # fmt: skip
CONTAINER = "https://train.blob.core.windows.net/evidence"
NODES: dict[str, dict[str, Any]] = {
    "aws": {"cloud": "aws", "region": "us-east-1"},
    "azure": {"cloud": "azure", "identity": {"client_id": "c"}},
    "gcp": {"cloud": "gcp"},
}


@dataclass
class Hosts:
    """The configured host, which redirects, and another host, which answers everything."""

    here: str = ""
    there: str = ""
    reached: list[str] = field(default_factory=list)
    """Requests at the other host."""
    redirects_metadata: bool = False

    @property
    def environ(self) -> dict[str, str]:
        """The configured host as the endpoint of each service, for the SDKs and for this package."""
        bare = self.here.removeprefix("http://")
        return {
            "AWS_ENDPOINT_URL": self.here,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.here,
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": self.here,
            "AZURE_STORAGE_SERVICE_ENDPOINT": self.here,
            MANAGEMENT_VARIABLE: self.here,
            "GCE_METADATA_HOST": bare,
            "STORAGE_EMULATOR_HOST": self.here,
        }

    @property
    def rest(self) -> Rest:
        """The operator's requests to Azure."""
        credential = SimpleNamespace(get_token=lambda *_: SimpleNamespace(token="t", expires_on=4e9))
        return Rest(credential, self.environ)

    @property
    def session(self) -> Any:
        """The operator's session at Google Cloud."""
        from google.auth.transport.requests import AuthorizedSession
        from google.oauth2.credentials import Credentials

        return AuthorizedSession(Credentials(token="t"))

    def node(self, name: str) -> cloud.NodeCloud:
        """A node's access to its cloud."""
        return cloud.of(NODES[name], self.environ)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Both hosts. Nothing pauses."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    hosts = Hosts()

    class Here(Answering):
        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            metadata = "/metadata/" in self.path or "/computeMetadata/" in self.path or "/latest/" in self.path
            if metadata and not hosts.redirects_metadata:
                return self.answer(
                    200,
                    b"role" if self.path.endswith("security-credentials/") else SECRETS.encode(),
                    Metadata_Flavor="Google",
                )
            return self.answer(302, Location=f"{hosts.there}/secret")

        do_GET = do_PUT = do_POST = do_HEAD = _serve

    class There(Answering):
        def _serve(self) -> None:
            hosts.reached.append(f"{self.command} {dict(self.headers)}")
            self.answer(200, SECRETS.encode(), Metadata_Flavor="Google")

        do_GET = do_PUT = do_POST = do_HEAD = _serve

    with serve(There) as hosts.there, serve(Here) as hosts.here:
        yield hosts


OPERATOR: dict[str, Callable[[Hosts], object]] = {
    "azure arm": lambda hosts: hosts.rest.arm("/subscriptions/0", "1"),
    "azure change": lambda hosts: hosts.rest.arm_change("POST", "/subscriptions/0", "1"),
    "azure blob": lambda hosts: hosts.rest.blob("GET", hosts.here),
    "azure signed": lambda hosts: hosts.rest.signed(hosts.here, 10),
    "gcp json": lambda hosts: gcp.Client(hosts.session).json("GET", hosts.here),
    "gcp post": lambda hosts: gcp.Client(hosts.session).json("POST", hosts.here, body={}),
    "gcp found": lambda hosts: gcp.Client(hosts.session).found(hosts.here, {}),
    "gcp content": lambda hosts: gcp.Client(hosts.session).content(hosts.here, 10),
    "gcp keys": lambda hosts: gcp.public_keys(hosts.here),
    "gcp adopt": lambda hosts: adopt._get(hosts.session, hosts.here),
    "aws sts": lambda hosts: StsIdentity(
        SimpleNamespace(meta=SimpleNamespace(endpoint_url=hosts.here), get_caller_identity=lambda: {"Account": "0"})
    ).verify(proof(host=hosts.here.removeprefix("http://"))),
}


@pytest.mark.parametrize("send", OPERATOR.values(), ids=OPERATOR)
def test_no_request_of_the_operator_follows_a_redirect(hosts: Hosts, send: Callable[[Hosts], object]) -> None:
    """A redirect of an endpoint is an error, and the other host receives nothing."""
    with contextlib.suppress(*REFUSALS):
        answer = send(hosts)
        assert getattr(answer, "status", 0) == 302
    assert hosts.reached == []


def test_the_preflight_follows_no_redirect(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect of an endpoint of Google Cloud is an error, and the other host receives nothing."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", hosts.here)
    asks = gcp_preflight.Preflight("us-central1", {})
    asks.credentials = hosts.session.credentials
    with pytest.raises(Unanswered):
        asks.get("storage", "storage/v1/b")
    assert hosts.reached == []


def test_a_list_of_azure_continues_on_the_same_host_only(hosts: Hosts) -> None:
    """Another host, another port or a connection without TLS in `nextLink` is an error, and the other host receives nothing."""

    class Listing(Answering):
        def do_GET(self) -> None:
            following = (
                f"http://{self.headers['Host']}/more" if self.path.startswith("/same") else f"{hosts.there}/more"
            )
            rest = {} if self.path == "/more" else {"nextLink": following}
            self.answer(200, json.dumps({"value": [{"name": self.path[:5]}], **rest}).encode())

    with serve(Listing) as hosts.here:
        assert [one["name"] for one in hosts.rest.pages("/same", "1")] == ["/same", "/more"]
        with pytest.raises(PortUnavailable, match="Azure's list continues at 127"):
            list(hosts.rest.pages("/subscriptions", "1"))
    assert hosts.reached == []


NODE: dict[str, Callable[[cloud.NodeCloud], object]] = {
    "put": lambda node: node.put(CONTAINER, "k", b"{}", once=True),
    "get": lambda node: node.get(CONTAINER, "k"),
}


@pytest.mark.parametrize("metadata", [False, True], ids=["store", "metadata"])
@pytest.mark.parametrize("send", NODE.values(), ids=NODE)
@pytest.mark.parametrize("name", NODES)
def test_no_request_of_a_node_follows_a_redirect(
    hosts: Hosts, name: str, send: Callable[[cloud.NodeCloud], object], metadata: bool
) -> None:
    """A redirect of the store or of the metadata service is an error, and the other host receives nothing."""
    hosts.redirects_metadata = metadata
    with pytest.raises(cloud.CloudError):
        send(hosts.node(name))
    assert hosts.reached == []


@pytest.mark.parametrize("metadata", [False, True], ids=["store", "metadata"])
@pytest.mark.parametrize("name", NODES)
def test_the_download_of_the_bundle_follows_no_redirect(
    hosts: Hosts, name: str, metadata: bool, tmp_path: Path
) -> None:
    """User data names the redirect and asks again, writes nothing, and the other host receives nothing."""
    hosts.redirects_metadata = metadata
    process = start(name, (CONTAINER, "k", "us-east-1", "0" * 64), tmp_path / "got", hosts.environ)
    said = first_trouble(process)
    assert hosts.reached == []
    assert "HTTP 302" in said
    assert not (tmp_path / "got").exists()
