"""Azure's attested documents are accepted only if Azure signed them, for this evidence and one machine."""

from __future__ import annotations

import base64
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from gpuinfra.handover import attested, der
from gpuinfra.handover.attested import Trust, check_proof
from gpuinfra.handover.ports import IdentityExpired, IdentityRefused, PortUnavailable
from gpuinfra.node.azure import nonces
from tests.handover.azure_authority import ISSUER_URL, NOW, SUBSCRIPTION, VM, Authority, authority

SHA256 = "5e" * 32


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    """Trust in the test authority."""
    return Trust(authority().pem(tmp_path), no_internet)


def no_internet(url: str) -> bytes:
    """Fails on any download."""
    raise AssertionError(url)


def proof(by: Authority | None = None, sha256: str = SHA256, **how: Any) -> dict[str, object]:
    """A valid proof, or one whose documents differ by `how`."""
    documents = [(by or authority()).document(nonce, **how) for nonce in nonces(SHA256)]
    return {"schema": "gpuinfra.proof/1", "cloud": "azure", "evidence_sha256": sha256, "documents": documents}


def test_valid_proof_yields_machine_and_evidence_hash(trust: Trust) -> None:
    """The result has the machine id in lower case, the subscription, and the hash in the nonces."""
    found, sha256 = check_proof(proof(), trust, NOW)
    assert (found.vm_id, found.subscription, sha256) == (VM, SUBSCRIPTION, SHA256)


@pytest.mark.parametrize("how", [{"attributes": False}, {"digest": hashes.SHA384()}, {"digest": hashes.SHA512()}])
def test_all_signature_forms_are_accepted(trust: Trust, how: dict[str, Any]) -> None:
    """Messages with and without signed attributes and with each SHA-2 digest are accepted."""
    assert check_proof(proof(**how), trust, NOW)[0].vm_id == VM


def test_the_nonces_depend_on_the_whole_hash() -> None:
    """The four nonces have ten digits each, never start with 0, and differ for another hash."""
    ours = nonces(SHA256)
    assert len(ours) == 4
    assert all(len(one) == 10 and one.isdigit() and one[0] != "0" for one in ours)
    other = nonces(SHA256[:-1] + "f")
    assert not set(ours) & set(other)


def test_document_for_other_evidence_is_refused(trust: Trust) -> None:
    """After a change of the evidence hash, the nonces of the documents no longer match."""
    with pytest.raises(IdentityRefused, match="but its evidence requires"):
        check_proof(proof(sha256="aa" * 32), trust, NOW)


def test_changed_bytes_are_refused(trust: Trust) -> None:
    """A change of any byte is refused or leaves the signed content as it was; no other exception is raised."""
    raw = base64.b64decode(authority().document(nonces(SHA256)[0]))
    signed = attested.read_document(base64.b64encode(raw).decode(), trust, NOW)
    refused = 0
    choose = random.Random(7)
    for at in range(0, len(raw), 3):
        changed = bytearray(raw)
        changed[at] ^= 1 << choose.randrange(8)
        try:
            assert attested.read_document(base64.b64encode(bytes(changed)).decode(), trust, NOW) == signed, at
        except IdentityRefused:
            refused += 1
    assert refused > len(raw) // 3 // 2


def test_document_of_another_authority_is_refused() -> None:
    """Documents of another root with the same names are refused; the default trust is the pinned root of Azure's chain."""
    with pytest.raises(IdentityRefused, match="Azure did not sign"):
        check_proof(proof(), Trust({}, no_internet), NOW)


@pytest.mark.parametrize("name", ["evil.example.com", "metadata.azure.com.evil.example", "xmetadata.azure.com"])
def test_a_certificate_for_another_name_is_refused(tmp_path: Path, name: str) -> None:
    """A certificate of the same authority for another host is not accepted for Azure's metadata service."""
    by = authority(name)
    with pytest.raises(IdentityRefused, match="was signed by a certificate for"):
        check_proof(proof(by), Trust(by.pem(tmp_path), no_internet), NOW)


def test_expired_certificate_is_refused(tmp_path: Path) -> None:
    """Validity is checked at the time of reading."""
    by = authority("metadata.azure.com", days=35)
    trust = Trust(by.pem(tmp_path), no_internet)
    assert check_proof(proof(by), trust, NOW)[0].vm_id == VM
    with pytest.raises(IdentityRefused, match="Azure did not sign"):
        check_proof(proof(by), trust, NOW + timedelta(days=10))


def test_non_rsa_key_is_refused(tmp_path: Path) -> None:
    """Only RSA keys are accepted, because Azure signs with RSA."""
    by = authority("metadata.azure.com", curve=True)
    with pytest.raises(IdentityRefused, match="uses an unsupported signature"):
        check_proof(proof(by), Trust(by.pem(tmp_path), no_internet), NOW)


