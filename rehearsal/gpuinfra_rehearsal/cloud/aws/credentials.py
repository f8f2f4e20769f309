"""Access keys that the stand-in issues, and their principals.

Keys are random, stored in the store, and valid only in the rehearsal. The operator has a fixed pair. An instance gets
its role's keys from the metadata service. They are valid for an hour and are renewed before they expire.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, OPERATOR, OPERATOR_ID

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

LIFETIME_S = 3600
_RENEW_S = 600
"""How long before expiration an instance gets new keys, as on EC2 (at least five minutes)."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller that a signature identifies."""

    kind: str
    """operator or instance"""
    arn: str
    user_id: str
    role: str = ""
    instance: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """One key pair."""

    id: str
    secret: str
    principal: Principal
    expires: float | None = None

    @property
    def expired(self) -> bool:
        return self.expires is not None and time.time() > self.expires


def operator(store: Store) -> KeyPair:
    """Return the operator's keys."""
    with store.change():
        stored = store.get("credential", "operator")
        if stored is None:
            stored = {"id": "AKIA" + "STANDIN".ljust(16, "0"), "secret": secrets.token_urlsafe(30)}
            store.put("credential", "operator", stored)
            store.put("key", stored["id"], {"kind": "operator", "secret": stored["secret"]})
    pair = by_id(store, stored["id"])
    assert pair is not None
    return pair


def of_instance(store: Store, instance: dict[str, Any]) -> tuple[KeyPair, dict[str, Any]] | None:
    """Return (keys of an instance's role, issue time, expiration time), or None if the instance has no role."""
    role = role_of(store, instance)
    if role is None:
        return None
    with store.change():
        stored = store.get("credential", instance["id"])
        if stored is None or stored["role"] != role.id or time.time() > stored["expires"] - _RENEW_S:
            number = store.next("temporary key")
            stored = {
                "id": "ASIA" + f"{number:016d}", "secret": secrets.token_urlsafe(30), "token": "standin-" + secrets.token_urlsafe(48),
                "role": role.id, "instance": instance["id"], "issued": time.time(), "expires": time.time() + LIFETIME_S,
            }  # fmt: skip
            store.put("credential", instance["id"], stored)
            store.put("key", stored["id"], {"kind": "instance", **stored})
    pair = by_id(store, stored["id"])
    return (pair, stored) if pair else None


def of_assumed_role(store: Store, seconds: int) -> tuple[KeyPair, dict[str, Any]]:
    """Return (keys, expiration time) of a role that the operator assumes. The role exists before the stack and has the rights of the operator."""
    with store.change():
        key_id = "ASIA" + f"{store.next('temporary key'):016d}"
        stored = {
            "kind": "operator", "secret": secrets.token_urlsafe(30), "token": "standin-" + secrets.token_urlsafe(48),
            "issued": time.time(), "expires": time.time() + seconds,
        }  # fmt: skip
        store.put("key", key_id, stored)
    pair = by_id(store, key_id)
    assert pair is not None
    return pair, stored


def by_id(store: Store, key_id: str) -> KeyPair | None:
    """Return the key pair with this ID."""
    stored = store.get("key", key_id)
    if stored is None:
        return None
    if stored["kind"] == "operator":
        principal = Principal("operator", OPERATOR, OPERATOR_ID, token=stored.get("token", ""))
        return KeyPair(key_id, stored["secret"], principal, stored.get("expires"))
    role = store.find("aws:iam/role:Role", stored["role"])
    unique = str(role.outputs.get("uniqueId")) if role else "AROA" + "0" * 17
    principal = Principal(
        "instance", f"arn:aws:sts::{ACCOUNT}:assumed-role/{stored['role']}/{stored['instance']}", f"{unique}:{stored['instance']}",
        role=stored["role"], instance=stored["instance"], token=stored["token"],
    )  # fmt: skip
    return KeyPair(key_id, stored["secret"], principal, stored["expires"])


def role_of(store: Store, instance: dict[str, Any]) -> Resource | None:
    """Return the role of an instance's profile."""
    named = instance["profile"].get("name") or str(instance["profile"].get("arn") or "").rsplit("/", 1)[-1]
    profile = store.find("aws:iam/instanceProfile:InstanceProfile", named) if named else None
    role = profile.plain.get("role") if profile else None
    return store.find("aws:iam/role:Role", str(role).rsplit("/", 1)[-1]) if role else None
