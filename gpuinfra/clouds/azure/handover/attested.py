"""Verifies Azure's attested documents, in which Azure signs claims about a node and its evidence.

A document is a PKCS7 message (RFC 5652) about one machine, signed with a certificate for metadata.azure.com. This module verifies
the signature, chain, name, dates and nonce. It works offline, except that it fetches missing intermediate certificates from the addresses that
Microsoft publishes (`ISSUERS`), never from an address in an unverified certificate. It accepts them only under the pinned root.

https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data, retrieved 2026-11-21; not yet tested on a real machine.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinfra.base.errors import reason_of
from gpuinfra.base.json_text import parsed
from gpuinfra.clouds.azure.handover import der
from gpuinfra.handover.ports import IdentityExpired, IdentityRefused, IdentityUndecided, PortUnavailable
from gpuinfra.node.azure import DOCUMENTS, nonces

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, Name

ROOTS_VARIABLE = "GPUINFRA_AZURE_ATTESTATION_CERTIFICATES"
"""A PEM file of certificates to trust instead of the pinned root, for sovereign clouds and machines without internet access."""
ROOT_SHA256 = "cb3ccbb76031e5e0138f8dd39a23f9de47ffc35e43c1144cea27d46a5ab1cb5f"
"""DigiCert Global Root G2, as certifi ships it.
https://learn.microsoft.com/azure/security/fundamentals/azure-certificate-authority-details, retrieved 2026-11-21."""
NAMES = ("metadata.azure.com", "metadata.azure.us", "metadata.azure.cn")
_MICROSOFT = "https://www.microsoft.com/pkiops/certs/"
ISSUERS = {
    **{
        f"Microsoft Azure RSA TLS Issuing CA {number}": f"{_MICROSOFT}Microsoft%20Azure%20RSA%20TLS%20Issuing%20CA%20{number}%20-%20xsign.crt"
        for number in ("03", "04", "07", "08")
    },
    **{
        f"Microsoft TLS G2 RSA CA OCSP {number:02}": f"{_MICROSOFT}Microsoft%20TLS%20G2%20RSA%20CA%20OCSP%20{number:02}.crt"
        for number in range(2, 17, 2)
    },
    "Microsoft TLS RSA Root G2": "https://caissuers.microsoft.com/pkiops/certs/Microsoft%20TLS%20RSA%20Root%20G2%20-%20xsign.crt",
    "DigiCert Global G2 TLS RSA SHA256 2020 CA1": "http://cacerts.digicert.com/DigiCertGlobalG2TLSRSASHA2562020CA1-1.crt",
}
"""Certificate addresses of the intermediate authorities under DigiCert Global Root G2, keyed by common name.

https://learn.microsoft.com/azure/security/fundamentals/azure-certificate-authority-details, version of 2025-11-17 (MicrosoftDocs/azure-docs 03e5750)."""
_CHAIN_LIMIT = 4
"""Maximum number of certificates to fetch for one signer."""
_SIGNED_DATA, _DATA = "1.2.840.113549.1.7.2", "1.2.840.113549.1.7.1"
_CONTENT_TYPE, _MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
_DIGESTS = {
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
}
"""Digests, keyed by object identifier. Microsoft's published sample document gives the signature algorithm (sha256WithRSAEncryption) as its digest."""
LEAST_BITS = 2048
"""Smallest RSA key that is accepted."""
_LIMIT = 64 * 1024
_RETRY_S = 10.0
"""Time between two attempts to download a certificate."""


@dataclass(frozen=True, kw_only=True)
class Attested:
    """The claims in one document that has a valid signature."""

    vm_id: str
    subscription: str
    nonce: str
    expires: datetime


@dataclass(frozen=True, kw_only=True)
class Message:
    """A PKCS7 message whose signature matches its certificate. The certificate itself is not verified yet."""

    content: bytes
    signer: Certificate
    others: tuple[Certificate, ...]


