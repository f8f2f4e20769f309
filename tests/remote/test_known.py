from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts
from gpuinfra.remote.problem import HostProblem, Kind


def blob(letter: bytes) -> bytes:
    """A well-formed Ed25519 public key."""
    return b"\0\0\0\x0bssh-ed25519\0\0\0 " + letter * 32


def line(letter: bytes) -> str:
    """The key as a line of a file."""
    return f"ssh-ed25519 {base64.b64encode(blob(letter)).decode()}"


def hashed(name: str) -> str:
    """A host name as `ssh-keygen -H` hashes it."""
    salt = b"s" * 20
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


HOST = Host(name="gpu-1", address="10.0.0.1")
ELSEWHERE = Host(name="gpu-1", address="10.0.0.1", port=2222)


@pytest.mark.parametrize(
    ("names", "host", "known"),
    [
        ("10.0.0.1", HOST, True),
        ("GPU-1,other", HOST, True),
        ("10.0.0.2", HOST, False),
        ("gpu-*", HOST, True),
        ("gpu-?", HOST, True),
        ("gpu-*,!gpu-1", HOST, False),
        ("!gpu-1", Host(name="gpu-2", address="10.0.0.2"), False),
        (hashed("10.0.0.1"), HOST, True),
        (hashed("10.0.0.2"), HOST, False),
        ("[10.0.0.1]:2222", ELSEWHERE, True),
        ("[10.0.0.1]:2222", HOST, False),
        ("[10.0.0.*]:2222", ELSEWHERE, True),
        (hashed("[10.0.0.1]:2222"), ELSEWHERE, True),
    ],
)
def test_host_names_match_as_in_openssh(tmp_path: Path, names: str, host: Host, known: bool) -> None:
    """Names, patterns, negations, hashes and ports in known_hosts match the same hosts as in OpenSSH."""
    file = tmp_path / "known_hosts"
    file.write_text(f"{names} {line(b'a')} a comment\n")
    assert (len(KnownHosts([file]).trust(host).keys) == 1) is known


def test_revoked_key_is_refused(tmp_path: Path) -> None:
    """A key that is both listed and revoked is refused."""
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu-1 {line(b'a')}\n@revoked * {line(b'a')}\n")
    with pytest.raises(HostProblem) as error:
        KnownHosts([file]).trust(HOST).check(blob(b"a"))
    assert error.value.kind is Kind.HOST_KEY_REFUSED


def test_invalid_lines_are_reported_and_ignored(tmp_path: Path) -> None:
    """A line with an unknown marker, invalid base64 or a wrong key type is reported by file and line number."""
    file = tmp_path / "known_hosts"
    file.write_text(f"@trust * {line(b'a')}\ngpu-1 ssh-ed25519 !!\ngpu-1 ssh-rsa {line(b'a').split()[1]}\n# fine\n\n")
    known = KnownHosts([file])
    assert [text.split(" ")[0] for text in known.ignored_lines] == [f"{file}:{number}" for number in (1, 2, 3)]
    assert known.trust(HOST).keys == ()


def test_unreadable_file_is_a_usage_error(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(UsageError, match="no-such-file"):
        KnownHosts([tmp_path / "no-such-file"])


def test_malformed_certificate_is_refused(tmp_path: Path) -> None:
    """Data that only starts like a certificate is refused, whatever it makes the parser raise."""
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {line(b'a')}\n")
    kind = b"ssh-ed25519-cert-v01@openssh.com"
    for rest in (b"", b"\0" * 300, b"\xff" * 300, blob(b"a") * 9):
        with pytest.raises(HostProblem) as error:
            KnownHosts([file]).trust(HOST).check(len(kind).to_bytes(4, "big") + kind + rest)
        assert error.value.kind is Kind.HOST_KEY_REFUSED


def test_invalid_host_key_of_a_host_is_refused(tmp_path: Path) -> None:
    """An invalid host_key is an error; the known_hosts files are not used instead."""
    host = Host(name="gpu-1", address="10.0.0.1", host_keys=("ssh-ed25519 nonsense",))
    with pytest.raises(HostProblem, match="not a public key"):
        KnownHosts([]).trust(host)
