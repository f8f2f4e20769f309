"""Host key verification.

A host key is trusted if the hosts file, the handover or a known_hosts file contains it, or if a host CA from a known_hosts file
signed its certificate. Keys are never added automatically: trust on first use would trust an attacker on any of hundreds of first
connections. Files are parsed once for the whole fleet; paramiko's parser takes quadratic time and does not support markers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gpuinfra.base.errors import UsageError
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

_CERT = "-cert-v01@openssh.com"


@dataclass(frozen=True, kw_only=True)
class KnownKey:
    """One key and the place from which it was read."""

    blob: bytes = field(repr=False)
    type: str
    where: str

    def __str__(self) -> str:
        return f"{self.type} {fingerprint(self.blob)} ({self.where})"


@dataclass(frozen=True, kw_only=True)
class HostTrust:
    """The trusted keys and authorities for one host."""

    name: str
    keys: tuple[KnownKey, ...]
    authorities: tuple[KnownKey, ...]
    revoked: frozenset[bytes]
    files: str

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Return host key algorithms in order of preference, with the algorithms of trusted keys first."""
        plain = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
        every = (*plain, "rsa-sha2-512", "rsa-sha2-256")
        types = {entry.type for entry in self.keys}
        of_known = [name for name in every if ("ssh-rsa" if name.startswith("rsa") else name) in types]
        certified = [name + _CERT for name in every] if self.authorities else []
        return tuple(dict.fromkeys([*of_known, *certified, *every]))

    def check(self, blob: bytes, now: float | None = None) -> None:
        """Raise `HostProblem` unless the key that the server presented is trusted."""
        if blob in self.revoked:
            raise HostProblem(
                ProblemKind.HOST_KEY_REFUSED,
                f"{self.name} presented the key {fingerprint(blob)}, which is revoked in {self.files}",
                "do not log in; replace the machine or its host key",
            )
        if _type(blob).endswith(_CERT):
            self._check_certificate(blob, time.time() if now is None else now)
            return
        if any(hmac.compare_digest(entry.blob, blob) for entry in self.keys):
            return
        presented = f"{_type(blob)} {fingerprint(blob)}"
        if self.keys:
            expected = ", ".join(str(entry) for entry in self.keys[:3])
            raise HostProblem(
                ProblemKind.HOST_KEY_CHANGED,
                f"{self.name} presented {presented}, expected {expected}",
                "this could be a man-in-the-middle attack; if the machine was replaced, "
                f"take the new key from the machine's console or evidence and update {self.keys[0].where}",
            )
        signed = f" without a certificate of {self.authorities[0]}" if self.authorities else ""
        raise HostProblem(
            ProblemKind.HOST_KEY_UNKNOWN,
            f"{self.name} presented {presented}{signed}, which is not in {self.files}",
            "compare the fingerprint with the machine's console or evidence, then add the key to the hosts file "
            "(host_key) or to a known_hosts file; gpuinfra never adds keys",
        )

    def _check_certificate(self, blob: bytes, now: float) -> None:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            PublicFormat,
            SSHCertificate,
            SSHCertificateType,
            load_ssh_public_identity,
        )

        try:
            line = _type(blob).encode() + b" " + base64.b64encode(blob)
            certificate = load_ssh_public_identity(line)
            assert isinstance(certificate, SSHCertificate)
            signer = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            authority = base64.b64decode(signer.split()[1])
            inner = certificate.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            certificate.verify_cert_signature()
        except Exception as error:  # a malformed certificate can raise any exception in the parser
            raise self._bad_certificate(f"that cannot be verified ({type(error).__name__})") from None
        if authority in self.revoked or base64.b64decode(inner.split()[1]) in self.revoked:
            raise self._bad_certificate("whose key or authority is marked as revoked")
        if not any(hmac.compare_digest(entry.blob, authority) for entry in self.authorities):
            raise self._bad_certificate(
                f"of an authority that is not trusted ({fingerprint(authority)})", kind=ProblemKind.HOST_KEY_UNKNOWN
            )
        if certificate.type != SSHCertificateType.HOST:
            raise self._bad_certificate("for a user, not for a host")
        if not certificate.valid_after <= now < certificate.valid_before:
            raise self._bad_certificate(
                f"that is valid from {_day(certificate.valid_after)} to {_day(certificate.valid_before)}"
            )
        principals = [one.decode("utf-8", "replace") for one in certificate.valid_principals]
        # A certificate without principals would be valid for every host. OpenSSH also refuses it.
        if not any(fnmatchcase(name, one) for one in principals for name in self.name.split(",")):
            raise self._bad_certificate(f"for {', '.join(principals[:5]) or 'no host name'}")
        if certificate.critical_options:
            raise self._bad_certificate("with a critical option, which host certificates do not have")

    def _bad_certificate(self, what: str, kind: ProblemKind = ProblemKind.HOST_KEY_REFUSED) -> HostProblem:
        trusted = ", ".join(str(entry) for entry in self.authorities[:3]) or "none"
        return HostProblem(
            kind,
            f"{self.name} presented a certificate {what}; trusted authorities: {trusted}",
            "re-sign the host key with the host CA for this host name, or correct the @cert-authority line",
        )


