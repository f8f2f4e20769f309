"""Google's identity tokens, signed by another library and verified by the handover."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from gpuinfra.clouds.gcp.handover.identity import GoogleIdentity, read_keys
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
    """Google's claims about an instance, format=full."""
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


def token(content: dict[str, Any], key: Any = KEY, kid: str = "one", algorithm: str = "RS256") -> str:
    """A signed token."""
    return jwt.encode(content, key, algorithm=algorithm, headers={"kid": kid})


def proof(text: object) -> dict[str, Any]:
    """A proof as a node creates it."""
    return {"schema": "gpuinfra.proof/1", "cloud": "gcp", "evidence_sha256": SHA256, "token": text}


def service(
    keys: Callable[[], dict[str, Any]] = lambda: jwks(("one", KEY)), clock: Callable[[], float] = lambda: NOW
) -> GoogleIdentity:
    """A verifier for groups in the stand-in's project."""
    return GoogleIdentity(keys, lambda: {"standin-project"}, clock=clock)


def test_token_yields_instance_account_project_and_evidence() -> None:
    """The identity holds the claims that Google signed."""
    found = service().verify(proof(token(claims())))
    assert (found.account, found.role) == ("standin-project", NODE)
    assert (found.instance_id, found.evidence_sha256) == ("1000000000000000007", SHA256)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (token(claims(), key=OTHER), "not signed by Google"),
        (token(claims(), kid="two"), "a key that Google does not publish: 'two'"),
        (token(claims(), key="secret" * 8, algorithm="HS256"), "signed with 'HS256'"),
        (token(claims(), key="", algorithm="none"), "signed with 'none'"),
        (token(claims(iss="https://evil.example")), "was issued by 'https://evil.example'"),
        (token(claims(aud="https://other.example")), "expected an evidence hash"),
        (token(claims(aud=f"gpuinfra:evidence:{SHA256}0")), "expected an evidence hash"),
        (token(claims(aud=[f"gpuinfra:evidence:{SHA256}"])), "expected an evidence hash"),
        (token(claims(google=None)), "contains no instance"),
        (token(claims(google={"compute_engine": {}})), "contains no instance"),
        (token(claims(email=None)), "contains no service account"),
        (token(claims(email_verified="true")), "contains no service account"),
        (token(claims(iat=NOW + 600, exp=NOW + 4000)), "600 s in the future"),
        (token(claims(exp=None)), "contains no valid times"),
        (
            token(claims(google={"compute_engine": {"instance_id": "1", "project_id": "elsewhere"}})),
            "signed in project elsewhere, but its group is in standin-project",
        ),
        ("a.b", "contains no identity token"),
        ("x" * 20000 + ".b.c", "contains no identity token"),
        ("?.b.c", "not base64url"),
        (base64.urlsafe_b64encode(b"[]").decode() + ".e30.c2ln", "no JSON object"),
        (None, "contains no identity token"),
    ],
)
def test_invalid_token_is_refused(given: object, words: str) -> None:
    """Signature, issuer, times, audience, instance, account and project are all checked."""
    with pytest.raises(IdentityRefused, match=words):
        service().verify(proof(given))


def test_a_changed_claim_breaks_the_signature() -> None:
    """Another instance number in a valid token is detected."""
    head, _, sign = token(claims()).split(".")
    forged = claims(google={"compute_engine": {"instance_id": "1000000000000000008", "project_id": "standin-project"}})
    body = base64.urlsafe_b64encode(json.dumps(forged).encode()).rstrip(b"=").decode()
    with pytest.raises(IdentityRefused, match="not signed by Google"):
        service().verify(proof(f"{head}.{body}.{sign}"))


def test_a_proof_of_another_cloud_is_refused() -> None:
    """A proof names its cloud."""
    with pytest.raises(IdentityRefused, match="schema"):
        service().verify({**proof(token(claims())), "cloud": "aws"})


def test_an_old_token_is_expired_and_not_refused() -> None:
    """The node requests a new token every ten minutes, so an expired one is a reason to wait."""
    with pytest.raises(IdentityExpired, match="expired 140 s ago"):
        service().verify(proof(token(claims(iat=NOW - 3740, exp=NOW - 140))))


def test_clocks_may_differ_by_a_minute() -> None:
    """A token that expired less than a minute ago by this machine's clock is accepted."""
    assert service().verify(proof(token(claims(iat=NOW - 3630, exp=NOW - 30)))).evidence_sha256
    assert service().verify(proof(token(claims(iat=NOW + 30, exp=NOW + 3630)))).evidence_sha256


def test_keys_are_reloaded_for_a_new_key_id_but_not_too_often() -> None:
    """Google's keys rotate every few days; invented key ids must not cause a request for each token."""
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


def test_unreadable_keys_do_not_refuse_a_node() -> None:
    """An answer without an RSA key of at least 2048 bits is a service failure and is retried."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for answer in ({}, {"keys": ["x", {"kty": "EC"}, {"kty": "RSA", "n": "!"}]}, jwks(("weak", weak))):
        with pytest.raises(PortUnavailable, match="no RSA key"):
            read_keys(answer)
