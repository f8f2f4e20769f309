"""Pulumi's release is downloaded, verified and kept, with a server on this machine."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.engine import find, keep, release
from gpuinfra.engine.module import read_module
from tests.servers import Answering

MODULE = read_module()
ARCHIVE = f"pulumi-v{MODULE.version}-{release.archive_platform()}.tar.gz"
CHECKSUMS = f"pulumi-{MODULE.version}-checksums.txt"
HANG_LIMIT_S = 300


def noise(name: str) -> bytes:
    """Comment lines that do not compress well."""
    return b"".join(b"# %s\n" % hashlib.sha512(f"{name}{at}".encode()).hexdigest().encode() for at in range(9))


def archive(*leave_out: str, version: str = MODULE.version) -> bytes:
    """An archive in the layout of a release, with a link and a file outside of the folder, which must have no effect."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as made:
        for name in ("pulumi-language-go", *release.NEEDED, *release.OPTIONAL):
            if name not in leave_out:
                text = f"#!/bin/sh\necho v{version}\n".encode() + noise(name)
                member = tarfile.TarInfo(f"pulumi/{name}")
                member.size = len(text)
                made.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("pulumi/pulumi")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
        made.addfile(tarfile.TarInfo("../../outside"))
    return content.getvalue()


class Server:
    """A server with the files of a release. `faults` are used up by the requests for the archive, one for each request."""

    def __init__(self) -> None:
        self.archive = archive()
        self.checksum = ""
        self.faults: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.done = threading.Event()
        outer = self

        class Handler(Answering):
            def do_GET(self) -> None:
                outer.respond(self)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def respond(self, request: Answering) -> None:
        name, start = request.path.rsplit("/", 1)[-1], 0
        self.asked.append((name, request.headers.get("Range") or ""))
        fault = ""
        if name == CHECKSUMS:
            digest = self.checksum or hashlib.sha256(self.archive).hexdigest()
            content = f"{'0' * 64}  {ARCHIVE}.sig\n{digest}  {ARCHIVE}\n".encode()
            fault = "hang" if self.faults == ["hang at once"] else ""
        elif name == ARCHIVE:
            content, fault = self.archive, self.faults.pop(0) if self.faults else ""
        else:
            content, fault = b"", "404"
        if fault == "hang":
            self.done.wait(HANG_LIMIT_S)
            return
        if fault.isdigit():
            request.send_error(int(fault))
            return
        if (found := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or "")) and fault != "no ranges":
            start = int(found[1])
            if start >= len(content):
                request.send_error(416)
                return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        if fault == "truncate":
            request.wfile.write(content[start : start + 300])
        elif fault == "stall":
            request.wfile.write(content[start : start + 200])
            request.wfile.flush()
            self.done.wait(HANG_LIMIT_S)
        else:
            request.wfile.write(content[start:])

    def ranges(self) -> list[str]:
        return [found for name, found in self.asked if name == ARCHIVE]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that stands in for the host of the releases, on a machine without an engine."""
    made = Server()
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(release, "BASE", f"http://127.0.0.1:{made.http.server_port}/releases/sdk")
    monkeypatch.setattr(release, "_known", {})
    monkeypatch.setattr(find, "_on_path", lambda *_: (None, ""))
    monkeypatch.setattr(find.go, "find_go", _no_go)
    yield made
    made.done.set()
    made.http.shutdown()
    made.http.server_close()


def _no_go(*_: object) -> Path:
    raise find.go.NoGo("the build is not part of this test")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_release_is_downloaded_once_and_kept(server: Server, cache: Path) -> None:
    """The first run downloads, the second uses the kept engine, also after its times changed, and `--build` does not use it."""
    lines: list[str] = []
    engine = find.find_engine(lines.append)
    assert engine.source == "downloaded"
    assert engine.version == MODULE.version
    assert {one.name for one in engine.path.parent.iterdir()} == {*release.NEEDED, *release.OPTIONAL, keep.MARKER}
    assert not engine.path.is_symlink()
    assert any(line.startswith(f"engine: downloading Pulumi {MODULE.version} from http") for line in lines)
    for one in engine.path.parent.iterdir():
        one.touch()
    asked = len(server.asked)
    assert find.find_engine().source == "kept"
    assert len(server.asked) == asked
    assert sorted(one.name for one in (cache / "engine").iterdir() if ".lock" not in one.name) == [
        engine.path.parent.name
    ]
    engine.path.write_text("#!/bin/sh\necho v0.0.1\n")
    with pytest.raises(EnvironmentMissing):
        find.find_engine(may_download=False)
    assert find.find_engine().source == "downloaded"


@pytest.mark.parametrize(
    ("faults", "ranges"),
    [
        (["truncate", "truncate"], ["", "bytes=300-", "bytes=600-"]),
        (["truncate", "no ranges"], ["", "bytes=300-"]),
        (["stall"], ["", "bytes=200-"]),
    ],
)
def test_an_interrupted_download_continues(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str], ranges: list[str]
) -> None:
    """A connection that ends early or stops is continued where it stopped, and from the start if the server ignores ranges."""
    monkeypatch.setattr(release, "STALL_S", 0.5)
    server.faults = faults
    assert find.find_engine().source == "downloaded"
    assert server.ranges() == ranges


def test_a_later_run_continues_the_download_of_an_earlier_one(server: Server, cache: Path) -> None:
    """A part in the cache is not received again, and a complete archive is only compared with its checksum."""
    part = cache / "engine" / f".download-{ARCHIVE}"
    part.parent.mkdir(parents=True)
    part.write_bytes(server.archive[:500])
    assert find.find_engine().source == "downloaded"
    assert server.ranges() == ["bytes=500-"]
    assert not part.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"checksum": "1" * 64}, "its SHA-256 is "),
        ({"faults": ["404"]}, "HTTP status 404"),
        ({"faults": ["503"]}, "HTTP status 503"),
        ({"archive": archive("pulumi-language-python-exec")}, "does not contain pulumi-language-python-exec"),
        ({"archive": archive(version="3.1.0")}, "does not run on this machine"),
        ({"archive": b"not an archive"}, "not a gzip file"),
        ({"faults": ["truncate"] * release.ATTEMPTS}, "the connection ended after "),
    ],
)
def test_a_release_that_cannot_be_used_is_built_instead_with_one_line(
    server: Server, cache: Path, change: dict[str, Any], reason: str
) -> None:
    """A wrong checksum, a missing file and an unusable archive are one line, the build follows, and nothing is kept."""
    for name, value in change.items():
        setattr(server, name, value)
    lines: list[str] = []
    with pytest.raises(EnvironmentMissing, match="the build is not part of this test"):
        find.find_engine(lines.append)
    (line,) = [line for line in lines if "cannot be used" in line]
    assert reason in line
    assert line.endswith("building the engine from source instead")
    assert not [one for one in (cache / "engine").iterdir() if one.is_dir()]


def test_a_host_that_does_not_answer_costs_less_than_three_seconds_once(server: Server, cache: Path) -> None:
    """A server that accepts the connection and sends nothing is given up after the time limit, and is not asked again in the same run."""
    server.faults = ["hang at once"]
    lines: list[str] = []
    assert release.FIRST_ANSWER_S < 3
    for _ in range(2):
        with pytest.raises(EnvironmentMissing):
            find.find_engine(lines.append)
    assert [name for name, _ in server.asked] == [CHECKSUMS]
    (line,) = [line for line in lines if "cannot be used" in line]
    assert "no response within 2.5 s" in line or "timed out" in line


def test_the_time_limit_includes_the_lookup_of_the_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name lookup that does not return is given up too."""
    until = threading.Event()

    def blocked(*_: object) -> None:
        until.wait(HANG_LIMIT_S)
        raise OSError("no such host")

    monkeypatch.setattr(release, "FIRST_ANSWER_S", 0.05)
    monkeypatch.setattr(release, "_open", blocked)
    began = time.monotonic()
    with pytest.raises(release.NotAvailable, match=r"no response within 0\.05 s"):
        release._checksum("https://example.com/checksums.txt", ARCHIVE)
    until.set()
    assert time.monotonic() - began < HANG_LIMIT_S


def test_a_proxy_of_the_environment_is_used(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request goes to the proxy that the environment names."""
    monkeypatch.setenv("http_proxy", release.BASE.removesuffix("/releases/sdk"))
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr(release, "BASE", "http://releases.invalid/sdk")
    assert find.find_engine().source == "downloaded"


def test_the_address_is_that_of_the_official_release() -> None:
    """Archives come from Pulumi's own host over TLS."""
    assert release.BASE == "https://get.pulumi.com/releases/sdk"
    assert re.fullmatch(r"(linux|darwin)-(x64|arm64)", release.archive_platform())
