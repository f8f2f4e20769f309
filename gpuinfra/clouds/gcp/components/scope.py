"""The scope of Google Cloud components: the cluster, the project, and the settings that all resources share.

`Scope.options` sets the project and labels on all child resources of a component. `template.py` sets the separate labels of nodes and
their disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds import scope
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.pending import STACK_TAG
from gpuinfra.clouds.scope import BaseScope, of_stack, with_defaults
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import ResourceKind

LABELS = ("labels", "user_labels", "resource_labels")
"""Names of the arguments for labels. The name depends on the service."""


@dataclass(frozen=True, kw_only=True)
class Scope(BaseScope):
    """The cluster and the project that resources belong to."""

    project: pulumi.Input[str]
    """Project ID."""
    number: pulumi.Input[str]
    """Project number, which is part of the names of Google's service agents."""
    billing_account: pulumi.Input[str] = ""
    """Billing account of the project. Only budgets use it."""

    @classmethod
    def of(cls, plan: Plan, opts: pulumi.InvokeOutputOptions | None = None) -> Self:
        """Return the scope of a plan in the running stack, in the declared project or in the project of the provider."""
        project = gcp.organizations.get_project_output(project_id=plan.project, opts=opts)
        return cls(
            project=project.project_id, number=project.number, billing_account=project.billing_account, **of_stack(plan)
        )

    def options(self, opts: pulumi.ResourceOptions | None = None) -> pulumi.ResourceOptions:
        """Return `opts` of a component with a transform that sets the project and the labels on its resources, unless a constructor sets them."""

        def fill(type_: str, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
            labels = {**self.labels(), **names.labels({STACK_TAG: self.token})}
            filled: dict[str, Any] = {key: labels for key in LABELS if key in args and args[key] is None}
            if "project" in args and args["project"] is None:
                filled["project"] = self.project
            return filled

        return with_defaults(opts, "gcp", fill)

    def labels(self, **more: str) -> dict[str, str]:
        """Return the tags and additional labels as labels. The `gpuinfra_pool` keyword becomes the `gpuinfra-pool` label."""
        return names.labels({**self.tags, **{key.replace("_", ":", 1): value for key, value in more.items()}})

    def physical_name(self, logical: str) -> str:
        """Return the API name of the resource with this logical name."""
        return names.physical(logical, self.token)

    def bucket_name(self, purpose: str) -> pulumi.Output[str]:
        """Return the name of a bucket of this stack."""
        return pulumi.Output.from_input(self.project).apply(
            lambda project: names.bucket(self.cluster, purpose, project, self.token)
        )

    def agent(self, service: str) -> pulumi.Output[str]:
        """Return the service agent of a service, such as `compute-system`, in this project, as a policy member."""
        return pulumi.Output.concat("serviceAccount:service-", self.number, f"@{service}.iam.gserviceaccount.com")


def child(
    parent: pulumi.Resource,
    row: ResourceKind[Any],
    *,
    data: bool | None = None,
    delete_before_replace: bool = True,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
) -> pulumi.ResourceOptions:
    """Return the options for a child resource of a component.

    Names are fixed, so a replacement deletes the old resource first. A retained resource is not deleted first: its replacement fails
    because the name is taken, so no data is lost. Pass `delete_before_replace=False` to get this behavior for a resource that
    `destroy` removes, or if the name changes with the content.
    """
    own = scope.child(parent, row, data=data, depends_on=depends_on, ignore_changes=ignore_changes)
    retained = row.retains(data=data)
    first = delete_before_replace and not retained
    return pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(delete_before_replace=first))
