"""Downloading the bundle with the node's own role: signature, retries, checksum."""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from .fetching import BOOT, complete, first_trouble, start
from .standin_s3 import ACCESS_KEY, SECRET_KEY, TOKEN, Cloud, answer

DATA = b"a bundle"
PACKED = gzip.compress(DATA)
SHA256 = hashlib.sha256(DATA).hexdigest()


def begin(cloud: Cloud, target: Path, *, key: str = "bootstrap/b.tar.gz", **environment: str) -> subprocess.Popen[str]:
    """Start the download."""
    return start("aws", ("bucket", key, "us-east-1", SHA256), target, {**cloud.environment, **environment})


def trouble(status: int, body: bytes = b""):
    """An error answer to one request."""
    return lambda handler: answer(handler, status, body)


@pytest.mark.parametrize("key", ["bootstrap/b.tar.gz", "a b/ü+&=%/c", "x~y-z_."])
def test_signature_matches_botocore(tmp_path: Path, key: str) -> None:
    """The object is served only for a signature that botocore also creates, with any key."""
    import urllib.parse

    with Cloud({f"bucket/{urllib.parse.quote(key, safe='/-_.~')}": PACKED}) as cloud:
        code, said = complete(begin(cloud, tmp_path / "got", key=key))
    assert (code, cloud.refusals) == (0, []), said
    assert (tmp_path / "got").read_bytes() == DATA


def test_credentials_are_requested_with_a_session_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session token of IMDSv2 has a lifetime, without which the service refuses it, and each later request carries the token."""
    with Cloud({}) as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(BOOT)
        module = runpy.run_path(str(BOOT / "fetch-aws.py"))
        assert module["credentials"]() == [ACCESS_KEY, SECRET_KEY, TOKEN]


def test_it_never_gives_up(tmp_path: Path) -> None:
    """As long as the object does not exist, it asks again and names the reason; it leaves no file and no traceback."""
    with Cloud({}) as cloud:
        said = first_trouble(begin(cloud, tmp_path / "got"))
    assert "s3://bucket/bootstrap/b.tar.gz: S3 (127.0.0.1:" in said
    assert "): HTTP 404 NoSuchKey; retrying in 1 s" in said
    assert not (tmp_path / "got").exists()


def test_wrong_clock_is_reported_and_corrected(tmp_path: Path) -> None:
    """If the clock is off by a year, the request is signed with the server's time, as the SDKs do."""
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}) as cloud:
        cloud.clock_offset_s = 365 * 86400
        code, said = complete(begin(cloud, tmp_path / "got"))
    assert code == 0, said
    assert re.search(r"the clock of this machine is off by -3153[56]\d\d\d s", said)


def test_metadata_service_is_called_without_a_proxy(tmp_path: Path) -> None:
    """A proxy of the environment never sees the metadata service's token; the store is reached through the proxy, which the message names."""
    with Cloud({"bucket/bootstrap/b.tar.gz": PACKED}) as cloud:
        said = first_trouble(begin(cloud, tmp_path / "got", http_proxy="http://127.0.0.1:9", no_proxy=""))
    assert "through the proxy 127.0.0.1:9: [Errno 111] Connection refused" in said
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
    monkeypatch.syspath_prepend(BOOT)
    module = runpy.run_path(str(BOOT / "fetch-aws.py"))
    assert module["location"](bucket, "k/x", region) == expected


@pytest.mark.parametrize("path", sorted(BOOT.glob("*.py")), ids=lambda path: path.name)
def test_script_is_python_3_9(path: Path) -> None:
    """Ubuntu 22.04 has Python 3.10, and the supported minimum is 3.9: no newer grammar or library names."""
    source = path.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 9))
    assert "datetime." not in source, "datetime.UTC is of 3.11 and linters propose it"
