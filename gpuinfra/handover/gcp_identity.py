"""Google's identity tokens, verified for real: a JSON Web Token that the metadata server gave to one instance.

The signature is checked against Google's own keys (a JWK set from an address that the operator's side chooses, never one
that a token names), then issuer, time, audience and what the token says about the instance. The audience carries the hash
of the evidence. Formats: https://cloud.google.com/compute/docs/instances/verifying-instance-identity, read 2026-11-21.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuinfra.handover.ports import Identity, IdentityExpired, IdentityRefused, PortUnavailable

ISSUERS = ("https://accounts.google.com", "accounts.google.com")
AUDIENCE = re.compile(r"gpuinfra:evidence:([0-9a-f]{64})")
SKEW_S = 60
"""How far Google's clock and the operator's may be apart."""
KEYS_KEPT_S = 3600.0
"""How long Google's keys are kept; they change every few days, and both are served while they do."""
ASK_AGAIN_S = 30.0
"""An unknown key makes us ask again, but no more often than this: anybody can invent one."""


class GoogleIdentity:
    """Who signed, by Google's own word. Only instances of the projects that hold the groups count."""

    def __init__(
        self,
        keys: Callable[[], Mapping[str, Any]],
        projects: Callable[[], Collection[str]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` fetches the JWK set, `projects` names the projects of the groups that were asked about."""
        self._fetch = keys
        self._projects = projects
        self._clock = clock
        self._keys: dict[str, Any] = {}
        self._fetched = float("-inf")

    def verify(self, proof: dict[str, object]) -> Identity:
        """The token's instance, service account and evidence hash."""
        if proof.get("schema") != "gpuinfra.proof/1" or proof.get("cloud") != "gcp":
            raise IdentityRefused("its identity proof is not of schema gpuinfra.proof/1 of Google Cloud")
        token = proof.get("token")
        if not isinstance(token, str) or token.count(".") != 2 or len(token) > 16384:
            raise IdentityRefused("its identity proof holds no identity token")
        claims = self._signed(token)
        if claims.get("iss") not in ISSUERS:
            raise IdentityRefused(f"its identity token is by {str(claims.get('iss'))[:80]!r}, not by {ISSUERS[0]}")
        self._in_time(claims)
        audience = AUDIENCE.fullmatch(str(claims.get("aud")))
        if audience is None:
            raise IdentityRefused(f"its identity token is for {str(claims.get('aud'))[:80]!r}, which is no evidence")
        return self._identity(claims, audience[1])

    def _identity(self, claims: Mapping[str, Any], sha256: str) -> Identity:
        google = claims.get("google")
        engine = google.get("compute_engine") if isinstance(google, dict) else None
        if not isinstance(engine, dict) or not engine.get("instance_id"):
            raise IdentityRefused("its identity token names no instance; it was asked for without format=full")
        if claims.get("email_verified") is not True or not claims.get("email"):
            raise IdentityRefused("its identity token names no service account")
        project, allowed = str(engine.get("project_id")), self._projects()
        if project not in allowed:
            raise IdentityRefused(
                f"its evidence was signed in project {project[:80]}, its group is in {', '.join(sorted(allowed)) or 'none'}"
            )
        return Identity(
            account=project,
            role=str(claims["email"]),
            instance_id=str(engine["instance_id"]),
            evidence_sha256=sha256,
        )

    def _in_time(self, claims: Mapping[str, Any]) -> None:
        now = self._clock()
        try:
            issued, expires = float(claims["iat"]), float(claims["exp"])
        except (KeyError, TypeError, ValueError):
            raise IdentityRefused("its identity token says no time") from None
        if issued > now + SKEW_S:
            raise IdentityRefused(
                f"its identity token was issued {issued - now:.0f} s in the future; is this machine's clock right?"
            )
        if now > expires + SKEW_S:
            raise IdentityExpired(f"its identity token ended {now - expires:.0f} s ago")

    def _signed(self, token: str) -> dict[str, Any]:
        """The claims, once the signature over them holds."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        head, _, signature = token.rpartition(".")
        first, _, second = head.partition(".")
        header, claims = _object(first), _object(second)
        if header.get("alg") != "RS256":
            raise IdentityRefused(
                f"its identity token is signed with {str(header.get('alg'))[:20]!r}, Google signs with RS256"
            )
        key = self._key(str(header.get("kid")))
        try:
            key.verify(_bytes(signature), head.encode("ascii"), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, UnicodeEncodeError):
            raise IdentityRefused("its identity token is not signed by Google") from None
        return claims

    def _key(self, kid: str) -> Any:
        age = self._clock() - self._fetched
        if age > KEYS_KEPT_S or (kid not in self._keys and age > ASK_AGAIN_S):
            self._keys, self._fetched = read_keys(self._fetch()), self._clock()
        if kid not in self._keys:
            raise IdentityRefused(f"its identity token is signed with a key that Google does not serve: {kid[:60]!r}")
        return self._keys[kid]


def read_keys(document: Mapping[str, Any]) -> dict[str, Any]:
    """The RSA keys of a JWK set by their ids; what is none is left out."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    found: dict[str, Any] = {}
    for key in document.get("keys") or []:
        if not isinstance(key, dict) or key.get("kty") != "RSA" or key.get("use", "sig") != "sig":
            continue
        try:
            numbers = RSAPublicNumbers(_number(str(key["e"])), _number(str(key["n"])))
            public = numbers.public_key()
        except (KeyError, ValueError, IdentityRefused):
            continue
        if public.key_size >= 2048:
            found[str(key.get("kid"))] = public
    if not found:
        raise PortUnavailable("Google's keys cannot be read: the answer holds no RSA key")
    return found


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise IdentityRefused("its identity token is not base64url") from None


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IdentityRefused("its identity token holds no JSON object")
    return found