def check_proof(proof: Mapping[str, object], trust: Trust, now: datetime) -> tuple[Attested, str]:
    """Return the signer and the evidence hash. Raises `IdentityRefused`, `IdentityExpired`, `IdentityUndecided` or `PortUnavailable`.

    All documents must come from the same machine, and their nonces must match the evidence's hash.
    """
    if proof.get("schema") != "gpuinfra.proof/1" or proof.get("cloud") != "azure":
        raise IdentityRefused("the node's identity proof does not have the schema gpuinfra.proof/1 for Azure")
    sha256, documents = proof.get("evidence_sha256"), proof.get("documents")
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise IdentityRefused("the node's identity proof contains no evidence hash")
    if not isinstance(documents, list) or len(documents) != DOCUMENTS:
        raise IdentityRefused(f"the node's identity proof does not contain {DOCUMENTS} attested documents")
    attested_documents = [read_document(document, trust, now) for document in documents]
    for attested, nonce in zip(attested_documents, nonces(sha256), strict=True):
        if attested.nonce != nonce:
            raise IdentityRefused(
                f"Azure attested the nonce {attested.nonce[:40]}, but the node's evidence requires {nonce}"
            )
        if (attested.vm_id, attested.subscription) != (attested_documents[0].vm_id, attested_documents[0].subscription):
            raise IdentityRefused("the node's identity proof contains documents from several machines")
    if min(one.expires for one in attested_documents) <= now:
        raise IdentityExpired("the node's attested documents have expired")
    return attested_documents[0], sha256


