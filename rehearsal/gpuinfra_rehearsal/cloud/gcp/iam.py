"""The IAM policy of a bucket: buckets.getIamPolicy and setIamPolicy, as `gpuinfra failover` and `gpuinfra failback` request them.

A policy is derived from the resources with one member each. A request can remove members, and add members again that it removed. A policy that was read
before another change is refused (https://cloud.google.com/storage/docs/json_api/v1/buckets/setIamPolicy, retrieved 2026-11-29).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core.store import Resource
from gpuinfra_rehearsal.cloud.gcp import access
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Store

_REMOVED = "gcp-removed-member"
Grant = tuple[str, str, str]
"""Role, member, and condition as JSON."""


def policy(store: Store, bucket: str) -> dict[str, Any]:
    """Return the policy."""
    bindings: dict[tuple[str, str], list[str]] = {}
    for role, member, condition in sorted(map(_grant, access.members_on(store, bucket))):
        bindings.setdefault((role, condition), []).append(member)
    rows = [
        {"role": role, "members": members, **({"condition": json.loads(condition)} if condition else {})}
        for (role, condition), members in bindings.items()
    ]
    version = 3 if any("condition" in one for one in rows) else 1
    etag = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{bucket}", "version": version, "etag": etag, "bindings": rows}  # fmt: skip


def change(cloud: Cloud, bucket: str, body: bytes) -> dict[str, Any]:
    """Replace the policy, and return the new one."""
    try:
        asked: Mapping[str, Any] = json.loads(body)
        wanted = set(_wanted(asked))
    except (ValueError, KeyError, TypeError):
        raise invalid("Invalid JSON payload received.") from None
    store = cloud.store
    with store.change():
        if asked.get("etag") not in (None, policy(store, bucket)["etag"]):
            raise GoogleError("conditionNotMet", "Etag does not match the current policy.", status=412)
        held = {_grant(one): one for one in access.members_on(store, bucket)}
        for grant, resource in held.items():
            if grant not in wanted:
                store.remove(resource)
                store.put(_REMOVED, f"{bucket} {grant}", asdict(resource))
                store.log("setIamPolicy", resource.type, resource.id, "")
        for grant in wanted - set(held):
            removed = store.get(_REMOVED, f"{bucket} {grant}")
            if removed is None:
                raise GoogleError("notImplemented", "new members are not supported in a rehearsal", status=501)
            store.insert(Resource(**removed))
            store.log("setIamPolicy", removed["type"], removed["id"], "")
        return policy(store, bucket)


def _grant(resource: Resource) -> Grant:
    plain = resource.plain
    condition = plain.get("condition")
    return str(plain["role"]), str(plain["member"]), json.dumps(condition, sort_keys=True) if condition else ""


def _wanted(asked: Mapping[str, Any]) -> Iterator[Grant]:
    for binding in asked["bindings"]:
        condition = binding.get("condition")
        for member in binding["members"]:
            yield str(binding["role"]), str(member), json.dumps(condition, sort_keys=True) if condition else ""