class KnownHosts:
    """The contents of all known_hosts files, parsed once."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._exact: dict[str, list[tuple[str, KnownKey]]] = {}
        self._patterns: list[tuple[str, str, KnownKey]] = []
        self.files = tuple(files)
        self.ignored_lines: list[str] = []
        """Lines that cannot be parsed."""
        for path in self.files:
            self._read(path)

    def trust(self, host: Host) -> HostTrust:
        """Return the trusted keys for one host. Keys from the hosts file or the handover replace the keys in known_hosts files."""
        names = _names(host)
        entries = [pair for name in names for pair in self._exact.get(name, ())]
        entries += [(marker, entry) for marker, names_, entry in self._patterns if _matches(names_, names)]
        revoked = frozenset(entry.blob for marker, entry in entries if marker == "@revoked")
        if host.host_keys:
            own = tuple(_entry(text, "set for this host") for text in host.host_keys)
            invalid = [text for text, entry in zip(host.host_keys, own, strict=True) if entry is None]
            if invalid:
                raise HostProblem(
                    ProblemKind.HOST_KEY_REFUSED,
                    f"host_key of {host.title} is {invalid[0][:60]!r}, which is not a public key",
                    "write the key as `ssh-ed25519 AAAA...`",
                )
            entries = [("", entry) for entry in own if entry is not None]
        return HostTrust(
            name=",".join(dict.fromkeys([host.name, host.address])),
            keys=tuple(entry for marker, entry in entries if marker == ""),
            authorities=tuple(entry for marker, entry in entries if marker == "@cert-authority"),
            revoked=revoked,
            files=", ".join(str(path) for path in self.files) or "the hosts file",
        )

    def _read(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"known_hosts file {path} cannot be read: {error.strerror}; correct its path") from None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            marker = words.pop(0) if words[0].startswith("@") else ""
            entry = _entry(" ".join(words[1:3]), f"{path}:{number}") if len(words) >= 3 else None
            if entry is None or marker not in ("", "@cert-authority", "@revoked"):
                self.ignored_lines.append(f"{path}:{number} cannot be parsed and is ignored")
            elif any(letter in words[0] for letter in "*?!|"):
                self._patterns.append((marker, words[0], entry))
            else:
                for name in words[0].split(","):
                    self._exact.setdefault(name.lower(), []).append((marker, entry))


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint in the format of `ssh-keygen -l`."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def default_files() -> tuple[Path, ...]:
    """Return the known_hosts files of the user and of the machine."""
    both = (Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts"))
    return tuple(path for path in both if path.is_file())


def _entry(text: str, where: str) -> KnownKey | None:
    words = text.split()
    if len(words) < 2:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownKey(blob=blob, type=words[0], where=where) if _type(blob) == words[0] else None


def _type(blob: bytes) -> str:
    """Return the key type that the key blob contains."""
    length = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + length].decode("ascii", "replace") if 0 < length <= min(64, len(blob) - 4) else ""


def _names(host: Host) -> tuple[str, ...]:
    """Return the names under which a known_hosts file lists the host: its name and its address, with the port unless it is 22."""
    plain = tuple(dict.fromkeys([host.name.lower(), host.address.lower()]))
    return plain if host.port == 22 else (*(f"[{name}]:{host.port}" for name in plain), *plain)


def _matches(patterns: str, names: Sequence[str]) -> bool:
    if patterns.startswith("|1|"):
        return any(_hashed(patterns, name) for name in names)
    matched = False
    for pattern in patterns.lower().split(","):
        # In known_hosts, [ is not a wildcard: it starts [name]:port.
        bare = pattern.lstrip("!").replace("[", "[[]")
        if any(fnmatchcase(name, bare) for name in names):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _hashed(text: str, name: str) -> bool:
    try:
        _, _, salt, digest = text.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def _day(moment: int) -> str:
    return "forever" if moment >= 1 << 62 else time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(moment))
