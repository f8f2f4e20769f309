"""The node's access to Azure (metadata, tokens, blobs, proofs), against a server that injects errors."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuinfra.node import azure
from gpuinfra.node.cloud import CloudError, Exists, of
from tests.servers import Answering, serve

URL = "https://train0a1b.blob.core.windows.net/evidence"
VM = "0A0A0A0A-0000-4A00-8000-000000000001"
NODE = {"cloud": "azure", "identity": {"client_id": "client-1"}}
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class Service:
    """Metadata below /imds, blobs below /blob; `troubles` are answered first, and `lose` drops answers after the blob was written."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.troubles: list[tuple[int, str]] = []
        self.metadata_troubles: list[int] = []
        self.lose = 0
        self.no_overwrite = ""
        """The error code for a name in use, if the role of the node cannot overwrite."""
        self.url = ""
        self.identity: Any = {"access_token": "secret-token"}
        self.document: Any = None
        """The answer for a document. None: a document with the nonce of the request."""
        self.cached = 0
        """Number of next answers with a document for an earlier nonce."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables of Azure's own tools."""
        return {
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": self.url + "/imds",
            "AZURE_STORAGE_SERVICE_ENDPOINT": self.url + "/blob",
        }

    @property
    def node(self) -> azure.AzureNode:
        """A node that uses this server."""
        made = of(NODE, self.environ)
        assert isinstance(made, azure.AzureNode)
        return made

    def paths(self) -> list[str]:
        """The requested paths, without queries."""
        return [urlsplit(path).path for _, path, _ in self.asked]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A server, without pauses between attempts."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    one = Service()

    class Handler(Answering):
        def _answer(self, code: int, text: str = "", **headers: str) -> None:
            self.answer(code, text.encode(), **headers)

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            one.asked.append((self.command, self.path, headers))
            if self.path.startswith("/imds/metadata/"):
                return self._metadata(headers)
            key = self.path.removeprefix("/blob/")
            if self.command == "GET":
                return self.answer(200, one.blobs[key]) if key in one.blobs else self._answer(404)
            if one.troubles:
                code, name = one.troubles.pop(0)
                if name.startswith("<"):
                    return self._answer(code, name)
                return self._answer(code, x_ms_error_code=name)
            if one.no_overwrite and key in one.blobs:
                return self._answer(403, x_ms_error_code=one.no_overwrite)
            if headers.get("if-none-match") == "*" and key in one.blobs:
                return self._answer(409, x_ms_error_code="BlobAlreadyExists")
            one.blobs[key] = body
            if one.lose:
                one.lose -= 1
                return self.connection.close()
            return self._answer(201)

        def _metadata(self, headers: dict[str, str]) -> None:
            if headers.get("metadata") != "true":
                return self._answer(400)
            if one.metadata_troubles:
                return self._answer(one.metadata_troubles.pop(0), "not now")
            place = urlsplit(self.path).path.removeprefix("/imds/metadata/")
            answers = {
                "instance/compute": {"vmId": VM},
                "identity/oauth2/token": one.identity,
                "attested/document": one.document or self._attested(),
            }
            return self._answer(200, json.dumps(answers[place]))

        def _attested(self) -> dict[str, str]:
            nonce = parse_qs(urlsplit(self.path).query).get("nonce", [""])[0]
            if one.cached:
                one.cached, nonce = one.cached - 1, "1234566766"
            return {"encoding": "pkcs7", "signature": document_of(nonce).replace("b", "b\n", 1)}

        do_GET = do_PUT = _serve

    with serve(Handler) as url:
        one.url = url
        yield one


def test_instance_id_is_the_vm_id_in_lower_case(service: Service) -> None:
    """Azure uses upper case in some places; evidence and membership must match."""
    assert service.node.instance_id() == VM.lower()


def test_busy_metadata_service_is_retried(service: Service) -> None:
    """Throttling, unavailability and server errors are retried; a refusal is not."""
    service.metadata_troubles = [429, 410, 404, 503]
    assert service.node.instance_id() == VM.lower()
    service.metadata_troubles = [400]
    with pytest.raises(CloudError, match="returned status 400 for instance/compute: not now"):
        service.node.instance_id()
    assert len(service.asked) == 6


