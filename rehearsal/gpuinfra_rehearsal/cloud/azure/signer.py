"""The certificate authority of attested documents: a root, an intermediate and a certificate for metadata.azure.com,
created once.

The handover verifies these documents as it does on Azure, but with a different root certificate, which an environment variable sets.
The keys stay in the rehearsal's folder and are used only for this purpose.
"""

from __future__ import annotations

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(hours=6)
"""How long a document is valid.
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#attested-data, retrieved 2026-11-21."""
_YEARS = timedelta(days=3650)
_SHA256 = bytes.fromhex("0609608648016503040201")
_SHA256_WITH_RSA = bytes.fromhex("06092a864886f70d01010b")
"""Object identifiers in DER. Both have the same length."""


class Signer:
    """Signs documents. The keys are created with the first document."""

    def __init__(self, folder: Path) -> None:
        self._keys, self.certificates = folder / "azure-signer.pem", folder / "azure-attestation.pem"
        self._lock = threading.Lock()
        self._loaded: tuple[rsa.RSAPrivateKey, x509.Certificate, x509.Certificate] | None = None

    def prepare(self) -> Path:
        """Return the file with the trusted certificates. Creates it if it does not exist."""
        self._load()
        return self.certificates

    def document(self, content: dict[str, Any]) -> str:
        """Return a PKCS #7 message in base64, in the format of the document that Microsoft publishes: without signed
        attributes, with only the signing certificate, and with the signature algorithm instead of the digest."""
        key, own, _ = self._load()
        builder = pkcs7.PKCS7SignatureBuilder().set_data(json.dumps(content, separators=(",", ":")).encode())
        options = [pkcs7.PKCS7Options.Binary, pkcs7.PKCS7Options.NoAttributes]
        signed = builder.add_signer(own, key, hashes.SHA256()).sign(serialization.Encoding.DER, options)
        return base64.b64encode(signed.replace(_SHA256, _SHA256_WITH_RSA)).decode()

    def _load(self) -> tuple[rsa.RSAPrivateKey, x509.Certificate, x509.Certificate]:
        with self._lock:
            if self._loaded is None:
                if not (self._keys.exists() and self.certificates.exists()):
                    self._make()
                data = self._keys.read_bytes()
                key = serialization.load_pem_private_key(data, None)
                assert isinstance(key, rsa.RSAPrivateKey)
                own, between = x509.load_pem_x509_certificates(data)
                self._loaded = (key, own, between)
            return self._loaded

    def _make(self) -> None:
        root_key, between_key, own_key = (rsa.generate_private_key(65537, 2048) for _ in range(3))
        root = _certificate("Stand-in Root", root_key, None, root_key, authority=True)
        between = _certificate("Stand-in Issuing CA 01", between_key, root, root_key, authority=True)
        own = _certificate("metadata.azure.com", own_key, between, between_key, authority=False)
        pem = serialization.Encoding.PEM
        private = own_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._keys.touch(0o600)
        self._keys.write_bytes(private + own.public_bytes(pem) + between.public_bytes(pem))
        partial = self.certificates.with_suffix(".part")
        partial.write_bytes(root.public_bytes(pem) + between.public_bytes(pem))
        partial.replace(self.certificates)


def _certificate(
    name: str,
    key: rsa.RSAPrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: rsa.RSAPrivateKey,
    *,
    authority: bool,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _YEARS)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_usage(authority), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False, key_encipherment=not authority,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
