"""Downloading the bundle on Google Cloud: the service account's token, retries, checksum."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinfra import bundle
from tests.bootstrap.fetching import complete, first_trouble, start
from tests.servers import Answering, serve

DATA = b"a bundle"
PACKED = gzip.compress(DATA)
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = "bootstrap/b c.tar.gz"


class Google:
    """A metadata server and a bucket with one object; errors are answered first."""

    def __init__(self) -> None:
        self.troubles: list[tuple[int, bytes]] = []
        self.asked: list[str] = []
        self.host = ""


@pytest.fixture
def google() -> Iterator[Google]:
    """Both servers on one loopback port."""
    google = Google()

    class Handler(Answering):
        def do_GET(self) -> None:
            google.asked.append(self.path)
            if self.path.startswith("/computeMetadata/"):
                good = self.headers.get("Metadata-Flavor") == "Google"
                return self.answer(200 if good else 403, json.dumps({"access_token": "secret"}).encode())
            if google.troubles:
                return self.answer(*google.troubles.pop(0))
            if self.headers.get("Authorization") != "Bearer secret":
                return self.answer(401, b"who asks?")
            here = "/storage/v1/b/bucket/o/bootstrap%2Fb%20c.tar.gz?alt=media"
            return self.answer(200, PACKED) if self.path == here else self.answer(404, b"No such object")

    with serve(Handler) as url:
        google.host = url.removeprefix("http://")
        yield google


def begin(google: Google, target: Path, *, name: str = NAME, **environment: str) -> subprocess.Popen[str]:
    """Start the download."""
    hosts = {"GCE_METADATA_HOST": google.host, "STORAGE_EMULATOR_HOST": f"http://{google.host}"}
    return start("gcp", ("bucket", name, "us-central1", SHA256), target, {**hosts, **environment})


def test_it_downloads_with_the_service_accounts_token(google: Google, tmp_path: Path) -> None:
    """The object arrives completely, with any name."""
    code, said = complete(begin(google, tmp_path / "got"))
    assert code == 0, said
    assert (tmp_path / "got").read_bytes() == DATA


def test_it_never_gives_up(google: Google, tmp_path: Path) -> None:
    """As long as the object does not exist, it asks again and names the reason; it leaves no file."""
    said = first_trouble(begin(google, tmp_path / "got", name="bootstrap/none"))
    assert "gs://bucket/bootstrap/none: Cloud Storage (127.0.0.1:" in said
    assert "): HTTP 404 No such object; retrying" in said
    assert not (tmp_path / "got").exists()


def test_metadata_server_is_called_without_a_proxy(google: Google, tmp_path: Path) -> None:
    """A proxy of the environment never sees the token request."""
    said = first_trouble(begin(google, tmp_path / "got", http_proxy="http://127.0.0.1:9", no_proxy=""))
    assert "Connection refused" in said, "the store itself is reached through the proxy"
    assert [path for path in google.asked if path.startswith("/storage")] == []
    assert google.asked


def test_user_data_is_plain_and_within_googles_limit() -> None:
    """The common script contains Google's download code and is valid bash."""
    node = {
        "schema": "gpuinfra.node/1", "cloud": "gcp", "cluster": "train", "pool": "gpu", "region": "us-central1",
        "evidence": {"bucket": "b", "prefix": "evidence/train"}, "bundle": {"bucket": "b", "key": "k", "sha256": SHA256}, "file_systems": [],
    }  # fmt: skip
    text = bundle.user_data(node)
    assert text.startswith("#cloud-boothook\n#!/bin/bash\n")
    assert "computeMetadata/v1" in text
    assert len(text.encode()) < 16 * 1024
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
