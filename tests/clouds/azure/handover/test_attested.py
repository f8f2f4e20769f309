"""Azure's attested documents are accepted only if Azure signed them, for this evidence and one machine."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import urllib.error
from datetime import timedelta
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from gpuinfra.clouds.azure.handover import attested, der
from gpuinfra.clouds.azure.handover.attested import Trust, check_proof
from gpuinfra.clouds.azure.handover.ports import AttestedIdentity
from gpuinfra.handover.ports import IdentityExpired, IdentityRefused, IdentityUndecided, PortUnavailable
from gpuinfra.node.azure import nonces
from gpuinfra_rehearsal.cloud.azure.signer import Signer
from tests.clouds.azure.azure_authority import NOW, SUBSCRIPTION, VM, Authority, authority

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
    with pytest.raises(IdentityRefused, match="but the node's evidence requires"):
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


def test_attributes_for_another_content_type_are_refused(trust: Trust) -> None:
    """The signed attributes name the type of the content, which must be data, before the signature is looked at."""
    raw = base64.b64decode(authority().document(nonces(SHA256)[0], attributes=True))
    attribute = bytes.fromhex("06092a864886f70d010903310b06092a864886f70d0107")
    assert raw.count(attribute + b"\x01") == 1
    changed = raw.replace(attribute + b"\x01", attribute + b"\x02")
    with pytest.raises(IdentityRefused, match="are for another content type"):
        attested.read_document(base64.b64encode(changed).decode(), trust, NOW)


@pytest.mark.parametrize("attributes", [True, False])
def test_forged_content_with_a_matching_digest_is_refused(trust: Trust, attributes: bool) -> None:
    """A document whose machine was replaced, with the digest of the new content, is refused because its signature does not match."""
    raw = base64.b64decode(authority().document(nonces(SHA256)[0], attributes=attributes))
    content = attested.open_message(raw).content
    forged = content.replace(VM.upper().encode(), VM.upper().replace("0A0A", "0B0B").encode())
    assert forged != content
    assert raw.count(content) == 1
    changed = raw.replace(content, forged)
    if attributes:
        old, new = (hashlib.sha256(one).digest() for one in (content, forged))
        assert changed.count(old) == 1
        changed = changed.replace(old, new)
    with pytest.raises(IdentityRefused, match="the signature of an attested document is invalid"):
        attested.read_document(base64.b64encode(changed).decode(), trust, NOW)


@pytest.mark.parametrize("bits", [1024, 2047])
def test_short_key_is_refused(tmp_path: Path, bits: int) -> None:
    """An RSA key of fewer than 2048 bits is refused."""
    by = authority("metadata.azure.com", bits=bits)
    with pytest.raises(IdentityRefused, match="RSA keys of at least 2048 bits"):
        check_proof(proof(by), Trust(by.pem(tmp_path), no_internet), NOW)


@pytest.mark.parametrize("subscription", ["00000000-0000-4000-8000-0000000000bb", ""])
def test_document_of_another_subscription_is_refused(trust: Trust, subscription: str) -> None:
    """A valid document of a machine in a subscription without groups is refused, and one of a group's subscription is not."""
    identity = AttestedIdentity(trust, lambda: {SUBSCRIPTION}, lambda: NOW)
    assert identity.verify(proof()).instance_id == VM
    with pytest.raises(IdentityRefused, match="was attested in subscription"):
        identity.verify(proof(subscriptionId=subscription))


REAL = json.loads((Path(__file__).parents[1] / "recordings/azure-attested-document.json").read_text())["signature"]


