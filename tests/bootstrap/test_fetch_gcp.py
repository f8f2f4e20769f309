"""Downloading the bundle on Google Cloud: the service account's token, retries, checksum."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinfra import bundle
from gpuinfra.base.shipped import shipped
from tests.bootstrap.test_fetch import SHORT
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


def fetch(
    google: Google, target: Path, *, name: str = NAME, patience_s: int = 900, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script as user data does, without pauses."""
    source = (shipped("bootstrap") / "boot" / "fetch-gcp.py").read_text(encoding="utf-8")
    script = target.with_suffix(".py")
    script.write_text(source.replace("PATIENCE_S = 900", f"PATIENCE_S = {patience_s}"), encoding="utf-8")
    command = [sys.executable, "-I", "-c", SHORT, str(script), "bucket", name, "us-central1", SHA256, str(target)]
    env = {
        "PATH": os.environ["PATH"], "GCE_METADATA_HOST": google.host, "STORAGE_EMULATOR_HOST": f"http://{google.host}", **environment,
    }  # fmt: skip
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_it_downloads_with_the_service_accounts_token(google: Google, tmp_path: Path) -> None:
    """The object arrives completely, with any name."""
    got = fetch(google, tmp_path / "got")
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "got").read_bytes() == DATA


def test_it_waits_for_grants_and_network(google: Google, tmp_path: Path) -> None:
    """A late grant and a failing server are retried, and each retry is logged."""
    google.troubles = [
        (403, b'{"error": {"message": "does not have storage.objects.get access"}}'),
        (503, b""),
        (500, b""),
    ]
    got = fetch(google, tmp_path / "got")
    assert got.returncode == 0, got.stderr
    assert "HTTP 403" in got.stderr
    assert "does not have storage.objects.get access" in got.stderr
    assert "HTTP 503 ; retrying in 2 s" in got.stderr


def test_damaged_object_is_not_written(google: Google, tmp_path: Path) -> None:
    """Content that is not gzip or has another checksum is not written; the next valid answer is."""
    google.troubles = [(200, b"half a bun"), (200, gzip.compress(b"another"))]
    got = fetch(google, tmp_path / "got")
    assert got.returncode == 0
    assert f"not {SHA256}" in got.stderr
    assert (tmp_path / "got").read_bytes() == DATA


def test_it_fails_with_the_last_reason(google: Google, tmp_path: Path) -> None:
    """After the time limit it exits with the last reason and leaves no files."""
    got = fetch(google, tmp_path / "got", name="bootstrap/none", patience_s=0)
    assert got.returncode == 1
    assert "gs://bucket/bootstrap/none cannot be fetched: HTTP 404 No such object" in got.stderr
    assert "Traceback" not in got.stderr
    assert not (tmp_path / "got").exists()


def test_metadata_server_is_called_without_a_proxy(google: Google, tmp_path: Path) -> None:
    """A proxy of the environment never sees the token request."""
    got = fetch(google, tmp_path / "got", http_proxy="http://127.0.0.1:9", no_proxy="", patience_s=0)
    assert got.returncode == 1
    assert "Connection refused" in got.stderr, "the store itself is reached through the proxy"
    assert [path for path in google.asked if path.startswith("/storage")] == []
    assert google.asked


def test_user_data_is_plain_and_within_googles_limit() -> None:
    """The common script contains Google's download code and is valid bash."""
    node = {
        "schema": "gpuinfra.node/1", "cloud": "gcp", "cluster": "train", "pool": "gpu", "region": "us-central1",
        "evidence": {"bucket": "b", "prefix": "evidence/train"}, "bundle": {"bucket": "b", "key": "k", "sha256": SHA256}, "file_systems": [],
    }  # fmt: skip
    text = bundle.user_data(node)
    assert text.startswith("#!/bin/bash\n")
    assert "computeMetadata/v1" in text
    assert len(text.encode()) < 16 * 1024
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