def read_document(document: object, trust: Trust, now: datetime) -> Attested:
    """Verify and parse one document, given as base64."""
    if not isinstance(document, str) or len(document) > _LIMIT:
        raise IdentityRefused("an attested document is not text, or is longer than 64 KiB")
    try:
        message = open_message(base64.b64decode(document, validate=True))
        trust.verify(message, now)
    except (IdentityRefused, IdentityUndecided, PortUnavailable):
        raise
    except Exception as error:
        # cryptography parses certificates lazily, so a malicious certificate can raise almost any exception.
        raise IdentityRefused(f"an attested document cannot be read: {' '.join(str(error).split())[:200]}") from None
    try:
        claims = parsed(message.content)
        times = claims["timeStamp"]
        return Attested(
            vm_id=str(claims["vmId"]).lower(),
            subscription=str(claims["subscriptionId"]).lower(),
            nonce=str(claims["nonce"]),
            expires=_moment(str(times["expiresOn"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise IdentityRefused(f"an attested document lacks a required field: {error!r}"[:200]) from None


def open_message(data: bytes) -> Message:
    """Parse a PKCS7 message that exactly one of its certificates signed. Raises `NotDer` or `IdentityRefused`."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    kind, body = _parts(der.read(data).expect(der.SEQUENCE), 2)
    if kind.oid() != _SIGNED_DATA:
        raise IdentityRefused("an attested document is not signed")
    fields = _parts(body, 1)[0].expect(der.SEQUENCE).children()
    content, certificates, signers = _fields(fields)
    try:
        issuers = [x509.load_der_x509_certificate(one.whole) for one in certificates]
    except ValueError as error:
        raise IdentityRefused(f"an attested document contains an unreadable certificate: {error}") from None
    if len(signers) != 1:
        raise IdentityRefused(f"an attested document has {len(signers)} signatures, expected 1")
    parts = signers[0].expect(der.SEQUENCE).children()
    if len(parts) < 5:
        raise der.NotDer("the signer information is truncated")
    issuer, serial = _parts(parts[1].expect(der.SEQUENCE), 2)
    signer = [
        one for one in issuers if one.serial_number == serial.integer() and one.issuer.public_bytes() == issuer.whole
    ]
    if len(signer) != 1:
        raise IdentityRefused("an attested document does not contain the certificate that signed it")
    name = _DIGESTS.get(_algorithm(parts[2]))
    key = signer[0].public_key()
    if name is None or not isinstance(key, rsa.RSAPublicKey) or key.key_size < LEAST_BITS:
        raise IdentityRefused(
            f"an attested document uses an unsupported signature; supported: RSA keys of at least {LEAST_BITS} bits with SHA-2"
        )
    digest = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}[name]
    signed, rest = _signed_bytes(parts[3:], content, name)
    try:
        key.verify(rest[1].expect(der.OCTET_STRING).content, signed, padding.PKCS1v15(), digest)
    except InvalidSignature:
        raise IdentityRefused("the signature of an attested document is invalid") from None
    except IndexError:
        raise der.NotDer("the signature is missing") from None
    return Message(content=content, signer=signer[0], others=tuple(one for one in issuers if one is not signer[0]))


def _fields(fields: Sequence[der.Element]) -> tuple[bytes, list[der.Element], list[der.Element]]:
    """Return the content, certificates and signers of a SignedData element: version, digests, content, [0] certificates, [1] lists, signers."""
    if len(fields) < 4:
        raise der.NotDer("the signed message is truncated")
    kind, held = _parts(fields[2].expect(der.SEQUENCE), 2)
    if kind.oid() != _DATA:
        raise IdentityRefused("an attested document does not contain data")
    content = _parts(held, 1)[0].expect(der.OCTET_STRING).content
    certificates = [one for field in fields[3:-1] if field.tag == 0xA0 for one in field.children()]
    return content, certificates, fields[-1].expect(der.SET).children()


def _signed_bytes(parts: Sequence[der.Element], content: bytes, digest: str) -> tuple[bytes, Sequence[der.Element]]:
    """Return the signed bytes (the content, or the attributes that contain its digest) and the elements after them."""
    if parts[0].tag != 0xA0:
        return content, parts
    attributes: dict[str, bytes] = {}
    for attribute in parts[0].children():
        name, values = _parts(attribute.expect(der.SEQUENCE), 2)
        if name.oid() in attributes:
            raise IdentityRefused("an attested document contains an attribute twice")
        attributes[name.oid()] = _parts(values.expect(der.SET), 1)[0].whole
    if (
        attributes.get(_MESSAGE_DIGEST)
        != b"\x04" + bytes([hashlib.new(digest).digest_size]) + hashlib.new(digest, content).digest()
    ):
        raise IdentityRefused("the content of an attested document does not match its signature")
    content_type = der.read(attributes.get(_CONTENT_TYPE, b"\x05\x00"))
    if content_type.tag != der.OID or content_type.oid() != _DATA:
        raise IdentityRefused("the attributes of an attested document are for another content type")
    return b"\x31" + parts[0].whole[1:], parts[1:]


def _algorithm(element: der.Element) -> str:
    return element.expect(der.SEQUENCE).children()[0].oid()


def _parts(element: der.Element, count: int) -> list[der.Element]:
    parts = element.children()
    if len(parts) != count:
        raise der.NotDer(f"{len(parts)} parts, expected {count}")
    return parts


def _moment(text: str) -> datetime:
    """Parse a time such as `11/28/26 00:16:17 -0000`."""
    return datetime.strptime(text, "%m/%d/%y %H:%M:%S %z").astimezone(UTC)


class Trust:
    """Verifies that a signer's chain leads from the pinned root to a certificate for Azure's metadata service."""

    def __init__(self, environ: Mapping[str, str] = os.environ, fetch: Callable[[str], bytes] | None = None) -> None:
        """`fetch` downloads a missing intermediate certificate. Default: download from the issuer's host."""
        self._path = environ.get(ROOTS_VARIABLE)
        self._fetch = fetch or _from_issuer
        self._given: tuple[list[Certificate], list[Certificate]] | None = None
        self._fetched: dict[str, Certificate] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        """Address -> time and reason of the last download that failed. Any node can name any authority, so failures are not repeated at once."""
        self._lock = threading.Lock()
        """Held during a download, so that nodes that are read at the same time share it."""

    def verify(self, message: Message, now: datetime) -> None:
        """Raise `IdentityRefused` unless the signer's certificate belongs to Azure and is currently valid."""
        from cryptography import x509
        from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

        roots, between = self._certificates()
        name = _metadata_name(message.signer)
        verifier = PolicyBuilder().store(Store(roots)).time(now).build_server_verifier(x509.DNSName(name))
        held = [*message.others, *between, *self._fetched.values()]
        try:
            verifier.verify(message.signer, held)
            return
        except VerificationError as error:
            problem = str(error)
        if missing := self._issuers(message.signer, [*roots, *held]):
            try:
                verifier.verify(message.signer, [*held, *missing])
                return
            except VerificationError as error:
                problem = str(error)
        issuer = _common_name(message.signer.issuer)
        hint = (
            ""
            if issuer in ISSUERS
            else (
                f"; its issuer {issuer[:60]!r} is not in the list of Azure authorities (ISSUERS); "
                f"if it is an Azure authority, set {ROOTS_VARIABLE} to a file with its certificate and root"
            )
        )
        raise IdentityRefused(f"Azure did not sign an attested document: {problem[:200]}{hint}")

    def _certificates(self) -> tuple[list[Certificate], list[Certificate]]:
        """Return the root certificates and the available intermediate certificates."""
        from cryptography import x509

        if self._given is not None:
            return self._given
        if self._path:
            try:
                every = x509.load_pem_x509_certificates(Path(self._path).read_bytes())
            except (OSError, ValueError) as error:
                raise PortUnavailable(
                    f"{ROOTS_VARIABLE} is set to {self._path}, which contains no certificates: {reason_of(error)}"
                ) from None
            self._given = (
                [one for one in every if one.subject == one.issuer],
                [one for one in every if one.subject != one.issuer],
            )
        else:
            import certifi

            # Load only the pinned root, because some of the other roots violate RFC 5280.
            bundle = Path(certifi.where()).read_text(encoding="utf-8")
            marks = re.findall(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----", bundle)
            ders = [ssl.PEM_cert_to_DER_cert(mark) for mark in marks]
            pinned = [data for data in ders if hashlib.sha256(data).hexdigest() == ROOT_SHA256]
            self._given = ([x509.load_der_x509_certificate(data) for data in pinned], [])
        if not self._given[0]:
            raise PortUnavailable(
                f"no root certificate to verify Azure's signatures; set {ROOTS_VARIABLE} to a file that contains a root certificate"
            )
        return self._given

    def _issuers(self, signer: Certificate, held: Sequence[Certificate]) -> list[Certificate]:
        """Download the missing certificates between the signer and the root. The names are not verified yet, so they only select addresses in `ISSUERS`."""
        issuers: list[Certificate] = []
        last = signer
        while len(issuers) < _CHAIN_LIMIT and not any(one.subject == last.issuer for one in held):
            url = ISSUERS.get(_common_name(last.issuer))
            if url is None:
                break
            last = self._download(url)
            issuers.append(last)
        return issuers

    def _download(self, url: str) -> Certificate:
        from cryptography import x509

        with self._lock:
            at, problem = self._failed.get(url, (float("-inf"), ""))
            if url not in self._fetched and time.monotonic() - at > _RETRY_S:
                try:
                    self._fetched[url] = x509.load_der_x509_certificate(self._fetch(url))
                except (OSError, ValueError) as error:
                    problem = reason_of(error)
                    self._failed[url] = time.monotonic(), problem
            if url not in self._fetched:
                # A node can name any authority in the table, so the failure affects only this node.
                raise IdentityUndecided(
                    f"the certificate at {url}, which issued the certificate of the node's attested document, cannot be read: {problem}; "
                    f"save the certificate and its root in a file and set {ROOTS_VARIABLE} to the path of the file"
                )
            return self._fetched[url]


def _common_name(name: Name) -> str:
    from cryptography.x509.oid import NameOID

    return next((str(one.value) for one in name.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def _metadata_name(certificate: Certificate) -> str:
    """Return the certificate's name. Raises `IdentityRefused` unless it belongs to Azure's metadata service.

    Regions have subdomains of the cloud's domain name. A wildcard matches any of these subdomains.
    """
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    except (x509.ExtensionNotFound, ValueError):
        names = []
    for name in names:
        if any(name == known or name.endswith("." + known) for known in NAMES):
            return name.replace("*", "region", 1)
    raise IdentityRefused(f"an attested document was signed by a certificate for {', '.join(names)[:100] or 'no name'}")


def _from_issuer(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=15) as answer:
        return bytes(answer.read(_LIMIT))