def test_expired_document_raises_identity_expired(trust: Trust) -> None:
    """A document of six hours ago raises `IdentityExpired`, because the node signs new ones."""
    with pytest.raises(IdentityExpired):
        check_proof(proof(), trust, NOW + timedelta(hours=6, seconds=1))


def test_documents_of_two_machines_are_refused(trust: Trust) -> None:
    """All documents must be of the same machine and subscription."""
    good = [authority().document(nonce) for nonce in nonces(SHA256)]
    other = authority().document(nonces(SHA256)[3], vmId="0b0b0b0b-0000-4a00-8000-000000000002")
    mixed = {**proof(), "documents": [*good[:3], other]}
    with pytest.raises(IdentityRefused, match="several machines"):
        check_proof(mixed, trust, NOW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "gpuinfra.proof/2"}, "schema"),
        ({"cloud": "aws"}, "for azure"),
        ({"evidence_sha256": "x"}, "no evidence hash"),
        ({"documents": []}, "4 attested documents"),
        ({"documents": ["?", "?", "?", "?"]}, "cannot be read"),
        ({"documents": [1, 2, 3, 4]}, "not text"),
        ({"documents": ["A" * 70_000] * 4}, "longer than 64 KiB"),
        ({"documents": [base64.b64encode(b"\x30\x80\x00\x00").decode()] * 4}, "cannot be read"),
    ],
)
def test_malformed_proof_is_refused(trust: Trust, change: dict[str, object], words: str) -> None:
    """Any malformed proof gives a one-sentence refusal."""
    with pytest.raises(IdentityRefused, match=words):
        check_proof({**proof(), **change}, trust, NOW)


@pytest.mark.parametrize(
    "claims", [{"vmId": 5, "timeStamp": "x"}, {"timeStamp": {"expiresOn": "tomorrow"}}, {"timeStamp": {}}]
)
def test_signed_document_without_required_fields_is_refused(trust: Trust, claims: dict[str, Any]) -> None:
    """A valid signature over content without the required fields is refused."""
    with pytest.raises(IdentityRefused, match="lacks a required field"):
        check_proof(proof(**claims), trust, NOW)


def test_a_missing_intermediate_is_fetched_from_its_publisher_and_checked(tmp_path: Path) -> None:
    """If a message holds only the leaf certificate, the intermediate is fetched and accepted only under the root."""
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return authority().between.public_bytes(Encoding.DER)

    trust = Trust(authority().pem(tmp_path, between=False), fetch)
    assert check_proof(proof(chain=False), trust, NOW)[0].vm_id == VM
    assert asked == [ISSUER_URL], "once, not once a document"
    wrong = Trust(
        authority().pem(tmp_path, between=False),
        lambda _: authority("metadata.azure.com").own.public_bytes(Encoding.DER),
    )
    with pytest.raises(IdentityRefused, match="Azure did not sign"):
        check_proof(proof(chain=False), wrong, NOW)


def test_certificates_are_fetched_from_known_hosts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that points to another host causes no download."""
    monkeypatch.setattr(attested, "ISSUER_HOSTS", ("cacerts.digicert.com",))
    trust = Trust(authority().pem(tmp_path, between=False), no_internet)
    with pytest.raises(IdentityRefused, match="Azure did not sign"):
        check_proof(proof(chain=False), trust, NOW)


def test_unusable_certificate_file_is_reported(tmp_path: Path) -> None:
    """A wrong path or a file without certificates gives a message with the variable's name."""
    (tmp_path / "x.pem").write_text("nothing")
    for path in (tmp_path / "x.pem", tmp_path / "none.pem"):
        with pytest.raises(PortUnavailable, match="GPUINFRA_AZURE_ATTESTATION_CERTIFICATES"):
            check_proof(proof(), Trust({"GPUINFRA_AZURE_ATTESTATION_CERTIFICATES": str(path)}), NOW)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30",
        b"\x30\x05\x02\x01",
        b"\x30\x80",
        b"\x1f\x85\x01\x00",
        b"\x30\x00\x00",
        b"\x30\x85\x01\x01\x01\x01\x01",
    ],
)
def test_invalid_der_is_refused(data: bytes) -> None:
    """Truncated data, indefinite or too long lengths, and trailing bytes are refused."""
    with pytest.raises(der.NotDer):
        der.read(data)


def test_object_identifiers_are_parsed() -> None:
    """Common identifiers and one with a large part are parsed."""
    assert der.read(bytes.fromhex("06092a864886f70d010702")).oid() == "1.2.840.113549.1.7.2"
    assert der.read(bytes.fromhex("0609608648016503040201")).oid() == "2.16.840.1.101.3.4.2.1"
