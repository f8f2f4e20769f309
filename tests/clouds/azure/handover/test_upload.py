"""A blob is uploaded once, under the operator's identity, and an existing blob is never replaced."""

from __future__ import annotations

import gzip
import hashlib
import threading
from pathlib import Path

import pytest

from gpuinfra.clouds.azure.handover import upload
from gpuinfra.clouds.azure.rest import Rest, RestAnswer
from gpuinfra.handover import wire
from gpuinfra.handover.ports import PortUnavailable

CONTAINER = "https://train0a1b.blob.core.windows.net/evidence"
DATA = b"a bundle"
SHA256 = hashlib.sha256(DATA).hexdigest()


class Blobs(Rest):
    """Blob storage backed by a dictionary; answers the errors that a test queued first."""

    def __init__(self) -> None:
        super().__init__(environ={})
        self.held: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.troubles: list[tuple[int, str]] = []

    def blob(self, method: str, url: str, headers: object = None, body: bytes | None = None) -> RestAnswer:
        self.asked.append(f"{method} {url}")
        if self.troubles:
            status, code = self.troubles.pop(0)
            return RestAnswer(status=status, headers={"x-ms-error-code": code}, body=b"")
        if method == "PUT":
            if url in self.held:
                return RestAnswer(status=409, headers={"x-ms-error-code": "BlobAlreadyExists"}, body=b"")
            self.held[url] = body or b""
            return RestAnswer(status=201, headers={}, body=b"")
        if url not in self.held:
            return RestAnswer(status=404, headers={"x-ms-error-code": "BlobNotFound"}, body=b"")
        if method == "DELETE":
            del self.held[url]
            return RestAnswer(status=202, headers={}, body=b"")
        return RestAnswer(status=200, headers={}, body=self.held[url])


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """Storage without pauses."""
    monkeypatch.setattr(upload, "PATIENCE_S", 10.0)
    return Blobs()


@pytest.fixture
def hurry() -> threading.Event:
    """A wait that returns at once."""

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return False

    return Event()


@pytest.fixture
def inputs(tmp_path: Path) -> wire.Properties:
    """The inputs that a program declares."""
    (tmp_path / "b.tar.gz").write_bytes(DATA)
    return {
        "container": CONTAINER,
        "blob": "bootstrap/b.tar.gz",
        "sha256": SHA256,
        "source": {"path": str(tmp_path / "b.tar.gz")},
    }


def test_content_is_uploaded_under_its_name(blobs: Blobs, hurry: threading.Event, inputs: wire.Properties) -> None:
    """The state holds the blob's real address."""
    made = upload.create(inputs, hurry, blobs)
    assert made["url"] == f"{CONTAINER}/bootstrap/b.tar.gz"
    assert blobs.held == {f"{CONTAINER}/bootstrap/b.tar.gz": DATA}
    assert upload.read(made, blobs)
    assert upload.delete(made, blobs) == ""
    assert not upload.read(made, blobs)
    assert upload.delete(made, blobs) == "", "what is gone need not be deleted"


def test_existing_blob_is_adopted_only_with_the_same_content(
    blobs: Blobs, hurry: threading.Event, inputs: wire.Properties
) -> None:
    """After a lost answer the second `up` adopts its own blob; a blob with other content is an error."""
    upload.create(inputs, hurry, blobs)
    upload.create(inputs, hurry, blobs)
    blobs.held[f"{CONTAINER}/bootstrap/b.tar.gz"] = b"evil"
    with pytest.raises(PortUnavailable, match="already exists with different content"):
        upload.create(inputs, hurry, blobs)
    assert blobs.held[f"{CONTAINER}/bootstrap/b.tar.gz"] == b"evil"


def test_gzip_file_is_identified_by_its_uncompressed_data(
    blobs: Blobs, hurry: threading.Event, inputs: wire.Properties, tmp_path: Path
) -> None:
    """Machines with different zlib releases upload the same bundle."""
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(DATA, 9))
    upload.create(inputs, hurry, blobs)
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(DATA, 0))
    upload.create(inputs, hurry, blobs)


def test_late_role_assignment_is_waited_for(blobs: Blobs, hurry: threading.Event, inputs: wire.Properties) -> None:
    """A new role assignment takes minutes to reach storage; one that never arrives gives Azure's error code."""
    blobs.troubles = [(403, "AuthorizationPermissionMismatch")] * 3 + [(503, "ServerBusy")]
    upload.create(inputs, hurry, blobs)
    assert len(blobs.asked) == 5
    blobs.troubles = [(403, "AuthorizationPermissionMismatch")] * 50
    with pytest.raises(PortUnavailable, match="AuthorizationPermissionMismatch"):
        upload.create({**inputs, "blob": "other"}, hurry, blobs)


def test_blocked_network_fails_at_once_with_a_hint(
    blobs: Blobs, hurry: threading.Event, inputs: wire.Properties
) -> None:
    """A firewall refusal is not retried."""
    blobs.troubles = [(403, "AuthorizationFailure")]
    with pytest.raises(PortUnavailable, match=r"network rules block this machine.*access\.evidence_from"):
        upload.create(inputs, hurry, blobs)
    assert len(blobs.asked) == 1


def test_immutable_blob_stays_with_a_reason(blobs: Blobs, inputs: wire.Properties) -> None:
    """Deleting the resource leaves an immutable blob in place; another refusal is an error."""
    blobs.troubles = [(409, "BlobImmutableDueToPolicy")]
    assert "an immutability policy protects it" in upload.delete(inputs, blobs)
    blobs.troubles = [(403, "AuthorizationPermissionMismatch")]
    with pytest.raises(PortUnavailable):
        upload.delete(inputs, blobs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sha256": "0" * 64}, "has SHA-256"),
        ({"source": {"path": "/nowhere/b"}}, "No such file"),
        ({"source": {"uri": "https://example.com"}}, "must be a file or text"),
        ({"container": "http://x/y"}, "is not the address of a container"),
    ],
)
def test_invalid_source_is_refused(
    blobs: Blobs, hurry: threading.Event, inputs: wire.Properties, change: wire.Properties, words: str
) -> None:
    """The inputs are checked before anything is sent."""
    with pytest.raises((ValueError, OSError, PortUnavailable), match=words):
        upload.create({**inputs, **change}, hurry, blobs)
    assert blobs.asked == []


def test_only_name_and_hash_replace_a_blob(inputs: wire.Properties) -> None:
    """The source's path differs between machines and does not identify the content."""
    assert upload.check_inputs(inputs) == []
    assert [name for name, _ in upload.check_inputs({**inputs, "sha256": "x", "blob": ""})] == ["blob", "sha256"]
    assert upload.check_inputs({**inputs, "sha256": wire.UNKNOWN}) == []
    assert upload.changes(inputs, {**inputs, "source": {"path": "/elsewhere"}}) == []
    assert upload.changes(inputs, {**inputs, "blob": "x", "sha256": "y"}) == ["blob", "sha256"]
