"""The node's access to Google Cloud: metadata server, Cloud Storage, identity token."""

from __future__ import annotations

import datetime
import json
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuinfra.node import cloud, gcp
from tests.servers import Answering, serve

NOW = datetime.datetime(2026, 11, 21, 9, 0, 0, tzinfo=datetime.UTC)
NUMBER = "1000000000000000007"
SHA256 = "a" * 64


class Google:
    """Objects by `bucket/name`, the received requests, and errors that are answered first."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.troubles: list[tuple[int, str]] = []
        self.lose_answers = 0
        self.flavor = "Google"
        self.host = ""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of Google's libraries."""
        return {"GCE_METADATA_HOST": self.host, "STORAGE_EMULATOR_HOST": f"http://{self.host}"}


@contextmanager
def running() -> Iterator[Google]:
    """A metadata server and an object store on loopback."""
    google = Google()

    class Handler(Answering):
        def _answer(self, code: int, text: str = "") -> None:
            self.answer(code, text.encode(), Metadata_Flavor=google.flavor)

        def do_GET(self) -> None:
            google.requests.append(f"GET {self.path}")
            if self.path.startswith("/storage/v1/b/"):
                name = urllib.parse.unquote(self.path.removeprefix("/storage/v1/b/").partition("?")[0]).replace(
                    "/o/", "/", 1
                )
                if google.troubles:
                    return self._answer(google.troubles.pop(0)[0])
                return self._answer(200, google.objects[name].decode()) if name in google.objects else self._answer(404)
            if self.headers.get("Metadata-Flavor") != "Google":
                return self._answer(403)
            path, _, query = self.path.removeprefix("/computeMetadata/v1/instance/").partition("?")
            asked = dict(urllib.parse.parse_qsl(query))
            answers = {
                "id": NUMBER,
                "service-accounts/default/token": json.dumps({"access_token": "secret", "expires_in": 3599}),
                "service-accounts/default/identity": f"head.{asked.get('audience')}:{asked.get('format')}.sign",
            }
            return self._answer(200, answers[path]) if path in answers else self._answer(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            google.requests.append(f"POST {self.path}")
            if google.troubles:
                code, text = google.troubles.pop(0)
                return self._answer(code, json.dumps({"error": {"code": code, "message": text}}))
            where, _, query = self.path.partition("?")
            asked = dict(urllib.parse.parse_qsl(query))
            name = f"{where.removeprefix('/upload/storage/v1/b/').removesuffix('/o')}/{asked['name']}"
            if self.headers.get("Authorization") != "Bearer secret":
                return self._answer(401)
            if asked.get("ifGenerationMatch") == "0" and name in google.objects:
                return self._answer(412, json.dumps({"error": {"message": "conditionNotMet"}}))
            google.objects[name] = body
            if google.lose_answers:
                google.lose_answers -= 1
                return self.connection.close()
            return self._answer(200, "{}")

    with serve(Handler) as url:
        google.host = url.removeprefix("http://")
        yield google


@pytest.fixture
def google() -> Iterator[Google]:
    """The servers for one test."""
    with running() as one:
        yield one


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are recorded instead of slept."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def put(google: Google, key: str = "k/1 ü.json", body: bytes = b"{}", *, once: bool = True) -> None:
    """Write one object as the node program does."""
    cloud.of({"cloud": "gcp"}, google.environ).put("b", key, body, once=once)


def test_object_is_written_with_the_service_accounts_token(google: Google) -> None:
    """The token from the metadata server is accepted by the store; any object name works."""
    put(google)
    assert google.objects == {"b/k/1 ü.json": b"{}"}
    assert google.requests[0] == "GET /computeMetadata/v1/instance/service-accounts/default/token"


def test_existing_object_is_never_replaced(google: Google) -> None:
    """Evidence can only be added; a proof can be overwritten."""
    put(google, "k")
    with pytest.raises(cloud.Exists, match="gs://b/k already exists"):
        put(google, "k", b"second")
    assert google.objects["b/k"] == b"{}"
    put(google, "k", b"second", once=False)
    assert google.objects["b/k"] == b"second"


def test_an_existing_object_is_of_another_writer_also_after_a_lost_answer(google: Google) -> None:
    """Each node of the cluster can create an object with this name, so an existing object is never taken for the node's own."""
    google.lose_answers = 1
    with pytest.raises(cloud.Exists):
        put(google, "k")
    assert google.objects == {"b/k": b"{}"}


def test_temporary_errors_are_retried(google: Google, no_pauses: list[float]) -> None:
    """Throttling, server errors and a late grant are retried with increasing pauses."""
    google.troubles = [(503, "backendError"), (429, "rateLimitExceeded"), (403, "forbidden")]
    put(google, "k")
    assert google.objects == {"b/k": b"{}"}
    assert no_pauses == [1.0, 2.0, 4.0]


def test_permanent_error_has_googles_text(google: Google) -> None:
    """The message names the object and Google's text; a client error is not retried."""
    google.troubles = [(403, "nodes@p does not have storage.objects.create access")] * 6
    with pytest.raises(cloud.CloudError, match=r"gs://b/k could not be written: 403 nodes@p does not have storage"):
        put(google, "k")
    google.troubles = [(404, "The specified bucket does not exist.")] * 2
    with pytest.raises(cloud.CloudError, match="404 The specified bucket"):
        put(google, "k")
    assert len(google.troubles) == 1


def test_instance_id_is_numeric(google: Google) -> None:
    """Membership and the identity token use the same number."""
    assert cloud.of({"cloud": "gcp"}, google.environ).instance_id() == NUMBER


def test_proof_is_an_identity_token_for_the_hash(google: Google) -> None:
    """The audience contains the evidence's hash, and the full format names the instance."""
    proof = cloud.of({"cloud": "gcp"}, google.environ).proof(SHA256, NOW)
    assert set(proof) == {"schema", "cloud", "evidence_sha256", "signed", "token"}
    assert (proof["cloud"], proof["signed"]) == ("gcp", "2026-11-21T09:00:00Z")
    assert proof["token"] == f"head.gpuinfra:evidence:{SHA256}:full.sign"


def test_answer_without_googles_header_is_refused(google: Google) -> None:
    """An answer without Google's header may come from another host."""
    google.flavor = "Else"
    with pytest.raises(cloud.CloudError, match="not from Google's"):
        gcp.Metadata(google.environ).instance_id()


def test_silent_metadata_server_is_reported(google: Google) -> None:
    """A missing value and a missing server each give one message without secrets."""
    with pytest.raises(cloud.CloudError, match="returned status 404 for instance/none"):
        gcp.Metadata(google.environ).get("instance/none?audience=x")
    with pytest.raises(cloud.CloudError, match="did not respond"):
        gcp.Metadata({"GCE_METADATA_HOST": "127.0.0.1:9"}).instance_id()


def test_addresses_come_from_google_or_its_libraries_variables() -> None:
    """Only Google's names and the documented variables set addresses."""
    assert gcp.storage({}) == "https://storage.googleapis.com"
    assert gcp.storage({"STORAGE_EMULATOR_HOST": "localhost:9000"}) == "http://localhost:9000"
    assert gcp.storage({"STORAGE_EMULATOR_HOST": "http://h:1/x/"}) == "http://h:1/x"


def test_metadata_requests_use_no_proxy(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are never sent through the proxy of the steps' downloads."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    put(google, "k")
    assert google.objects == {"b/k": b"{}"}


def test_missing_object_is_none_and_errors_raise(google: Google) -> None:
    """Nodes that meet in the bucket poll for an object; a server error raises."""
    node = cloud.of({"cloud": "gcp"}, google.environ)
    for code in (404, 403):
        google.troubles = [(code, "")]
        assert node.get("b", "k/1 ü") is None
    google.troubles = [(500, "")] * 6
    with pytest.raises(cloud.CloudError, match=r"gs://b/k/1 ü could not be read: 500"):
        node.get("b", "k/1 ü")
    google.objects["b/k/1 ü"] = b"x" * 70000
    assert node.get("b", "k/1 ü") == b"x" * 65536
