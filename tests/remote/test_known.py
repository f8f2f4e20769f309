from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import Known
from gpuinfra.remote.problem import HostProblem, Kind


def blob(letter: bytes) -> bytes:
    """A well-formed Ed25519 key that nobody holds."""
    return b"\0\0\0\x0bssh-ed25519\0\0\0 " + letter * 32


def line(letter: bytes) -> str:
    """The same as a file has it."""
    return f"ssh-ed25519 {base64.b64encode(blob(letter)).decode()}"


def hashed(name: str) -> str:
    """A name as `ssh-keygen -H` hides it."""
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
def test_names_are_read_as_openssh_reads_them(tmp_path: Path, names: str, host: Host, known: bool) -> None:
    """Names, patterns, negations, hashes and ports of known_hosts lines apply to the hosts that they name."""
    file = tmp_path / "known_hosts"
    file.write_text(f"{names} {line(b'a')} a comment\n")
    assert (len(Known([file]).of(host).keys) == 1) is known


def test_a_revoked_key_opens_nothing(tmp_path: Path) -> None:
    """A key that is known and revoked is refused."""
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu-1 {line(b'a')}\n@revoked * {line(b'a')}\n")
    with pytest.raises(HostProblem) as told:
        Known([file]).of(HOST).check(blob(b"a"))
    assert told.value.kind is Kind.HOST_KEY_REFUSED


def test_lines_that_are_not_understood_are_told_and_vouch_for_nothing(tmp_path: Path) -> None:
    """A line with a strange marker, a wrong base64 or another type than its key's is named by file and number."""
    file = tmp_path / "known_hosts"
    file.write_text(f"@trust * {line(b'a')}\ngpu-1 ssh-ed25519 !!\ngpu-1 ssh-rsa {line(b'a').split()[1]}\n# fine\n\n")
    known = Known([file])
    assert [text.split(" ")[0] for text in known.wrong] == [f"{file}:{number}" for number in (1, 2, 3)]
    assert known.of(HOST).keys == ()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A path that does not exist is a wrong use, said with the path."""
    with pytest.raises(UsageError, match="no-such-file"):
        Known([tmp_path / "no-such-file"])


def test_a_forged_certificate_is_refused(tmp_path: Path) -> None:
    """Bytes that only look like a certificate are no proof, whatever they make the parser do."""
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {line(b'a')}\n")
    kind = b"ssh-ed25519-cert-v01@openssh.com"
    for rest in (b"", b"\0" * 300, b"\xff" * 300, blob(b"a") * 9):
        with pytest.raises(HostProblem) as told:
            Known([file]).of(HOST).check(len(kind).to_bytes(4, "big") + kind + rest)
        assert told.value.kind is Kind.HOST_KEY_REFUSED


def test_a_key_given_with_the_host_that_is_none_is_refused(tmp_path: Path) -> None:
    """A host_key that is no public key does not fall back to believing less."""
    host = Host(name="gpu-1", address="10.0.0.1", host_keys=("ssh-ed25519 nonsense",))
    with pytest.raises(HostProblem, match="no public key"):
        Known([]).of(host)
