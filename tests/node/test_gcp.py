"""The node's part on Google Cloud: metadata server, Cloud Storage, identity token."""

from __future__ import annotations

import datetime
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuinfra.node import cloud, gcp

NOW = datetime.datetime(2026, 11, 21, 9, 0, 0, tzinfo=datetime.UTC)
NUMBER = "1000000000000000007"
SHA256 = "a" * 64


class Google:
    """Objects by `bucket/name`, requests as they came, and troubles that are answered before anything goes well."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.troubles: list[tuple[int, str]] = []
        self.lose_answers = 0
        self.flavor = "Google"
        self.host = ""

    @property
    def environ(self) -> dict[str, str]:
        """What Google's libraries would be given."""
        return {"GCE_METADATA_HOST": self.host, "STORAGE_EMULATOR_HOST": f"http://{self.host}"}


@contextmanager
def running() -> Iterator[Google]:
    """A metadata server and an object store on loopback."""
    google = Google()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *_: object) -> None: ...

        def _answer(self, code: int, text: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Metadata-Flavor", google.flavor)
            self.end_headers()
            self.wfile.write(text.encode())

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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    google.host = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield google
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def google() -> Iterator[Google]:
    """Google for one test."""
    with running() as one:
        yield one


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are counted and not slept."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def put(google: Google, key: str = "k/1 ü.json", body: bytes = b"{}", *, once: bool = True) -> None:
    """Write one object as the node part does."""
    cloud.of({"cloud": "gcp"}, google.environ).put("b", key, body, once=once)


def test_an_object_is_written_with_the_service_accounts_token(google: Google) -> None:
    """The token of the metadata server opens the store; the name arrives whatever is in it."""
    put(google)
    assert google.objects == {"b/k/1 ü.json": b"{}"}
    assert google.requests[0] == "GET /computeMetadata/v1/instance/service-accounts/default/token"


def test_an_existing_object_is_never_replaced(google: Google) -> None:
    """Evidence can be added and not changed; a proof may be written over."""
    put(google, "k")
    with pytest.raises(cloud.Exists, match="gs://b/k already exists"):
        put(google, "k", b"second")
    assert google.objects["b/k"] == b"{}"
    put(google, "k", b"second", once=False)
    assert google.objects["b/k"] == b"second"


def test_a_lost_answer_is_no_lost_object(google: Google) -> None:
    """When the store took the object and the answer was lost, the next attempt finds it there and is content."""
    google.lose_answers = 1
    put(google, "k")
    assert google.objects == {"b/k": b"{}"}


def test_passing_troubles_are_tried_again_with_growing_pauses(google: Google, no_pauses: list[float]) -> None:
    """Throttling, server errors and a grant that has not arrived yet do not lose evidence."""
    google.troubles = [(503, "backendError"), (429, "rateLimitExceeded"), (403, "forbidden")]
    put(google, "k")
    assert google.objects == {"b/k": b"{}"}
    assert no_pauses == [1.0, 2.0, 4.0]


def test_a_lasting_trouble_is_told_in_googles_words(google: Google) -> None:
    """The message names the object and what Google said; a plain mistake is not tried again."""
    google.troubles = [(403, "nodes@p does not have storage.objects.create access")] * 6
    with pytest.raises(cloud.CloudError, match=r"gs://b/k could not be written: 403 nodes@p does not have storage"):
        put(google, "k")
    google.troubles = [(404, "The specified bucket does not exist.")] * 2
    with pytest.raises(cloud.CloudError, match="404 The specified bucket"):
        put(google, "k")
    assert len(google.troubles) == 1


def test_the_instance_is_known_by_its_number(google: Google) -> None:
    """The number is what membership and the identity token call the machine too."""
    assert cloud.of({"cloud": "gcp"}, google.environ).instance_id() == NUMBER


def test_a_proof_is_googles_own_statement_over_the_hash(google: Google) -> None:
    """The audience carries the evidence's hash, and the full format names the instance."""
    proof = cloud.of({"cloud": "gcp"}, google.environ).proof(SHA256, NOW)
    assert set(proof) == {"schema", "cloud", "evidence_sha256", "signed", "token"}
    assert (proof["cloud"], proof["signed"]) == ("gcp", "2026-11-21T09:00:00Z")
    assert proof["token"] == f"head.gpuinfra:evidence:{SHA256}:full.sign"


def test_what_is_not_googles_metadata_server_is_not_believed(google: Google) -> None:
    """An answer without Google's mark may come from whoever took the name over."""
    google.flavor = "Else"
    with pytest.raises(cloud.CloudError, match="not come from Google's"):
        gcp.Metadata(google.environ).instance_id()


def test_a_metadata_server_that_does_not_answer_is_told(google: Google) -> None:
    """A missing value and a missing server each give one message, without the question's secrets."""
    with pytest.raises(cloud.CloudError, match="answered 404 for instance/none"):
        gcp.Metadata(google.environ).get("instance/none?audience=x")
    with pytest.raises(cloud.CloudError, match="did not answer"):
        gcp.Metadata({"GCE_METADATA_HOST": "127.0.0.1:9"}).instance_id()


def test_addresses_are_googles_own_or_those_of_its_libraries_variables() -> None:
    """No address comes from anywhere but Google's names and the documented variables."""
    assert gcp.storage({}) == "https://storage.googleapis.com"
    assert gcp.storage({"STORAGE_EMULATOR_HOST": "localhost:9000"}) == "http://localhost:9000"
    assert gcp.storage({"STORAGE_EMULATOR_HOST": "http://h:1/x/"}) == "http://h:1/x"


def test_a_proxy_in_the_environment_is_not_for_metadata(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens never travel through the proxy that the steps' downloads use."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    put(google, "k")
    assert google.objects == {"b/k": b"{}"}


def test_a_small_object_is_read_and_one_that_is_not_there_yet_is_none(google: Google) -> None:
    """Nodes that meet in the bucket ask until it is there; a server in trouble is told and not taken for an answer."""
    node = cloud.of({"cloud": "gcp"}, google.environ)
    for code in (404, 403):
        google.troubles = [(code, "")]
        assert node.get("b", "k/1 ü") is None
    google.troubles = [(500, "")]
    with pytest.raises(cloud.CloudError, match=r"gs://b/k/1 ü could not be read: 500"):
        node.get("b", "k/1 ü")
    google.objects["b/k/1 ü"] = b"x" * 70000
    assert node.get("b", "k/1 ü") == b"x" * 65536