def test_blob_is_written_with_the_required_headers(service: Service) -> None:
    """Type, version and token are set; the condition is set only if the blob must not be replaced."""
    service.node.put(URL, "evidence/train/i 1/000001.json", b"{}", once=True)
    service.node.put(URL, "evidence/train/x.proof.json", b"{}", once=False)
    assert set(service.blobs) == {
        "train0a1b/evidence/evidence/train/i%201/000001.json",
        "train0a1b/evidence/evidence/train/x.proof.json",
    }
    (_, token, _), (method, _, headers), _, (_, _, again) = service.asked
    assert parse_qs(urlsplit(token).query) == {
        "api-version": ["2018-02-01"],
        "resource": ["https://storage.azure.com/"],
        "client_id": ["client-1"],
    }
    assert (method, headers["authorization"], headers["x-ms-blob-type"]) == ("PUT", "Bearer secret-token", "BlockBlob")
    assert headers["x-ms-version"] == "2021-12-02"
    assert headers["if-none-match"] == "*"
    assert "if-none-match" not in again


@pytest.mark.parametrize(
    "trouble", [(409, "BlobAlreadyExists"), (409, "BlobImmutableDueToPolicy"), (412, "ConditionNotMet")]
)
def test_evidence_in_the_container_is_not_replaced(service: Service, trouble: tuple[int, str]) -> None:
    """Each refusal of Azure to replace a blob means that the blob exists."""
    service.troubles = [trouble]
    with pytest.raises(Exists):
        service.node.put(URL, "k", b"{}", once=True)


def test_addresses_come_from_azure_or_the_variable() -> None:
    """Without the variable the account's own host is used, in every Azure cloud; the variable puts the account into the path."""
    assert azure.blob_url(URL, "a/b c.json", {}) == URL + "/a/b%20c.json"
    china = "https://train0a1b.blob.core.chinacloudapi.cn/evidence"
    assert azure.blob_url(china + "/", "a", {}) == china + "/a"
    assert (
        azure.blob_url(URL, "a", {"AZURE_STORAGE_SERVICE_ENDPOINT": "http://127.0.0.1:1/b/"})
        == "http://127.0.0.1:1/b/train0a1b/evidence/a"
    )


def test_the_address_of_a_secret_comes_from_its_id_or_the_variable() -> None:
    """The vault's own host, or the endpoint in the environment. Another ID is refused."""
    id_ = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/train/secrets/token"
    end = f"/secrets/token?api-version={azure.API_SECRET}"
    assert azure.secret_url(id_, {}) == f"https://train.vault.azure.net{end}"
    assert azure.secret_url(id_, {"AZURE_KEYVAULT_SERVICE_ENDPOINT": "http://e/"}) == f"http://e/train{end}"
    with pytest.raises(CloudError, match="is not the resource ID of a Key Vault secret"):
        azure.secret_url(f"{id_}/versions/1", {})


@pytest.mark.parametrize(
    "container",
    [
        "",
        "evidence",
        "http://train0a1b.blob.core.windows.net/evidence",
        "https://evil.example/evidence",
        URL + "/x",
        URL + "?sig=1",
    ],
)
def test_invalid_container_address_is_refused(service: Service, container: str) -> None:
    """Tokens are sent only to a blob storage container, with TLS."""
    with pytest.raises(CloudError, match="is not the address of a container"):
        service.node.put(container, "x", b"", once=True)
    assert "/imds/metadata/identity/oauth2/token" not in service.paths()


@pytest.mark.parametrize("code", ["UnauthorizedBlobOverwrite", "AuthorizationPermissionMismatch"])
def test_a_name_in_use_is_found_without_the_right_to_overwrite(service: Service, code: str) -> None:
    """A role that can only create blobs is refused with 403 where the name exists, and the node finds the blob instead of retrying."""
    service.blobs["train0a1b/evidence/e/1.json"] = b"older"
    service.no_overwrite = code
    with pytest.raises(Exists):
        service.node.put(URL, "e/1.json", b"new", once=True)
    assert sum(method == "PUT" for method, _, _ in service.asked) == 1


def test_an_existing_blob_is_of_another_writer_also_after_a_lost_answer(service: Service) -> None:
    """Each node of the cluster can write under this name, so an existing blob is never taken for the node's own."""
    service.blobs["train0a1b/evidence/e/1.json"] = b"older"
    with pytest.raises(Exists):
        service.node.put(URL, "e/1.json", b"new", once=True)
    assert service.blobs["train0a1b/evidence/e/1.json"] == b"older"
    service.lose = 1
    with pytest.raises(Exists):
        service.node.put(URL, "e/2.json", b"ours", once=True)


