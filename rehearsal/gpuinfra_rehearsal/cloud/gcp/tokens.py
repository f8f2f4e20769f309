"""Access tokens, identity tokens and the operator's key file of the stand-in for Google Cloud.

The keys are generated here, kept in the store, and valid only in the rehearsal. Access tokens are looked up.
google-auth signs and verifies the JSON Web Tokens.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Store

LIFETIME_S = 3600
_RENEW_S = 300
"""The remaining lifetime at which the metadata server issues a new token."""
OPERATOR = f"standin-operator@{PROJECT}.iam.gserviceaccount.com"
TOKEN_PATH = "/.gcp/token"
KEYS_PATH = "/.gcp/oauth2/v3/certs"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""The audience that google-auth signs for, regardless of the key file."""
ISSUER = "https://accounts.google.com"


@dataclass(frozen=True, slots=True)
class Principal:
    """The account for which an access token was issued."""

    email: str
    instance: str = ""
    scopes: tuple[str, ...] = ()

    @property
    def is_operator(self) -> bool:
        return self.email == OPERATOR

    def may_use_storage(self) -> bool:
        """Return whether the token's scopes include Cloud Storage."""
        words = ("cloud-platform", "devstorage.")
        return any(word in scope for scope in self.scopes for word in words)


def issue(store: Store, email: str, instance: str = "", scopes: tuple[str, ...] = ()) -> tuple[str, int]:
    """Return (access token, seconds until it expires). An instance gets the existing token until shortly before it
    expires."""
    now = time.time()
    with store.change():
        issued = store.get("gcp-current", instance) if instance else None
        if issued and issued["email"] == email and issued["expires"] - now > _RENEW_S:
            return issued["token"], int(issued["expires"] - now)
        token = "ya29.standin-" + secrets.token_urlsafe(48)
        made = {"email": email, "instance": instance, "scopes": list(scopes), "expires": now + LIFETIME_S}
        store.put("gcp-token", token, made)
        if instance:
            store.put("gcp-current", instance, {"token": token, **made})
    return token, LIFETIME_S


def principal(store: Store, authorization: str) -> Principal:
    """Return the caller. Raises GoogleError 401 if there is no valid token."""
    kind, _, token = authorization.partition(" ")
    issued = store.get("gcp-token", token) if kind.lower() == "bearer" and token else None
    if issued is None or issued["expires"] < time.time():
        text = "Request had invalid authentication credentials. Expected OAuth 2 access token."
        raise GoogleError("authError", text, status=401)
    if issued["instance"]:
        instance = store.get("instance", issued["instance"])
        if instance is None or instance["state"] == "terminated":
            raise GoogleError("authError", "The instance that this token was issued to no longer exists.", status=401)
    return Principal(issued["email"], issued["instance"], tuple(issued["scopes"]))


def exchange(store: Store, form: dict[str, str]) -> dict[str, Any]:
    """Return an access token for the operator in exchange for a JSON Web Token that the operator's key signed (RFC
    7523)."""
    if form.get("grant_type") != GRANT:
        raise GoogleError("unsupported_grant_type", f"a rehearsal supports only {GRANT}", status=400)
    claims = _verified(store, form.get("assertion", ""))
    if claims.get("iss") != OPERATOR:
        raise GoogleError("invalid_grant", "Invalid JWT: wrong issuer.", status=400)
    token, seconds = issue(store, OPERATOR, scopes=tuple(str(claims.get("scope") or "").split()))
    return {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}


def identity_token(store: Store, instance: dict[str, Any], audience: str, *, full: bool) -> str:
    """Return the identity token of an instance, as the metadata server does."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "aud": audience,
        "azp": _unique(store, instance["account"]),
        "email": instance["account"],
        "email_verified": True,
        "exp": now + LIFETIME_S,
        "iat": now,
        "iss": ISSUER,
        "sub": _unique(store, instance["account"]),
    }
    if full:
        claims["google"] = {
            "compute_engine": {
                "instance_confidentiality": 0,
                "instance_creation_timestamp": int(instance["launched"]),
                "instance_id": instance["id"],
                "instance_name": instance["vm"],
                "project_id": PROJECT,
                "project_number": int(PROJECT_NUMBER),
                "zone": instance["zone"],
            }
        }
    else:
        del claims["email"], claims["email_verified"]
    return signed(store, "signing", claims)


def keys(store: Store) -> dict[str, Any]:
    """Return the public keys that verify identity tokens, as a JWK set."""
    numbers = _key(store, "signing").public_key().public_numbers()
    return {
        "keys": [
            {
                "alg": "RS256",
                "e": _number(numbers.e),
                "kid": _kid(store, "signing"),
                "kty": "RSA",
                "n": _number(numbers.n),
                "use": "sig",
            }
        ]
    }


def operator_file(cloud: Cloud) -> str:
    """Write the operator's key file in the format of a service account key, and return its path."""
    from cryptography.hazmat.primitives import serialization

    pem = _key(cloud.store, "operator").private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    content = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": _kid(cloud.store, "operator"),
        "private_key": pem.decode(),
        "client_email": OPERATOR,
        "client_id": "100000000000000000000",
        "token_uri": cloud.endpoint + TOKEN_PATH,
    }
    path = cloud.folder / "gcp-operator.json"
    partial = path.with_suffix(".new")
    with os.fdopen(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    partial.replace(path)
    return str(path)


def signed(store: Store, name: str, claims: dict[str, Any]) -> str:
    """Return a JSON Web Token signed with RS256."""
    from google.auth import crypt, jwt

    return jwt.encode(crypt.RSASigner(_key(store, name), _kid(store, name)), claims).decode()


def _verified(store: Store, token: str) -> Mapping[str, Any]:
    """Return the claims of a token if the operator's key signed it for `AUDIENCE` and it is currently valid."""
    from cryptography.hazmat.primitives import serialization
    from google.auth import jwt

    pem = _key(store, "operator").public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    try:
        return jwt.decode(token, certs=pem, audience=AUDIENCE)
    except ValueError as error:  # google-auth raises these errors for invalid tokens
        raise GoogleError("invalid_grant", f"Invalid JWT: {error}", status=400) from None


_LOADED: dict[str, Any] = {}
"""Parsed private keys, keyed by their text, because loading a key takes longer than signing."""


def _key(store: Store, name: str) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    with store.change():
        key_pair = store.get("gcp-private-key", name)
        if key_pair is None:
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem = made.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            key_pair = {"pem": pem.decode(), "kid": secrets.token_hex(20)}
            store.put("gcp-private-key", name, key_pair)
    if key_pair["pem"] not in _LOADED:
        _LOADED[key_pair["pem"]] = serialization.load_pem_private_key(key_pair["pem"].encode(), None)
    return _LOADED[key_pair["pem"]]


def _kid(store: Store, name: str) -> str:
    _key(store, name)
    return str((store.get("gcp-private-key", name) or {})["kid"])


def _unique(store: Store, email: str) -> str:
    account = store.find("gcp:serviceaccount/account:Account", f"projects/{PROJECT}/serviceAccounts/{email}")
    return str(account.outputs.get("uniqueId")) if account else "100000000000000000000"


def _number(value: int) -> str:
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
