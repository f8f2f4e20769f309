"""Downloading the bundle with the node's own role: signature, retries, checksum."""

from __future__ import annotations

import ast
import gzip
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

from .standin_s3 import Cloud, answer

DATA = b"a bundle"
PACKED = gzip.compress(DATA)
SHA256 = hashlib.sha256(DATA).hexdigest()
SHORT = (
    "import time, sys; time.sleep = lambda s: None; sys.argv.pop(0); "
    "exec(compile(open(sys.argv[0]).read(), 'fetch', 'exec'))"
)


def fetch(
    cloud: Cloud,
    target: Path,
    *,
    key: str = "bootstrap/b.tar.gz",
    sha256: str = SHA256,
    patience_s: int = 900,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run the script as user data does, without pauses."""
    source = (shipped("bootstrap") / "boot" / "fetch-aws.py").read_text(encoding="utf-8")
    script = target.with_suffix(".py")
    script.write_text(source.replace("PATIENCE_S = 900", f"PATIENCE_S = {patience_s}"), encoding="utf-8")
    command = [sys.executable, "-I", "-c", SHORT, str(script), "bucket", key, "us-east-1", sha256, str(target)]
    env = {"PATH": os.environ["PATH"], **cloud.environment, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)


def trouble(status: int, body: bytes = b""):
    """An error answer to one request."""
    return lambda handler: answer(handler, status, body)


@pytest.mark.parametrize("key", ["bootstrap/b.tar.gz", "a b/ü+&=%/c", "x~y-z_."])
def test_signature_matches_botocore(tmp_path: Path, key: str) -> None:
    """The object is served only for a signature that botocore also creates, with any key."""
    import urllib.parse

    with Cloud({f"bucket/{urllib.parse.quote(key, safe='/-_.~')}": PACKED}) as cloud:
        got = fetch(cloud, tmp_path / "got", key=key)
    assert (got.returncode, cloud.refusals) == (0, []), got.stderr
    assert (tmp_path / "got").read_bytes() == DATA


def test_it_waits_for_role_and_network(tmp_path: Path) -> None:
    """An unknown role and a failing server are retried, and each retry is logged."""
    denied = b"<Error><Code>AccessDenied</Code></Error>"
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}, [trouble(403, denied), trouble(503), trouble(500)]) as cloud:
        got = fetch(cloud, tmp_path / "got")
    assert got.returncode == 0
    assert "HTTP 403 AccessDenied; retrying in 1 s" in got.stderr
    assert "HTTP 503" in got.stderr


def test_damaged_object_is_not_written(tmp_path: Path) -> None:
    """Content that is not gzip, is truncated or has another checksum is not written; the next valid answer is."""
    bad = [trouble(200, b"half a bun"), trouble(200, PACKED[:-10]), trouble(200, gzip.compress(b"another"))]
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}, bad) as cloud:
        got = fetch(cloud, tmp_path / "got")
    assert got.returncode == 0
    assert "incorrect header check" in got.stderr
    assert got.stderr.count(f"not {SHA256}") == 2
    assert (tmp_path / "got").read_bytes() == DATA


def test_it_fails_with_the_last_reason(tmp_path: Path) -> None:
    """After the time limit it exits with the last reason and leaves no files."""
    with Cloud({}) as cloud:
        got = fetch(cloud, tmp_path / "got", patience_s=0)
    assert got.returncode == 1
    assert "s3://bucket/bootstrap/b.tar.gz cannot be fetched: HTTP 404 NoSuchKey" in got.stderr
    assert "Traceback" not in got.stderr
    assert not (tmp_path / "got").exists()


def test_wrong_clock_is_reported_and_corrected(tmp_path: Path) -> None:
    """If the clock is off by a year, the request is signed with the server's time, as the SDKs do."""
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}) as cloud:
        cloud.clock_offset_s = 365 * 86400
        got = fetch(cloud, tmp_path / "got")
    assert got.returncode == 0, got.stderr
    assert re.search(r"this machine's clock is off by -3153[56]\d\d\d s", got.stderr)


def test_metadata_service_is_called_without_a_proxy(tmp_path: Path) -> None:
    """A proxy of the environment never sees the metadata service's token."""
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}) as cloud:
        got = fetch(cloud, tmp_path / "got", http_proxy="http://127.0.0.1:9", no_proxy="", patience_s=0)
    assert got.returncode == 1
    assert "Connection refused" in got.stderr, "the store itself is reached through the proxy"
    assert cloud.served == []


@pytest.mark.parametrize(
    ("bucket", "region", "environment", "expected"),
    [
        ("b", "us-east-1", {}, ("https://b.s3.us-east-1.amazonaws.com", "/k/x")),
        ("b.c", "eu-west-1", {}, ("https://s3.eu-west-1.amazonaws.com", "/b.c/k/x")),
        ("b", "cn-north-1", {}, ("https://b.s3.cn-north-1.amazonaws.com.cn", "/k/x")),
        ("b", "us-east-1", {"AWS_ENDPOINT_URL": "http://h:1/"}, ("http://h:1", "/b/k/x")),
        (
            "b",
            "us-east-1",
            {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ENDPOINT_URL_S3": "http://s:2"},
            ("http://s:2", "/b/k/x"),
        ),
    ],
)
def test_address_is_the_one_of_the_sdks(
    bucket: str, region: str, environment: dict[str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host and path match AWS's SDKs, with their variables."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    source = (shipped("bootstrap") / "boot" / "fetch-aws.py").read_text(encoding="utf-8").replace("\nmain()\n", "\n")
    module: dict[str, object] = {}
    exec(compile(source, "fetch-aws.py", "exec"), module)
    assert module["location"](bucket, "k/x", region) == expected  # type: ignore[operator]


def test_script_is_python_3_9() -> None:
    """Ubuntu 22.04 has Python 3.10, and the supported minimum is 3.9: no newer grammar or library names."""
    source = (shipped("bootstrap") / "boot" / "fetch-aws.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 9))
    assert "datetime." not in source, "datetime.UTC is of 3.11 and linters propose it"
