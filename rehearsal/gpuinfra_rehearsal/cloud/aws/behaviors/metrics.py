"""Workspaces of Amazon Managed Service for Prometheus (https://docs.aws.amazon.com/prometheus/latest/APIReference/, retrieved 2026-11-30)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud

WORKSPACE = "aws:amp/workspace:Workspace"
_IN_WORKSPACE = (
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace",
    "aws:amp/alertManagerDefinition:AlertManagerDefinition",
)


@behaves
class Workspace(Behavior):
    """A workspace. The service assigns its ID and its endpoint (API_WorkspaceDescription.html)."""

    types = (WORKSPACE,)

    def created(self, cloud: Cloud, call: Call) -> None:
        endpoint = f"https://aps-workspaces.{call.region}.amazonaws.com/workspaces/{call.id}/"
        call.outputs |= {"prometheusEndpoint": endpoint}


@behaves
class InWorkspace(Behavior):
    """The rules and the alert manager of a workspace."""

    types = _IN_WORKSPACE

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if cloud.store.find(WORKSPACE, str(call.plain.get("workspaceId"))) is None:
            text = f"Workspace not found: {call.plain.get('workspaceId')}"
            raise ApiRejected("ResourceNotFoundException", text, "amp", status=404)


@behaves
class WorkspaceSettings(InWorkspace):
    """The settings of a workspace, which a second request replaces (API_UpdateWorkspaceConfiguration.html)."""

    types = ("aws:amp/workspaceConfiguration:WorkspaceConfiguration",)
    joins = True
