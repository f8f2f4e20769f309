from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gpuinfra.base.errors import UsageError
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import HostTrust, KnownHosts, KnownKey
from gpuinfra.remote.problem import HostProblem, ProblemKind


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
        ("|1|c2FsdA==", HOST, False),
        ("|1|c|d", HOST, False),
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


@pytest.mark.parametrize("own", [(), (line(b"a"),)], ids=["known_hosts", "handover"])
def test_revoked_key_is_refused(tmp_path: Path, own: tuple[str, ...]) -> None:
    """A key that is both trusted and revoked is refused, also if the handover contains it."""
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu-1 {line(b'a')}\n@revoked * {line(b'a')}\n")
    with pytest.raises(HostProblem) as error:
        KnownHosts([file]).trust(replace(HOST, host_keys=own)).check(blob(b"a"))
    assert error.value.kind is ProblemKind.HOST_KEY_REFUSED


@pytest.mark.parametrize(
    ("known", "first"),
    [
        ([], ["ssh-ed25519", "ecdsa-sha2-nistp256"]),
        (["ssh-rsa"], ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519"]),
        (["ecdsa-sha2-nistp384"], ["ecdsa-sha2-nistp384", "ssh-ed25519"]),
        (["ssh-rsa", "ssh-ed25519"], ["ssh-ed25519", "rsa-sha2-512", "rsa-sha2-256", "ecdsa-sha2-nistp256"]),
    ],
)
def test_algorithms_of_known_keys_come_first(known: list[str], first: list[str]) -> None:
    """A server with several host keys presents one that is known; certificates are requested only if there is an authority."""
    keys = tuple(KnownKey(blob=b"", type=kind, where="file") for kind in known)
    trust = HostTrust(name="gpu-1", keys=keys, authorities=(), revoked=frozenset(), files="")
    assert list(trust.algorithms)[: len(first)] == first
    assert (len(trust.algorithms), "ssh-rsa" in trust.algorithms) == (6, False)
    certified = list(replace(trust, authorities=(KnownKey(blob=b"", type="ssh-rsa", where="file"),)).algorithms)
    assert set(certified) - set(trust.algorithms) == {f"{name}-cert-v01@openssh.com" for name in trust.algorithms}


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
        assert error.value.kind is ProblemKind.HOST_KEY_REFUSED


def test_invalid_host_key_of_a_host_is_refused(tmp_path: Path) -> None:
    """An invalid host_key is an error; the known_hosts files are not used instead."""
    host = Host(name="gpu-1", address="10.0.0.1", host_keys=("ssh-ed25519 nonsense",))
    with pytest.raises(HostProblem, match="not a public key"):
        KnownHosts([]).trust(host)


def field(data: bytes) -> bytes:
    """A string of the SSH protocol: length and content."""
    return len(data).to_bytes(4, "big") + data


def certificate(signer: Ed25519PrivateKey, *, claims: Ed25519PrivateKey | None = None) -> bytes:
    """A host certificate for gpu-1 that `signer` signed. `claims` is the authority that it names, by default its signer."""

    def public(key: Ed25519PrivateKey) -> bytes:
        return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    kind = b"ssh-ed25519-cert-v01@openssh.com"
    times = (0).to_bytes(8, "big") + (2**64 - 1).to_bytes(8, "big")
    content = field(kind) + field(b"n" * 32) + field(public(Ed25519PrivateKey.generate()))
    content += (1).to_bytes(8, "big") + (2).to_bytes(4, "big") + field(b"id") + field(field(b"gpu-1")) + times
    content += field(b"") + field(b"") + field(b"")
    content += field(field(b"ssh-ed25519") + field(public(claims or signer)))
    return content + field(field(b"ssh-ed25519") + field(signer.sign(content)))


def test_certificate_that_its_authority_did_not_sign_is_refused(tmp_path: Path) -> None:
    """A well-formed certificate that names a trusted authority, with a valid signature of another key, is refused."""
    authority, attacker = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = authority.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority * {trusted}\n")
    trust = KnownHosts([file]).trust(HOST)
    good = certificate(authority)
    trust.check(good)
    for forged in (certificate(attacker, claims=authority), good[:-1] + bytes([good[-1] ^ 1])):
        with pytest.raises(HostProblem, match="cannot be verified") as error:
            trust.check(forged)
        assert error.value.kind is ProblemKind.HOST_KEY_REFUSED
    with pytest.raises(HostProblem, match="not trusted"):
        trust.check(certificate(attacker))


@pytest.mark.parametrize("names", ["gpu-1", "10.0.0.1", "*", "gpu-*"])
def test_key_of_the_handover_is_the_only_trusted_one(tmp_path: Path, names: str) -> None:
    """Beside a key of the handover, neither an entry of known_hosts nor a host CA there is believed."""
    authority = Ed25519PrivateKey.generate()
    trusted = authority.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    file = tmp_path / "known_hosts"
    file.write_text(f"{names} {line(b'a')}\n@cert-authority {names} {trusted}\n")
    host = Host(name="gpu-1", address="10.0.0.1", host_keys=(line(b"b"),))
    trust = KnownHosts([file]).trust(host)
    trust.check(blob(b"b"))
    with pytest.raises(HostProblem) as error:
        trust.check(blob(b"a"))
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED
    with pytest.raises(HostProblem) as error:
        trust.check(certificate(authority))
    assert error.value.kind is ProblemKind.HOST_KEY_UNKNOWN


def test_known_types_are_preferred(tmp_path: Path) -> None:
    """The connection asks first for the type of key that is known, so that a server with several keys presents that one."""
    file = tmp_path / "known_hosts"
    key = b"\0\0\0\x07ssh-rsa" + b"k" * 32
    file.write_text(f"gpu-1 ssh-rsa {base64.b64encode(key).decode()}\ngpu-2 {line(b'a')}\n")
    trust = KnownHosts([file]).trust
    assert trust(HOST).algorithms[:2] == ("rsa-sha2-512", "rsa-sha2-256")
    assert trust(Host(name="gpu-2", address="10.0.0.2")).algorithms[0] == "ssh-ed25519"
    assert set(trust(HOST).algorithms) == set(trust(ELSEWHERE).algorithms)


def test_a_key_with_other_characters_is_not_read(tmp_path: Path) -> None:
    """Characters outside base64 are not dropped: the line is ignored, also where the rest would be a key."""
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu-1 {line(b'a')[:30]}*{line(b'a')[30:]}\n")
    known = KnownHosts([file])
    assert known.trust(HOST).keys == ()
    assert known.ignored_lines == [f"{file}:1 cannot be parsed and is ignored"]


def test_messages_name_the_files_and_the_authorities(tmp_path: Path) -> None:
    """An unknown key is reported with the files that were read, or the hosts file if there is none."""
    file = tmp_path / "known_hosts"
    file.write_text("")
    for files, named in (([file], str(file)), ([], "the hosts file")):
        with pytest.raises(HostProblem, match=f"which is not in {named}; compare"):
            KnownHosts(files).trust(HOST).check(blob(b"a"))
    with pytest.raises(HostProblem, match="trusted authorities: none; re-sign"):
        KnownHosts([file]).trust(HOST).check(b"\0\0\0\x20ssh-ed25519-cert-v01@openssh.com" + b"x" * 40)
