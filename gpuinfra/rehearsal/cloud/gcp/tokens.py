"""Who is asking Google's stand-in, and what it signs: access tokens, identity tokens, and the operator's key file.

All keys are made here, kept in the store, and good here only. Tokens are looked up and signatures are checked, never believed.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.errors import GoogleError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud

LIFETIME_S = 3600
_RENEW_S = 300
"""The metadata server gives the same token until it has less than this left."""
OPERATOR = f"standin-operator@{ids.PROJECT}.iam.gserviceaccount.com"
TOKEN_PATH = "/.gcp/token"
KEYS_PATH = "/.gcp/oauth2/v3/certs"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""What google-auth signs for, wherever the key file sends it."""
ISSUER = "https://accounts.google.com"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom an access token speaks for."""

    email: str
    instance: str = ""
    scopes: tuple[str, ...] = ()

    @property
    def is_operator(self) -> bool:
        return self.email == OPERATOR

    def may_use_storage(self) -> bool:
        """Whether the token's scopes let it near Cloud Storage at all."""
        words = ("cloud-platform", "devstorage.")
        return any(word in scope for scope in self.scopes for word in words)


def issue(cloud: Cloud, email: str, instance: str = "", scopes: tuple[str, ...] = ()) -> tuple[str, int]:
    """An access token and the seconds that it is good for; an instance gets the same one until it nearly ends."""
    now = time.time()
    with cloud.store.change():
        known = cloud.store.get("gcp-current", instance) if instance else None
        if known and known["email"] == email and known["expires"] - now > _RENEW_S:
            return known["token"], int(known["expires"] - now)
        token = "ya29.standin-" + secrets.token_urlsafe(48)
        made = {"email": email, "instance": instance, "scopes": list(scopes), "expires": now + LIFETIME_S}
        cloud.store.put("gcp-token", token, made)
        if instance:
            cloud.store.put("gcp-current", instance, {"token": token, **made})
    return token, LIFETIME_S


def principal(cloud: Cloud, authorization: str) -> Principal:
    """Who asks; refused with 401 where nobody does."""
    kind, _, token = authorization.partition(" ")
    known = cloud.store.get("gcp-token", token) if kind.lower() == "bearer" and token else None
    if known is None or known["expires"] < time.time():
        text = "Request had invalid authentication credentials. Expected OAuth 2 access token."
        raise GoogleError("authError", text, status=401)
    if known["instance"]:
        instance = cloud.store.get("instance", known["instance"])
        if instance is None or instance["state"] == "terminated":
            raise GoogleError("authError", "The instance that this token was given to is gone.", status=401)
    return Principal(known["email"], known["instance"], tuple(known["scopes"]))


def exchange(cloud: Cloud, form: dict[str, str]) -> dict[str, Any]:
    """An access token for the operator, for a statement that is signed with the key of his file (RFC 7523)."""
    if form.get("grant_type") != GRANT:
        raise GoogleError("unsupported_grant_type", f"only {GRANT} is part of a rehearsal", status=400)
    claims = _checked(cloud, form.get("assertion", ""))
    if claims.get("iss") != OPERATOR or claims.get("aud") != AUDIENCE:
        raise GoogleError("invalid_grant", "Invalid JWT: wrong issuer or audience.", status=400)
    now = time.time()
    if not float(claims.get("iat", 0)) - 300 <= now <= float(claims.get("exp", 0)):
        raise GoogleError(
            "invalid_grant", "Invalid JWT: Token must be a short-lived token and in a reasonable timeframe.", status=400
        )
    token, seconds = issue(cloud, OPERATOR, scopes=tuple(str(claims.get("scope") or "").split()))
    return {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}


def identity_token(cloud: Cloud, instance: dict[str, Any], audience: str, *, full: bool) -> str:
    """A signed statement of which instance asks, as the metadata server gives it."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "aud": audience,
        "azp": _unique(cloud, instance["account"]),
        "email": instance["account"],
        "email_verified": True,
        "exp": now + LIFETIME_S,
        "iat": now,
        "iss": ISSUER,
        "sub": _unique(cloud, instance["account"]),
    }
    if full:
        claims["google"] = {
            "compute_engine": {
                "instance_confidentiality": 0,
                "instance_creation_timestamp": int(instance["launched"]),
                "instance_id": instance["id"],
                "instance_name": instance["vm"],
                "project_id": ids.PROJECT,
                "project_number": int(ids.PROJECT_NUMBER),
                "zone": instance["zone"],
            }
        }
    else:
        del claims["email"], claims["email_verified"]
    return signed(cloud, "signing", claims)


def keys(cloud: Cloud) -> dict[str, Any]:
    """The public side of what signs identity tokens, as a JWK set."""
    numbers = _key(cloud, "signing").public_key().public_numbers()
    return {
        "keys": [
            {
                "alg": "RS256",
                "e": _number(numbers.e),
                "kid": _kid(cloud, "signing"),
                "kty": "RSA",
                "n": _number(numbers.n),
                "use": "sig",
            }
        ]
    }


def operator_file(cloud: Cloud) -> str:
    """The operator's key file, as Google gives them to service accounts; its tokens come from here and nowhere else."""
    from cryptography.hazmat.primitives import serialization

    pem = _key(cloud, "operator").private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    content = {
        "type": "service_account",
        "project_id": ids.PROJECT,
        "private_key_id": _kid(cloud, "operator"),
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


def signed(cloud: Cloud, name: str, claims: dict[str, Any]) -> str:
    """A JSON Web Token with RS256."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    header = {"alg": "RS256", "kid": _kid(cloud, name), "typ": "JWT"}
    text = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return f"{text}.{_encoded(_key(cloud, name).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _checked(cloud: Cloud, token: str) -> dict[str, Any]:
    """The claims of a token that the operator's key signed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    text, _, signature = token.rpartition(".")
    try:
        _key(cloud, "operator").public_key().verify(
            _decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        claims = json.loads(_decoded(text.rpartition(".")[2]))
    except (InvalidSignature, ValueError):
        raise GoogleError("invalid_grant", "Invalid JWT Signature.", status=400) from None
    return claims if isinstance(claims, dict) else {}


_LOADED: dict[str, Any] = {}
"""Private keys by their text: loading one takes longer than signing."""


def _key(cloud: Cloud, name: str) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    with cloud.store.change():
        known = cloud.store.get("gcp-private-key", name)
        if known is None:
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            pem = made.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            known = {"pem": pem.decode(), "kid": secrets.token_hex(20)}
            cloud.store.put("gcp-private-key", name, known)
    if known["pem"] not in _LOADED:
        _LOADED[known["pem"]] = serialization.load_pem_private_key(known["pem"].encode(), None)
    return _LOADED[known["pem"]]


def _kid(cloud: Cloud, name: str) -> str:
    _key(cloud, name)
    return str((cloud.store.get("gcp-private-key", name) or {})["kid"])


def _unique(cloud: Cloud, email: str) -> str:
    found = cloud.store.find("gcp:serviceaccount/account:Account", f"projects/{ids.PROJECT}/serviceAccounts/{email}")
    return str(found.outputs.get("uniqueId")) if found else "100000000000000000000"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))
