"""Requests of the node program to object storage that are interrupted, on all clouds."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator

import pytest

from gpuinfra.node import aws, azure, cloud, gcp
from gpuinfra.node.cloud import CloudError
from tests.servers import Answering, serve

CREDENTIALS = aws.Credentials("ASIA", "secret", "token")
NAMES = ("aws", "azure", "gcp")


class Storage:
    """Object storage that returns these bodies in order. A body with a length is cut after it."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int | None]] = []
        self.host = ""

    def connected(self, name: str, monkeypatch: pytest.MonkeyPatch) -> cloud.NodeCloud:
        """A cloud of the node program that uses this server."""
        monkeypatch.setattr(aws.Metadata, "credentials", lambda _: CREDENTIALS)
        monkeypatch.setattr(azure.Metadata, "token", lambda _: "token")
        monkeypatch.setattr(gcp.Metadata, "access_token", lambda _: "token")
        url = f"http://{self.host}"
        environ = {"AWS_ENDPOINT_URL": url, "AZURE_STORAGE_SERVICE_ENDPOINT": url, "STORAGE_EMULATOR_HOST": self.host}
        return cloud.of({"cloud": name, "region": "us-east-1"}, environ)


@pytest.fixture
def storage() -> Iterator[Storage]:
    """A server on loopback."""
    one = Storage()

    class Handler(Answering):
        def do_GET(self) -> None:
            text, cut = one.answers.pop(0)
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode()[:cut])
            self.close_connection = True

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

    with serve(Handler) as url:
        one.host = url.removeprefix("http://")
        yield one


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are recorded instead of slept."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def bucket(name: str) -> str:
    """The bucket or container of a cloud."""
    return "https://train0a1b.blob.core.windows.net/evidence" if name == "azure" else "b"


@pytest.mark.parametrize("name", NAMES)
def test_an_incomplete_object_is_read_again(storage: Storage, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A part of an object is not the object. The beginning of an object that is longer than the limit is no error."""
    storage.answers = [("0123456789", 4), ("0123456789", None)]
    connected = storage.connected(name, monkeypatch)
    assert connected.get(bucket(name), "e/1") == b"0123456789"
    storage.answers = [("0123456789", None)]
    assert connected.get(bucket(name), "e/1", 5) == b"01234"


def test_an_interruption_of_the_metadata_service_is_retried(storage: Storage, no_pauses: list[float]) -> None:
    """A write and a read each survive two failed requests for the credentials."""
    troubles: list[str] = []

    def request(method: str) -> Callable[[], urllib.request.Request]:
        troubles[:] = ["timed out", "returned status 500"]

        def made() -> urllib.request.Request:
            if troubles:
                raise CloudError(f"the metadata service {troubles.pop()}")
            return urllib.request.Request(f"http://{storage.host}/k", method=method, data=b"1" * (method == "PUT"))

        return made

    storage.answers = [("content", None)]
    cloud.put_with_retry(
        request("PUT"), "b/k", once=True, own=True, explain=lambda *_: "", exists=lambda *_: False, retried=()
    )
    assert cloud.get_optional(request("GET"), "b/k", 100) == b"content"
    assert no_pauses == [1.0, 2.0] * 2


def test_a_metadata_service_that_stays_unavailable_is_the_reason() -> None:
    """After the last attempt, the error names the object and the reason of the metadata service."""

    def request() -> urllib.request.Request:
        raise CloudError("the metadata service did not respond (api/token): timed out")

    with pytest.raises(CloudError, match=r"b/k could not be read: the metadata service did not respond"):
        cloud.get_optional(request, "b/k", 100)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Code": "AssumeRoleUnauthorizedAccess"}', "<html>"])
def test_unreadable_credentials_are_an_error_of_the_cloud(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """An answer of the metadata service without credentials is retried like an answer that is missing."""
    monkeypatch.setattr(aws.Metadata, "get", lambda _, path: text if path.endswith("node") else "node")
    with pytest.raises(CloudError, match="the metadata service returned no credentials: "):
        aws.Metadata({}).credentials()
