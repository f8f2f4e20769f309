"""A certificate authority for tests, and documents signed by it. It shares no code with the rehearsal's builder, so the two check each other."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
VM = "0a0a0a0a-0000-4a00-8000-000000000001"
SUBSCRIPTION = "00000000-0000-4000-8000-0000000000aa"
ISSUER_URL = "http://www.microsoft.com/pkiops/certs/Test%20Issuing%20CA%2001%20-%20xsign.crt"
_TIME = "%m/%d/%y %H:%M:%S -0000"


@dataclass(frozen=True)
class Authority:
    """Root, intermediate, and the certificate that signs documents."""

    root: x509.Certificate
    between: x509.Certificate
    own: x509.Certificate
    key: Any
    upper: x509.Certificate
    """The issuer of the intermediate: the root, or another intermediate."""

    def pem(self, folder: Path, *, between: bool = True) -> dict[str, str]:
        """The environment that makes this authority trusted."""
        path = folder / "roots.pem"
        path.write_bytes(
            self.root.public_bytes(Encoding.PEM) + (self.between.public_bytes(Encoding.PEM) if between else b"")
        )
        return {"GPUINFRA_AZURE_ATTESTATION_CERTIFICATES": str(path)}

    def document(
        self, nonce: str, *, chain: bool = True, attributes: bool = True, digest: Any = None, **claims: Any
    ) -> str:
        """One attested document, in base64."""
        content: dict[str, Any] = {
            "licenseType": "", "nonce": nonce, "plan": {"name": "", "product": "", "publisher": ""}, "sku": "2204",
            "subscriptionId": SUBSCRIPTION, "vmId": VM.upper(),
            "timeStamp": {"createdOn": NOW.strftime(_TIME), "expiresOn": (NOW + timedelta(hours=6)).strftime(_TIME)},
        }  # fmt: skip
        builder = pkcs7.PKCS7SignatureBuilder().set_data(json.dumps({**content, **claims}).encode())
        builder = builder.add_signer(self.own, self.key, digest or hashes.SHA256())
        if chain:
            builder = builder.add_certificate(self.between)
        options = [pkcs7.PKCS7Options.Binary] + ([] if attributes else [pkcs7.PKCS7Options.NoAttributes])
        return base64.b64encode(builder.sign(Encoding.DER, options)).decode()


@cache
def authority(
    name: str = "southcentralus.metadata.azure.com",
    days: int = 3650,
    curve: bool = False,
    bits: int = 2048,
    steps: int = 1,
) -> Authority:
    """An authority whose leaf certificate is for `name` and expires after `days`, with one or two steps between root and leaf."""
    root_key, between_key = _key(0), _key(1)
    own_key = ec.generate_private_key(ec.SECP256R1()) if curve else _key(2, bits)
    root = _certificate("Test Root", root_key, None, root_key, 3650)
    upper, upper_key = (
        (root, root_key) if steps == 1 else (_certificate("Test Root G2", _key(3), root, root_key, 3650), _key(3))
    )
    between = _certificate("Test Issuing CA 01", between_key, upper, upper_key, 3650)
    own = _certificate(name, own_key, between, between_key, days, leaf=True)
    return Authority(root, between, own, own_key, upper)


@cache
def _key(number: int, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def _certificate(
    name: str, key: Any, issuer: x509.Certificate | None, issuer_key: Any, days: int, *, leaf: bool = False
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer.subject if issuer else subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(NOW - timedelta(days=30)).not_valid_after(NOW - timedelta(days=30) + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=not leaf, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=not leaf, crl_sign=not leaf, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )  # fmt: skip
    if leaf:
        access = x509.AccessDescription(
            AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(ISSUER_URL)
        )
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        builder = builder.add_extension(x509.AuthorityInformationAccess([access]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
