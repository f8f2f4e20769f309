"""Paths of Google Cloud resources."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from gpuinfra_rehearsal.cloud.core.ids import class_name, fill, module, plural

PROJECT = os.environ.get("GPUINFRA_STAND_IN_PROJECT") or "standin-project"
"""The project of the operator. A stack that declares its project is rehearsed in a project of this name."""
PROJECT_NUMBER = "000000000000"


def path_of(link: str) -> str:
    """Return `projects/P/...` for a link, a path or a unique link."""
    match = re.search(r"projects/[^?]+", link)
    return match[0] if match else link


def last(path: str) -> str:
    """Return the last segment of a link or a path."""
    return path_of(path).rpartition("/")[2]


def link(path: str) -> str:
    """Return the self link for a path."""
    return f"https://www.googleapis.com/compute/v1/{path}"


def new_id(token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Return the path of a new Google Cloud resource."""
    kind = class_name(token)
    if shape := _SHAPES.get(token):
        title = (inputs.get("condition") or {}).get("title") if isinstance(inputs.get("condition"), Mapping) else None
        filled = fill(shape, {"project": PROJECT, "name": name, **{k: _tail(k, v) for k, v in inputs.items()}})
        return f"{filled}/{title}" if title else filled
    own = str(
        inputs.get("name")
        or next((inputs[k] for k in inputs if k.endswith("Id") and kind.lower().startswith(k[:-2].lower())), name)
    )
    if kind.startswith("IAM") and inputs.get("role"):
        held = next(
            (
                str(inputs[key])
                for key in ("project", "bucket", "serviceAccountId", "name", "folder", "organization")
                if inputs.get(key)
            ),
            PROJECT,
        )
        return "/".join(part for part in (held, str(inputs["role"]), str(inputs.get("member") or "")) if part)
    if token == "gcp:serviceaccount/account:Account":
        own = f"{own}@{inputs.get('project') or PROJECT}.iam.gserviceaccount.com"
    where = f"projects/{inputs.get('project') or PROJECT}"
    if zone := inputs.get("zone"):
        where += f"/zones/{str(zone).rsplit('/', 1)[-1]}"
    elif region := inputs.get("region"):
        where += f"/regions/{str(region).rsplit('/', 1)[-1]}"
    elif location := inputs.get("location"):
        where += f"/locations/{location}"
    elif module(token) == "compute":
        where += "/global"
    if token == "gcp:storage/bucket:Bucket":
        return own
    collection = plural(kind[0].lower() + kind[1:])
    return f"{where}/{_COLLECTIONS.get(token, collection)}/{own}"


# IDs that do not have the form "place, collection, name": the "Import" section of each resource's documentation (pulumi_gcp 10.2),
# retrieved 2026-11-21. The title of a condition distinguishes grants of the same role.
_SHAPES = {
    "gcp:cloudscheduler/job:Job": "projects/{project}/locations/{region}/jobs/{name}",
    "gcp:compute/instanceTemplate:InstanceTemplate": "projects/{project}/global/instanceTemplates/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:compute/globalAddress:GlobalAddress": "projects/{project}/global/addresses/{name}",
    "gcp:compute/resizeRequest:ResizeRequest": "projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests/{name}",
    "gcp:storage/bucketObject:BucketObject": "{bucket}-{name}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket}/{role}/{member}",
    "gcp:projects/iAMMember:IAMMember": "{project}/{role}/{member}",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": "projects/{project}/locations/{location}/repositories/{repository}/{role}/{member}",
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": "projects/{project}/audit_config/{service}",
    "gcp:projects/service:Service": "{project}/{service}",
    "gcp:projects/serviceIdentity:ServiceIdentity": "projects/{project}/services/{service}",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "projects/{project}/roles/{roleId}",
    "gcp:kms/cryptoKey:CryptoKey": "{keyRing}/cryptoKeys/{name}",
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": "{cryptoKeyId}/{role}/{member}",
    "gcp:logging/projectSink:ProjectSink": "projects/{project}/sinks/{name}",
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": "projects/{project}/locations/{location}/buckets/{bucketId}",
}
_SHORT = ("router", "instanceGroupManager", "region", "zone")
"""Inputs that can be links where the ID contains a name."""


def _tail(key: str, value: Any) -> Any:
    return value.rsplit("/", 1)[-1] if key in _SHORT and isinstance(value, str) else value


_COLLECTIONS = {
    "gcp:compute/subnetwork:Subnetwork": "subnetworks",
    "gcp:serviceaccount/account:Account": "serviceAccounts",
}
