"""Roles, instance profiles, policies and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, arn_of
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

ROLE = "aws:iam/role:Role"
PROFILE = "aws:iam/instanceProfile:InstanceProfile"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
_DOCUMENTS = {ROLE: "assumeRolePolicy", "aws:iam/rolePolicy:RolePolicy": "policy"}


def _document(call: Call) -> Iterator[RejectedInput]:
    """Return a policy, which must be a JSON object with statements."""
    key = _DOCUMENTS[call.token]
    text = wire.peel(call.inputs.get(key))
    if not isinstance(text, str) or wire.is_unknown(text):
        return
    try:
        if not isinstance(json.loads(text).get("Statement"), (list, dict)):
            yield RejectedInput(key, "contains an invalid JSON policy: it has no Statement")
    except (ValueError, AttributeError):
        yield RejectedInput(key, "contains an invalid JSON policy: it is not a JSON object")


def _taken(kind: str, call: str) -> ApiRejected:
    return ApiRejected(
        "EntityAlreadyExists", f"{kind} with name {{inputs[name]}} already exists.", f"IAM: {call}", status=409
    )


def _need_role(cloud: Cloud, role: str, call: str) -> None:
    if cloud.store.find(ROLE, role) is None and cloud.external(role) is None:
        raise ApiRejected("NoSuchEntity", f"The role with name {role} cannot be found.", call, status=404)


@behaves
class Role(Behavior):
    types = (ROLE,)
    taken = _taken("Role", "CreateRole")

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        return _document(call)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"uniqueId": f"AROA{cloud.store.next('AROA'):017d}", "createDate": "2026-01-01T00:00:00Z"}
        call.outputs |= {
            "path": call.plain.get("path", "/"),
            "maxSessionDuration": call.plain.get("maxSessionDuration", 3600),
        }

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        """`forceDetachPolicies` detaches policies. The provider never removes a role from an instance profile."""
        if cloud.store.where(PROFILE, role=resource.id):
            text = "Cannot delete entity, must remove roles from instance profile first."
            raise ApiRejected("DeleteConflict", text, "IAM: DeleteRole", status=409)
        if cloud.store.where(ATTACHMENT, role=resource.id) and not resource.plain.get("forceDetachPolicies"):
            text = "Cannot delete entity, must detach all policies first."
            raise ApiRejected("DeleteConflict", text, "IAM: DeleteRole", status=409)


@behaves
class InstanceProfile(Behavior):
    types = (PROFILE,)
    taken = _taken("Instance Profile", "CreateInstanceProfile")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if role := call.plain.get("role"):
            _need_role(cloud, str(role), "IAM: AddRoleToInstanceProfile")

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"uniqueId": f"AIPA{cloud.store.next('AIPA'):017d}", "createDate": "2026-01-01T00:00:00Z"}


@behaves
class RolePart(Behavior):
    types = ("aws:iam/rolePolicy:RolePolicy", ATTACHMENT)

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        return _document(call) if call.token in _DOCUMENTS else iter(())

    def before_create(self, cloud: Cloud, call: Call) -> None:
        _need_role(cloud, str(call.plain.get("role")), "IAM: PutRolePolicy")

    def by_import_id(self, cloud: Cloud, token: str, id: str, region: str) -> Resource | None:
        """Accept the import IDs `<role>/<policy arn>` and `<role>:<policy>`."""
        return next(
            (one for one in cloud.store.list(token) if one.id.replace("/", ":", 1) == id.replace("/", ":", 1)), None
        )


@behaves
class Key(Behavior):
    types = ("aws:kms/key:Key",)

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {"keyId": call.id}

    updated = created


@behaves
class Alias(Behavior):
    types = ("aws:kms/alias:Alias",)
    taken = ApiRejected(
        "AlreadyExistsException",
        f"An alias with the name arn:aws:kms:{{region}}:{ACCOUNT}:{{id}} already exists",
        "KMS: CreateAlias",
    )
    shapes = {"name": ("^alias/", "must begin with 'alias/', got '{value}'")}

    def created(self, cloud: Cloud, call: Call) -> None:
        target = str(call.plain.get("targetKeyId"))
        arn = target if target.startswith("arn:") else arn_of("aws:kms/key:Key", target, {}, call.region)
        call.outputs |= {"targetKeyArn": arn, "targetKeyId": target}
