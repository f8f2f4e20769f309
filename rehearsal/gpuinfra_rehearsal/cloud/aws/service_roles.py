"""Roles that a service assumes. The service rejects a role whose trust policy or permissions differ from its guide.

The context of a service's request determines the conditions that a trust policy can have. CloudTrail does not send a source:
https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-required-policy-for-cloudwatch-logs.html. VPC Flow Logs
sends the account and the flow log: https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html. Both retrieved 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws import access, policy
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

_ROLE = "aws:iam/role:Role"


def can_assume(store: Store, role_arn: str, service: str, context: Mapping[str, str]) -> bool:
    """Return whether the trust policy of a role allows a service to assume it."""
    role = store.find(_ROLE, role_arn.rsplit("/", 1)[-1])
    if role is None:
        return False
    request = AccessRequest(service, "sts:AssumeRole", role_arn, context)
    return policy.decide(request, [], [str(role.plain.get("assumeRolePolicy"))])[0]


def missing(store: Store, role_arn: str, resource: str, actions: tuple[str, ...]) -> list[str]:
    """Return the actions that a role's policies do not allow on a resource."""
    documents = [*access.role_policies(store, role_arn.rsplit("/", 1)[-1])]
    return [one for one in actions if not policy.decide(AccessRequest(role_arn, one, resource, {}), documents)[0]]


def exists(store: Store, role_arn: str) -> bool:
    """Return whether the rehearsal created the role. The policies of other roles are unknown."""
    return store.find(_ROLE, role_arn.rsplit("/", 1)[-1]) is not None
