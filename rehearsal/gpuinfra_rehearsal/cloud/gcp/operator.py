"""Lists the permissions that Google requires for an operation, from the table of the generated roles and from the
provider's recorded requests (`calls.py`), and evaluates the conditions of their bindings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.permissions import ACTIONS
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest
from gpuinfra_rehearsal.cloud.core.operator import actions_of, listed
from gpuinfra_rehearsal.cloud.gcp import calls, conditions, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store

OPERATOR = f"serviceAccount:{tokens.OPERATOR}"

_GRANTED = "iam.googleapis.com/modifiedGrantsByRole"
"""Attribute of a request that changes an IAM policy: the roles whose members change."""
_COMPUTE = {
    ("instanceGroupManagers", ""): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listManagedInstances"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "listErrors"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "resizeRequests"): "compute.instanceGroupManagers.get",
    ("instanceGroupManagers", "resize"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "resizeRequests/cancel"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "resizeRequests/-"): "compute.instanceGroupManagers.update",
    ("instanceGroupManagers", "recreateInstances"): "compute.instanceGroupManagers.update",
    ("instances", "serialPort"): "compute.instances.getSerialPortOutput",
}
"""Maps the collection and method of a Compute Engine request to its permission. Source: each method's reference page, retrieved 2026-11-21."""


_FUNCTIONS = {
    "gcp:organizations/getProject:getProject": "resourcemanager.projects.get",
    "gcp:compute/getImage:getImage": "compute.images.getFromFamily",
    "gcp:logging/getProjectCmekSettings:getProjectCmekSettings": "logging.cmekSettings.get",
    "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": "resourcemanager.projects.get",
    "gcp:storage/getTransferProjectServiceAccount:getTransferProjectServiceAccount": "storagetransfer.projects.getServiceAccount",
}
"""Maps an SDK function to the permission of its request. Source: the reference page of each method, retrieved 2026-11-21."""

_TOLERATED = {
    ("configure", "gcp:"): "compute.regions.list",
    ("import", "gcp:storage/bucket:Bucket"): "compute.projects.get",
}
"""Maps an operation and a token to the permission of a request whose denial the provider (pulumi-gcp 9.35.0) ignores: it compares `gcp:region` with the
list of regions, and resolves the project number of an imported bucket."""


def required(
    store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
) -> Iterator[AccessRequest]:
    """Return the permissions of an operation."""
    before = old.plain if old else {}
    resource = old.id if old else f"projects/{inputs.get('project') or PROJECT}"
    role = str({**before, **inputs}.get("role") or "") if token == "gcp:projects/iAMMember:IAMMember" else ""
    listed_ = actions_of(ACTIONS, token, operation, before, inputs)
    recorded = calls.permissions(token, operation, before if operation == "delete" else inputs)
    for action in dict.fromkeys((*listed_, *recorded)):
        place = _place(action, {**before, **inputs}) or resource
        yield AccessRequest(OPERATOR, action, place, {_GRANTED: role} if role else {})


def _place(action: str, inputs: Mapping[str, Any]) -> str:
    """Return the resource name of a request to Cloud Storage, or an empty string. The creation of a bucket applies to the project."""
    if not action.startswith("storage.") or action == "storage.buckets.create":
        return ""
    bucket = f"projects/_/buckets/{str(inputs.get('bucket') or inputs.get('name')).removeprefix('b/')}"
    return f"{bucket}/objects/{inputs['name']}" if action.startswith("storage.objects.") else bucket


def required_by_function(token: str, args: Mapping[str, Any], region: str) -> Iterator[AccessRequest]:
    """Return the permission of an SDK function. Reading the caller's identity requires no permission."""
    if token in _FUNCTIONS:
        yield AccessRequest(OPERATOR, _FUNCTIONS[token], f"projects/{args.get('project') or PROJECT}")
    elif "getClient" not in token:
        yield AccessRequest(OPERATOR, f"{token} is not in any table", f"projects/{PROJECT}")


def tolerated(operation: str, token: str) -> Iterator[AccessRequest]:
    """Return the permissions of requests whose denial the provider ignores."""
    if permission := _TOLERATED.get((operation, token)):
        yield AccessRequest(OPERATOR, permission, f"projects/{PROJECT}")


def compute(collection: str, name: str | None, method: str, place: str) -> list[AccessRequest]:
    """Check a request that gpuinfra itself makes to Compute Engine."""
    permission = _COMPUTE.get((collection, method)) or f"compute.{collection}.{'get' if name else 'list'}"
    return [AccessRequest(OPERATOR, permission, place)]


def storage(permission: str, place: str) -> list[AccessRequest]:
    """Check a request that gpuinfra itself makes to Cloud Storage."""
    return [AccessRequest(OPERATOR, permission, place)]


def allows(documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
    """Return whether a binding grants a role that includes the permission, and its condition holds. A role without a binding is granted on the
    billing account or the project."""
    roles = {str(json.loads(one).get("title")): listed(one, "includedPermissions") for one in documents}
    granted = [binding for one in documents for binding in json.loads(one).get("bindings", ())]
    bound = {str(binding["role"]).rpartition("/")[2] for binding in granted}
    is_object = "/objects/" in request.resource
    attributes = {
        "resource.name": request.resource,
        "resource.type": f"storage.googleapis.com/{'Object' if is_object else 'Bucket'}",
        "resource.service": "storage.googleapis.com",
        _GRANTED: str(request.context.get(_GRANTED, "")),
    }
    for title, permissions in roles.items():
        if request.action not in permissions:
            continue
        role = re.sub("[^a-zA-Z0-9_.]", "_", title)
        conditions_ = [
            one.get("condition", {}).get("expression", "") for one in granted if str(one["role"]).endswith(f"/{role}")
        ]
        if role not in bound or any(
            not one or conditions.holds(_filled(one, request), attributes) for one in conditions_
        ):
            return True, ""
    return False, ""


def _filled(expression: str, request: AccessRequest) -> str:
    """Replace the project and the stack token, which a person fills in, by those of a granted role."""
    granted = str(request.context.get(_GRANTED, ""))
    token = re.search(r"[0-9a-f]{8}\Z", granted)
    filled = expression.replace("projects/PROJECT/", granted.partition("roles/")[0] or "projects/PROJECT/")
    return filled.replace("TOKEN", token[0] if token else "TOKEN")


def denial(request: AccessRequest, reason: str) -> ApiRejected:
    """Return the denial in Google's wording."""
    return GoogleError("forbidden", f"Required '{request.action}' permission for '{request.resource}'", status=403)
