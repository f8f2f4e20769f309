"""A rehearsal reads only the named stack file of the user's files, and reaches nothing outside this machine."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.engine import find_engine
from gpuinfra.engine.keep import cache_folder

from .conftest import REPOSITORY, command, fewer_nodes, run

TRAPS = {
    ".pulumi/credentials.json": '{"current": "https://api.pulumi.com", "accessTokens": {"https://api.pulumi.com": "pul-trap"}}',
    ".pulumi/workspaces/gpuinfra-workspace.json": '{"stack": "production"}',
    ".aws/config": "[default]\nregion = eu-west-1\n[profile mine]\nregion = eu-west-1\n",
    ".aws/credentials": "[mine]\naws_access_key_id = AKIATRAP\naws_secret_access_key = trap\n",
    ".config/gcloud/application_default_credentials.json": "{}",
    ".config/pulumi/settings.json": "{}",
    ".azure/azureProfile.json": "{}",
    ".netrc": "machine api.pulumi.com login trap password trap\n",
    ".ssh/id_ed25519": "trap\n",
    "state/.pulumi/meta.yaml": "version: 1\n",
}
IN_ACCESS, IN_MODIFY, IN_OPEN, IN_CREATE, IN_DELETE = 0x1, 0x2, 0x20, 0x100, 0x200
LOOPBACK_ONLY = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    flags = struct.unpack("16sH", fcntl.ioctl(s, 0x8913, struct.pack("16sH", b"lo", 0))[:18])[1]
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", flags | 1, b""))
os.execv(sys.argv[1], sys.argv[1:])
"""


class Watched:
    """Files and folders whose accesses are recorded with inotify."""

    def __init__(self, paths: list[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: dict[int, Path] = {}
        mask = IN_ACCESS | IN_MODIFY | IN_OPEN | IN_CREATE | IN_DELETE
        for path in paths:
            number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
            assert number >= 0, f"cannot watch {path}: {os.strerror(ctypes.get_errno())}"
            self._names[number] = path

    def touched(self) -> set[str]:
        """Paths opened, read, written, created or deleted so far."""
        found: set[str] = set()
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return found
            offset = 0
            while offset < len(data):
                number, _mask, _cookie, length = struct.unpack_from("iIII", data, offset)
                found.add(str(self._names[number]))
                offset += 16 + length

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's HOME with trap files."""
    for name, text in TRAPS.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "home"


def user_environment(home: Path) -> dict[str, str]:
    """A user's environment with credentials, state and proxies. Only the engine's cache is real."""
    find_engine()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GPUINFRA_CACHE": os.environ.get("GPUINFRA_CACHE", str(cache_folder())),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "AWS_PROFILE": "mine",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "PULUMI_ACCESS_TOKEN": "pul-trap",
        "PULUMI_BACKEND_URL": f"file://{home}/state",
        "PULUMI_CONFIG_PASSPHRASE": "user_environment",
        "PULUMI_STACK": "production",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "GOOGLE_APPLICATION_CREDENTIALS": str(home / ".config/gcloud/application_default_credentials.json"),
    }


@pytest.mark.long
def test_nothing_of_the_user_is_read_and_nothing_outside_is_reached(home: Path, tmp_path: Path) -> None:
    """With traps in HOME, credentials in the environment and only a loopback interface, an up succeeds and opens no trap."""
    watched = Watched(sorted({p for p in home.rglob("*")}))
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    watched.touched()
    isolated = _without_network()
    try:
        words = [
            *isolated,
            *command("rehearse", "up", fewer_nodes("aws-p4d", tmp_path), "--folder", str(tmp_path / "r")),
        ]
        result = run(words, tmp_path / "r" / "aws-p4d", env=user_environment(home))
        assert result.code == 0, result.out[-3000:] + result.err
        assert watched.touched() == set()
    finally:
        watched.close()
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before
    for path in (tmp_path / "r").rglob("*"):
        if path.is_file() and path.suffix in (".json", ".yaml", ".jsonl", ".log", ".html"):
            text = path.read_bytes()
            assert b"pul-trap" not in text, path
            assert b"AKIATRAP" not in text, path


def test_the_traps_work(home: Path) -> None:
    """Reading a trap is recorded."""
    watched = Watched(sorted(home.rglob("*")))
    try:
        (home / ".aws/credentials").read_text()
        assert str(home / ".aws/credentials") in watched.touched()
    finally:
        watched.close()


def test_stack_file_is_only_read(tmp_path: Path) -> None:
    """The user's stack file and project stay unchanged."""
    project = tmp_path / "mine"
    shutil.copytree(REPOSITORY / "stacks", project / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "plugin", project / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "Pulumi.yaml", project)
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    words = command("rehearse", "preview", "aws-p4d", "--folder", str(tmp_path / "r"))
    result = run(words, tmp_path / "r" / "aws-p4d", cwd=project)
    assert result.code == 0, result.out + result.err
    after = {p: p.read_bytes() for p in project.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert after == before


def _without_network() -> list[str]:
    """A command prefix for a network namespace with only loopback, if the system allows it."""
    words = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", LOOPBACK_ONLY]
    if shutil.which("unshare") is None:
        return []
    tried = subprocess.run([*words, shutil.which("true") or "/bin/true"], check=False, capture_output=True)
    return words if tried.returncode == 0 else []
