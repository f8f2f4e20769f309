"""Verifies Google's identity tokens: JSON Web Tokens that the metadata server issues to an instance.

The module verifies the signature with Google's public keys (a JWK set from an address that the operator sets, never an address from a
token), then the issuer, the times, the audience and the claims about the instance. The audience contains the hash of the
evidence. Formats: https://cloud.google.com/compute/docs/instances/verifying-instance-identity, retrieved 2026-11-21.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuinfra.base.json_text import parsed
from gpuinfra.handover.ports import Identity, IdentityExpired, IdentityRefused, PortUnavailable

ISSUERS = ("https://accounts.google.com", "accounts.google.com")
AUDIENCE = re.compile(r"gpuinfra:evidence:([0-9a-f]{64})")
SKEW_S = 60
"""Allowed difference between Google's clock and the operator's clock."""
KEYS_MAX_AGE_S = 3600.0
"""How long Google's keys are cached. Google rotates the keys every few days and serves both old and new keys during a rotation."""
KEYS_MIN_AGE_S = 30.0
"""Minimum time between reloads that unknown key IDs trigger. The limit is required because anyone can invent a key ID."""


class GoogleIdentity:
    """Verifies the signer with the identity token from Google. Only instances in the projects of the groups are accepted."""

    def __init__(
        self,
        keys: Callable[[], Mapping[str, Any]],
        projects: Callable[[], Collection[str]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` fetches the JWK set. `projects` returns the projects of the groups that were read."""
        self._fetch = keys
        self._projects = projects
        self._clock = clock
        self._keys: dict[str, Any] = {}
        self._fetched = float("-inf")
        self._lock = threading.Lock()
        """Held during a download, so that nodes that are read at the same time share it."""

    def verify(self, proof: dict[str, object]) -> Identity:
        """Return the instance, the service account and the evidence hash from the token."""
        if proof.get("schema") != "gpuinfra.proof/1" or proof.get("cloud") != "gcp":
            raise IdentityRefused(
                "the node's identity proof does not have the schema gpuinfra.proof/1 for Google Cloud"
            )
        token = proof.get("token")
        if not isinstance(token, str) or token.count(".") != 2 or len(token) > 16384:
            raise IdentityRefused("the node's identity proof contains no identity token")
        claims = self._verified_claims(token)
        if claims.get("iss") not in ISSUERS:
            raise IdentityRefused(
                f"the node's identity token was issued by {str(claims.get('iss'))[:80]!r}, expected {ISSUERS[0]}"
            )
        self._check_times(claims)
        audience = AUDIENCE.fullmatch(str(claims.get("aud")))
        if audience is None:
            raise IdentityRefused(
                f"the audience of the node's identity token is {str(claims.get('aud'))[:80]!r}, expected an evidence hash"
            )
        return self._identity(claims, audience[1])

    def _identity(self, claims: Mapping[str, Any], sha256: str) -> Identity:
        google = claims.get("google")
        engine = google.get("compute_engine") if isinstance(google, dict) else None
        if not isinstance(engine, dict) or not engine.get("instance_id"):
            raise IdentityRefused(
                "the node's identity token contains no instance; it was requested without format=full"
            )
        if claims.get("email_verified") is not True or not claims.get("email"):
            raise IdentityRefused("the node's identity token contains no service account")
        project, allowed = str(engine.get("project_id")), self._projects()
        if project not in allowed:
            raise IdentityRefused(
                f"the node's evidence was signed in project {project[:80]}, but its group is in {', '.join(sorted(allowed)) or 'none'}"
            )
        return Identity(
            account=project,
            role=str(claims["email"]),
            instance_id=str(engine["instance_id"]),
            evidence_sha256=sha256,
        )

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        try:
            issued, expires = float(claims["iat"]), float(claims["exp"])
        except (KeyError, TypeError, ValueError):
            raise IdentityRefused("the node's identity token contains no valid times") from None
        if issued > now + SKEW_S:
            raise IdentityRefused(
                f"the node's identity token was issued {issued - now:.0f} s in the future; check this machine's clock"
            )
        if now > expires + SKEW_S:
            raise IdentityExpired(f"the node's identity token expired {now - expires:.0f} s ago")

    def _verified_claims(self, token: str) -> dict[str, Any]:
        """Verify the signature and return the claims."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        head, _, signature = token.rpartition(".")
        first, _, second = head.partition(".")
        header, claims = _object(first), _object(second)
        if header.get("alg") != "RS256":
            raise IdentityRefused(
                f"the node's identity token is signed with {str(header.get('alg'))[:20]!r}, expected RS256"
            )
        key = self._key(str(header.get("kid")))
        try:
            key.verify(_bytes(signature), head.encode("ascii"), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, UnicodeEncodeError):
            raise IdentityRefused("the node's identity token is not signed by Google") from None
        return claims

    def _key(self, kid: str) -> Any:
        with self._lock:
            age = self._clock() - self._fetched
            if age > KEYS_MAX_AGE_S or (kid not in self._keys and age > KEYS_MIN_AGE_S):
                self._keys, self._fetched = read_keys(self._fetch()), self._clock()
            keys = self._keys
        if kid not in keys:
            raise IdentityRefused(
                f"the node's identity token is signed with a key that Google does not publish: {kid[:60]!r}"
            )
        return keys[kid]


def read_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RSA keys in a JWK set by ID. Other keys are skipped."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    keys: dict[str, Any] = {}
    for key in document.get("keys") or []:
        if not isinstance(key, dict) or key.get("kty") != "RSA" or key.get("use", "sig") != "sig":
            continue
        try:
            numbers = RSAPublicNumbers(_number(str(key["e"])), _number(str(key["n"])))
            public = numbers.public_key()
        except (KeyError, ValueError, IdentityRefused):
            continue
        if public.key_size >= 2048:
            keys[str(key.get("kid"))] = public
    if not keys:
        raise PortUnavailable("Google's keys cannot be read: the response contains no RSA key")
    return keys


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise IdentityRefused("the node's identity token is not base64url") from None


def _object(text: str) -> dict[str, Any]:
    try:
        document = parsed(_bytes(text))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise IdentityRefused("the node's identity token contains no JSON object")
    return document
