"""Google's identity tokens, signed here by a library that is not ours and verified by us."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from gpuinfra.handover.gcp_identity import GoogleIdentity, read_keys
from gpuinfra.handover.ports import IdentityExpired, IdentityRefused, PortUnavailable

NOW = 1_795_000_000
SHA256 = "c" * 64
NODE = "nodes@standin-project.iam.gserviceaccount.com"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwks(*keys: tuple[str, rsa.RSAPrivateKey]) -> dict[str, Any]:
    """A JWK set as PyJWT writes it."""
    made = [json.loads(RSAAlgorithm.to_jwk(key.public_key())) for _, key in keys]
    return {"keys": [{**one, "kid": kid, "use": "sig"} for one, (kid, _) in zip(made, keys, strict=True)]}


def claims(**change: Any) -> dict[str, Any]:
    """What Google says of an instance, format=full."""
    engine = {"instance_id": "1000000000000000007", "project_id": "standin-project", "zone": "us-central1-a"}
    return {
        "iss": "https://accounts.google.com",
        "aud": f"gpuinfra:evidence:{SHA256}",
        "iat": NOW - 10,
        "exp": NOW + 3590,
        "email": NODE,
        "email_verified": True,
        "google": {"compute_engine": engine},
        **change,
    }


def token(said: dict[str, Any], key: Any = KEY, kid: str = "one", algorithm: str = "RS256") -> str:
    """A signed token."""
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})


def proof(text: object) -> dict[str, Any]:
    """A proof as a node makes it."""
    return {"schema": "gpuinfra.proof/1", "cloud": "gcp", "evidence_sha256": SHA256, "token": text}


def service(
    keys: Callable[[], dict[str, Any]] = lambda: jwks(("one", KEY)), clock: Callable[[], float] = lambda: NOW
) -> GoogleIdentity:
    """A verifier whose groups are in the stand-in's project."""
    return GoogleIdentity(keys, lambda: {"standin-project"}, clock=clock)


def test_a_token_names_instance_account_project_and_evidence() -> None:
    """What Google signed is what the identity says."""
    found = service().verify(proof(token(claims())))
    assert (found.account, found.role) == ("standin-project", NODE)
    assert (found.instance_id, found.evidence_sha256) == ("1000000000000000007", SHA256)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (token(claims(), key=OTHER), "not signed by Google"),
        (token(claims(), kid="two"), "a key that Google does not serve: 'two'"),
        (token(claims(), key="secret" * 8, algorithm="HS256"), "signed with 'HS256'"),
        (token(claims(), key="", algorithm="none"), "signed with 'none'"),
        (token(claims(iss="https://evil.example")), "is by 'https://evil.example'"),
        (token(claims(aud="https://other.example")), "which is no evidence"),
        (token(claims(aud=f"gpuinfra:evidence:{SHA256}0")), "which is no evidence"),
        (token(claims(aud=[f"gpuinfra:evidence:{SHA256}"])), "which is no evidence"),
        (token(claims(google=None)), "names no instance"),
        (token(claims(google={"compute_engine": {}})), "names no instance"),
        (token(claims(email=None)), "names no service account"),
        (token(claims(email_verified="true")), "names no service account"),
        (token(claims(iat=NOW + 600, exp=NOW + 4000)), "600 s in the future"),
        (token(claims(exp=None)), "says no time"),
        (
            token(claims(google={"compute_engine": {"instance_id": "1", "project_id": "elsewhere"}})),
            "signed in project elsewhere, its group is in standin-project",
        ),
        ("a.b", "holds no identity token"),
        ("x" * 20000 + ".b.c", "holds no identity token"),
        ("?.b.c", "not base64url"),
        (base64.urlsafe_b64encode(b"[]").decode() + ".e30.c2ln", "no JSON object"),
        (None, "holds no identity token"),
    ],
)
def test_a_token_that_is_not_googles_word_about_this_evidence_is_refused(given: object, words: str) -> None:
    """Signature, issuer, time, audience, instance, account and project each have to hold."""
    with pytest.raises(IdentityRefused, match=words):
        service().verify(proof(given))


def test_a_changed_claim_breaks_the_signature() -> None:
    """Another instance's number in a good token is seen."""
    head, _, sign = token(claims()).split(".")
    forged = claims(google={"compute_engine": {"instance_id": "1000000000000000008", "project_id": "standin-project"}})
    body = base64.urlsafe_b64encode(json.dumps(forged).encode()).rstrip(b"=").decode()
    with pytest.raises(IdentityRefused, match="not signed by Google"):
        service().verify(proof(f"{head}.{body}.{sign}"))


def test_a_proof_of_another_cloud_is_refused() -> None:
    """A proof says whose it is."""
    with pytest.raises(IdentityRefused, match="schema"):
        service().verify({**proof(token(claims())), "cloud": "aws"})


def test_an_old_token_is_expired_and_not_refused() -> None:
    """The node asks for a new one every ten minutes, so this is a reason to wait."""
    with pytest.raises(IdentityExpired, match="ended 140 s ago"):
        service().verify(proof(token(claims(iat=NOW - 3740, exp=NOW - 140))))


def test_a_new_key_of_googles_is_fetched_and_an_invented_one_is_not_asked_for_again_at_once() -> None:
    """Keys change every few days; a stranger's invented key may not make us ask for each token."""
    asked: list[float] = []
    now = [float(NOW)]

    def keys() -> dict[str, Any]:
        asked.append(now[0])
        return jwks(("one", KEY)) if len(asked) == 1 else jwks(("one", KEY), ("two", OTHER))

    verifier = service(keys, lambda: now[0])
    verifier.verify(proof(token(claims())))
    for _ in range(3):
        with pytest.raises(IdentityRefused):
            verifier.verify(proof(token(claims(), key=OTHER, kid="two")))
    assert len(asked) == 1
    now[0] += 31
    assert verifier.verify(proof(token(claims(), key=OTHER, kid="two"))).role == NODE
    assert len(asked) == 2
    now[0] += 3601
    verifier.verify(proof(token(claims(exp=NOW + 9000))))
    assert len(asked) == 3, "keys are kept for an hour"


def test_keys_that_cannot_be_read_are_no_reason_to_refuse_a_node() -> None:
    """An answer without an RSA key of 2048 bits is the service's trouble, and asking again may mend it."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for answer in ({}, {"keys": ["x", {"kty": "EC"}, {"kty": "RSA", "n": "!"}]}, jwks(("weak", weak))):
        with pytest.raises(PortUnavailable, match="no RSA key"):
            read_keys(answer)
