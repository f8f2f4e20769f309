"""Access to Cloud Storage, to the project and to secrets: roles, grants on the bucket and the project, their conditions, and retention.

Roles and their permissions: https://cloud.google.com/storage/docs/access-control/iam-roles, retrieved 2026-11-21. A role
that is neither in this table nor created in the rehearsal allows nothing, so gaps appear as denials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import rights
from gpuinfra_rehearsal.cloud.gcp import conditions
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store, StoredObject

BUCKET = "gcp:storage/bucket:Bucket"
MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
CUSTOM_ROLE = "gcp:projects/iAMCustomRole:IAMCustomRole"

GET, LIST = "storage.objects.get", "storage.objects.list"
CREATE, DELETE, UPDATE = "storage.objects.create", "storage.objects.delete", "storage.objects.update"
LOOK = "storage.buckets.get"
ACCESS_SECRET = "secretmanager.versions.access"
"""https://cloud.google.com/secret-manager/docs/access-control, retrieved 2026-11-29."""
SECRET_MEMBER = "gcp:secretmanager/secretIamMember:SecretIamMember"
LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
"""The `prefix` of a list request (https://cloud.google.com/iam/docs/conditions-attribute-reference, retrieved 2026-11-27)."""

ROLES: dict[str, frozenset[str]] = {
    "roles/storage.objectViewer": frozenset({GET, LIST}),
    "roles/storage.objectCreator": frozenset({CREATE}),
    "roles/storage.objectUser": frozenset({GET, LIST, CREATE, DELETE, UPDATE}),
    "roles/storage.objectAdmin": frozenset({GET, LIST, CREATE, DELETE, UPDATE}),
    "roles/storage.admin": frozenset({GET, LIST, CREATE, DELETE, UPDATE, LOOK}),
    "roles/storage.legacyBucketReader": frozenset({LIST, LOOK}),
    "roles/storage.legacyBucketWriter": frozenset({LIST, LOOK, CREATE, DELETE}),
    "roles/storage.legacyObjectReader": frozenset({GET}),
    "roles/secretmanager.secretAccessor": frozenset({ACCESS_SECRET}),
    "roles/editor": frozenset(),
    "roles/viewer": frozenset(),
    "roles/owner": frozenset({GET, LIST, CREATE, DELETE, UPDATE, LOOK}),
}


def exists(store: Store, bucket: str) -> bool:
    """Return whether a bucket exists: it was created in the rehearsal, or a grant names it, which means that it is your existing bucket."""
    return store.find(BUCKET, bucket) is not None or any(True for _ in _on_bucket(store, bucket))


def allowed(cloud: Cloud, email: str, permission: str, bucket: str, name: str = "", prefix: str = "") -> bool:
    """Return whether a service account has a permission. A listing applies to the bucket, so a condition on object
    names never allows it. A condition on its prefix can allow it."""
    urn = granted(cloud.store, email, permission, bucket, name, prefix)
    if urn is None:
        place = f"projects/_/buckets/{bucket}" + (f"/objects/{name}" if name else "")
        cloud.rights.denied(email, permission, place)
        return False
    cloud.rights.used(rights.grant(urn))
    return True


def granted(store: Store, email: str, permission: str, bucket: str, name: str = "", prefix: str = "") -> str | None:
    """Return the URN of the grant with which a service account has a permission, or None."""
    member = f"serviceAccount:{email}"
    place = f"projects/_/buckets/{bucket}" + (f"/objects/{name}" if name else "")
    attributes = {
        "resource.name": place,
        "resource.type": "storage.googleapis.com/Object" if name else "storage.googleapis.com/Bucket",
        "resource.service": "storage.googleapis.com",
        LIST_PREFIX: prefix,
    }
    for urn, grant in _grants(store, bucket):
        if member not in _members(grant) or permission not in permissions(store, str(grant.get("role"))):
            continue
        condition = (grant.get("condition") or {}).get("expression")
        if not condition or conditions.holds(str(condition), attributes):
            return urn
    return None