def test_the_document_that_microsoft_publishes_is_parsed(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published document is read with its signature; its certificate of 2018 is refused, because its key is short."""
    with pytest.raises(IdentityRefused, match="RSA keys of at least 2048 bits"):
        attested.read_document(REAL, trust, NOW)
    monkeypatch.setattr(attested, "LEAST_BITS", 1024)
    message = attested.open_message(base64.b64decode(REAL))
    assert json.loads(message.content)["nonce"] == "1234566766"
    assert message.others == ()
    with pytest.raises(IdentityRefused, match="an attested document"):
        trust.verify(message, NOW)
    changed = base64.b64decode(REAL).replace(b"1234566766", b"1234567890")
    with pytest.raises(IdentityRefused, match="signature of an attested document is invalid"):
        attested.open_message(changed)


def test_the_stand_in_signs_in_the_form_of_the_published_document(tmp_path: Path) -> None:
    """Structure, object identifiers, number of certificates and content keys of the stand-in's document are those of the published one."""
    content = json.loads(attested_content(REAL))
    ours = Signer(tmp_path).document({**content, "subscriptionId": SUBSCRIPTION})
    assert _outline(base64.b64decode(ours)) == _outline(base64.b64decode(REAL))
    assert set(json.loads(attested_content(ours))) >= set(content)


def attested_content(document: str) -> bytes:
    """The content of a document, without a check."""
    body = der.read(base64.b64decode(document)).children()[1].children()[0]
    return body.children()[2].children()[1].children()[0].content


def _outline(data: bytes) -> list[object]:
    """Tags and algorithms of a message, without the fields of its certificate."""
    kind, held = der.read(data).children()
    version, digests, content, certificates, signers = held.children()[0].children()
    (signer,) = signers.children()
    return [
        kind.oid(), version.integer(), [one.children()[0].oid() for one in digests.children()], content.children()[0].oid(),
        len(certificates.children()), [one.tag for one in signer.children()], [one.children()[0].oid() for one in signer.children()[2:4]],
    ]  # fmt: skip


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
        ({"cloud": "aws"}, "for Azure"),
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


ISSUING = "https://www.microsoft.com/pkiops/certs/issuing.crt"


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test authority is in the table of published authorities."""
    monkeypatch.setattr(attested, "ISSUERS", {"Test Issuing CA 01": ISSUING})


@pytest.mark.usefixtures("published")
def test_a_missing_intermediate_is_fetched_from_its_published_address_and_checked(tmp_path: Path) -> None:
    """If a message holds only the leaf certificate, the intermediate is fetched from the table's address and accepted only under the root."""
    asked: list[str] = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return authority().between.public_bytes(Encoding.DER)

    trust = Trust(authority().pem(tmp_path, between=False), fetch)
    assert check_proof(proof(chain=False), trust, NOW)[0].vm_id == VM
    assert asked == [ISSUING], "once, not once a document, and not the address in the certificate"
    wrong = Trust(
        authority().pem(tmp_path, between=False),
        lambda _: authority("metadata.azure.com").own.public_bytes(Encoding.DER),
    )
    with pytest.raises(IdentityRefused, match="Azure did not sign"):
        check_proof(proof(chain=False), wrong, NOW)


def test_a_chain_of_two_intermediates_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microsoft's authorities of 2025 are two steps below the pinned root, so both certificates are fetched."""
    by = authority(steps=2)
    monkeypatch.setattr(attested, "ISSUERS", {"Test Issuing CA 01": "https://one", "Test Root G2": "https://two"})
    files = {"https://one": by.between, "https://two": by.upper}
    trust = Trust(by.pem(tmp_path, between=False), lambda url: files[url].public_bytes(Encoding.DER))
    assert check_proof(proof(by, chain=False), trust, NOW)[0].vm_id == VM


def test_the_address_in_an_unverified_certificate_is_never_fetched(tmp_path: Path) -> None:
    """A certificate with an issuer that is not in the table causes no request, although it names an address of Microsoft."""
    asked: list[str] = []
    trust = Trust(authority().pem(tmp_path, between=False), lambda url: asked.append(url) or b"")
    with pytest.raises(IdentityRefused, match="'Test Issuing CA 01' is not in the list of Azure authorities"):
        check_proof(proof(chain=False), trust, NOW)
    assert asked == []


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    "problem",
    [urllib.error.HTTPError(ISSUING, 404, "Not Found", Message(), None), OSError("no route to host"), ValueError("x")],
    ids=["404", "network", "no certificate"],
)
def test_a_certificate_that_cannot_be_fetched_fails_one_node_only(tmp_path: Path, problem: Exception) -> None:
    """The failure concerns this proof, can pass later, and does not stop the handover."""

    def fetch(url: str) -> bytes:
        raise problem

    with pytest.raises(IdentityUndecided, match="cannot be read"):
        check_proof(proof(chain=False), Trust(authority().pem(tmp_path, between=False), fetch), NOW)


def test_published_authorities_are_under_the_pinned_root() -> None:
    """The table has Microsoft's RSA authorities, each on a host of Microsoft or DigiCert."""
    assert len(attested.ISSUERS) == 14
    for name, url in attested.ISSUERS.items():
        assert url.startswith(
            (
                "https://www.microsoft.com/pkiops/",
                "https://caissuers.microsoft.com/pkiops/",
                "http://cacerts.digicert.com/",
            )
        )
        assert re.sub(r"[^A-Za-z0-9]", "", name) in re.sub(r"[^A-Za-z0-9]", "", url.replace("%20", ""))


def test_a_certificate_file_without_a_root_is_reported(tmp_path: Path) -> None:
    """A file with intermediate certificates only cannot verify a signature, which is no fault of the node."""
    path = tmp_path / "between.pem"
    path.write_bytes(authority().between.public_bytes(Encoding.PEM))
    with pytest.raises(PortUnavailable, match="no root certificate to verify Azure's signatures"):
        check_proof(proof(), Trust({"GPUINFRA_AZURE_ATTESTATION_CERTIFICATES": str(path)}), NOW)


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