@pytest.mark.parametrize(
    "trouble",
    [
        (403, "AuthorizationPermissionMismatch"),
        (429, "TooManyRequests"),
        (500, "OperationTimedOut"),
        (503, "ServerBusy"),
        (409, "ContainerBeingDeleted"),
    ],
)
def test_temporary_errors_are_retried(service: Service, trouble: tuple[int, str]) -> None:
    """A new role, throttling and server errors are retried, with a new token each time."""
    service.troubles = [trouble] * 3
    service.node.put(URL, "x", b"1", once=True)
    assert sum(method == "PUT" for method, _, _ in service.asked) == 4
    before_each = [before for (before, _, _), (method, _, _) in pairwise(service.asked) if method == "PUT"]
    assert before_each == ["GET"] * 4


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ((404, "ContainerNotFound"), "could not be written: 404 ContainerNotFound"),
        ((400, "<Error><Code>InvalidHeaderValue</Code></Error>"), "400 InvalidHeaderValue"),
        ((400, "<html>"), "400 without a code"),
    ],
)
def test_permanent_errors_are_not_retried(service: Service, trouble: tuple[int, str], words: str) -> None:
    """One request is sent, and the message has Azure's own code."""
    service.troubles = [trouble]
    with pytest.raises(CloudError, match=words):
        service.node.put(URL, "x", b"1", once=True)
    assert sum(path.startswith("/blob/") for path in service.paths()) == 1


def test_retries_end(service: Service) -> None:
    """A role that never becomes effective gives its error code."""
    service.troubles = [(403, "AuthorizationPermissionMismatch")] * 6
    with pytest.raises(CloudError, match="403 AuthorizationPermissionMismatch"):
        service.node.put(URL, "x", b"1", once=True)
    assert service.troubles == []


def test_proof_contains_documents_for_the_evidences_nonces(service: Service) -> None:
    """There is one document per nonce, without the line breaks of base64."""
    proof = service.node.proof("5e" * 32, NOW)
    assert proof["documents"] == [document_of(nonce) for nonce in azure.nonces("5e" * 32)]
    assert (proof["schema"], proof["cloud"], proof["signed"]) == ("gpuinfra.proof/1", "azure", "2026-11-21T09:00:00Z")
    asked = [parse_qs(urlsplit(path).query)["nonce"][0] for _, path, _ in service.asked]
    assert asked == azure.nonces("5e" * 32)


def document_of(nonce: str) -> str:
    """A document with a nonce, in base64."""
    return base64.b64encode(b'{"nonce":"%s","vmId":""}' % nonce.encode()).decode()


def test_cached_documents_for_another_nonce_are_requested_again(service: Service) -> None:
    """The service can answer with a cached document for an earlier nonce (Microsoft's guide), which is not used."""
    service.cached = 3
    proof = service.node.proof("5e" * 32, NOW)
    assert proof["documents"] == [document_of(nonce) for nonce in azure.nonces("5e" * 32)]
    assert len(service.asked) == azure.DOCUMENTS + 3
    service.cached = 100
    with pytest.raises(CloudError, match="only cached attested documents"):
        service.node.proof("5e" * 32, NOW)


@pytest.mark.parametrize(
    "problem", [http.client.BadStatusLine("x"), http.client.IncompleteRead(b"{"), ConnectionResetError("x")]
)
def test_an_interrupted_answer_of_the_metadata_service_is_requested_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """A connection that ends in the middle of an answer costs one attempt."""
    opened, problems = azure.OPENER.open, [problem]

    def interrupted(*words: Any, **more: Any) -> Any:
        if problems:
            raise problems.pop()
        return opened(*words, **more)

    monkeypatch.setattr(azure.OPENER, "open", interrupted)
    assert service.node.instance_id() == VM.lower()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"document": {"encoding": "pkcs7", "signature": "?"}}, "is not base64"),
        ({"identity": {"error": "invalid_request"}}, "returned no token"),
        ({"document": {"encoding": "jwt", "signature": "x"}}, "encoding of the attested document is jwt"),
        ({"document": ["x"]}, "no JSON object"),
    ],
)
def test_unexpected_metadata_answers_are_reported(service: Service, change: dict[str, Any], words: str) -> None:
    """An invalid answer gives one message."""
    for name, value in change.items():
        setattr(service, name, value)
    node = service.node
    ask = (
        (lambda: node.put(URL, "x", b"1", once=True)) if "identity" in change else (lambda: node.proof("5e" * 32, NOW))
    )
    with pytest.raises(CloudError, match=words):
        ask()


def test_silent_metadata_service_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the service gives one message."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(CloudError, match="the metadata service did not respond"):
        of(NODE, {"AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9"}).instance_id()


def test_secrets_are_not_in_the_repr(service: Service) -> None:
    """Neither the node's cloud nor its metadata client shows a token."""
    node = service.node
    node.put(URL, "x", b"1", once=True)
    assert "secret-token" not in repr(node) + repr(vars(node))