def allowed_in_project(cloud: Cloud, email: str, permission: str) -> bool:
    """Return whether a service account has a permission in the project."""
    return _allowed(cloud, email, permission, _in_project(cloud.store), f"projects/{PROJECT}")


def allowed_on(cloud: Cloud, email: str, permission: str, place: str, kind: str = "Instance") -> bool:
    """Return whether a service account has a permission on an instance or a disk. Conditions of grants on the project apply to its name
    (https://cloud.google.com/iam/docs/resource-types-with-conditional-roles, retrieved 2026-11-29)."""
    attributes = {
        "resource.name": place,
        "resource.type": f"compute.googleapis.com/{kind}",
        "resource.service": "compute.googleapis.com",
    }
    for urn, grant in _in_project(cloud.store):
        if f"serviceAccount:{email}" not in _members(grant) or permission not in permissions(
            cloud.store, str(grant.get("role"))
        ):
            continue
        condition = (grant.get("condition") or {}).get("expression")
        if not condition or conditions.holds(str(condition), attributes):
            cloud.rights.used(rights.grant(urn))
            return True
    cloud.rights.denied(email, permission, place)
    return False


def allowed_on_secret(cloud: Cloud, email: str, permission: str, secret: str) -> bool:
    """Return whether a service account has a permission on a secret of the project."""
    own = ((one.urn, one.plain) for one in members_on_secret(cloud.store, secret))
    return _allowed(
        cloud, email, permission, chain(own, _in_project(cloud.store)), f"projects/{PROJECT}/secrets/{secret}"
    )


def members_on_secret(store: Store, secret: str) -> list[Resource]:
    """Return the grants on a secret."""
    held = store.list(SECRET_MEMBER)
    return [one for one in held if str(one.plain.get("secretId")).rsplit("/", 1)[-1] == secret]


def _allowed(
    cloud: Cloud, email: str, permission: str, grants: Iterable[tuple[str, dict[str, Any]]], place: str
) -> bool:
    """Return whether a grant without a condition allows the permission. The stack has no grants with conditions on these resources."""
    for urn, grant in grants:
        held = permission in permissions(cloud.store, str(grant.get("role")))
        if held and f"serviceAccount:{email}" in _members(grant) and not grant.get("condition"):
            cloud.rights.used(rights.grant(urn))
            return True
    cloud.rights.denied(email, permission, place)
    return False


def permissions(store: Store, role: str) -> frozenset[str]:
    """Return the permissions of a built-in or custom role."""
    if role in ROLES:
        return ROLES[role]
    made = store.find(CUSTOM_ROLE, role)
    return frozenset(made.plain.get("permissions") or []) if made else frozenset()


def _grants(store: Store, bucket: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return (URN, inputs) of the grants on a bucket and on the project."""
    yield from _on_bucket(store, bucket)
    yield from _in_project(store)


def _in_project(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("IAMMember", "IAMBinding"):
        for resource in store.list(f"gcp:projects/i{kind[1:]}:{kind}"):
            yield resource.urn, resource.plain


def _on_bucket(store: Store, bucket: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("BucketIAMMember", "BucketIAMBinding"):
        for resource in store.list(f"gcp:storage/{kind[0].lower()}{kind[1:]}:{kind}"):
            plain = resource.plain
            if str(plain.get("bucket")).removeprefix("b/") == bucket:
                yield resource.urn, plain


def members_on(store: Store, bucket: str) -> list[Resource]:
    """Return the grants on a bucket that have one member each."""
    held = store.list(MEMBER)
    return [one for one in held if str(one.plain.get("bucket")).removeprefix("b/") == bucket]


def _members(grant: dict[str, Any]) -> list[str]:
    return [str(one) for one in grant.get("members") or [grant.get("member")]]


def retained_until(store: Store, bucket: str, stored_object: StoredObject | None) -> float:
    """Return when an object's retention ends, or 0 if it is not retained."""
    made = store.find(BUCKET, bucket)
    policy = (made.plain.get("retentionPolicy") or {}) if made else {}
    if stored_object is None or not policy:
        return 0.0
    return stored_object.modified + float(policy.get("retentionPeriod") or 0)
